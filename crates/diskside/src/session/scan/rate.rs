//! How fast bytes come from a server, as far as scans have seen it, and whether it compresses their results.
//!
//! To compress costs the server about a third of a microsecond a row of sixteen columns, and this machine a little less: more than the
//! bytes take on a fast link.

use super::Scan;
use super::share::observation;
use crate::session::learnt::Subject;
use crate::session::link::Link;
use crate::session::place::{Place, Remote};
use diskside_dispatch::{PairId, Side};
use diskside_host::Peer;
use diskside_scan::{Answer, Compression};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// From this rate on, 5 Gb/s, results are not compressed.
const FAST_BYTES_PER_S: f64 = 5e9 / 8.0;
/// A server at an address of this machine that is slower than this, 1 Gb/s, is behind a tunnel.
const TUNNEL_BYTES_PER_S: f64 = 1e9 / 8.0;
/// Fewer bytes say more of the round trip than of the rate.
const MEASURED_LEN_MIN: u64 = 1 << 20;

impl Scan<'_> {
    /// How a server is asked to compress the result.
    pub(super) fn compression(&self) -> Compression {
        match &self.file.inner.place {
            Place::Export(remote) if !self.is_fast(remote) => self.plan.compression,
            _ => Compression::None,
        }
    }

    fn is_fast(&self, remote: &Remote) -> bool {
        match self.known_rate(&remote.link) {
            Some(rate) if rate >= FAST_BYTES_PER_S => true,
            Some(rate) if rate < TUNNEL_BYTES_PER_S => false,
            _ => is_on_this_machine(remote.link.connection.address()),
        }
    }

    /// Bytes in a second, at best of late: most scans wait for something else besides the link. `None`: none was long enough to tell.
    fn known_rate(&self, link: &Link) -> Option<f64> {
        let pair = self.recalled_link(link);
        let learnt = self.session().lock_dispatcher().learnt(pair)?;
        learnt.observations.iter().map(|seen| seen.len_bytes as f64 / seen.total_s).reduce(f64::max)
    }

    /// Takes note of the best rate that reads of a scan here had.
    pub(super) fn note_reads(&self, meter: &Meter) {
        if let (Place::Export(remote), Some((len, took))) = (&self.file.inner.place, meter.lock().best) {
            self.note_rate(&remote.link, len, took);
        }
    }

    /// Takes note of a result that came from a server in a time. The server had to make it meanwhile: the link is as fast as that, or
    /// faster.
    pub(super) fn note_result(&self, link: &Link, len: u64, took: Duration) {
        let known = || self.known_rate(link).unwrap_or(FAST_BYTES_PER_S);
        if len >= MEASURED_LEN_MIN && len as f64 > known() * took.as_secs_f64() {
            self.note_rate(link, len, took);
        }
    }

    fn note_rate(&self, link: &Link, len: u64, took: Duration) {
        let pair = self.recalled_link(link);
        self.session().lock_dispatcher().observe_probe(pair, &observation(Side::Host, len, 0, took), 1.0);
    }

    /// Measurements of a link are kept as those of scans are, under a name of their own.
    fn recalled_link(&self, link: &Link) -> PairId {
        let subject = Subject { target: link.name.clone(), program: 0, function: "link of scans".into() };
        let pair = PairId { file: super::decide::hash(&subject), function: 0 };
        self.recall_subject(pair, subject);
        pair
    }
}

/// Whether bytes of a server come from this machine.
fn is_on_this_machine(server: Peer) -> bool {
    let Peer::Tcp(address) = server else { return true };
    let ip = address.ip().to_canonical();
    if ip.is_loopback() {
        return true;
    }
    // Nothing is sent: the kernel says from which address it would send.
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, address.port()))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == ip)
}

/// The rate of the reads of a scan: several are under way at a time, and share the link.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter(Arc<Mutex<Metered>>);

#[derive(Debug, Default)]
struct Metered {
    under_way: usize,
    /// When the first of those that are under way, or the next ones, began, and the bytes that came since.
    since: Option<(Instant, u64)>,
    /// The most bytes for their time so far.
    best: Option<(u64, Duration)>,
}

impl Meter {
    /// Counts a read until it is answered.
    pub(super) fn read(&self, answer: Answer) -> Answer {
        let mut reading = Reading { meter: self.clone(), len: 0 };
        {
            let mut metered = self.lock();
            metered.under_way += 1;
            metered.since.get_or_insert_with(|| (Instant::now(), 0));
        }
        Answer(Box::new(move || {
            let bytes = answer.0()?;
            reading.came(bytes.len() as u64);
            Ok(bytes)
        }))
    }

    /// One of which this is known.
    #[cfg(test)]
    pub(super) fn of(len: u64, took: Duration) -> Self {
        Self(Arc::new(Mutex::new(Metered { best: Some((len, took)), ..Metered::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Metered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read that is under way until this is dropped, answered or not.
struct Reading {
    meter: Meter,
    len: u64,
}

impl Reading {
    /// A call, so that a closure has all of it.
    fn came(&mut self, len: u64) {
        self.len = len;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.meter.lock().end(self.len, Instant::now());
    }
}

impl Metered {
    fn end(&mut self, len: u64, now: Instant) {
        self.under_way -= 1;
        let Some((since, came)) = &mut self.since else { return };
        *came += len;
        let (came, took) = (*came, now - *since);
        if came >= MEASURED_LEN_MIN {
            let rate = |(len, took): (u64, Duration)| len as f64 / took.as_secs_f64().max(1e-9);
            if self.best.is_none_or(|best| rate((came, took)) > rate(best)) {
                self.best = Some((came, took));
            }
        }
        // Not before: bytes of those that are under way came already.
        if self.under_way == 0 {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_at_the_same_time_share_the_link() {
        let (mut metered, began) = (Metered::default(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        (metered.under_way, metered.since) = (3, Some((began, 0)));
        metered.end(512 << 10, at(5));
        assert_eq!(metered.best, None, "a short one tells little");
        metered.end(512 << 10, at(10));
        assert_eq!(metered.best, Some((1 << 20, Duration::from_millis(10))));
        // Most of the third one came beside the others, not in the millisecond since.
        metered.end(2 << 20, at(11));
        assert_eq!((metered.best, metered.since), (Some((3 << 20, Duration::from_millis(11))), None));
    }

    #[test]
    fn a_read_that_is_given_up_is_not_under_way() {
        let meter = Meter::default();
        let reads =
            [meter.read(Answer(Box::new(|| Ok(vec![0; 2 << 20])))), meter.read(Answer(Box::new(|| Ok(vec![0; 9]))))];
        assert_eq!(meter.lock().under_way, 2);
        drop(reads);
        assert!(meter.read(Answer(Box::new(|| Err("it failed".into())))).0().is_err());
        {
            let metered = meter.lock();
            assert_eq!((metered.under_way, metered.since, metered.best), (0, None, None));
        }
        assert!(meter.read(Answer(Box::new(|| Ok(vec![0; 2 << 20])))).0().is_ok());
        assert_eq!(meter.lock().best.map(|(len, _)| len), Some(2 << 20));
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        let is_here = |address: &str| is_on_this_machine(Peer::Tcp(address.parse().unwrap()));
        assert!(is_here("127.0.0.1:4420") && is_here("127.9.9.9:1") && is_here("[::1]:4420"));
        assert!(is_here("[::ffff:127.0.0.1]:4420") && is_on_this_machine(Peer::Embedded));
        // Addresses that documents use.
        assert!(!is_here("192.0.2.1:4420") && !is_here("[2001:db8::1]:4420"));
    }
}
