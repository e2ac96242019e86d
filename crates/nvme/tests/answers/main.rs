//! The controller's answers to commands that it should not get, word for word.
//!
//! The cases are in `*.case` files beside this one. A case is a name, a state to begin in, and lines:
//!
//! ```text
//! case A read behind the end
//! on io
//! command opcode=02 nsid=1 slba=16384 sgl=5a:0:512
//! want LBA Out of Range, dnr
//! ```
//!
//! `on`: `fresh` (nothing was said), `initialized` (ICReq and ICResp; `hdgst`, `ddgst` and `hpda=N` may follow), `admin`
//! (connected, not enabled), `enabled`, `io` (an I/O queue of four entries; `flow` for SQ flow control), `discovery`; with
//! `inaccessible` the path is closed then.
//!
//! `command`: a capsule. Keys in hex: `opcode cid nsid flags fctype`, `dw2` to `dw15`; in decimal: `slba blocks data` (bytes
//! in the capsule, of which each holds its index); `sgl=identifier:address:length`. `h2c`: data, with `cid ttag` in hex
//! and `offset len last` in decimal. Both are sent with the digests in use, of which `spoil=hdgst` or `spoil=ddgst` makes
//! one wrong. `pdu`: bytes in hex, in groups as one likes; `00*112` repeats; `crc` puts the CRC32C of the bytes before it.
//!
//! `want`: the next thing that the controller says. A status by its name, with `dnr` and `result=hex` if so;
//! `ICResp`; `R2T ttag offset len`; `data offset len` with `last` and `success`; `terminate FES FEI` (and the connection
//! ends); `nothing`; `closed`. `medium ok` and `medium NAME` let the medium answer its next request; `path STATE` changes the state of
//! the path.

#![allow(unreachable_pub, reason = "a test has no outside")]

#[path = "../support/mod.rs"]
mod support;

mod cases;
mod run;

#[test]
fn connections_and_pdus() {
    run::file("pdus.case", include_str!("pdus.case"), 30);
}

#[test]
fn fabrics_commands() {
    run::file("fabrics.case", include_str!("fabrics.case"), 25);
}

#[test]
fn data_pointers() {
    run::file("data.case", include_str!("data.case"), 20);
}

#[test]
fn admin_commands() {
    run::file("admin.case", include_str!("admin.case"), 40);
}

#[test]
fn reservations() {
    run::file("reservations.case", include_str!("reservations.case"), 25);
}

#[test]
fn paths() {
    run::file("paths.case", include_str!("paths.case"), 12);
}

#[test]
fn io_commands() {
    run::file("io.case", include_str!("io.case"), 40);
}
