//! One command from a fresh clone to a model that answers: fetch, build, serve, chat, and show where the time went. The
//! server stays up. Every step is a command of the binary, so that the reader can type each of them alone.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::{self, cargo};
use crate::{clients, root};

pub const DEFAULT_MODEL: &str = "smollm2-135m-instruct";
/// The port users of other servers expect; another free one is taken when it is in use.
const PREFERRED_PORT: u16 = 8000;
/// Loading is a matter of seconds; this is for a machine that is busy with something else.
const READY: Duration = Duration::from_secs(180);
const MESSAGE: &str = "In one sentence: why is the sky blue?";

pub fn run(model: &str) -> Result<()> {
    command::run(&mut cargo(&["build", "--release", "--locked", "--package", "firstlight"]))?;
    let binary = clients::binary("release");
    let path = binary.to_string_lossy();
    command::run(&mut command::command(&path, &["model", "pull", model]))?;

    let address = free_address()?;
    let mut server = Server::start(&binary, model, address)?;
    server.wait_until_ready()?;
    let url = format!("http://{address}");
    command::run(&mut command::command(
        &path,
        &["chat", model, "--url", &url, "--message", MESSAGE, "--temperature", "0", "--waterfall"],
    ))?;

    let (id, log) = server.leave_running();
    println!(
        "\nThe server stays up at {url} (process {id}, log in {}).\n\
         Talk to it:  {path} chat --url {url}\n\
         Or with any OpenAI client, base URL {url}/v1\n\
         Stop it:     kill {id}",
        log.display()
    );
    Ok(())
}

/// A server of ours, which ends with this task unless it is left running.
struct Server {
    child: Option<Child>,
    address: SocketAddrV4,
    log: PathBuf,
}

impl Server {
    fn start(binary: &Path, model: &str, address: SocketAddrV4) -> Result<Server> {
        let folder = root().join("target").join("demo");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let log = folder.join(format!("server-{}.log", address.port()));
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let host = address.ip().to_string();
        let port = address.port().to_string();
        let mut command = Command::new(binary);
        command
            .args(["serve", model, "--host", &host, "--port", &port])
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        detach(&mut command);
        eprintln!("$ firstlight serve {model} --host {host} --port {port}");
        let child = command.spawn().with_context(|| format!("could not start {}", binary.display()))?;
        Ok(Server { child: Some(child), address, log })
    }

    /// Waits until `/health` answers with success, or says what the server's log says.
    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while !is_healthy(self.address) {
            let child = self.child.as_mut().expect("a server is waited for before it is let go");
            if let Some(status) = child.try_wait()? {
                bail!("the server ended ({status}) before it was ready:\n{}", self.end_of_log());
            }
            if start.elapsed() > READY {
                bail!("the server was not ready after {} s:\n{}", READY.as_secs(), self.end_of_log());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn end_of_log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    #[expect(clippy::zombie_processes, reason = "the server is meant to outlive this task")]
    fn leave_running(mut self) -> (u32, PathBuf) {
        let child = self.child.take().expect("a server is let go once");
        (child.id(), self.log.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail when it has ended by itself, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A group of its own, so that an interrupt at the terminal after the demo does not reach the server.
#[cfg(unix)]
fn detach(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
fn detach(_: &mut Command) {}

/// The preferred port on the loopback, or another that is free.
fn free_address() -> Result<SocketAddrV4> {
    for port in [PREFERRED_PORT, 0] {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            let port = listener.local_addr()?.port();
            return Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        }
    }
    bail!("no free port on the loopback")
}

/// Asks `/health` in as much HTTP as that takes.
fn is_healthy(address: SocketAddrV4) -> bool {
    let ask = || -> std::io::Result<String> {
        let timeout = Duration::from_secs(2);
        let mut stream = TcpStream::connect_timeout(&address.into(), timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        let request = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut start = [0; 12]; // "HTTP/1.1 200"
        stream.read_exact(&mut start)?;
        Ok(String::from_utf8_lossy(&start).into_owned())
    };
    ask().is_ok_and(|start| start == "HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers one request with `status`.
    fn answering(status: &'static str) -> SocketAddrV4 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).unwrap() > 0);
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").unwrap();
        });
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    }

    #[test]
    fn a_server_is_ready_when_its_health_is_200_and_not_before() {
        assert!(is_healthy(answering("200 OK")));
        assert!(!is_healthy(answering("503 Service Unavailable")));
        assert!(!is_healthy(free_address().unwrap()));
    }
}
