//! A target: built from a configuration, served by its reactors, steered through a handle.

mod builder;
mod error;
mod handle;
mod identity;
mod listeners;
mod reload;
mod threads;
mod visible;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, Once, PoisonError};

use diskside_io::ring::{Interface, interface};

pub(crate) use builder::allowed_hosts;
pub use builder::{Opened, TargetBuilder};
pub use error::TargetError;
pub use handle::Handle;
pub use reload::Reloaded;

use crate::disks;
use crate::shared::Message;
use threads::start_reactor;

/// A target that is bound to its addresses and ready to serve.
///
/// ```
/// use diskside_server::{Target, config::VolumeSpec};
///
/// let target = Target::builder()
///     .listen(["127.0.0.1:0".parse()?])
///     .volume(VolumeSpec::new("data", "mem:16MiB").writable())
///     .build()?;
/// let handle = target.handle();
/// let running = target.start()?; // or target.serve(), which returns when the target has stopped
/// println!("{} at {:?}", handle.nqn(), handle.local_addresses());
/// handle.stop();
/// running.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Target {
    handle: Handle,
    listeners: Vec<Arc<OwnedFd>>,
}

/// A target whose reactors run. Dropping it stops them.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    /// Where they say how they ended.
    reactors: Vec<Mutex<Receiver<io::Result<()>>>>,
}

impl Target {
    /// A target of defaults: one reactor, no volumes, listening nowhere.
    pub fn builder() -> TargetBuilder {
        TargetBuilder::new()
    }

    /// What steers the target, before, while and after it serves.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves on the reactors' threads and returns when the target has stopped: [`Handle::stop`] stops it.
    pub fn serve(self) -> Result<(), TargetError> {
        self.start()?.wait()
    }

    /// Like [`serve`](Self::serve), and stops in good order on SIGTERM or SIGINT; on the second one at once. `started` is
    /// called when hosts are answered.
    pub fn serve_until_signal(self, started: impl FnOnce(&Handle)) -> Result<(), TargetError> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(TargetError::Signals)?;
        let (closer, handle) = (signals.handle(), self.handle());
        let listener = std::thread::spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                tracing::info!(signal, "stopping");
                if count == 0 { handle.stop() } else { handle.stop_now() }
            }
        });
        let handle = self.handle();
        let served = self.start().and_then(|running| {
            started(&handle);
            running.wait()
        });
        closer.close();
        // It ends because its signals were closed, and has nothing that can panic.
        let _ = listener.join();
        served
    }

    /// Starts the reactors' threads.
    pub fn start(self) -> Result<Running, TargetError> {
        let shared = self.handle.shared();
        let mut reactors = Vec::new();
        let mut mailboxes = Vec::new();
        for index in 0..shared.config.reactors {
            let started =
                start_reactor(index, Arc::clone(shared)).map_err(|error| TargetError::Reactor { index, error });
            match started {
                Ok((mailbox, ended)) => {
                    mailboxes.push(mailbox);
                    reactors.push(ended);
                }
                Err(error) => {
                    mailboxes.iter().for_each(|mailbox| mailbox.send(Message::StopNow));
                    reactors.into_iter().for_each(|ended| drop(end_of(ended)));
                    return Err(error);
                }
            }
        }
        tell_interface();
        if let Err(error) = disks::watch(shared) {
            tracing::warn!(%error, "no thread can be started that tells of disks which do not answer");
        }
        let first = Arc::clone(&mailboxes[0]);
        self.handle.set_mailboxes(mailboxes);
        // Only now: connections wait already, and the reactor that lets them in hands them on to the others.
        first.send(Message::Listen(self.listeners));
        Ok(Running { handle: self.handle, reactors })
    }
}

impl Running {
    /// What steers the target.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns when the target has stopped.
    pub fn wait(mut self) -> Result<(), TargetError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), TargetError> {
        let mut result = Ok(());
        for (index, reactor) in self.reactors.drain(..).enumerate() {
            if let Err(error) = end_of(reactor) {
                result = Err(TargetError::Reactor { index, error });
            }
        }
        if let Some(compute) = &self.handle.shared().compute {
            compute.stop();
        }
        self.handle.shared().ended.store(true, Ordering::Relaxed);
        // Closes the media, also where a handle is kept.
        self.handle.shared().volumes.clear();
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reactors.is_empty() {
            self.handle.stop_now();
            if let Err(error) = self.join() {
                tracing::error!(%error, "the target ended with an error");
            }
        }
    }
}

/// Waits for the end of a reactor.
fn end_of(reactor: Mutex<Receiver<io::Result<()>>>) -> io::Result<()> {
    let ended = reactor.into_inner().unwrap_or_else(PoisonError::into_inner).recv();
    ended.unwrap_or_else(|_| Err(io::Error::other("the reactor's thread panicked")))
}

/// Says, once in a process, that its servers are slower than they could be.
fn tell_interface() {
    static TOLD: Once = Once::new();
    if let Ok(posix @ Interface::Posix(_)) = interface() {
        TOLD.call_once(|| tracing::warn!("this server uses {posix}"));
    }
}
