//! The hub client against a server on the loopback that answers as told.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use super::*;

const FILE: HubFile = HubFile { repository: "owner/name", revision: "main", file: "model.gguf" };

/// How the server treats its requests.
#[derive(Clone, Copy, PartialEq)]
enum Manners {
    Good,
    /// Closes the connection in the middle of every body.
    Breaks,
    /// Sends the headers and nothing more.
    Empty,
    NotFound,
    IgnoresRange,
}

/// Serves `content` until the process ends, and notes the first line and the range of every request.
fn serve(content: Vec<u8>, manners: Manners) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let noted = requests.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            let headers: Vec<String> =
                lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            let range = headers
                .iter()
                .find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
            let range = range.unwrap();
            noted.lock().unwrap().push(format!("{first} {range}"));
            let (start, end) = range.split_once('-').unwrap();
            let (start, end) =
                (start.parse::<usize>().unwrap(), end.parse::<usize>().unwrap().min(content.len() - 1));
            let body = &content[start..=end];
            let sent = match manners {
                Manners::Breaks => &body[..body.len().div_ceil(2)],
                Manners::Empty => &[],
                _ => body,
            };
            let status = match manners {
                Manners::NotFound => "404 Not Found",
                Manners::IgnoresRange => "200 OK",
                _ => "206 Partial Content",
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{end}/{}\r\nconnection: close\r\n\r\n",
                body.len(),
                content.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(sent).unwrap();
        }
    });
    (address, requests)
}

/// Downloads 1000 bytes in pieces of 300, with `before` on disk already. Returns the requests made and the outcome.
fn check(manners: Manners, before: &[u8]) -> (Vec<String>, Result<(), FetchError>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub");
    if !before.is_empty() {
        fs::write(&path, before).unwrap();
    }
    let (address, requests) = serve(content(), manners);
    let result = Hub::at(&address, 300).download(&FILE, 1000, &path, &mut |_| {});
    let requests = requests.lock().unwrap().clone();
    (requests, result, fs::read(&path).unwrap())
}

fn content() -> Vec<u8> {
    (0..1000_u32).map(|n| (n * 7 % 251) as u8).collect()
}

#[test]
fn a_file_is_read_in_pieces_from_the_path_the_hub_uses() {
    let (requests, result, file) = check(Manners::Good, b"");
    result.unwrap();
    assert_eq!(file, content());
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[0], "GET /owner/name/resolve/main/model.gguf HTTP/1.1 0-299");
    assert_eq!(requests[3], "GET /owner/name/resolve/main/model.gguf HTTP/1.1 900-999");
}

#[test]
fn what_is_on_disk_is_not_asked_for_again() {
    let (requests, result, file) = check(Manners::Good, &content()[..950]);
    result.unwrap();
    assert_eq!(file, content());
    assert_eq!(requests, ["GET /owner/name/resolve/main/model.gguf HTTP/1.1 950-999"]);
}

#[test]
fn connections_that_break_still_get_there() {
    let (requests, result, file) = check(Manners::Breaks, b"");
    result.unwrap();
    assert_eq!(file, content());
    assert!(requests.len() > 4);
}

#[test]
fn a_hub_that_sends_nothing_is_given_up() {
    let (requests, result, _) = check(Manners::Empty, b"");
    assert!(matches!(result, Err(FetchError::Unreachable(_))), "{result:?}");
    assert_eq!(requests.len(), 3);
}

#[test]
fn a_refusal_names_the_status_and_the_address() {
    for (manners, status) in [(Manners::NotFound, "404"), (Manners::IgnoresRange, "200")] {
        let (_, result, file) = check(manners, b"");
        let message = result.unwrap_err().to_string();
        assert!(message.contains(status) && message.contains("/owner/name/resolve"), "{message}");
        assert!(file.is_empty());
    }
}

#[test]
fn a_file_of_another_length_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub");
    let (address, _) = serve(content(), Manners::Good);
    let result = Hub::at(&address, 300).download(&FILE, 1001, &path, &mut |_| {});
    assert!(result.unwrap_err().to_string().contains("another file"));
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_host_that_refuses_connections_is_unreachable() {
    let folder = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hub = Hub::at(&format!("http://{closed}"), 300);
    let result = hub.download(&FILE, 1000, &folder.path().join("hub"), &mut |_| {});
    assert!(matches!(result, Err(FetchError::Unreachable(_))), "{result:?}");
}
