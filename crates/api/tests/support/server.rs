//! A server in this process, over any handler.

use std::net::SocketAddr;
use std::sync::Arc;

use api::drain::{Drain, Phase};
use api::server::{self, Config, Handler};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::http::RawClient;

pub struct TestServer {
    pub address: SocketAddr,
    pub drain: Drain,
    pub running: JoinHandle<()>,
}

impl TestServer {
    pub async fn start(handler: Arc<dyn Handler>, config: Config) -> Self {
        Self::start_with(handler, config, Drain::default()).await
    }

    pub async fn start_with(handler: Arc<dyn Handler>, config: Config, drain: Drain) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let running = tokio::spawn(server::run(listener, handler, config, drain.clone()));
        TestServer { address, drain, running }
    }

    pub async fn client(&self) -> RawClient {
        RawClient::connect(self.address).await
    }

    /// Ends everything and waits for it.
    pub async fn stop(self) {
        self.drain.advance(Phase::Ending);
        self.running.await.unwrap();
    }
}
