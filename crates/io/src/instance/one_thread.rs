//! An instance with one thread, which submits and completes.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use rustix::io::Errno;

use super::active::{Active, Staged, Step};
use super::{Bell, InstanceConfig};
use crate::request::Status;
use crate::ring::{Op, Payload, Ring};
use crate::slab::{Key, Slab};

/// Starts the thread, which makes its own ring.
pub(super) fn start(
    index: usize,
    config: &InstanceConfig,
    staged: Receiver<Staged>,
) -> io::Result<(Bell, Vec<JoinHandle<()>>)> {
    let (answer, made) = sync_channel(1);
    let (ring_config, in_flight_max) = (config.ring(), config.in_flight_max as usize);
    let thread = std::thread::Builder::new().name(format!("io-{index}")).spawn(move || {
        let ring = match Ring::new(&ring_config) {
            Ok(ring) => ring,
            Err(error) => return drop(answer.send(Err(error))),
        };
        if answer.send(Ok(ring.waker())).is_ok() {
            Server {
                ring,
                staged,
                active: Slab::with_capacity(in_flight_max),
                in_flight_max,
                polls: ring_config.io_poll,
            }
            .run();
        }
    })?;
    let waker = made.recv().map_err(|_| io::Error::other("the I/O thread ended at its start"))??;
    let bell = if config.io_poll { Bell::Queue } else { Bell::Ring(waker) };
    Ok((bell, vec![thread]))
}

struct Server {
    ring: Ring,
    staged: Receiver<Staged>,
    active: Slab<Active>,
    in_flight_max: usize,
    /// The ring polls the device: it cannot be woken and does transfers only.
    polls: bool,
}

impl Server {
    fn run(mut self) {
        loop {
            let open = self.take_staged();
            if self.active.len() == 0 {
                if !open {
                    return;
                }
                if self.polls {
                    match self.staged.recv() {
                        Ok(staged) => self.activate(staged),
                        Err(_) => return,
                    }
                    continue;
                }
            }
            if let Err(error) = self.ring.wait(None) {
                return self.fail(&error);
            }
            while let Some(done) = self.ring.next_completion() {
                self.advance(Key::from_bits(done.token), done.result, done.payload);
            }
        }
    }

    /// Takes staged requests as far as the cap allows; false when no producer is left.
    fn take_staged(&mut self) -> bool {
        while self.active.len() < self.in_flight_max {
            match self.staged.try_recv() {
                Ok(staged) => self.activate(staged),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn activate(&mut self, staged: Staged) {
        let (active, op) = staged.activate();
        let key = self.active.insert(active);
        self.push(key, op);
    }

    fn advance(&mut self, key: Key, result: Result<u32, Errno>, payload: Payload) {
        let active = self.active.remove(key).expect("each completion belongs to a request");
        if let Step::Again(active, op) = active.step(result, payload) {
            let key = self.active.insert(active);
            self.push(key, op);
        }
    }

    fn push(&mut self, key: Key, op: Op) {
        if self.polls
            && let Some(result) = run_now(&op)
        {
            return self.advance(key, result, Payload::None);
        }
        self.ring.push(key.to_bits(), op);
    }

    /// The ring itself failed: nothing that was asked for will ever complete.
    fn fail(&mut self, error: &io::Error) {
        let status = Status::from_errno(Errno::from_io_error(error).unwrap_or(Errno::IO));
        for active in self.active.drain() {
            active.fail(status);
        }
        while let Ok(request) = self.staged.recv() {
            request.refuse(status);
        }
    }
}

/// An ordinary system call does the operations that a polling ring cannot do.
fn run_now(op: &Op) -> Option<Result<u32, Errno>> {
    match op {
        Op::Sync { file, .. } => Some(rustix::fs::fdatasync(file).map(|()| 0)),
        Op::Allocate { file, flags, offset, len } => {
            Some(rustix::fs::fallocate(file, *flags, *offset, *len).map(|()| 0))
        }
        _ => None,
    }
}
