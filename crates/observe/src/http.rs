//! As much of HTTP/1.1 as a scraper and a browser need: GET and HEAD of a page, one request a connection.

use std::net::IpAddr;
use std::sync::Arc;

/// A request's head is no longer.
const HEAD_LEN_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

/// The answer for a path: its media type and text; `None`: nothing.
pub(crate) trait Answers: Fn(&str) -> Option<(&'static str, Arc<str>)> + Send + 'static {}
impl<F: Fn(&str) -> Option<(&'static str, Arc<str>)> + Send + 'static> Answers for F {}

/// A reply: those to several connections share the body.
pub(crate) struct Reply {
    pub(crate) head: String,
    pub(crate) body: Arc<str>,
}

/// Answers a request. At an address of this machine alone, other sites' names are not answered to: their owners could have them
/// mean this address, and their pages read it in a browser here.
pub(crate) fn answer(asked: &Asked, is_local: bool, answers: &impl Answers) -> Reply {
    let mut reply = match asked {
        Asked::Page { host: Some(host), .. } if is_local && !is_of_this_machine(host) => {
            let told = format!("this address answers to localhost and to numbers, not to {}\n", host.escape_default());
            reply("421 Misdirected Request", PLAIN, told.into())
        }
        Asked::Page { path, .. } => match answers(path) {
            Some((media_type, body)) => reply("200 OK", media_type, body),
            None => reply("404 Not Found", PLAIN, "the metrics are at /metrics, the page is at /\n".into()),
        },
        Asked::Otherwise => {
            reply("405 Method Not Allowed\r\nAllow: GET, HEAD", PLAIN, "only GET and HEAD are answered\n".into())
        }
        Asked::Nonsense => reply("400 Bad Request", PLAIN, "this is no HTTP request\n".into()),
    };
    if let Asked::Page { wants_body: false, .. } = asked {
        reply.body = "".into();
    }
    reply
}

/// The reply to a connection that others take the place of.
pub(crate) fn come_again() -> Reply {
    reply("503 Service Unavailable\r\nRetry-After: 2", PLAIN, "too many ask; come again\n".into())
}

/// Whether a Host header names this machine, or an address, which no name server makes mean another.
fn is_of_this_machine(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name).to_ascii_lowercase();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    name.is_empty() || name == "localhost" || name.ends_with(".localhost") || bare.parse::<IpAddr>().is_ok()
}

pub(crate) const PLAIN: &str = "text/plain; charset=utf-8";
/// A page may show its own styles and pictures, and load, run and send nothing.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action \
    'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store";

fn reply(status: &str, media_type: &str, body: Arc<str>) -> Reply {
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {len}\r\n{HEADERS}\r\nConnection: close\r\n\r\n"
    );
    Reply { head, body }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
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

/// The request that these bytes are; `None` if more must come.
pub(crate) fn request(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.and_then(|path| path.split('?').next());
            let host = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
            let host = host.map(|header| String::from_utf8_lossy(header.value).trim().to_owned());
            Some(match (request.method, path) {
                (Some(method @ ("GET" | "HEAD")), Some(path)) => {
                    Asked::Page { path: path.to_owned(), host, wants_body: method == "GET" }
                }
                _ => Asked::Otherwise,
            })
        }
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_LEN_MAX => None,
        _ => Some(Asked::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Option<Asked> {
        request(text.as_bytes())
    }

    fn path(text: &str) -> Option<Asked> {
        Some(Asked::Page { path: text.to_owned(), host: None, wants_body: true })
    }

    /// The answer to a request with this Host header.
    fn told(method: &str, host: &str, is_local: bool) -> String {
        let asked = asked(&format!("{method} / HTTP/1.1\r\nHost: {host}\r\n\r\n")).unwrap();
        let Reply { head, body } = answer(&asked, is_local, &|_: &str| Some((PLAIN, "here".into())));
        head + &body
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
        let here = Some(Asked::Page { path: "/metrics".to_owned(), host: Some("here".to_owned()), wants_body: true });
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"), here);
        assert_eq!(asked("GET /metrics?name=up HTTP/1.0\r\n\r\n"), path("/metrics"));
        assert_eq!(asked("GET / HTTP/1.1\r\n\r\n"), path("/"));
        assert_eq!(asked("POST /metrics HTTP/1.1\r\n\r\n"), Some(Asked::Otherwise));
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost:"), None);
        assert_eq!(asked(""), None);
        assert_eq!(asked("\x16\x03\x01\x02"), Some(Asked::Nonsense));
        assert_eq!(asked(&format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEAD_LEN_MAX))), Some(Asked::Nonsense));
        assert_eq!(
            asked(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1))),
            Some(Asked::Nonsense)
        );
    }

    #[test]
    fn a_reply_says_how_long_it_is_and_that_it_may_load_nothing() {
        let Reply { head, body } = reply("200 OK", "text/plain", "grüße".into());
        let text = head + &body;
        assert!(text.contains("\r\nContent-Length: 7\r\n") && text.ends_with("\r\n\r\ngrüße"), "{text}");
        assert!(text.contains("\r\nContent-Security-Policy: default-src 'none';"), "{text}");
    }
}
