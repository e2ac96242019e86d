//! Peers that take or send nothing for long.

use std::time::Duration;

use diskside_nvme::controller::State;

use super::{Connection, LINGER, Phase};
use crate::reactor::core::{Core, STALL};

impl Connection {
    /// Watches a send that takes long: the blocks that its reads hold are copied and released, and a peer that takes
    /// nothing at all is given up.
    pub(in crate::reactor) fn check_stall(&mut self, core: &mut Core, starving: bool) {
        let (look, give_up) = match self.machine.state() {
            // It need not hear our last words, and its calls end with it.
            State::Draining => (LINGER, LINGER),
            _ if starving => (LOOK_STARVING, SEND_TIMEOUT_STARVING),
            _ => (LOOK, SEND_TIMEOUT),
        };
        let patience = if self.copy_reads { look } else { STALL };
        let Some(sending) = &mut self.sending else { return };
        if self.phase != Phase::Open || sending.asked || core.now < sending.begun + patience {
            return;
        }
        if core.now >= sending.progressed + give_up {
            self.close(core, "the host does not read");
        } else if let Some(op) = sending.op {
            sending.asked = true;
            core.ring.cancel(op);
        }
    }

    /// Looks after data that the host was asked for: memory is kept for it, so a host that does not send it is given up.
    pub(in crate::reactor) fn check_owed(&mut self, core: &mut Core, starving: bool) {
        let owes = self.machine.awaited_bytes() > 0 || self.machine.receive_target().is_some();
        if self.phase != Phase::Open || !owes || !self.machine.wants_input() {
            self.owed_since = None;
            return;
        }
        let since = match self.owed_since {
            Some(since) if self.heard_bytes < OWED_BYTES_MIN => since,
            _ => core.now,
        };
        if self.owed_since != Some(since) {
            (self.owed_since, self.heard_bytes) = (Some(since), 0);
        }
        if core.now >= since + if starving { SEND_TIMEOUT_STARVING } else { SEND_TIMEOUT } {
            self.close(core, "the host does not send the data of its commands");
        } else if core.now >= since + LOOK_STARVING {
            // A receive into its place tells nothing until it is full.
            self.look_at_placed(core);
        }
    }

    /// What came of data that it owes.
    pub(in crate::reactor) fn heard(&mut self, len: usize) {
        self.heard_bytes = self.heard_bytes.saturating_add(len);
    }
}

/// How often a slow peer is looked after.
const LOOK: Duration = Duration::from_secs(10);

/// Data that a host owes and of which less came within the following counts as not sent.
const OWED_BYTES_MIN: usize = 64 << 10;

/// How long a peer may take no byte at all while there is something for it, or send none while it owes some.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// The same while another connection cannot get any memory.
const LOOK_STARVING: Duration = Duration::from_millis(500);

const SEND_TIMEOUT_STARVING: Duration = Duration::from_secs(2);
