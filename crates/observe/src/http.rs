//! As much of HTTP/1.1 as a scraper needs: GET of one page, one request a connection.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// A request's head is no longer.
const HEAD_LEN_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// A scraper that sends or takes nothing for so long holds nobody up any more.
const PATIENCE: Duration = Duration::from_secs(2);
/// From a failure to the next scrape.
const PAUSE: Duration = Duration::from_millis(20);
/// The media type of what is told.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers one scrape after another.
pub(super) fn answer(listener: &TcpListener, mut page: impl FnMut() -> String) {
    for connection in listener.incoming() {
        // A scraper that went away, or sent nonsense, comes again or not: the next one is answered.
        let served = connection.and_then(|mut connection| {
            connection.set_read_timeout(Some(PATIENCE))?;
            connection.set_write_timeout(Some(PATIENCE))?;
            serve(&mut connection, &mut page)
        });
        if served.is_err() {
            // Accepting fails at once again while no descriptor is left.
            std::thread::sleep(PAUSE);
        }
    }
}

/// Reads a request and answers it.
fn serve(connection: &mut (impl Read + Write), page: &mut impl FnMut() -> String) -> io::Result<()> {
    let reply = match request(connection)? {
        Asked::Page => reply("200 OK", OPENMETRICS, &page()),
        Asked::Elsewhere => reply("404 Not Found", "text/plain", "the metrics are at /metrics\n"),
        Asked::Otherwise => reply("405 Method Not Allowed\r\nAllow: GET", "text/plain", "only GET is answered\n"),
        Asked::Nonsense => reply("400 Bad Request", "text/plain", "this is no HTTP request\n"),
    };
    connection.write_all(reply.as_bytes())?;
    connection.flush()
}

fn reply(status: &str, media_type: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Page,
    Elsewhere,
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
                return Ok(match (request.method, path) {
                    (Some("GET"), Some("/metrics")) => Asked::Page,
                    (Some("GET"), _) => Asked::Elsewhere,
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

    #[test]
    fn one_page_is_told_and_everything_else_refused() {
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"), Asked::Page);
        assert_eq!(asked("GET /metrics?name=up HTTP/1.0\r\n\r\n"), Asked::Page);
        assert_eq!(asked("GET / HTTP/1.1\r\n\r\n"), Asked::Elsewhere);
        assert_eq!(asked("POST /metrics HTTP/1.1\r\n\r\n"), Asked::Otherwise);
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost:"), Asked::Nonsense);
        assert_eq!(asked(""), Asked::Nonsense);
        assert_eq!(asked("\x16\x03\x01\x02"), Asked::Nonsense);
        assert_eq!(asked(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD_LEN_MAX))), Asked::Nonsense);
        assert_eq!(asked(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1))), Asked::Nonsense);
    }

    #[test]
    fn a_reply_says_how_long_it_is() {
        let text = reply("200 OK", "text/plain", "grüße");
        assert!(text.contains("\r\nContent-Length: 7\r\n") && text.ends_with("\r\n\r\ngrüße"), "{text}");
    }
}
