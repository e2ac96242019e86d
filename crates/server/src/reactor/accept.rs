//! How connections come to a reactor: through its listeners, from other reactors, and from hosts in the same process.

use std::cmp::Reverse;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use diskside_io::Errno;
use diskside_io::ring::{Completion, Op, OpId, Payload};
use diskside_io::socket::SocketOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Reactor;
use super::connection::{Connection, Link};
use super::core::Timer;
use super::token::Token;
use crate::half_open::{ConnectionSlot, Entrant};
use crate::link::LoopEnd;
use crate::shared::Message;

pub(super) struct Listening {
    socket: Arc<OwnedFd>,
    accept: Option<OpId>,
}

impl Reactor {
    pub(super) fn listen(&mut self, sockets: Vec<Arc<OwnedFd>>) {
        for socket in sockets {
            self.listeners.push(Listening { socket, accept: None });
            self.accept(self.listeners.len() - 1);
        }
    }

    pub(super) fn stop_listening(&mut self) {
        for accept in self.listeners.drain(..).filter_map(|listening| listening.accept) {
            self.core.ring.cancel(accept);
        }
    }

    pub(super) fn accept(&mut self, listener: usize) {
        // There is none any more where nobody is let in.
        if let Some(listening) = self.listeners.get_mut(listener) {
            let op = Op::Accept { listener: Arc::clone(&listening.socket) };
            listening.accept = Some(self.core.ring.push(Token::Accept(listener).bits(), op));
        }
    }

    pub(super) fn accepted(&mut self, listener: usize, completion: Completion) {
        let Some(listening) = self.listeners.get_mut(listener) else {
            // The target stops: who came last is not let in.
            return;
        };
        listening.accept = None;
        match (completion.result, completion.payload) {
            (Ok(_), Payload::Accepted(socket)) => {
                match self.core.shared.place_connection() {
                    Some(reactor) if reactor == self.core.index => self.add_socket(socket, listener),
                    Some(reactor) => drop(self.core.shared.send(reactor, Message::Socket(socket, listener))),
                    None => {
                        if let Some(left_out) = self.core.shared.notices.admit("too many", self.core.now) {
                            tracing::warn!(left_out, "too many connections: one more was closed");
                        }
                    }
                }
                match self.core.shared.was_crowded(self.core.now) {
                    true => self.core.timers.push(Reverse((self.core.now + ACCEPT_PAUSE, Timer::Accept(listener)))),
                    false => self.accept(listener),
                }
            }
            (Err(Errno::CANCELED), _) => {}
            // Other parts of the process, or other processes, may have what was meant for connections.
            (Err(Errno::MFILE | Errno::NFILE), _) if is_awaited(&listening.socket) && self.core.shared.give_way() => {
                self.core.timers.push(Reverse((self.core.now + ACCEPT_SOON, Timer::Accept(listener))));
            }
            (result, _) => {
                // Out of descriptors or memory, most likely: room may come when a connection ends.
                if let Some(left_out) = self.core.shared.notices.admit("accept", self.core.now) {
                    tracing::warn!(?result, left_out, "accept failed; trying again soon");
                }
                let at = self.core.now + ACCEPT_RETRY;
                self.core.timers.push(Reverse((at, Timer::Accept(listener))));
            }
        }
    }

    /// `listener`: the number of the one through which it came.
    pub(super) fn add_socket(&mut self, socket: OwnedFd, listener: usize) {
        let options = SocketOptions {
            congestion_control: self.core.shared.config.congestion_control.clone(),
            ..SocketOptions::default()
        };
        if let Err(error) = diskside_io::socket::tune(&socket, &options).and_then(|()| keep_alive(&socket))
            && let Some(left_out) = self.core.shared.notices.admit("socket", self.core.now)
        {
            tracing::warn!(%error, left_out, "a new connection's socket");
        }
        // Where it cannot be set, as with a socket that is none of TCP's, the kernel's own bounds hold.
        let _ = diskside_sys::socket::set_unsent_bytes_max(&socket, UNSENT_BYTES_MAX);
        let address = diskside_io::socket::peer_address(&socket).ok();
        let peer = address.map_or_else(|| "?".into(), |peer| peer.to_string());
        let alive = Arc::new(());
        let connection = self.connections.vacant_entry().key();
        let place = ConnectionSlot { reactor: self.core.index, connection, alive: Arc::downgrade(&alive) };
        let entrant = self.core.shared.enter(address.map(|address| address.ip()), place);
        let socket = Arc::new(socket);
        self.core.ring.register_file(&socket);
        self.add_connection(Link::Socket { socket, listener, receive: None }, peer, alive, Some(entrant));
    }

    pub(super) fn add_loop(&mut self, end: LoopEnd) {
        let entry = self.connections.vacant_entry();
        end.set_waker(self.core.mailbox.connection_waker(entry.key()));
        self.add_connection(Link::Loop(end), "loop".into(), Arc::new(()), None);
    }

    fn add_connection(&mut self, link: Link, peer: String, alive: Arc<()>, entrant: Option<Entrant>) {
        let entry = self.connections.vacant_entry();
        let id = entry.key();
        entry.insert(Connection::new(&mut self.core, id, link, peer, alive, entrant));
        self.core.counters().connections_total.add(1);
    }
}

/// Finds peers that vanished without a word, also where the host asked for no Keep Alive.
fn keep_alive(socket: &OwnedFd) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(socket, 6)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

/// Whether somebody waits to be accepted. The kernel looks for a descriptor first.
fn is_awaited(listener: &OwnedFd) -> bool {
    let mut listeners = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut listeners, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Bytes that a socket takes before they can be sent: enough for a reactor that comes back some hundred microseconds later.
/// Without a bound a peer that does not read has the kernel keep some MiB for it.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// When a connection gave way, which is closed by then.
const ACCEPT_SOON: Duration = Duration::from_millis(5);

/// How soon after a connection came the next is let in while functions want the processor. Otherwise it is one each turn. Letting
/// one in and seeing it go takes some ten microseconds: so who comes and goes has a tenth of the processor.
const ACCEPT_PAUSE: Duration = Duration::from_micros(500);
