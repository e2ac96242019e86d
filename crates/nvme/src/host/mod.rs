//! The host's side: what an initiator does to use a controller.
//!
//! One [`Admin`] per controller brings it up; one [`Connection`] per I/O queue pair carries reads and writes.

mod admin;
mod commands;
mod connection;
mod info;
mod learn;
mod login;
mod receive;
mod submission;

pub use admin::{Admin, AdminConfig, AdminEvent};
pub use connection::{Connection, ConnectionConfig, ConnectionError, Event, HostIdentity, State};
pub use info::{ControllerInfo, DiscoveredSubsystem, NamespaceInfo};
pub use login::Login;
pub use submission::{Answer, CommandError, Completed, Data, Submission, SubmitError};
