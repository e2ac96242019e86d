//! A web server over a directory: a store of objects for a target in this process.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;
use tiny_http::{Header, Request, Response, Server};

/// Requests that are answered at a time.
const THREADS: usize = 4;

/// Answers GET and HEAD, also of a range, and tells versions by entity tags.
pub(crate) struct Web {
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
}

impl Web {
    /// Serves the files of a directory.
    pub(crate) fn new(directory: &Path) -> Self {
        let server = Arc::new(Server::http("127.0.0.1:0").expect("it listens"));
        let answer = |_| {
            let (server, directory) = (Arc::clone(&server), directory.to_owned());
            std::thread::spawn(move || {
                for request in server.incoming_requests() {
                    // The host may be gone.
                    let _ = answer(request, &directory);
                }
            })
        };
        let threads = (0..THREADS).map(answer).collect();
        Self { server, threads }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.server_addr())
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.threads.iter().for_each(|_| self.server.unblock());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Web").field(&self.url()).finish()
    }
}

fn answer(request: Request, directory: &Path) -> io::Result<()> {
    let Ok((metadata, mut file)) = open(&directory.join(request.url().trim_start_matches('/'))) else {
        return request.respond(Response::empty(404));
    };
    let tag = tag_of(&metadata)?;
    let told =
        |name: &'static str| request.headers().iter().find(|header| header.field.equiv(name)).map(|h| h.value.as_str());
    if told("If-Match").is_some_and(|wanted| wanted != tag) {
        return request.respond(Response::empty(412));
    }
    let asked = told("Range").and_then(|range| range_of(range, metadata.len()));
    let range = asked.clone().unwrap_or(0..metadata.len());
    file.seek(SeekFrom::Start(range.start))?;
    let len = range.end - range.start;
    let mut headers = vec![header("ETag", &tag), header("Accept-Ranges", "bytes")];
    if asked.is_some() {
        headers.push(header("Content-Range", &format!("bytes {}-{}/{}", range.start, range.end - 1, metadata.len())));
    }
    let status = if asked.is_some() { 206 } else { 200 };
    let response = Response::new(status.into(), headers, file.take(len), Some(len as usize), None);
    request.respond(response.with_chunked_threshold(usize::MAX))
}

fn open(path: &Path) -> io::Result<(Metadata, File)> {
    let file = File::open(path)?;
    Ok((file.metadata()?, file))
}

/// `bytes=FIRST-LAST`, of which the last may be missing or behind the end.
fn range_of(text: &str, len: u64) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let end = last.parse().map_or(len, |last: u64| last.saturating_add(1)).min(len);
    (first < end).then_some(first..end)
}

fn tag_of(metadata: &Metadata) -> io::Result<String> {
    let changed = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
    Ok(format!("\"{:x}-{:x}\"", changed.as_nanos(), metadata.len()))
}

fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("text of one line")
}
