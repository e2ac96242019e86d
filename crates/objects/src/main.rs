//! The process that reads an object of a remote store.
//!
//! It is started by a server for one object: see `diskside_volume::media::object::frames`. It has the credentials of its
//! environment and the network, reads no files but those that connections need, and ends when the server closes its pipe.

#![forbid(unsafe_code)]

mod confine;
mod object;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use diskside_volume::media::object::frames::{self, Opened, Reply, Request};

use crate::object::Object;

/// Requests that the thread which reads the pipe may be ahead.
const AHEAD: usize = 128;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "diskside-objects: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    if std::env::args_os().len() > 1 {
        return Err("unknown arguments; it is started by diskside, not by hand".into());
    }
    let text = |error: io::Error| error.to_string();
    let url = frames::read_text(&mut io::stdin().lock()).map_err(text)?;
    confine::confine()?;
    // One thread is enough: what it does is wait.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let object = match runtime.block_on(Object::open(&url)) {
        Ok(object) => object,
        Err(message) => return Opened::Refused(message).write(&mut io::stdout().lock()).map_err(text),
    };
    let opened = Opened::Object { len: object.len(), version: object.version() };
    opened.write(&mut io::stdout().lock()).map_err(text)?;
    runtime.block_on(serve(Arc::new(object)));
    Ok(())
}

/// Answers requests until the pipe ends.
async fn serve(object: Arc<Object>) {
    let (sender, mut requests) = tokio::sync::mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let mut pipe = io::stdin().lock();
        while let Ok(Some(request)) = Request::read(&mut pipe) {
            if sender.blocking_send(request).is_err() {
                return;
            }
        }
    });
    let out = Arc::new(Mutex::new(io::stdout()));
    let local = tokio::task::LocalSet::new();
    let all = async {
        while let Some(request) = requests.recv().await {
            let (object, out) = (Arc::clone(&object), Arc::clone(&out));
            tokio::task::spawn_local(async move {
                let read = object.read(request.offset, request.len).await;
                reply(&out, request.id, read);
            });
        }
    };
    local.run_until(all).await;
}

fn reply(out: &Mutex<io::Stdout>, id: u64, read: Result<bytes::Bytes, i32>) {
    let (errno, bytes) = match read {
        Ok(bytes) => (0, bytes),
        Err(errno) => (errno.unsigned_abs(), bytes::Bytes::new()),
    };
    let head = Reply { id, errno, len: bytes.len() as u32 }.to_bytes();
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    let written = out.write_all(&head).and_then(|()| out.write_all(&bytes)).and_then(|()| out.flush());
    if written.is_err() {
        // The server is gone, and with it who wants answers.
        std::process::exit(0);
    }
}
