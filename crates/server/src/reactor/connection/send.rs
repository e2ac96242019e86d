//! The sends of a connection: one batch at a time, all that its machine has to say.

use std::sync::Arc;
use std::time::Instant;

use diskside_io::Errno;
use diskside_io::ring::{Completion, Op, OpId, Payload, SEGMENTS_MAX, SendBatch};
use diskside_nvme::{BufferSlice, Buffers, Segment, Transmit};

use super::{Connection, Hold, Link, Phase};
use crate::link::LoopWriteError;
use crate::reactor::channel::Sealed;
use crate::reactor::core::Core;
use crate::reactor::memory::{AccountMemory, Memory, Piece};
use crate::reactor::token::Token;

/// A batch on its way.
pub(super) struct Sending {
    pub(super) transmit: Transmit,
    /// Of it, or beside it: what a secure channel makes of it.
    pub(super) sealed: Option<Sealed>,
    /// The most bytes of one send.
    pub(super) send_len_max: usize,
    /// The send under way; a loop that is full has none, nor has what waits for the next turn.
    pub(super) op: Option<OpId>,
    /// When that was begun.
    pub(super) begun: Instant,
    /// When the peer last took a byte, as far as is known.
    pub(super) progressed: Instant,
    /// It takes long, and was asked to end and say how far it came.
    pub(super) asked: bool,
}

impl Connection {
    /// A send ended.
    pub(in crate::reactor) fn sent(&mut self, core: &mut Core, completion: Completion) {
        let Some(mut sending) = self.sending.take() else { unreachable!("a send ended that was never begun") };
        if let Payload::Batch(mut batch) = completion.payload {
            if let Some(sealed) = &mut sending.sealed {
                sealed.come_back(&mut batch);
            }
            batch.clear();
            core.spare_batches.push(batch);
        }
        self.mark_dirty(core);
        sending.op = None;
        if self.phase == Phase::Closed {
            self.abandon(core, sending.transmit);
            return;
        }
        match completion.result {
            Ok(len) => self.advance(core, sending, len as usize),
            Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => self.advance(core, sending, 0),
            Err(errno) => {
                self.abandon(core, sending.transmit);
                self.close(core, &errno.to_string());
            }
        }
    }

    /// Sends what the machine has to say, unless a send is under way.
    pub(super) fn transmit(&mut self, core: &mut Core) {
        // The host comes over the channel as soon as it hears that it is authenticated.
        if let Some(generated) = self.machine.take_generated() {
            core.shared.authenticators.add_generated(generated);
        }
        if self.channel.has_failed()
            && let Some(sending) = self.sending.take_if(|sending| sending.op.is_none() && sending.sealed.is_none())
        {
            self.abandon(core, sending.transmit);
        }
        if self.holds_sends.is_some() {
            return;
        }
        if let Some(sending) = self.sending.take_if(|sending| sending.op.is_none()) {
            self.send(core, sending);
        }
        while self.sending.is_none() && self.phase == Phase::Open {
            let mut transmit = core.spare_transmits.pop().unwrap_or_default();
            let has_said = self.channel.is_open() && self.machine.poll_transmit(&mut transmit);
            if !has_said && !self.channel.has_unsent() {
                core.spare_transmits.push(transmit);
                return;
            }
            let (send_len_max, now) =
                (if core.media_at_work() { SEND_BYTES_BESIDE_MEDIA } else { usize::MAX }, core.now);
            let sealed = None;
            self.send(
                core,
                Sending { transmit, sealed, send_len_max, op: None, begun: now, progressed: now, asked: false },
            );
        }
    }

    /// The next turn has begun.
    pub(in crate::reactor) fn resume_send(&mut self, core: &mut Core) {
        if self.holds_sends == Some(Hold::Turn) {
            self.holds_sends = None;
            self.mark_dirty(core);
        }
    }

    fn send(&mut self, core: &mut Core, mut sending: Sending) {
        let is_socket = matches!(self.link, Link::Socket { .. });
        if is_socket && core.sends.put_off(self.id, sending.transmit.remaining(), core.now) {
            self.holds_sends = Some(Hold::Turn);
            self.sending = Some(sending);
            return;
        }
        let mut batch = core.spare_batches.pop().unwrap_or_default();
        sending.begun = core.now;
        let len_max = sending.send_len_max.min(core.sends.len_max(core.now));
        match &self.link {
            Link::Socket { socket, .. } => {
                core.start_media();
                if sending.sealed.is_none() {
                    let (memory, spare) = (&core.memory, &mut core.spare_sealed);
                    sending.sealed = self.channel.seal(&sending.transmit, memory, len_max, spare);
                }
                match &mut sending.sealed {
                    Some(sealed) => sealed.put(&mut batch),
                    None => fill(&mut batch, &sending.transmit, &core.memory, (SEGMENTS_MAX, len_max)),
                }
                let len = batch.len_bytes();
                let op = Op::Send { socket: Arc::clone(socket), batch };
                sending.op = Some(core.ring.push(Token::Send(self.id).bits(), op));
                core.sends_in_flight += 1;
                self.sending = Some(sending);
                core.sends.sent(len);
            }
            Link::Loop(end) => {
                // All of it: a loop takes a whole batch or nothing.
                fill(&mut batch, &sending.transmit, &core.memory, (usize::MAX, usize::MAX));
                let (len, written) = (batch.len_bytes(), end.write(batch.to_vec()));
                batch.clear();
                core.spare_batches.push(batch);
                match written {
                    Ok(()) => self.advance(core, sending, len),
                    Err(LoopWriteError::Full(_)) => {
                        self.sending = Some(sending);
                        // Its reads from here on are copied at once: nothing of them is in volumes any more.
                        if !self.copy_reads {
                            self.detach(core);
                        }
                    }
                    Err(LoopWriteError::Closed(_)) => {
                        self.abandon(core, sending.transmit);
                        self.close(core, "the host closed the connection");
                    }
                }
            }
        }
    }

    /// Notes that `len` bytes of a batch have left; what remains is sent next.
    fn advance(&mut self, core: &mut Core, mut sending: Sending, mut len: usize) {
        let has_progressed = len > 0;
        if let Some(sealed) = &mut sending.sealed {
            // Sealed bytes leave as they are; the machine's bytes have left when all of them have.
            if !sealed.advance(len) {
                return self.go_on_sending(core, sending, has_progressed);
            }
            len = sealed.plain_len;
            let mut bytes = std::mem::take(&mut sealed.bytes);
            bytes.clear();
            if core.spare_sealed.len() < SPARE_SEALED_MAX {
                core.spare_sealed.push(bytes);
            }
            sending.sealed = None;
            if sending.transmit.is_empty() {
                core.spare_transmits.push(sending.transmit);
                return;
            }
        }
        let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
        sending.transmit.advance(len, |buffer| pool.release(buffer));
        if sending.transmit.is_empty() {
            self.machine.handle_transmitted(&mut sending.transmit);
            core.spare_transmits.push(sending.transmit);
            self.copy_reads = false;
            return;
        }
        self.go_on_sending(core, sending, has_progressed);
    }

    fn go_on_sending(&mut self, core: &mut Core, mut sending: Sending, has_progressed: bool) {
        if has_progressed {
            sending.progressed = core.now;
        }
        if std::mem::take(&mut sending.asked) {
            self.detach(core);
        }
        // The rest is sent when the turn ends: commands that came meanwhile are started before it.
        self.sending = Some(sending);
    }

    /// The peer is slow: its reads must not hold blocks of a volume.
    pub(super) fn detach(&mut self, core: &mut Core) {
        self.copy_reads = true;
        self.holds_sends = Some(Hold::Detach);
        core.to_detach.push_back(self.id);
    }

    /// Copies one of them, and gives its bytes; `None`: there are no more, and it continues to send.
    pub(in crate::reactor) fn detach_some(&mut self, core: &mut Core) -> Option<usize> {
        if self.holds_sends != Some(Hold::Detach) {
            return None;
        }
        let copied = if self.phase == Phase::Open { core.memory.detach(self.id) } else { None };
        match copied {
            Some(_) => core.counters().stalled_reads.add(1),
            None => {
                self.holds_sends = None;
                self.mark_dirty(core);
            }
        }
        copied
    }

    pub(super) fn abandon(&mut self, core: &mut Core, mut transmit: Transmit) {
        let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
        transmit.abandon(|buffer| pool.release(buffer));
    }
}

/// Turns what the machine says into what is sent, up to so many segments and bytes; the rest goes with the next send.
fn fill(batch: &mut SendBatch, transmit: &Transmit, memory: &Memory, (segments_max, len_max): (usize, usize)) {
    for segment in transmit.segments().take(segments_max) {
        let left = len_max - batch.len_bytes();
        if left == 0 {
            return;
        }
        match segment {
            Segment::Bytes(bytes) => batch.put(&bytes[..bytes.len().min(left)]),
            Segment::Buffer(slice) => {
                let len = slice.len.min(u32::try_from(left).unwrap_or(u32::MAX));
                match memory.piece(BufferSlice { len, ..slice }) {
                    Piece::Shared(slice) => batch.put_shared(slice),
                    Piece::Buffer(buffer) => {
                        let start = slice.offset as usize;
                        batch.put_arc(buffer, start..start + len as usize);
                    }
                }
            }
        }
    }
}

/// The most bytes of one send while disks are at work. They answer in bursts. If all of a burst were sent at once, its
/// host would begin to ask for more when the last of it was copied, and the disks had nothing to do until then. So it
/// gets a few blocks at a time, and disks the next commands between them.
const SEND_BYTES_BESIDE_MEDIA: usize = 16 << 10;

/// Buffers for what is sealed that a reactor keeps, for connections that send at the same time.
const SPARE_SEALED_MAX: usize = 16;
