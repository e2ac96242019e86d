//! The threads of the reactors.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::reactor::Reactor;
use crate::shared::{Mailbox, Message, Shared};

/// How to reach a reactor, and where it says how it ended. Nobody waits for the end of its thread: the kernel keeps that as long as one
/// of its workers waits for a disk that hangs.
type Started = (Arc<Mailbox>, Mutex<Receiver<io::Result<()>>>);

/// Starts the thread of one reactor, and waits until it can be reached.
pub(super) fn start_reactor(index: usize, shared: Arc<Shared>) -> io::Result<Started> {
    let (sender, receiver) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    std::thread::Builder::new().name(format!("diskside-{index}")).spawn(move || {
        let mut others = StopOthers { shared: Arc::clone(&shared), ended_well: false };
        // A command that comes while an engine computes on this processor must not wait for the end of its time slice.
        if let Err(error) = diskside_sys::schedule::set_slice(SLICE) {
            tracing::debug!(index, %error, "a reactor has the usual time slice");
        }
        let made = pin(&shared, index).and_then(|()| Reactor::new(index, shared));
        match made {
            // The other end waits for exactly this.
            Err(error) => drop(sender.send(Err(error))),
            Ok(mut reactor) => {
                let _ = sender.send(Ok(reactor.mailbox()));
                let ended = reactor.run();
                others.ended_well = ended.is_ok();
                drop((reactor, others));
                // A target that could not be started waits for no reactor.
                let _ = end.send(ended);
            }
        }
    })?;
    match receiver.recv() {
        Ok(Ok(mailbox)) => Ok((mailbox, Mutex::new(ended))),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the reactor's thread ended before it began")),
    }
}

/// When one reactor cannot continue, neither should the others, which share its controllers and volumes.
struct StopOthers {
    shared: Arc<Shared>,
    ended_well: bool,
}

impl Drop for StopOthers {
    fn drop(&mut self) {
        if !self.ended_well {
            for mailbox in self.shared.mailboxes.get().into_iter().flatten() {
                mailbox.send(Message::StopNow);
            }
        }
    }
}

fn pin(shared: &Shared, index: usize) -> io::Result<()> {
    let Some(&core) = shared.config.cores.get(index) else { return Ok(()) };
    let mut set = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no core {core}")));
    }
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|errno| io::Error::new(io::Error::from(errno).kind(), format!("core {core}: {errno}")))
}

/// The time slice that reactors ask for, the shortest that there is: who asks for short ones gets them soon.
const SLICE: Duration = Duration::from_micros(100);
