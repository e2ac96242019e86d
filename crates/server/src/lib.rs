//! The storage side: volumes on files, block devices and memory, served over NVMe/TCP by a reactor per core.
//!
//! | Module | What it is |
//! |---|---|
//! | [`Target`], [`Handle`], [`Running`] | build, start, steer and stop a target |
//! | [`config`] | what to serve: a TOML file, flags, or both |
//! | [`volume`] | a medium with a name, and what keeps its blocks whole |
//! | [`export`] | directories served by name, and the file operations on them |
//! | [`confine`] | the privileges that a server's process drops |
//! | [`service`] | the messages to and from a service manager |
//! | [`link`] | a connection in memory, for a host in the same process |
//! | [`stats`] | counters per volume, host and reactor |
//!
//! # The way of a read
//!
//! 1. Bytes arrive in one of the reactor's shared receive buffers; the connection's machine
//!    ([`diskside_nvme::controller`]) takes the command capsules out and checks them.
//! 2. A read of a memory volume holds its blocks ([`volume::guard`]) and is answered with the place of its bytes. Any
//!    other command becomes a task: it takes memory, holds its blocks, asks its [medium](volume::medium) and gives the
//!    ring the answer; when the ring is done, it continues with the rest or ends.
//! 3. All answers that a connection has at the end of the reactor's turn leave in one `sendmsg`: headers from an arena,
//!    data from where they are. When it is done, the memory and the blocks are released.
//!
//! # What is shared
//!
//! A connection stays with the reactor that it was given when it was accepted, the one with the fewest. The queues of
//! one controller may therefore live on different reactors. These share the volumes and the machines' common state
//! (controllers, namespaces, events), which the path of a command reads without a lock. Two reactors that work on the
//! same volume at the same time both write only the guards of its blocks.
//!
//! # Order and durability
//!
//! * A read sees every write that was acknowledged before the read was sent, whichever queue or host wrote it.
//!   Commands in flight at the same time have no order (NVMe promises none).
//! * A logical block is atomic: a read while it is written sees it before or after, not in between.
//! * Writes that were acknowledged before an acknowledged Flush, or have Force Unit Access, survive power loss. A
//!   failed flush makes the volume refuse writes until it is opened again, because the kernel reports a lost write only
//!   once.
//!
//! # Bounds
//!
//! | What | Bound |
//! |---|---|
//! | data of commands | `limits.memory` in all, `limits.connection_memory` a connection (256 and 16 MiB) |
//! | receive buffers | 2 MiB a reactor, lent for as long as bytes are looked at |
//! | an idle connection | none of both; some 4 KiB for the machine, and what the kernel keeps for its socket |
//! | bytes that wait because a bound is reached | what the socket held when reading stopped (`net.ipv4.tcp_rmem`), then TCP holds the peer back |
//! | time to ICReq and Connect | `limits.handshake_ms` (10 s) |
//! | time to prove who the host is, where it must | 30 s |
//! | connections whose hosts have not proved it | 256 of an address, half of all connections; where there are more, the oldest of the address that has most goes |
//! | time without Keep Alive | what the host asked for; TCP finds a peer that vanished in 2 min |
//! | data that hosts were asked for and did not send yet | half of the memory; of one host, with all else, three quarters |
//! | time in which a peer takes no byte of an answer, or sends none of the data that it owes | 60 s; 2 s while another connection gets no memory at all |
//! | time in which a host without Keep Alive may send no command | 10 min |
//! | lines of log about one address | 10 a minute; the others are counted |
//! | time that blocks are held for a slow peer | 5 ms: then they are copied and given free |
//!
//! A reactor polls for up to `poll_us` (100 µs) before it sleeps, where that pays: an idle target takes no CPU time,
//! and one that shares its processor with busy threads does not poll.

#![forbid(unsafe_code)]

mod audit;
mod authenticate;
mod channel;
pub mod config;
pub mod confine;
mod descriptors;
mod disks;
mod half_open;
mod keyring;
pub mod link;
mod notices;
mod reactor;
pub mod service;
mod shared;
pub mod stats;
mod target;

pub use diskside_export as export;
pub use diskside_volume as volume;
pub use target::{Handle, Opened, Reloaded, Running, Target, TargetBuilder, TargetError};
