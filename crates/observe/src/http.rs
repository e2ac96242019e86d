//! As much of HTTP/1.1 as a scraper and a browser need: GET and HEAD of a page, one request a connection.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::{TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request's head is no longer.
const HEAD_LEN_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// A peer that sends or takes nothing for so long is disconnected.
const PATIENCE: Duration = Duration::from_secs(2);
/// From a failure to the next connection.
const PAUSE: Duration = Duration::from_millis(20);
/// Threads that answer, and connections that wait for one of them.
const THREADS: usize = 4;
const WAITING_MAX: usize = 64;

/// The answer for a path: its media type and text; `None`: nothing.
pub(crate) trait Answers: Fn(&str) -> Option<(&'static str, Arc<str>)> + Send + Sync + 'static {}
impl<F: Fn(&str) -> Option<(&'static str, Arc<str>)> + Send + Sync + 'static> Answers for F {}

/// Answers from threads of its own until the process ends.
pub(crate) fn serve(listener: TcpListener, answers: impl Answers) -> io::Result<()> {
    let (sender, receiver) = sync_channel::<TcpStream>(WAITING_MAX);
    let is_local = listener.local_addr()?.ip().is_loopback();
    let (receiver, answers) = (Arc::new(Mutex::new(receiver)), Arc::new(answers));
    for _ in 0..THREADS {
        let (receiver, answers) = (Arc::clone(&receiver), Arc::clone(&answers));
        std::thread::Builder::new().name("observe-http".into()).spawn(move || {
            loop {
                let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(mut connection) = next else { return };
                // Who went away, or sent nonsense, comes again or not.
                let _ = patient(&connection).and_then(|()| answer(&mut connection, is_local, &*answers));
            }
        })?;
    }
    std::thread::Builder::new().name("observe-accept".into()).spawn(move || {
        for connection in listener.incoming() {
            match connection.map(|connection| sender.try_send(connection)) {
                Ok(Ok(())) => {}
                Ok(Err(TrySendError::Full(mut connection))) => {
                    let busy = reply("503 Service Unavailable\r\nRetry-After: 2", PLAIN, "too many ask; come again\n");
                    let _ = connection.set_nonblocking(true).and_then(|()| connection.write_all(busy.as_bytes()));
                }
                Ok(Err(TrySendError::Disconnected(_))) => return,
                // Accepting fails at once again while no descriptor is left.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    })?;
    Ok(())
}

fn patient(connection: &TcpStream) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))
}

/// Reads a request and answers it. At an address of this machine alone, other sites' names are not answered to: their owners could
/// have them mean this address, and their pages read it in a browser here.
fn answer(connection: &mut (impl Read + Write), is_local: bool, answers: &impl Answers) -> io::Result<()> {
    let asked = request(connection)?;
    let mut reply = match &asked {
        Asked::Page { host: Some(host), .. } if is_local && !is_of_this_machine(host) => {
            let told = format!("this address answers to localhost and to numbers, not to {}\n", host.escape_default());
            reply("421 Misdirected Request", PLAIN, &told)
        }
        Asked::Page { path, .. } => match answers(path) {
            Some((media_type, body)) => reply("200 OK", media_type, &body),
            None => reply("404 Not Found", PLAIN, "the metrics are at /metrics, the page is at /\n"),
        },
        Asked::Otherwise => {
            reply("405 Method Not Allowed\r\nAllow: GET, HEAD", PLAIN, "only GET and HEAD are answered\n")
        }
        Asked::Nonsense => reply("400 Bad Request", PLAIN, "this is no HTTP request\n"),
    };
    if let Asked::Page { wants_body: false, .. } = asked {
        reply.truncate(reply.find(END_OF_HEAD).map_or(0, |end| end + END_OF_HEAD.len()));
    }
    connection.write_all(reply.as_bytes())?;
    connection.flush()
}

/// Whether a Host header names this machine, or an address, which no name server makes mean another.
fn is_of_this_machine(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).to_ascii_lowercase();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    name.is_empty() || name == "localhost" || name.ends_with(".localhost") || bare.parse::<IpAddr>().is_ok()
}

const END_OF_HEAD: &str = "\r\n\r\n";
const PLAIN: &str = "text/plain; charset=utf-8";
/// A page may show its own styles and pictures, and load, run and send nothing.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action \
    'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store";

fn reply(status: &str, media_type: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len}\r\n{HEADERS}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Page {
        /// Without what follows a question mark.
        path: String,
        /// As whom the client knows this server.
        host: Option<String>,
        wants_body: bool,
    },
    Otherwise,
    Nonsense,
}

fn request(connection: &mut impl Read) -> io::Result<Asked> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    let began = Instant::now();
    loop {
        let len = connection.read(&mut part)?;
        head.extend_from_slice(&part[..len]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                let path = request.path.and_then(|path| path.split('?').next());
                let host = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
                let host = host.map(|header| String::from_utf8_lossy(header.value).trim().to_owned());
                return Ok(match (request.method, path) {
                    (Some(method @ ("GET" | "HEAD")), Some(path)) => {
                        Asked::Page { path: path.to_owned(), host, wants_body: method == "GET" }
                    }
                    _ => Asked::Otherwise,
                });
            }
            Ok(httparse::Status::Partial) if len > 0 && head.len() < HEAD_LEN_MAX && began.elapsed() < PATIENCE => {}
            _ => return Ok(Asked::Nonsense),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Asked {
        request(&mut text.as_bytes()).unwrap()
    }

    fn path(text: &str) -> Asked {
        Asked::Page { path: text.to_owned(), host: None, wants_body: true }
    }

    /// What is answered to a GET with this Host header.
    fn told(method: &str, host: &str, is_local: bool) -> String {
        let request = format!("{method} / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut connection = Both(request.into_bytes().into(), Vec::new());
        answer(&mut connection, is_local, &|_: &str| Some((PLAIN, "here".into()))).unwrap();
        String::from_utf8(connection.1).unwrap()
    }

    struct Both(std::collections::VecDeque<u8>, Vec<u8>);

    impl Read for Both {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Both {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A site that has its name mean 127.0.0.1 once its page is loaded read what the server says of hosts and exports.
    #[test]
    fn other_sites_names_are_not_answered_to_at_an_address_of_this_machine() {
        for host in ["localhost:9464", "LOCALHOST", "127.0.0.1:9464", "[::1]:9464", "10.0.0.1", "", "a.localhost"] {
            assert!(told("GET", host, true).ends_with("\r\n\r\nhere"), "{host}");
        }
        for host in ["evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example:80", "[x]"]
        {
            assert!(told("GET", host, true).starts_with("HTTP/1.1 421 "), "{host}");
            assert!(told("GET", host, false).ends_with("\r\n\r\nhere"), "{host}: others may ask there anyway");
        }
    }

    #[test]
    fn head_is_answered_without_a_body() {
        let told = told("HEAD", "localhost", true);
        assert!(told.contains("Content-Length: 4\r\n") && told.ends_with("\r\n\r\n"), "{told}");
    }

    #[test]
    fn pages_are_asked_for_and_everything_else_is_refused() {
        let here = Asked::Page { path: "/metrics".to_owned(), host: Some("here".to_owned()), wants_body: true };
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"), here);
        assert_eq!(asked("GET /metrics?name=up HTTP/1.0\r\n\r\n"), path("/metrics"));
        assert_eq!(asked("GET / HTTP/1.1\r\n\r\n"), path("/"));
        assert_eq!(asked("POST /metrics HTTP/1.1\r\n\r\n"), Asked::Otherwise);
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost:"), Asked::Nonsense);
        assert_eq!(asked(""), Asked::Nonsense);
        assert_eq!(asked("\x16\x03\x01\x02"), Asked::Nonsense);
        assert_eq!(asked(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD_LEN_MAX))), Asked::Nonsense);
        assert_eq!(asked(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1))), Asked::Nonsense);
    }

    #[test]
    fn a_reply_says_how_long_it_is_and_that_it_may_load_nothing() {
        let text = reply("200 OK", "text/plain", "grüße");
        assert!(text.contains("\r\nContent-Length: 7\r\n") && text.ends_with("\r\n\r\ngrüße"), "{text}");
        assert!(text.contains("\r\nContent-Security-Policy: default-src 'none';"), "{text}");
    }

    /// One scraper that sent nothing held all others up for two seconds.
    #[test]
    fn who_says_nothing_holds_nobody_up_and_a_flood_is_told_to_come_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, |path: &str| (path == "/").then(|| (PLAIN, "here".into()))).unwrap();
        let ask = || {
            let mut connection = TcpStream::connect(address).unwrap();
            connection.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let mut text = String::new();
            connection.read_to_string(&mut text).map(|_| text)
        };
        let silent: Vec<_> = (0..THREADS - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask().unwrap().ends_with("here"));
        let flood: Vec<_> = (0..WAITING_MAX + 2 * THREADS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut last = String::new();
        // It is refused, and its request is never read: a reset may overtake the words.
        let refused = (&mut flood.last().unwrap()).read_to_string(&mut last);
        assert!(refused.is_err() || last.starts_with("HTTP/1.1 503 "), "{last}");
        drop((silent, flood));
        let end = Instant::now() + Duration::from_secs(60);
        while !ask().is_ok_and(|text| text.ends_with("here")) {
            assert!(Instant::now() < end, "it never answered again");
        }
    }
}
