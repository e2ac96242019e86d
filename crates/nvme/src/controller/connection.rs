//! One TCP connection of a controller, which is one queue pair.

mod config;
mod events;
mod known;
mod life;
mod state;

pub use config::{ChannelKind, ConnectionConfig};
pub use state::{ConnectionError, State};

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;
use std::time::Instant;

use crate::auth::{self, Names, TlsPsk};
use crate::nqn::Nqn;
use crate::pdu::{Decoder, Encoder, Role};
use crate::transmit::Transmit;
use crate::wire::Sqe;

use super::config::Place;
use super::fence::{FenceInbox, Fences};
use super::namespaces::Namespaces;
use super::request::{Request, Tag};
use super::shared::{Controller, Counters};
use super::slots::Slots;
use super::subsystem::Subsystems;

/// Bytes of write data that a command capsule may carry. I/O controllers say so in IOCCSZ; on admin queues it is what the
/// transport allows (TCP 3.3.2.2).
pub(super) const IN_CAPSULE_LEN: u32 = 8192;
/// The most Asynchronous Event Requests outstanding.
pub(super) const ASYNC_EVENTS_MAX: u8 = 4;
/// The most Aborts outstanding.
pub(super) const ABORTS_MAX: u8 = 4;
/// One connection. See the [module of the controller](super) for how to drive it.
#[derive(Debug)]
pub struct Connection {
    pub(super) subsystems: Arc<Subsystems>,
    pub(super) config: ConnectionConfig,
    pub(super) waker: Waker,
    /// Whose key the secure channel has over which the bytes come, if they do.
    pub(super) channel: Option<(Names, ChannelKind)>,
    /// The key of the channel that must follow, which the host's authentication made.
    pub(super) generated: Option<TlsPsk>,
    pub(super) state: State,
    pub(super) error: Option<ConnectionError>,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    /// The bytes to be sent next.
    pub(super) out: Transmit,
    /// Answers in `out`: their commands' places are taken until they are handed over.
    pub(super) unsent_answers: u32,
    /// Bytes of data in `out` itself.
    pub(super) unsent_bytes: usize,
    /// A batch was handed over and not yet reported as sent.
    sending: bool,
    pub(super) slots: Slots,
    pub(super) requests: VecDeque<Request>,
    /// Where the data of the current PDU goes.
    pub(super) inbound: Inbound,
    /// Bytes of the current input are in their place already.
    pub(super) placed: bool,
    /// A command in front of whose data reading stopped, because there was no buffer.
    pub(super) held: Option<(Sqe, u32)>,
    /// Commands that wait for a buffer.
    pub(super) waiting: VecDeque<Tag>,
    /// Commands whose parameters are to be asked for, once others' have come.
    pub(super) parameters_unasked: VecDeque<Tag>,
    /// Bytes of parameters that were asked for and have not come completely.
    pub(super) parameters_asked: u32,
    /// R2Ts whose data has not come completely.
    pub(super) r2ts: u32,
    /// Bytes that R2Ts asked for and whose PDUs have not begun to come.
    pub(super) awaited_bytes: u64,
    pub(super) link: Option<Link>,
    pub(super) deadline: Option<Instant>,
    /// A deadline was put off, because this side looked too late.
    pub(super) was_late: bool,
    /// When authenticating must be over.
    pub(super) authentication_deadline: Option<Instant>,
    pub(super) fences: Fences,
    /// Requests for events, oldest first.
    pub(super) events: VecDeque<Tag>,
    /// The target shuts down: nothing is read, what the embedder has is still answered.
    pub(super) finishing: bool,
    /// The host that was not let in last, until somebody asked.
    pub(super) refused: Option<Nqn>,
    /// Commands of an authenticated host that were refused here, until somebody asked.
    pub(super) refused_commands: u32,
}

/// Where the data of the current PDU goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inbound {
    /// Its command was refused.
    Discard,
    /// To a command; `at` is the place of the next byte.
    Slot { slot: u32, at: u32 },
}

/// A queue of a controller, from Connect on.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) controller: Arc<Controller>,
    pub(super) queue_id: u16,
    pub(super) entries: u16,
    pub(super) flow_control: bool,
    pub(super) sqhd: u16,
    pub(super) namespaces: Arc<Namespaces>,
    /// The host enabled all command sets, not only NVM. Of I/O queues: it cannot change while they live.
    pub(super) all_command_sets: bool,
    pub(super) counters: Arc<Counters>,
    /// Set when this queue must end.
    pub(super) close: Arc<AtomicBool>,
    /// The gate: until it is set nothing but authentication is done. An I/O queue is the controller's only then.
    pub(super) authenticated: bool,
    /// The host is let in only to make the key of a secure channel.
    pub(super) must_concatenate: bool,
    /// If the host has keys: what authenticates it.
    pub(super) authentication: Option<Box<auth::Controller>>,
    /// The data that the embedder keeps for it, once it is let in.
    pub(super) place: Option<Place>,
    /// Where others put up fences, of an I/O queue; from before its snapshot of the namespaces on.
    pub(super) fence_inbox: Option<Arc<FenceInbox>>,
}

impl Connection {
    /// A connection that was just accepted. `waker` is woken, from any thread, when something outside this connection
    /// concerns it: then call [`handle_wake`](Self::handle_wake). It is woken with locks held, and must not call back.
    pub fn new(subsystems: Arc<Subsystems>, config: ConnectionConfig, waker: Waker, now: Instant) -> Self {
        let deadline = Some(now + config.connect_timeout);
        let decoder = Decoder::new(Role::Controller, IN_CAPSULE_LEN, config.h2c_data_len_max);
        Self {
            subsystems,
            config,
            waker,
            channel: None,
            generated: None,
            state: State::Negotiating,
            error: None,
            decoder,
            encoder: Encoder::plain(),
            out: Transmit::new(),
            unsent_answers: 0,
            unsent_bytes: 0,
            sending: false,
            slots: Slots::new(),
            requests: VecDeque::new(),
            inbound: Inbound::Discard,
            placed: false,
            held: None,
            waiting: VecDeque::new(),
            parameters_unasked: VecDeque::new(),
            parameters_asked: 0,
            r2ts: 0,
            awaited_bytes: 0,
            link: None,
            deadline,
            was_late: false,
            authentication_deadline: None,
            fences: Fences::default(),
            events: VecDeque::new(),
            finishing: false,
            refused: None,
            refused_commands: 0,
        }
    }
}
