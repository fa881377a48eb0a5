//! `firstlight serve`.

use crate::flags::ServeFlags;
use crate::signals;
use crate::wiring::{self, Server};

/// Serves until the first SIGTERM or Ctrl-C, then drains; a second one ends at once.
pub fn run(flags: &ServeFlags) -> anyhow::Result<()> {
    wiring::runtime()?.block_on(async {
        let server = Server::start(flags).await?;
        println!("listening on {}", server.url());
        if !server.address.ip().is_loopback() && flags.api_keys.is_empty() {
            eprintln!("warning: anyone who reaches this address may use the server; give it an --api-key");
        }
        signals::first().await?;
        eprintln!("shutting down: finishing what runs (again to end now)");
        let drain = server.drain();
        tokio::spawn(async move {
            if signals::first().await.is_ok() {
                Server::cut(&drain);
            }
        });
        server.stop().await;
        Ok(())
    })
}
