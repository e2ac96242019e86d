//! One TCP connection of the simulation: two machines, and what is on the way between them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use diskside_nvme::controller::{self, Request};
use diskside_nvme::host::{Admin, Connection};
use diskside_nvme::{Segment, Transmit};

use super::support::memory::Memory;
use super::support::rng::Rng;

/// The host's end.
#[derive(Debug)]
pub enum HostEnd {
    Admin(Box<Admin>),
    Io(Box<Connection>),
}

/// One connection.
#[derive(Debug)]
pub struct Link {
    pub host: HostEnd,
    pub controller: controller::Connection,
    pub to_controller: Wire,
    pub to_host: Wire,
    /// Requests that the medium has not answered.
    pub requests: Vec<Request>,
    pub dead: bool,
}

/// Bytes on the way in one direction, and the batch that they come from.
#[derive(Debug, Default)]
pub struct Wire {
    transmit: Transmit,
    sending: bool,
    chunks: VecDeque<(Instant, Vec<u8>)>,
    /// Arrived, and not consumed by the receiver.
    pub arrived: Vec<u8>,
}

/// What the network does to bytes, in percent of the chunks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub delay: u64,
    pub damage: u64,
    pub lose: u64,
}

/// What happened to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Sent,
    Damaged,
    Lost,
}

impl Wire {
    /// Whether a batch is being sent.
    pub fn is_sending(&self) -> bool {
        self.sending
    }

    pub fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    pub fn begin(&mut self) {
        self.sending = true;
    }

    /// Sends the next piece of the batch. Returns what happened to it, and whether the batch is done.
    pub fn send_some(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        weather: Weather,
        memory: &mut Memory,
        owned: bool,
    ) -> (Fate, bool) {
        let most = self.transmit.remaining();
        let len = if rng.chance(50) { most } else { rng.between(1, most as u64) as usize };
        let mut bytes = Vec::with_capacity(len);
        for segment in self.transmit.segments() {
            let part = match segment {
                Segment::Bytes(part) => part,
                Segment::Buffer(slice) => memory.slice(slice),
            };
            bytes.extend_from_slice(&part[..part.len().min(len - bytes.len())]);
            if bytes.len() == len {
                break;
            }
        }
        self.transmit.advance(len, |buffer| {
            assert!(owned, "a host owns no buffers");
            memory.remove(buffer);
        });
        let done = self.transmit.is_empty();
        if done {
            self.sending = false;
        }
        let mut fate = Fate::Sent;
        if rng.chance(weather.damage) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            fate = Fate::Damaged;
        } else if rng.chance(weather.lose) {
            let from = rng.below(bytes.len() as u64) as usize;
            let to = rng.between(from as u64 + 1, bytes.len() as u64) as usize;
            bytes.drain(from..to);
            fate = Fate::Lost;
        }
        let delay = if rng.chance(weather.delay) { rng.between(1, 20_000) } else { 0 };
        // TCP keeps the order: nothing arrives before what was sent before it.
        let after = self.chunks.back().map_or(now, |(at, _)| *at);
        self.chunks.push_back(((now + Duration::from_micros(delay)).max(after), bytes));
        (fate, done)
    }

    /// When something arrives next.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.chunks.front().map(|(at, _)| *at)
    }

    /// Takes in what has arrived, a random piece of it. Returns whether there was anything.
    pub fn receive_some(&mut self, now: Instant, rng: &mut Rng) -> bool {
        let Some((_, bytes)) = self.chunks.front_mut().filter(|(at, _)| *at <= now) else { return false };
        let len = if rng.chance(60) { bytes.len() } else { rng.between(0, bytes.len() as u64) as usize };
        self.arrived.extend_from_slice(&bytes[..len]);
        bytes.drain(..len);
        if bytes.is_empty() {
            self.chunks.pop_front();
        }
        true
    }

    /// The connection is gone, and what was on the way.
    pub fn cut(&mut self, memory: &mut Memory, owned: bool) {
        self.transmit.abandon(|buffer| {
            assert!(owned, "a host owns no buffers");
            memory.remove(buffer);
        });
        self.sending = false;
        self.chunks.clear();
        self.arrived.clear();
    }
}
