//! The process that reads objects of a remote store.
//!
//! It is started by a server for one URL: see `diskside_objects::frames`. It has the credentials of its environment and the
//! network, reads no files but those that connections need, and ends when the server closes its pipe.

#![forbid(unsafe_code)]

mod backend;
mod confine;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use diskside_objects::frames::{self, Opening, Reply, Request};
use rustix::io::Errno;

use crate::backend::Backend;

/// Requests that the thread which reads the pipe may be ahead.
const AHEAD: usize = 128;

fn main() -> ExitCode {
    diskside_child::set_process_name(c"diskside-objects");
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
    let Some(Opening { url }) = frames::read(&mut io::stdin().lock()).map_err(text)? else { return Ok(()) };
    confine::confine()?;
    // One thread is enough: what it does is wait.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
    let backend = {
        let _entered = runtime.enter();
        Backend::open(&url)
    };
    let out = Arc::new(Mutex::new(io::stdout()));
    match backend {
        Ok(backend) => {
            reply(&out, Reply::default(), &[]);
            runtime.block_on(serve(Arc::new(backend), &out));
        }
        Err(message) => {
            reply(&out, Reply { errno: Errno::INVAL.raw_os_error(), message, ..Reply::default() }, &[]);
        }
    }
    Ok(())
}

/// Answers requests until the pipe ends.
async fn serve(backend: Arc<Backend>, out: &Arc<Mutex<io::Stdout>>) {
    let (sender, mut requests) = tokio::sync::mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let mut pipe = io::stdin().lock();
        while let Ok(Some(request)) = frames::read::<Request>(&mut pipe) {
            if sender.blocking_send(request).is_err() {
                return;
            }
        }
    });
    let local = tokio::task::LocalSet::new();
    let all = async {
        while let Some(Request { id, ask }) = requests.recv().await {
            let (backend, out) = (Arc::clone(&backend), Arc::clone(out));
            tokio::task::spawn_local(async move {
                let (answer, data) = backend.answer(ask).await;
                reply(&out, Reply { id, data_len: data.len() as u32, ..answer }, &data);
            });
        }
    };
    local.run_until(all).await;
}

fn reply(out: &Mutex<io::Stdout>, reply: Reply, data: &[u8]) {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    let written = frames::write(&mut *out, &reply).and_then(|()| out.write_all(data)).and_then(|()| out.flush());
    if written.is_err() {
        // The server is gone, and with it who wants answers.
        std::process::exit(0);
    }
}
