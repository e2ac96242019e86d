//! The threads of the reactors.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::reactor::Reactor;
use crate::shared::{Mailbox, Message, Shared};

type Started = (Arc<Mailbox>, JoinHandle<io::Result<()>>);

/// Starts the thread of one reactor, and waits until it can be reached.
pub(super) fn start_reactor(index: usize, shared: Arc<Shared>) -> io::Result<Started> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name(format!("diskside-{index}")).spawn(move || {
        let mut others = StopOthers { shared: Arc::clone(&shared), ended_well: false };
        // A command that comes while an engine computes on this processor must not wait for the end of its time slice.
        if let Err(error) = diskside_sys::schedule::set_slice(SLICE) {
            tracing::debug!(index, %error, "a reactor has the usual time slice");
        }
        let made = pin(&shared, index).and_then(|()| Reactor::new(index, shared));
        match made {
            Err(error) => {
                // The other end waits for exactly this.
                let _ = sender.send(Err(error));
                Ok(())
            }
            Ok(mut reactor) => {
                let _ = sender.send(Ok(reactor.mailbox()));
                let ended = reactor.run();
                others.ended_well = ended.is_ok();
                ended
            }
        }
    })?;
    match receiver.recv() {
        Ok(Ok(mailbox)) => Ok((mailbox, thread)),
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
