//! The client against `https`: a certificate that the system trusts is enough, and one that it does not is refused.
//!
//! What the system trusts is read from the environment, which a test shares with its neighbours; so the client is a process of
//! its own: this file's binary, run for the one test that nobody else runs.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use load::client::{Address, Client, Clock};
use load::run::{Plan, Progress, run};
use load::sample::{Channel, Outcome};
use rcgen::{CertificateParams, CertifiedKey, DnType, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::mock::{Mock, at, done, finish, token, usage};
use super::{one_user, plan};

const URL: &str = "LOAD_TEST_HTTPS_URL";

/// For a server of this name, issued by itself as `issuer`.
fn certificate(name: &str, issuer: &str) -> CertifiedKey<KeyPair> {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, issuer);
    let signing_key = KeyPair::generate().unwrap();
    CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
}

/// A server behind TLS, on a port of its own.
fn start(certificate: &CertifiedKey<KeyPair>, mock: &Mock) -> u16 {
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let behind = mock.url.strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await?;
                    copy_bidirectional(&mut client, &mut TcpStream::connect(behind).await?).await
                });
            }
        });
    });
    port
}

/// Three calls by a client that trusts `trusted` alone: whether they went well, and what it printed.
fn measured(url: &str, trusted: &CertifiedKey<KeyPair>) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("trusted.pem");
    fs::write(&pem, trusted.cert.pem()).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tls::a_client_in_a_process_of_its_own", "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", &pem)
        .env_remove("SSL_CERT_DIR")
        .env(URL, url)
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
#[ignore = "a part of the others"]
fn a_client_in_a_process_of_its_own() {
    let url = std::env::var(URL).expect("the other tests of this file set it");
    let nobody = Mock { url };
    let plan: Plan = plan(&nobody, one_user(), 3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = runtime.block_on(async {
        let address = Address::new(&plan.target.url).unwrap();
        let client = Arc::new(Client::new(address, None, Duration::from_secs(10), Clock::start()));
        let reached = client.reach().await;
        assert!(reached.is_ok(), "{:#}", reached.unwrap_err());
        let (_cancel, cancelled) = watch::channel(false);
        run(plan, client, watch::channel(Progress::default()).0, cancelled).await.unwrap()
    });
    for sample in &found.samples {
        assert_eq!((&sample.outcome, sample.tokens.output), (&Outcome::Finished, Some(2)), "{sample:?}");
        assert!(sample.chunks.iter().all(|chunk| chunk.channel == Channel::Answer));
        // The stamps are the socket's, behind the TLS as before it: the second token was written 40 ms after the request came.
        let (sent, second) = (sample.sent_ns.unwrap(), sample.chunks[1].at_ns);
        assert!((39_000_000..60_000_000).contains(&(second - sent)), "{sample:?}");
    }
    assert_eq!(found.health.connection_errors, 0);
    println!("{} calls finished", found.outcomes["finished"]);
}

fn mock() -> Mock {
    Mock::start(|_, _| vec![token("a"), at(40), token("b"), finish("stop"), usage(3, 2), done()])
}

#[test]
fn a_server_whose_certificate_is_trusted_is_measured() {
    let own = certificate("localhost", "own");
    let port = start(&own, &mock());
    let (well, told) = measured(&format!("https://localhost:{port}"), &own);
    assert!(well && told.contains("3 calls finished"), "{told}");
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused_with_the_host_and_what_to_do() {
    let port = start(&certificate("localhost", "own"), &mock());
    // The second is as after a certificate was made anew.
    for trusted in [certificate("localhost", "another"), certificate("localhost", "own")] {
        let (well, told) = measured(&format!("https://localhost:{port}"), &trusted);
        assert!(!well, "{told}");
        let refused = format!("the certificate of localhost:{port} is refused");
        assert!(told.contains(&refused) && told.contains("SSL_CERT_FILE"), "{told}");
    }
}

#[test]
fn a_certificate_of_another_name_is_refused_although_it_is_trusted() {
    let own = certificate("elsewhere.example", "own");
    let port = start(&own, &mock());
    let (well, told) = measured(&format!("https://localhost:{port}"), &own);
    assert!(!well && told.contains("call the server by a name that is in it"), "{told}");
}
