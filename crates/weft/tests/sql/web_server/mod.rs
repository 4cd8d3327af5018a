//! A web server for tests: it has files in memory, and faults by the names of directories.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a request of a directory meets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing: ranges are answered.
    None,
    /// Ranges are ignored.
    NoRanges,
    /// HEAD is not known.
    NoHead,
    /// The first two requests of each kind fail.
    FailsTwice,
    /// No answer to requests for bytes comes.
    Hangs,
    /// Half of the bytes come.
    Short,
    /// Requests for bytes are refused.
    Refuses,
}

/// A server on a port of its own, until it is dropped.
pub struct WebServer {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    files: Mutex<HashMap<String, Vec<u8>>>,
    requests: AtomicUsize,
    /// Bytes of files that were sent.
    bytes: AtomicUsize,
    /// Requests that failed, by what they asked for.
    failures: Mutex<HashMap<String, usize>>,
    is_over: AtomicBool,
}

impl WebServer {
    /// Starts a server without files.
    pub fn start() -> WebServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            files: Mutex::default(),
            requests: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            failures: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if served.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, served) = (stream.unwrap(), Arc::clone(&served));
                thread::spawn(move || served.serve(stream));
            }
        });
        WebServer { port, shared }
    }

    /// Adds a file, or replaces it.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.shared.files.lock().unwrap().insert(name.to_owned(), bytes);
    }

    /// The address of a file: in a directory called `plain`, `no-ranges`, `no-head`, `fails-twice`, `hangs`, `short` or `refuses`.
    pub fn url(&self, directory: &str, name: &str) -> String {
        format!("http://127.0.0.1:{}/{directory}/{name}", self.port)
    }

    /// Requests so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Bytes of files that were sent so far.
    pub fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // For the thread that waits for a connection.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
    }
}

impl Shared {
    /// True of the first two requests of a kind.
    fn fails(&self, asked: &str) -> bool {
        let mut failures = self.failures.lock().unwrap();
        let count = failures.entry(asked.to_owned()).or_default();
        *count += 1;
        *count <= 2
    }

    /// Answers the requests of a connection.
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        while let Some((method, path, range)) = read_request(&mut reader) {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let (directory, name) =
                path.trim_start_matches('/').split_once('/').unwrap_or_default();
            let name = name.split('?').next().unwrap_or_default();
            let file = self.files.lock().unwrap().get(name).cloned();
            let Some(bytes) = file else {
                answer(&mut writer, "404 Not Found", &[], b"", None);
                continue;
            };
            let is_head = method == "HEAD";
            match fault(directory) {
                Fault::NoHead if is_head => {
                    answer(&mut writer, "405 Method Not Allowed", &[], b"", None);
                    continue;
                }
                Fault::Refuses if !is_head => {
                    answer(&mut writer, "403 Forbidden", &[], b"no", None);
                    continue;
                }
                Fault::FailsTwice if self.fails(&format!("{method} {name} {range:?}")) => {
                    answer(&mut writer, "503 Service Unavailable", &[], b"", None);
                    continue;
                }
                Fault::Hangs if !is_head => {
                    while !self.is_over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(20));
                    }
                    return;
                }
                _ => {}
            }
            let range = range.filter(|_| fault(directory) != Fault::NoRanges);
            let told = range.clone().map(|range| {
                format!("Content-Range: bytes {}-{}/{}", range.start, range.end - 1, bytes.len())
            });
            let (status, part) = match range {
                Some(range) => ("206 Partial Content", range),
                None => ("200 OK", 0..bytes.len()),
            };
            let part = &bytes[part.start.min(bytes.len())..part.end.min(bytes.len())];
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            let tag = format!("ETag: \"{:x}\"", hasher.finish());
            let mut headers = vec![tag];
            headers.extend(told);
            if is_head {
                answer(&mut writer, status, &headers, b"", Some(part.len()));
            } else if fault(directory) == Fault::Short {
                answer(&mut writer, status, &headers, &part[..part.len() / 2], Some(part.len()));
                return;
            } else {
                self.bytes.fetch_add(part.len(), Ordering::Relaxed);
                answer(&mut writer, status, &headers, part, None);
            }
        }
    }
}

fn fault(directory: &str) -> Fault {
    match directory {
        "no-ranges" => Fault::NoRanges,
        "no-head" => Fault::NoHead,
        "fails-twice" => Fault::FailsTwice,
        "hangs" => Fault::Hangs,
        "short" => Fault::Short,
        "refuses" => Fault::Refuses,
        _ => Fault::None,
    }
}

/// The method, path and range of the next request.
fn read_request(reader: &mut impl BufRead) -> Option<(String, String, Option<Range<usize>>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut range = None;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            return Some((method, path, range));
        }
        if let Some(asked) = header.strip_prefix("range: bytes=") {
            let (start, end) = asked.split_once('-')?;
            range = Some(start.parse().ok()?..end.parse::<usize>().ok()? + 1);
        }
    }
}

fn answer(
    writer: &mut impl Write,
    status: &str,
    headers: &[String],
    body: &[u8],
    length: Option<usize>,
) {
    let length = length.unwrap_or(body.len());
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n");
    for header in headers {
        text.push_str(&format!("{header}\r\n"));
    }
    text.push_str("\r\n");
    // A client that does not want the answer has closed the connection.
    writer.write_all(text.as_bytes()).and_then(|()| writer.write_all(body)).ok();
}
