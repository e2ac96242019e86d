//! The controller's side: what a target does with the bytes of its hosts.
//!
//! One [`Connection`] per TCP connection, which over TCP is one queue pair. All connections share one [`Subsystems`].

mod ana;
mod authenticate;
mod command;
mod config;
mod connection;
mod execute;
mod features;
mod fence;
mod identify;
mod io;
mod lock;
mod logs;
mod namespaces;
mod receive;
mod reply;
mod request;
mod reservations;
mod reserve;
mod shared;
mod slots;
mod subsystem;

pub use ana::PathState;
pub use config::{
    Access, AllVisible, AllowedHosts, BlockSize, CommandSet, ConfigError, ControllerInfo, Listener, NAMESPACES_MAX,
    Namespace, Place, SubsystemConfig, Visibility,
};
pub use connection::{ChannelKind, Connection, ConnectionConfig, ConnectionError, State};
pub use request::{ByteRange, Completion, CopySource, MediumId, Operation, OtherCommand, Request, Tag};
pub use reservations::{HostReservations, ReservedUse, ReservedWrite};
pub use subsystem::{Subsystem, Subsystems};
