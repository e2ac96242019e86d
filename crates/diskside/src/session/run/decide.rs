//! The choice of the side where a request runs, and the measurements that the next choices are made with.

use super::job::{Done, Job};
use crate::session::cache::BLOCK_LEN;
use crate::session::crowd::Present;
use crate::session::error::SessionError;
use crate::session::learnt::Subject;
use diskside_dispatch::{Conditions, Decision, Hints, Link as LinkState, Observation, PairId, Plan, Request, Side};
use diskside_engine::pieces::PIECE_LEN;
use diskside_engine::split::Split;
use diskside_host::own_thread;
use std::ops::Range;

impl Job<'_> {
    /// The bytes that the host would fetch behind a range for the end of its last record, however much of the range it
    /// holds.
    pub(super) fn fetched_behind(&self, range: &Range<u64>, split: Split) -> u64 {
        let goes_on = range.end < self.now.len_bytes && matches!(split, Split::Delimiter(_));
        // The kernel fetches less of a mounted file.
        let is_held = self.mounted.is_some() || !self.cached(&(range.end..range.end + 1)).is_empty();
        if goes_on && !is_held { BLOCK_LEN } else { 0 }
    }

    /// Asks the dispatcher. Makes sure that the device has the function if it is to run there.
    pub(super) async fn decide(&mut self, request: &Request) -> Result<Decision, SessionError> {
        let decision = self.choose(request).await?;
        self.reason = Some(decision.reason);
        Ok(decision)
    }

    async fn choose(&mut self, request: &Request) -> Result<Decision, SessionError> {
        // A request that needs nothing of the device does not wait until it has the function.
        let needs_none = request.told.is_none() && request.effect_free && request.cached_bytes == request.len_bytes;
        let is_lost = request.told.is_none() && self.is_cut_off();
        let state = if is_lost { Some(LinkState::Lost) } else { needs_none.then_some(LinkState::Up) };
        let decision = match state {
            Some(state) => Some(self.ask(request, state).await),
            None => None,
        };
        let is_here = |decision: &Decision| decision.plan == Plan::Host && !decision.probe.is_some_and(|p| p.instead);
        if let Some(decision) = decision.filter(is_here) {
            return Ok(decision);
        }
        if request.told == Some(Side::Host) {
            return Ok(self.ask(request, LinkState::Up).await);
        }
        match (self.load().await, decision) {
            (Ok(()), Some(decision)) => Ok(decision),
            (Ok(()), None) => Ok(self.ask(request, LinkState::Up).await),
            (Err(error), _) if request.told.is_some() || error.function().is_some_and(|e| e.is_loss()) => Err(error),
            // The host can still run it.
            (Err(_), _) => Ok(self.ask(request, LinkState::NoCompute).await),
        }
    }

    async fn ask(&self, request: &Request, state: LinkState) -> Decision {
        let inner = &self.file.inner;
        let link = self.link().expect("a file that is only here has no choice");
        let conditions = Conditions {
            link: state,
            host_reads: self.host_reads(),
            round_trip_s: link.round_trip_s(),
            device_waiting: link.waiting(),
            host_waiting: inner.session.host_waiting(),
            device_running: link.at_once(Side::Device),
            host_running: link.at_once(Side::Host),
            device_turn_s: if state == LinkState::Up { link.turn_s().await } else { 0.0 },
            turn_len_bytes: self.turn_len_bytes(),
        };
        let pair = self.file.pair(self.function);
        self.recall(pair, &link.name).await;
        inner.session.lock_dispatcher().decide(pair, request, &conditions)
    }

    /// What the function's author knows of its cost.
    pub(super) fn hints(&self) -> Option<Hints> {
        let cost = self.function.note().cost?;
        Some(Hints { output_permille: cost.output_permille, passes: cost.passes, scattered: cost.scattered })
    }

    /// Bytes that a device computes at a time.
    pub(super) fn turn_len_bytes(&self) -> u64 {
        let len = self.grid.as_ref().map(|grid| grid.pieces.len_bytes).or(self.options.chunk_len);
        len.unwrap_or(PIECE_LEN) as u64
    }

    /// Begins a pair that is new to this session with what earlier ones learnt of the function at this target.
    async fn recall(&self, pair: PairId, target: &str) {
        let session = &self.file.inner.session;
        let Some(files) = session.learnt() else { return };
        // A byte of a compressed file takes what many bytes of another take.
        let function = match &self.compressed {
            None => self.function.name().to_owned(),
            Some(compressed) => format!("{} of {}", self.function.name(), compressed.codec.name()),
        };
        let subject = Subject { target: target.to_owned(), program: self.function.hash(), function };
        let is_new = session.lock_dispatcher().view(pair).is_none();
        if is_new {
            own_thread().await;
            if let Some(learnt) = files.load(&subject) {
                session.lock_dispatcher().recall(pair, &learnt);
            }
        }
        files.note(subject, pair);
    }

    pub(super) fn observe(&self, done: &Done) {
        self.learn(&done.observation, None);
        self.advance(done);
    }

    /// Tells the dispatcher what a part took, with how many calls it shared its side.
    pub(super) fn learn(&self, observation: &Observation, present: Option<&Present>) {
        let at_once = present.map_or(1.0, Present::at_once);
        let pair = self.file.pair(self.function);
        self.file.inner.session.lock_dispatcher().observe_among(pair, observation, at_once);
    }

    pub(super) fn learn_probe(&self, observation: &Observation, present: Option<&Present>) {
        let at_once = present.map_or(1.0, Present::at_once);
        let pair = self.file.pair(self.function);
        self.file.inner.session.lock_dispatcher().observe_probe(pair, observation, at_once);
    }
}
