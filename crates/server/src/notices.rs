//! How much of what peers do is written to the log: each address a few lines a minute, the others counted.
//!
//! A peer decides how often it connects, and how often it breaks the protocol. Without a bound a loop of ten lines on one
//! machine fills the disk of another.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Decides whether a line about a peer is written.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    peers: Mutex<Peers>,
    left_out: AtomicU64,
}

#[derive(Debug, Default)]
struct Peers {
    told: HashMap<String, Told>,
    /// When they were last looked through for some to forget.
    swept: Option<Instant>,
}

/// The notices about one address.
#[derive(Debug)]
struct Told {
    since: Instant,
    lines: u32,
    left_out: u64,
    /// The cause of the last line that has one, and when that was.
    cause: Option<(String, Instant)>,
}

impl Notices {
    /// Whether a line about the peer at `address` (with or without its port; of IPv6 its network) is written: then how many were left out since the
    /// last one that was. `None`: it is left out.
    pub(crate) fn admit(&self, address: &str, now: Instant) -> Option<u64> {
        self.admit_once(address, None, now)
    }

    /// The same of a line with a cause, which is written once in a [`RETRIES`]: a host tries its key in several ways, with a
    /// connection for each, and so one command took four of the ten lines of its address.
    pub(crate) fn admit_once(&self, address: &str, cause: Option<&str>, now: Instant) -> Option<u64> {
        let host = &*network(address.rsplit_once(':').map_or(address, |(host, _)| host));
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let Peers { told: peers, swept } = &mut *peers;
        // Not for each of a thousand new addresses a second: to look through them takes longer than all else.
        if peers.len() >= PEERS_MAX && !peers.contains_key(host) && swept.is_none_or(|swept| now >= swept + SWEEP_EVERY)
        {
            *swept = Some(now);
            peers.retain(|_, told| now < told.since + WINDOW);
        }
        // Notices of more addresses than these share the lines of one.
        let name = if peers.len() < PEERS_MAX || peers.contains_key(host) { host } else { "" };
        let told = peers.entry(name.to_owned()).or_insert(Told { since: now, lines: 0, left_out: 0, cause: None });
        if now >= told.since + WINDOW {
            (told.since, told.lines) = (now, 0);
        }
        let is_same = |(last, at): &(String, Instant)| cause == Some(last) && now < *at + RETRIES;
        if told.lines >= LINES_MAX || told.cause.as_ref().is_some_and(is_same) {
            told.left_out += 1;
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        told.lines += 1;
        if let Some(cause) = cause {
            told.cause = Some((cause.to_owned(), now));
        }
        Some(std::mem::take(&mut told.left_out))
    }

    /// Lines that were left out in all.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

/// The network of 64 bits that an address of IPv6 is in: anyone who has one address has all of it.
fn network(host: &str) -> Cow<'_, str> {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).and_then(|host| host.parse().ok());
    match address {
        Some(address @ Ipv6Addr { .. }) if address.to_ipv4_mapped().is_none() => {
            let [a, b, c, d, ..] = address.segments();
            format!("[{a:x}:{b:x}:{c:x}:{d:x}]").into()
        }
        _ => host.into(),
    }
}

/// Lines about one address in a [`WINDOW`].
const LINES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// How long a host may take to try its key in all ways.
const RETRIES: Duration = Duration::from_secs(5);
/// How often addresses are looked through for some to forget.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Addresses with notices of their own.
const PEERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop that sent garbage made a line of log for each connection, 3,537 in a few seconds.
    #[test]
    fn an_address_has_a_few_lines_a_minute_and_the_next_one_tells_of_the_others() {
        let (notices, start) = (Notices::default(), Instant::now());
        let admitted = |address: &str, at: Instant| (0..1000).filter(|_| notices.admit(address, at).is_some()).count();
        assert_eq!(admitted("192.0.2.1:1", start), 10);
        assert_eq!(admitted("192.0.2.1:2", start + WINDOW / 2), 0, "another port is no other peer");
        assert_eq!(admitted("192.0.2.2:1", start), 10, "another address is");
        assert_eq!(notices.admit("192.0.2.1:3", start + WINDOW), Some(1990));
        assert_eq!(notices.admit("192.0.2.1:3", start + WINDOW), Some(0));
        assert_eq!(notices.left_out(), 1990 + 990);
    }

    /// One command with a wrong key left four lines, one for each way in which its host tried the key: after three commands its
    /// address had no lines left for anything else.
    #[test]
    fn a_cause_has_one_line_while_its_host_tries_again() {
        let (notices, start) = (Notices::default(), Instant::now());
        let at = |cause, seconds| notices.admit_once("192.0.2.1:1", Some(cause), start + Duration::from_secs(seconds));
        assert_eq!([at("ann", 0), at("ann", 0), at("ann", 1), at("ann", 4)], [Some(0), None, None, None]);
        assert_eq!(at("bob", 4), Some(3), "another cause has a line, which tells of the others");
        assert_eq!(notices.admit("192.0.2.1:2", start), Some(0), "and so has one of no cause in particular");
        assert_eq!(
            [at("ann", 5), at("ann", 9), at("ann", 10)],
            [Some(0), None, Some(1)],
            "a later command has its own"
        );
        assert_eq!(notices.admit_once("192.0.2.2:1", Some("ann"), start), Some(0), "another address, too");
    }

    /// Anyone who has one address of IPv6 has 2^64, each of which had ten lines a minute.
    #[test]
    fn a_network_of_64_bits_is_one_peer() {
        let (notices, start) = (Notices::default(), Instant::now());
        let all = (0..1000).filter(|n| notices.admit(&format!("[2001:db8::{n:x}]:1"), start).is_some()).count();
        assert_eq!(all, LINES_MAX as usize);
        assert_eq!(notices.admit("[2001:db8:0:1::1]:1", start), Some(0), "another network is another peer");
        assert_eq!(notices.admit("[::ffff:192.0.2.1]:1", start), Some(0), "an address of IPv4 is no such network");
        assert_eq!(notices.admit("[::ffff:192.0.2.2]:1", start), Some(0));
    }

    #[test]
    fn addresses_without_end_take_neither_memory_nor_lines() {
        let (notices, start) = (Notices::default(), Instant::now());
        let at = |n: u32| format!("[2001:db8:{:x}:{:x}::1]:1", n >> 16, n & 0xffff);
        let all = (0..100_000).filter(|n| notices.admit(&at(*n), start).is_some()).count();
        assert_eq!(all, PEERS_MAX + LINES_MAX as usize);
        assert!(notices.peers.lock().unwrap().told.len() <= PEERS_MAX + 1);
        assert_eq!(notices.admit("192.0.2.1:1", start + WINDOW), Some(0), "a minute later there is room again");
    }
}
