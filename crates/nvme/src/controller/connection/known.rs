//! Questions that a shell may ask a connection, and the keys of secure channels: part A of the interface.

use crate::auth::{Names, TlsPsk};
use crate::buffer::BufferSlice;
use crate::nqn::Nqn;

use super::super::reservations::HostReservations;
use super::{ChannelKind, Connection, ConnectionError, Inbound, Link, State};

/// The most bytes of answers that a connection keeps in memory before it stops reading commands.
const UNSENT_BYTES_MAX: usize = 256 << 10;

impl Connection {
    /// Where the connection stands.
    pub fn state(&self) -> State {
        match self.state {
            State::Draining if self.out.is_empty() && !self.sending => State::Closed,
            state => state,
        }
    }

    /// Takes the name of a host that was not let in, if a Connect since the last call named one.
    pub fn take_refused(&mut self) -> Option<Nqn> {
        self.refused.take()
    }

    /// Whether the host has proved who it is, by authentication or by its secure channel; one that need not has not.
    pub fn has_proved_itself(&self) -> bool {
        let has_key = |link: &Link| link.authentication.is_some() || self.channel.is_some();
        self.link.as_ref().is_some_and(|link| link.authenticated && has_key(link))
    }

    /// Why it ended, if it was not the host's Disconnect.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    /// Whether more input is welcome. If not, leave it in the socket (back-pressure) until a completion, a send or
    /// [`handle_buffers`](Self::handle_buffers) made room.
    pub fn wants_input(&self) -> bool {
        self.is_open() && self.held.is_none() && self.unsent_bytes < UNSENT_BYTES_MAX
    }

    /// Whether the pool had no buffer for this connection: call [`handle_buffers`](Self::handle_buffers) when it has.
    pub fn awaits_buffers(&self) -> bool {
        self.held.is_some() || !self.waiting.is_empty()
    }

    /// If the next bytes of the stream are write data: where they belong. A shell may receive right into it and then call
    /// [`handle_received`](Self::handle_received) instead of `handle_bytes`.
    pub fn receive_target(&self) -> Option<BufferSlice> {
        if self.wants_input() { self.data_target() } else { None }
    }

    pub(super) fn data_target(&self) -> Option<BufferSlice> {
        let Inbound::Slot { slot, at } = self.inbound else { return None };
        if !self.decoder.at_data() {
            return None;
        }
        let mut target = self.slots.checked(slot)?.target(at)?;
        target.len = target.len.min(self.decoder.data_left());
        (target.len > 0).then_some(target)
    }

    /// Bytes of write data that the host was asked for and has not begun to send. While there are many, a shell does well
    /// to receive headers alone, so that it can receive what is behind them into the
    /// [`receive_target`](Self::receive_target).
    pub fn awaited_bytes(&self) -> u64 {
        self.awaited_bytes
    }

    /// Queue identifier: 0 for an admin queue; `None` before Connect.
    pub fn queue_id(&self) -> Option<u16> {
        self.link.as_ref().map(|link| link.queue_id)
    }

    /// Controller identifier; `None` before Connect.
    pub fn controller_id(&self) -> Option<u16> {
        self.link.as_ref().map(|link| link.controller.cntlid)
    }

    /// Names the controller among all of this process, also those that are gone; `None` before Connect.
    pub fn association(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.controller.association)
    }

    /// Entries of the submission queue; 0 before Connect.
    pub fn queue_entries(&self) -> u16 {
        self.link.as_ref().map_or(0, |link| link.entries)
    }

    /// The bytes come over a secure channel whose key is that of these two: before the first of them is handed over. The
    /// host must connect by the name of the key, and to its subsystem.
    pub fn set_channel(&mut self, names: Names, kind: ChannelKind) {
        self.channel = Some((names, kind));
    }

    /// Takes the key of a secure channel that the host's authentication made, and its names: it must be known before what
    /// there is to send is sent, because the host comes with it next.
    pub fn take_generated(&mut self) -> Option<(Names, TlsPsk)> {
        let link = self.link.as_ref()?;
        let psk = self.generated.take()?;
        let names = Names { host: link.controller.host.clone(), subsystem: link.controller.subsystem.nqn().clone() };
        Some((names, psk))
    }

    /// The host's name; `None` before Connect.
    pub fn host_nqn(&self) -> Option<&Nqn> {
        self.link.as_ref().map(|link| &link.controller.host)
    }

    /// The reservations of the subsystem as they are to this host; before Connect there are none.
    pub fn reservations(&self) -> HostReservations {
        self.link.as_ref().map_or(HostReservations::none(), |link| {
            HostReservations::new(&link.controller.subsystem.reservations, link.controller.host_id)
        })
    }

    /// The subsystem's name; `None` before Connect.
    pub fn subsystem_nqn(&self) -> Option<&Nqn> {
        self.link.as_ref().map(|link| link.controller.subsystem.nqn())
    }

    /// Whether the host need not, or need no longer, prove who it is; false before Connect.
    pub fn is_authenticated(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.authenticated)
    }

    /// Commands that arrived and whose answer was not yet handed to `poll_transmit`.
    pub fn commands_outstanding(&self) -> u32 {
        self.slots.len() + self.unsent_answers
    }
}
