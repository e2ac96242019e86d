//! The receives of a connection, and where they put the bytes.
//!
//! As a rule bytes arrive in buffers that all connections of the reactor share and that the kernel picks from: one
//! receive brings any number of commands, and an idle connection holds no memory. The data of a large write would be
//! copied out of them once more. So while a host was asked for much data, a connection receives headers alone, into a
//! little buffer of its own, and the data behind each right into the buffer that the medium writes from.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::ring::{Completion, Op, OpId, Payload, Received};
use diskside_nvme::{BufferId, Nqn};
use diskside_tls::{Alert, Content, Look, Next, RECORD_LEN_MAX, RecordError, Records};

use super::channel::{Channel, Made, Pending};
use super::connection::{Connection, Link, Phase};
use super::core::Core;
use super::late::Late;
use super::memory::{AccountMemory, Charge};
use super::token::Token;
use crate::channel::{Shaken, Shaking};
use crate::link::LoopRead;

/// A receive under way.
pub(super) struct Receive {
    op: OpId,
    into: Into,
    /// It was asked to end.
    cancelling: bool,
}

/// Where a receive puts what comes.
enum Into {
    /// Into buffers that all connections share, one after the other.
    Shared,
    /// Into a little buffer, for the header of a PDU with data.
    Header(Charge),
    /// Into the place of the data, this part of its buffer.
    Place(BufferId, Range<usize>),
}

impl Connection {
    /// Bytes came, or the receive ended.
    pub(super) fn received(&mut self, core: &mut Core, completion: Completion) {
        let ended = match &mut self.link {
            Link::Socket { receive, .. } if !completion.more => receive.take(),
            _ => None,
        };
        self.mark_dirty(core);
        let result = match (completion.payload, ended) {
            (Payload::Received(bytes), _) => {
                let bytes = Rc::new(bytes);
                self.take_or_keep(core, &bytes);
                completion.result
            }
            (Payload::Buffer(buffer), Some(Receive { into, .. })) => {
                self.take_placed(core, into, completion.result, buffer);
                completion.result
            }
            _ => completion.result,
        };
        match result {
            Ok(0) => self.close(core, "the host closed the connection"),
            Ok(_) | Err(Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => self.close(core, &errno.to_string()),
        }
    }

    /// Takes what was received into a buffer of the connection's own.
    fn take_placed(&mut self, core: &mut Core, into: Into, result: Result<u32, Errno>, buffer: Buffer) {
        let len = result.map_or(0, |len| len as usize);
        self.heard(len);
        match into {
            Into::Shared => unreachable!("shared buffers come one by one"),
            Into::Header(charge) => {
                self.take_bytes(core, &buffer[..len], None);
                core.memory.give_back(buffer);
                core.memory.uncharge(&mut self.account, charge);
            }
            Into::Place(id, place) => self.come_placed(core, id, place.start, len, buffer),
        }
    }

    /// Takes a lent buffer back, in which so many bytes are in their place.
    fn come_placed(&mut self, core: &mut Core, id: BufferId, start: usize, len: usize, buffer: Buffer) {
        if len > 0 && self.phase == Phase::Open && !core.is_stopping() {
            let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
            self.machine.handle_received(core.now, &buffer[start..start + len], &mut pool);
            if pool.refused {
                self.wait_for_memory(core);
            }
        }
        core.counters().placed_bytes.add(len as u64);
        core.memory.come_home(&mut self.account, id, buffer);
    }

    /// Offers the machine what came and was not taken. True if it took something.
    pub(super) fn feed(&mut self, core: &mut Core) -> bool {
        if core.is_stopping() || self.phase != Phase::Open {
            return false;
        }
        let mut took = false;
        if !self.carry.is_empty() && self.machine.wants_input() {
            let carry = std::mem::take(&mut self.carry);
            let taken = self.offer(core, &carry, None);
            took = taken > 0;
            self.carry = carry;
            self.carry.drain(..taken);
            if self.carry.is_empty() {
                self.carry = Vec::new();
            }
        }
        took |= self.feed_from_channel(core);
        while let Link::Loop(end) = &self.link
            && self.carry.is_empty()
            && self.machine.wants_input()
        {
            match end.read() {
                LoopRead::Empty => break,
                LoopRead::Bytes(bytes) => self.take_bytes(core, &bytes, None),
                LoopRead::Closed => {
                    self.close(core, "the host closed the connection");
                    return false;
                }
            }
            took = true;
        }
        took
    }

    /// Offers the machine what came. `memory` is where the bytes are, if they may stay there for the turn.
    pub(super) fn take_bytes(&mut self, core: &mut Core, bytes: &[u8], memory: Option<&Rc<Received>>) {
        if self.phase != Phase::Open || core.is_stopping() {
            return;
        }
        if !self.channel.is_none() {
            return self.take_from_channel(core, bytes);
        }
        self.heard(bytes.len());
        self.hand_over(core, bytes, memory);
    }

    /// Gives the machine what came, and keeps what it does not take.
    pub(super) fn hand_over(&mut self, core: &mut Core, bytes: &[u8], memory: Option<&Rc<Received>>) {
        let taken = if self.carry.is_empty() { self.offer(core, bytes, memory) } else { 0 };
        if taken < bytes.len() {
            self.carry.extend_from_slice(&bytes[taken..]);
            self.cancel_receive(core);
        }
    }

    fn offer(&mut self, core: &mut Core, bytes: &[u8], memory: Option<&Rc<Received>>) -> usize {
        let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
        pool.arriving = memory;
        let taken = self.machine.handle_bytes(core.now, bytes, &mut pool);
        if pool.refused {
            self.wait_for_memory(core);
        }
        taken
    }

    /// Sees to it that what is wanted next is being received.
    pub(super) fn arm_receive(&mut self, core: &mut Core) {
        let wanted = match self.phase {
            Phase::Open => {
                self.carry.is_empty() && self.late.is_empty() && self.machine.wants_input() && !core.is_stopping()
            }
            Phase::Lingering(_) => true,
            Phase::Closed => false,
        };
        let Link::Socket { socket, receive, .. } = &self.link else { return };
        if !wanted {
            return;
        }
        self.places_data = self.phase == Phase::Open && self.expects_much();
        if let Some(receive) = receive {
            // What comes from here on is better received elsewhere.
            if self.places_data && matches!(receive.into, Into::Shared) {
                self.cancel_receive(core);
            }
            return;
        }
        let socket = Arc::clone(socket);
        let (op, into) = match self.place(core) {
            Some((buffer, into)) => {
                let (range, whole) = match &into {
                    Into::Place(_, place) => (place.clone(), true),
                    _ => (0..buffer.len(), false),
                };
                (Op::ReceiveInto { socket, buffer, range, whole }, into)
            }
            None => (Op::Receive { socket, group: core.group }, Into::Shared),
        };
        let op = core.ring.push(Token::Receive(self.id).bits(), op);
        if let Link::Socket { receive, .. } = &mut self.link {
            *receive = Some(Receive { op, into, cancelling: false });
        }
    }

    pub(super) fn cancel_receive(&mut self, core: &mut Core) {
        if let Link::Socket { receive: Some(receive), .. } = &mut self.link
            && !std::mem::replace(&mut receive.cancelling, true)
        {
            core.ring.cancel(receive.op);
        }
    }

    /// Ends a receive into its place, to see how much came; the next one continues behind it.
    pub(super) fn look_at_placed(&mut self, core: &mut Core) {
        if let Link::Socket { receive: Some(Receive { into: Into::Place(..), .. }), .. } = &self.link {
            self.cancel_receive(core);
        }
    }

    /// Whether so much data is on its way that it pays to receive it into its place, or still pays.
    fn expects_much(&self) -> bool {
        let here = self.machine.receive_target().map_or(0, |target| u64::from(target.len));
        let expected = self.machine.awaited_bytes() + here;
        // What is sealed has no place yet.
        self.channel.is_none() && if self.places_data { expected > 0 } else { expected >= PLACED_BYTES_MIN }
    }

    /// The buffer for the next receive, if not one of those that all share.
    fn place(&mut self, core: &mut Core) -> Option<(Buffer, Into)> {
        if !self.places_data {
            return None;
        }
        if let Some(target) = self.machine.receive_target().filter(|target| target.len as usize >= HEADER_BYTES) {
            let place = target.offset as usize..(target.offset + target.len) as usize;
            return Some((core.memory.lend(target.buffer), Into::Place(target.buffer, place)));
        }
        let charge = core.memory.charge(&mut self.account, HEADER_BYTES)?;
        Some((core.memory.buffer(HEADER_BYTES), Into::Header(charge)))
    }
}

/// Bytes that wait for a later turn.
impl Connection {
    /// Takes what was received, or keeps it for later. Bytes that the machine does not take yet wait as well: it gets them in parts
    /// then.
    pub(super) fn take_or_keep(&mut self, core: &mut Core, bytes: &Rc<Received>) {
        let is_for_later = !self.late.is_empty() || core.inputs.are_over(self.input_of()) || !self.takes_input();
        if self.phase == Phase::Open && !core.is_stopping() && is_for_later {
            self.late.keep(bytes);
            self.cancel_receive(core);
            return;
        }
        let began = Instant::now();
        self.take_bytes(core, bytes, Some(bytes));
        core.inputs.took(self.input_of(), bytes.len(), began.elapsed());
    }

    /// Takes bytes that wait, until the host has had its time. False: that was before.
    pub(super) fn take_late(&mut self, core: &mut Core) -> bool {
        if core.inputs.are_over(self.input_of()) {
            return false;
        }
        let mut late = std::mem::take(&mut self.late);
        late.is_listed = false;
        while !late.part().is_empty() && self.phase == Phase::Open && self.takes_input() {
            let part = late.part();
            let began = Instant::now();
            self.take_bytes(core, part, None);
            core.inputs.took(self.input_of(), part.len(), began.elapsed());
            late.done += part.len();
            if core.inputs.are_over(self.input_of()) {
                break;
            }
        }
        if self.phase != Phase::Open || late.part().is_empty() {
            late = Late::default();
        }
        self.late = late;
        self.mark_dirty(core);
        true
    }

    /// Sees to it that bytes that wait are dealt with in the next turn, if the machine takes them.
    pub(super) fn continue_late(&mut self, core: &mut Core) {
        let has_more = !self.late.is_empty() && self.phase == Phase::Open && self.takes_input();
        if has_more && !std::mem::replace(&mut self.late.is_listed, true) {
            core.inputs.waiting.push(self.id);
        }
    }

    fn takes_input(&self) -> bool {
        self.carry.is_empty() && self.machine.wants_input()
    }

    /// The host whose time its input takes. All that did not say who they are share one.
    pub(super) fn input_of(&self) -> usize {
        self.account.host.as_ref().map_or(0, |host| Rc::as_ptr(host).addr())
    }
}

/// A connection's secure channel.
impl Connection {
    /// What came while the channel is not made, or sealed.
    pub(super) fn take_from_channel(&mut self, core: &mut Core, bytes: &[u8]) {
        match &mut self.channel {
            Channel::Undecided => match bytes.first() {
                None => {}
                Some(first) if diskside_tls::is_tls(*first) => {
                    self.channel = Channel::Handshake(Box::default());
                    self.shake(core, bytes);
                }
                Some(_) if core.shared.requires_channel() => {
                    self.refuse(core, "the host does not speak TLS, and must (security.require)".into());
                    self.close(core, "no TLS");
                }
                Some(_) => {
                    self.channel = Channel::None;
                    self.take_bytes(core, bytes, None);
                }
            },
            Channel::None => self.take_bytes(core, bytes, None),
            Channel::Handshake(_) => self.shake(core, bytes),
            Channel::Made(_) => self.take_sealed(core, bytes),
            Channel::Failed { .. } => {}
        }
    }

    /// Goes on with what was opened, or is still sealed, once the machine takes something. True if it took anything.
    pub(super) fn feed_from_channel(&mut self, core: &mut Core) -> bool {
        let Channel::Made(made) = &self.channel else { return false };
        let before = made.incoming.len();
        if before == 0 || !self.carry.is_empty() || !self.machine.wants_input() {
            return false;
        }
        self.take_sealed(core, &[]);
        !matches!(&self.channel, Channel::Made(made) if made.incoming.len() == before)
    }

    /// The handshake was carried on, by another thread or here.
    pub(super) fn shaken(&mut self, core: &mut Core, shaken: Shaken) {
        self.mark_dirty(core);
        let Channel::Handshake(pending) = &mut self.channel else { return };
        if self.phase != Phase::Open {
            return;
        }
        pending.at_work = false;
        match shaken {
            Shaken::NeedsMore { shaking, output } => {
                pending.shaking = Some(shaking);
                pending.unsent.extend(output);
                self.shake(core, &[]);
            }
            Shaken::Made { owner, secrets, rest, output } => {
                let Pending { mut unsent, received, .. } = std::mem::take(&mut **pending);
                unsent.extend(output);
                tracing::debug!(peer = self.peer(), host = %owner.names.host, "secure channel made");
                self.machine.set_channel(owner.names, owner.kind);
                let records = Records::new(secrets);
                let made = Made { records, incoming: Vec::new(), unsent, said_goodbye: false };
                self.channel = Channel::Made(Box::new(made));
                self.take_sealed(core, &rest);
                self.take_from_channel(core, &received);
            }
            Shaken::Failed { why, host, output } => {
                let mut unsent = std::mem::take(&mut pending.unsent);
                unsent.extend(output);
                self.channel = Channel::Failed { unsent };
                self.refuse_claimed(core, host, why);
            }
        }
    }

    /// Says that nothing more comes, if there is a channel where that is said. True: there is something to send first.
    pub(super) fn say_goodbye(&mut self) -> bool {
        let Channel::Made(made) = &mut self.channel else { return false };
        if std::mem::replace(&mut made.said_goodbye, true) {
            return false;
        }
        made.records.close(Alert::CLOSE_NOTIFY, &mut made.unsent);
        true
    }

    /// Hands what came to those who carry handshakes on, if that takes long.
    fn shake(&mut self, core: &mut Core, bytes: &[u8]) {
        let Channel::Handshake(pending) = &mut self.channel else { return };
        pending.received.extend_from_slice(bytes);
        if pending.received.len() > HANDSHAKE_LEN_MAX {
            let unsent = Alert::RECORD_OVERFLOW.to_plain_record().to_vec();
            self.channel = Channel::Failed { unsent };
            return self.refuse(core, "the host says too much before its secure channel is made".into());
        }
        if pending.at_work || pending.received.is_empty() {
            return;
        }
        let shaking = match pending.shaking.take() {
            Some(shaking) => shaking,
            // Others do not wait for a host that says its first words one by one.
            None => match pending.lookout.look(&pending.received) {
                Ok(Look::Incomplete) => return,
                Ok(Look::Hello(hello)) => Shaking::Begins(hello),
                Err(error) => {
                    self.channel = Channel::Failed { unsent: error.alert().to_plain_record().to_vec() };
                    return self.refuse(core, format!("the host's secure channel: {error}"));
                }
            },
        };
        let received = std::mem::take(&mut pending.received);
        if shaking.is_brief() {
            // To hand it to another thread would take longer.
            let shaken = core.shared.authenticators.shake_here(shaking, &received);
            return self.shaken(core, shaken);
        }
        pending.at_work = true;
        if !core.shared.authenticators.shake(self.slot(core), self.origin(), shaking, received) {
            self.refuse(core, "too many hosts make secure channels at once".into());
            self.close(core, "too many handshakes");
        }
    }

    /// Opens what came and gives it to the machine, as far as that takes it.
    fn take_sealed(&mut self, core: &mut Core, mut bytes: &[u8]) {
        self.heard(bytes.len());
        let mut output = std::mem::take(&mut core.opened);
        output.resize(RECORD_LEN_MAX + Records::OUTPUT_SPARE, 0);
        while !self.is_closed() {
            let takes = self.carry.is_empty() && self.machine.wants_input() && !core.is_stopping();
            let Channel::Made(made) = &mut self.channel else { break };
            if !takes {
                made.incoming.extend_from_slice(bytes);
                self.cancel_receive(core);
                break;
            }
            let is_held = !made.incoming.is_empty();
            let input = if is_held { &made.incoming } else { bytes };
            // Write data is opened where it belongs, which saves a copy.
            let place = Records::opened_len(input)
                .filter(|len| *len >= HEADER_BYTES)
                .and_then(|len| self.machine.receive_target().filter(|target| target.len as usize >= len));
            let found = match place {
                Some(target) => {
                    let mut buffer = core.memory.lend(target.buffer);
                    let place = target.offset as usize..(target.offset + target.len) as usize;
                    let found = made.records.open(input, &mut buffer[place]);
                    let len = if let Ok(Next::Record { content: Content::Data(len), .. }) = found { len } else { 0 };
                    self.come_placed(core, target.buffer, target.offset as usize, len, buffer);
                    found
                }
                None => made.records.open(input, &mut output),
            };
            let Channel::Made(made) = &mut self.channel else { break };
            match found {
                Ok(Next::Incomplete(missing)) => {
                    let (now, later) = bytes.split_at(if is_held { missing.min(bytes.len()) } else { bytes.len() });
                    made.incoming.extend_from_slice(now);
                    bytes = later;
                    if now.len() < missing || !is_held {
                        break;
                    }
                }
                Ok(Next::Record { taken, content }) => {
                    if is_held {
                        made.incoming.drain(..taken);
                        if made.incoming.is_empty() {
                            made.incoming = Vec::new();
                        }
                    } else {
                        bytes = &bytes[taken..];
                    }
                    match content {
                        Content::Data(_) if place.is_some() => {}
                        Content::Data(len) => self.hand_over(core, &output[..len], None),
                        Content::Control => {}
                        Content::Closed => self.close(core, "the host closed the secure channel"),
                    }
                }
                Err(error) => self.fail(core, error),
            }
        }
        core.opened = output;
    }

    fn fail(&mut self, core: &mut Core, error: RecordError) {
        let Channel::Made(made) = &mut self.channel else { return };
        let mut unsent = std::mem::take(&mut made.unsent);
        if let Some(alert) = error.alert() {
            made.records.close(alert, &mut unsent);
        }
        self.channel = Channel::Failed { unsent };
        self.refuse(core, error.to_string());
    }

    /// Says in the log and in the audit why the connection ends for its channel's sake.
    fn refuse(&mut self, core: &mut Core, why: String) {
        self.refuse_claimed(core, None, why);
    }

    /// The same of one that says it is this host.
    fn refuse_claimed(&mut self, core: &mut Core, host: Option<Nqn>, why: String) {
        // The reasons differ by the ways in which a host tries one key. Who is not known may be several.
        let cause = if host.is_some() { "channel" } else { &why };
        self.log_refused(core, host.as_ref(), cause, &why);
        self.tell_of_channel(core, host, &why);
    }
}

/// What a handshake says before its channel is made is less.
const HANDSHAKE_LEN_MAX: usize = 64 << 10;
/// How much data must be on its way for the change from shared buffers to places to cost less than the copy.
const PLACED_BYTES_MIN: u64 = 32 << 10;
/// The length of a receive for a header. Most of it is the first of the data, which is copied.
const HEADER_BYTES: usize = 4 << 10;
