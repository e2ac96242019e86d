//! Connecting to several servers: the first one that answers is taken.

use super::OneCopy;
use crate::location::ExportUrl;
use crate::session::answered::ServerFailure;
use crate::session::error::SessionError;
use crate::session::link::Link;
use diskside_host::ConnectOptions;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long the servers of a step are waited for before those of the next one are tried, too.
const HEAD_START: Duration = Duration::from_secs(1);
/// Attempts to connect end by themselves.
const PATIENCE: Duration = Duration::from_secs(3600);

type Told = (ExportUrl, Result<Link, SessionError>);

/// The first server that answers, and those that failed before it did. Servers of one step are asked at the same time, those of the
/// next step when all before have failed, or after a while.
pub(super) fn first_to_answer(
    steps: Vec<Vec<ExportUrl>>,
    options: &ConnectOptions,
) -> (Option<OneCopy>, Vec<ServerFailure>) {
    let (tell, told) = channel();
    let (mut steps, mut failed, mut running) = (steps.into_iter(), Vec::new(), 0);
    loop {
        if let Some(step) = steps.next() {
            running += step.len();
            step.into_iter().for_each(|server| ask(server, options, &tell));
        } else if running == 0 {
            return (None, failed);
        }
        let patience = if steps.len() > 0 { HEAD_START } else { PATIENCE };
        while running > 0 {
            match told.recv_timeout(patience) {
                Ok((server, Ok(link))) => return (Some(OneCopy { server, link: Arc::new(link) }), failed),
                Ok((server, Err(error))) => {
                    running -= 1;
                    failed.push(ServerFailure { server: server.authority(), why: error.to_string() });
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
    }
}

/// Connects on a thread. A server that answers too late is disconnected there.
fn ask(server: ExportUrl, options: &ConnectOptions, tell: &Sender<Told>) {
    let (options, answer, asked) = (options.clone(), tell.clone(), server.clone());
    let spawned = std::thread::Builder::new().name("diskside".into()).spawn(move || {
        let link = Link::connect(&asked.target(), &options);
        // Nobody listens once another server has answered.
        drop(answer.send((asked, link)));
    });
    if let Err(source) = spawned {
        let error = SessionError::file(&server.to_string(), source);
        drop(tell.send((server, Err(error))));
    }
}
