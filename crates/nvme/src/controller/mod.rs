//! The controller's side: what a target does with the bytes of its hosts.
//!
//! One [`Connection`] per TCP connection, which over TCP is one queue pair. All connections share one [`Subsystems`].

mod connection;
mod request;
mod subsystem;

pub use connection::{Connection, ConnectionConfig, ConnectionError, State};
pub use request::{
    ByteRange, Completion, CopySource, MediumId, Operation, OtherCommand, Request, Tag,
};
pub use subsystem::{
    AllowedHosts, BlockSize, CommandSet, ConfigError, ControllerInfo, Listener, NAMESPACES_MAX,
    Namespace, Subsystem, SubsystemConfig, Subsystems,
};
