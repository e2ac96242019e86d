//! The limits of all hosts together: memory, connections, queues.

use diskside_volume::Size;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// [`Limits`] as a user wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// See [`Limits::connections`].
    pub connections: Option<usize>,
    /// See [`Limits::memory`].
    pub memory: Option<Size>,
    /// See [`Limits::connection_memory`].
    pub connection_memory: Option<Size>,
    /// See [`Limits::queues`].
    pub queues: Option<u16>,
    /// See [`Limits::queue_entries`].
    pub queue_entries: Option<u16>,
    /// See [`Limits::transfer`].
    pub transfer: Option<Size>,
    /// See [`Limits::handshake_ms`].
    pub handshake_ms: Option<u32>,
    /// See [`Limits::stop_ms`].
    pub stop_ms: Option<u32>,
}

/// Bounds of what peers can take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Connections at a time, over all reactors. One more is closed at once.
    pub connections: usize,
    /// Bytes of command data in flight over all connections, divided evenly between the reactors.
    /// At the bound a reactor stops receiving until responses have left.
    pub memory: Size,
    /// Bytes of command data in flight on one connection.
    pub connection_memory: Size,
    /// I/O queues of one controller.
    pub queues: u16,
    /// Entries of one I/O queue.
    pub queue_entries: u16,
    /// Bytes of one command (MDTS): a power of two between 4 KiB and 16 MiB.
    pub transfer: Size,
    /// How long a new connection may take from accept to Connect, in milliseconds.
    pub handshake_ms: u32,
    /// How long a stop waits for commands in flight, in milliseconds.
    pub stop_ms: u32,
}

impl LimitSettings {
    pub(super) fn overridden_by(self, flags: Self) -> Self {
        Self {
            connections: flags.connections.or(self.connections),
            memory: flags.memory.or(self.memory),
            connection_memory: flags.connection_memory.or(self.connection_memory),
            queues: flags.queues.or(self.queues),
            queue_entries: flags.queue_entries.or(self.queue_entries),
            transfer: flags.transfer.or(self.transfer),
            handshake_ms: flags.handshake_ms.or(self.handshake_ms),
            stop_ms: flags.stop_ms.or(self.stop_ms),
        }
    }
}

impl Limits {
    pub(super) fn resolve(settings: LimitSettings) -> Self {
        Self {
            connections: settings.connections.unwrap_or(4096),
            memory: settings.memory.unwrap_or(Size::from_mib(256)),
            connection_memory: settings.connection_memory.unwrap_or(Size::from_mib(16)),
            queues: settings.queues.unwrap_or(64),
            queue_entries: settings.queue_entries.unwrap_or(256),
            transfer: settings.transfer.unwrap_or(Size::from_mib(1)),
            handshake_ms: settings.handshake_ms.unwrap_or(10_000),
            stop_ms: settings.stop_ms.unwrap_or(10_000),
        }
    }

    pub(super) fn check(&self, reactors: usize) -> Result<(), ConfigError> {
        let wrong = |field: &str, what: String| Err(ConfigError::Value { field: format!("limits.{field}"), what });
        let transfer = self.transfer.bytes();
        if !transfer.is_power_of_two() || !(4096..=16 << 20).contains(&transfer) {
            return wrong("transfer", format!("{} is not a power of two between 4KiB and 16MiB", self.transfer));
        }
        if self.connection_memory < self.transfer {
            let what = format!("{} does not hold one command of {}", self.connection_memory, self.transfer);
            return wrong("connection_memory", what);
        }
        if self.memory.bytes() / (reactors as u64) < self.connection_memory.bytes() {
            let what = format!(
                "{} over {reactors} reactors is less than one connection's {}",
                self.memory, self.connection_memory
            );
            return wrong("memory", what);
        }
        if self.connections == 0 {
            return wrong("connections", "0 lets nobody in".into());
        }
        if self.queues == 0 {
            return wrong("queues", "0 lets no host read or write".into());
        }
        if self.queue_entries < 2 {
            return wrong("queue_entries", format!("{} is less than 2", self.queue_entries));
        }
        if self.handshake_ms == 0 {
            return wrong("handshake_ms", "0 lets nobody in".into());
        }
        Ok(())
    }
}
