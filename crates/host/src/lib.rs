//! The host side of NVMe/TCP: discovery, connections and volumes.
//!
//! ```no_run
//! use diskside_host::{ConnectOptions, Url, Volume};
//! use diskside_io::{buffer::Buffer, request::{AsyncIo, Request, block_on}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url: Url = "nvme-tcp://storage:4420/nqn.2014-08.org.example:disks/1".parse()?;
//! let volume = Volume::connect(&url, &ConnectOptions::default())?;
//! let first = volume.submit(Request::Read { offset: 0, buffer: Buffer::zeroed(4096) });
//! let block = block_on(first).into_read()?;
//! # Ok(()) }
//! ```
//!
//! A [`Volume`] takes requests from any thread through the interface that local files also have
//! ([`AsyncIo`](diskside_io::request::AsyncIo)): `submit` gives a future; `poll`, `block_on` or any
//! executor waits for it. A [`Connection`] has an admin queue and a number of I/O queue pairs, each a
//! TCP connection with a thread and a ring of its own, which polls for a while before it sleeps.
//! An [`InlineVolume`] has no thread: its owner turns the queue itself, which saves the hand-over.
//! All new capsules leave in one send; data is sent from the caller's buffer and copied into it once.
//!
//! **Losses.** A connection that is lost is made again, with pauses that grow. Requests wait
//! meanwhile; those that were in flight are sent again if doing them twice is doing them once:
//! reads, and writes, Write Zeroes and Deallocate, which name their position and were not
//! acknowledged. A Flush in flight fails. On a controller with a volatile write cache the next Flush after a loss fails
//! as well if writes were acknowledged that no flush covers, because they may be gone: a program that needs them
//! durable writes them again. As with any NVMe host, a target that stalls without closing its connections may execute a
//! write of the lost association late.

#![forbid(unsafe_code)]

mod channel;
mod connection;
mod control;
mod discovery;
mod error;
pub mod function;
mod inline;
mod job;
mod link;
mod login;
pub mod mounted;
mod options;
mod path_state;
mod places;
mod queue;
mod route;
mod service;
mod stats;
mod task;
mod url;
mod volume;
mod volume_state;

pub use diskside_keys::KeySource;
pub use diskside_nvme::controller::PathState;
pub use diskside_nvme::{Nqn, NqnError};

pub use channel::ChannelError;
pub use connection::{Connection, ConnectionState};
pub use discovery::discover;
pub use error::HostError;
pub use inline::InlineVolume;
pub use job::{Command, CommandData, CommandFailure, CommandOutcome};
pub use options::{ConnectOptions, host_identity};
pub use route::{Peer, Stream, StreamRead, StreamWrite, Transport};
pub use service::{NAMESERVER, ServiceError, ServiceFailure, find_service};
pub use stats::Stats;
pub use task::{drive, own_thread};
pub use url::{DISCOVERY_PORT_DEFAULT, PORT_DEFAULT, Url, UrlError};
pub use volume::Volume;
