//! The memory that hosts make the target hold: the bytes of a host, over all its controllers and connections, against a
//! bound of its own and one for all hosts together.
//!
//! [`Book`] is the rule, without a lock or a clock. There are two: the pool's, of calls while they run, and that of the
//! [`Ledger`], of all that waits or is kept beside them:
//!
//! * requests, from the Send on: while they wait, run, or stay prepared; data of standard commands;
//! * input that no call has read; where little is left, Sends are acknowledged less far ahead;
//! * results and answers, until they have left: who makes them on a thread waits for room, its call's memory charged
//!   meanwhile, so a host that reads nothing keeps a few threads of its own and no more memory;
//! * layouts, named states, and activations kept for the next Call, these only where much is left.
//!
//! An eighth of a host's share is left to what moves things on: results that a Receive or a Call waits for, and input that
//! a call waits for. Otherwise results that nobody asks for yet could keep the one away that is asked for.
//!
//! A command that cannot wait fails with *Function Resources Busy*, or another status of its own, and [`NoRoom`] as its
//! message. A [`Holding`] goes along with the bytes, and gives them back when it is dropped. Not charged: answers of up
//! to [`SHORT_LEN_MAX`](crate::call::answer::SHORT_LEN_MAX) bytes, of which a connection has at most as many as
//! commands under way.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_rights::{HostQuota, Scarce};

/// The memory of a part of a request or of a result beside its bytes, at most.
pub(crate) const PART_BYTES: usize = 128;
/// The memory of an open tag beside its request: its state, and its trailer with the lines that the program logged.
pub(crate) const TAG_BYTES: usize = 8 << 10;
/// The memory of a source or a sink of a request once it was looked up, beside its bytes in the request.
pub(crate) const ENDPOINT_BYTES: usize = 160;
/// A host's stream may be ahead of its call by this part of what is left.
const AHEAD_PARTS: u64 = 8;
/// This part of a share is for what somebody waits for.
const URGENT_PART: u64 = 8;
/// Or as much as a part of a result takes, if half of the share is more.
const URGENT_BYTES: u64 = (1 << 20) + PART_BYTES as u64;
/// The part of a host's memory that is not for calls that run.
pub(crate) const KEPT_PART: u64 = 4;
/// How soon somebody who waits for room looks whether it still wants it.
const LOOK: Duration = Duration::from_millis(10);

/// How many bytes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// For one host.
    pub host_max: u64,
    /// For all hosts together.
    pub total_max: u64,
}

/// What each host has.
#[derive(Debug, Default)]
pub(crate) struct Book {
    hosts: BTreeMap<u64, u64>,
    total: u64,
}

impl Book {
    /// What a host has.
    pub(crate) fn held(&self, host: u64) -> u64 {
        self.hosts.get(&host).copied().unwrap_or(0)
    }

    /// What all of them have.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The bytes that a host may hold now: its bound, cut by the square of the part that others leave. A name costs a
    /// peer nothing, but behind fifty greedy names the next one still finds a share.
    pub(crate) fn share(&self, host: u64, bounds: Bounds) -> u64 {
        let left = bounds.total_max.saturating_sub(self.total - self.held(host));
        let cut = |bytes: u64| {
            let cut = (u128::from(bytes) * u128::from(left)).div_ceil(u128::from(bounds.total_max.max(1)));
            u64::try_from(cut).unwrap_or(u64::MAX)
        };
        cut(cut(bounds.host_max))
    }

    /// Whether a host may have so much more. One that has nothing may have any one thing, as long as there is room at all.
    pub(crate) fn fits(&self, host: u64, bytes: u64, bounds: Bounds) -> bool {
        self.fits_in(self.share(host, bounds), host, bytes, bounds)
    }

    fn fits_in(&self, share: u64, host: u64, bytes: u64, bounds: Bounds) -> bool {
        let held = self.held(host);
        let in_all = self.total.checked_add(bytes).is_some_and(|total| total <= bounds.total_max);
        in_all && (held == 0 || held + bytes <= share)
    }

    /// Gives a host so much more; false: it may not have it.
    pub(crate) fn take(&mut self, host: u64, bytes: u64, bounds: Bounds) -> bool {
        let fits = self.fits(host, bytes, bounds);
        if fits {
            self.add(host, bytes);
        }
        fits
    }

    fn add(&mut self, host: u64, bytes: u64) {
        if bytes > 0 {
            *self.hosts.entry(host).or_default() += bytes;
            self.total += bytes;
        }
    }

    /// A host gives back what it took.
    pub(crate) fn give_back(&mut self, host: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let Some(held) = self.hosts.get_mut(&host) else { unreachable!("who gives back has something") };
        *held -= bytes;
        self.total -= bytes;
        if *held == 0 {
            self.hosts.remove(&host);
        }
    }
}

/// The book of what waits and is kept.
#[derive(Debug)]
pub struct Ledger {
    bounds: Bounds,
    book: Mutex<Book>,
    freed: Condvar,
    /// Threads that wait for room.
    waiting: AtomicUsize,
}

impl Ledger {
    /// A ledger within these bounds.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, book: Mutex::default(), freed: Condvar::new(), waiting: AtomicUsize::new(0) })
    }

    /// Bytes of all hosts.
    pub(crate) fn total(&self) -> u64 {
        self.lock().total()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A host's place in the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    host: u64,
    quota: Arc<HostQuota>,
}

/// There is no room for what a host asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    asked: u64,
    held: u64,
    share: u64,
    by_quota: bool,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, held, share, by_quota } = self;
        let bound = if *by_quota { "its quota, `memory`," } else { "`compute.host_memory`" };
        write!(
            f,
            "no room for {asked} bytes: requests, input, results, layouts and states of this host have {held} of {share} \
             bytes; {bound} says how many, and `compute.hosts_memory` where other hosts have much of that"
        )
    }
}

impl Account {
    pub(crate) fn new(ledger: &Arc<Ledger>, host: u64, quota: Arc<HostQuota>) -> Self {
        Self { ledger: Arc::clone(ledger), host, quota }
    }

    /// What its host may take.
    pub(crate) fn quota(&self) -> &Arc<HostQuota> {
        &self.quota
    }

    /// Charges bytes to the host.
    ///
    /// # Errors
    /// There is no room for them now.
    pub(crate) fn hold(&self, len: usize) -> Result<Holding, NoRoom> {
        let held = self.hold_in(&mut self.ledger.lock(), len as u64, false);
        held.map_err(|no_room| self.refused(no_room))
    }

    /// The same of bytes that somebody waits for.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    pub(crate) fn hold_urgent(&self, len: usize) -> Result<Holding, NoRoom> {
        let held = self.hold_in(&mut self.ledger.lock(), len as u64, true);
        held.map_err(|no_room| self.refused(no_room))
    }

    /// Charges bytes that the host can do without: only while it has less than half of its share.
    pub(crate) fn hold_spare(&self, len: usize) -> Option<Holding> {
        let mut book = self.ledger.lock();
        let after = book.held(self.host) + len as u64;
        if after > self.share(&book, false) / 2 {
            return None;
        }
        self.hold_in(&mut book, len as u64, false).ok()
    }

    /// Waits for room, until then or until it is not wanted any more.
    ///
    /// # Errors
    /// There was none.
    pub(crate) fn hold_until(
        &self,
        len: usize,
        until: Instant,
        is_unwanted: impl Fn() -> bool,
        is_urgent: impl Fn() -> bool,
    ) -> Result<Holding, NoRoom> {
        let ledger = &self.ledger;
        loop {
            // Before the lock: who is asked may have one of its own.
            let (is_unwanted, is_urgent) = (is_unwanted(), is_urgent());
            let mut book = ledger.lock();
            let no_room = match self.hold_in(&mut book, len as u64, is_urgent) {
                Ok(holding) => return Ok(holding),
                Err(no_room) => no_room,
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_unwanted {
                drop(book);
                return Err(self.refused(no_room));
            }
            ledger.waiting.fetch_add(1, Ordering::Relaxed);
            drop(ledger.freed.wait_timeout(book, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner));
            ledger.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Bytes that the host has.
    pub(crate) fn held(&self) -> u64 {
        self.ledger.lock().held(self.host)
    }

    /// Bytes that the host may still have.
    fn left(&self) -> u64 {
        let book = self.ledger.lock();
        self.share(&book, false).saturating_sub(book.held(self.host))
    }

    fn share(&self, book: &Book, is_urgent: bool) -> u64 {
        let all = book.share(self.host, self.bounds());
        if is_urgent { all } else { all - (all / URGENT_PART).max(URGENT_BYTES.min(all / 2)) }
    }

    fn bounds(&self) -> Bounds {
        let Bounds { host_max, total_max } = self.ledger.bounds;
        Bounds { host_max: host_max.min(self.quota.memory_of(u64::MAX) / KEPT_PART), total_max }
    }

    fn hold_in(&self, book: &mut Book, bytes: u64, is_urgent: bool) -> Result<Holding, NoRoom> {
        let share = self.share(book, is_urgent);
        let bounds = self.bounds();
        if book.fits_in(share, self.host, bytes, bounds) {
            book.add(self.host, bytes);
            return Ok(Holding { account: self.clone(), bytes });
        }
        let by_quota = bounds != self.ledger.bounds;
        Err(NoRoom { asked: bytes, held: book.held(self.host), share, by_quota })
    }

    fn refused(&self, no_room: NoRoom) -> NoRoom {
        if no_room.by_quota {
            self.quota.refuse(Scarce::Memory);
        }
        no_room
    }
}

/// Bytes that are charged to a host, until this is dropped.
#[derive(Debug)]
pub struct Holding {
    account: Account,
    bytes: u64,
}

impl Holding {
    /// Adds another one of the same host.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Parts with bytes, as far as it has so many.
    pub(crate) fn split(&mut self, len: usize) -> Self {
        let bytes = self.bytes.min(len as u64);
        self.bytes -= bytes;
        Self { account: self.account.clone(), bytes }
    }

    /// Keeps no more than this.
    pub(crate) fn shrink(&mut self, len: usize) {
        let rest = self.bytes.saturating_sub(len as u64);
        drop(self.split(usize::try_from(rest).unwrap_or(usize::MAX)));
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let ledger = &self.account.ledger;
        ledger.lock().give_back(self.account.host, self.bytes);
        if ledger.waiting.load(Ordering::Relaxed) > 0 {
            ledger.freed.notify_all();
        }
    }
}

/// Bytes that came from a host, and their charge.
#[derive(Debug, Default)]
pub struct HostBytes {
    bytes: Vec<u8>,
    /// `None`: nobody counts.
    holding: Option<Holding>,
}

impl HostBytes {
    pub(crate) fn new(bytes: Vec<u8>, holding: Holding) -> Self {
        Self { bytes, holding: Some(holding) }
    }

    /// Adds what follows.
    pub(crate) fn append(&mut self, other: Self) {
        let Self { bytes, holding } = other;
        if self.bytes.is_empty() {
            self.bytes = bytes;
        } else {
            self.bytes.extend_from_slice(&bytes);
        }
        match (&mut self.holding, holding) {
            (Some(holding), Some(other)) => holding.join(other),
            (none, other) => *none = other,
        }
    }

    /// Keeps the first `at` bytes, and gives the rest with its charge.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let bytes = self.bytes.split_off(at);
        let charge = if bytes.is_empty() { 0 } else { bytes.len() + PART_BYTES };
        let holding = self.holding.as_mut().map(|holding| holding.split(charge));
        Self { bytes, holding }
    }

    /// Parts with a charge that is not for its bytes.
    pub(crate) fn split_charge(&mut self, len: usize) -> Option<Holding> {
        self.holding.as_mut().map(|holding| holding.split(len))
    }

    /// The charge alone.
    pub(crate) fn into_holding(self) -> Option<Holding> {
        self.holding
    }

    /// How many bytes of its stream may wait for its call, at most `most`.
    pub(crate) fn ahead_bytes(&self, most: usize) -> usize {
        let left = self.holding.as_ref().map(|holding| holding.account.left() / AHEAD_PARTS);
        left.map_or(most, |left| usize::try_from(left).unwrap_or(usize::MAX).min(most))
    }
}

impl From<Vec<u8>> for HostBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, holding: None }
    }
}

impl Deref for HostBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: Bounds = Bounds { host_max: 100 * MIB, total_max: 400 * MIB };

    fn account(ledger: &Arc<Ledger>, host: u64) -> Account {
        Account::new(ledger, host, HostQuota::unlimited())
    }

    /// Lets a host take all that it gets, a MiB at a time.
    fn take_all(book: &mut Book, host: u64) -> u64 {
        (0..).take_while(|_| book.take(host, MIB, BOUNDS)).count() as u64
    }

    #[test]
    fn a_host_gets_its_bound_and_others_less_but_never_nothing() {
        let mut book = Book::default();
        assert_eq!(take_all(&mut book, 1), 100);
        assert!(!book.take(1, 1, BOUNDS));
        // (300 / 400)² of 100.
        assert_eq!(take_all(&mut book, 2), 56);
        assert_eq!(
            book.share(1, BOUNDS),
            (BOUNDS.host_max * 344 * 344).div_ceil(400 * 400),
            "who has more keeps it, and gets no more"
        );
        let mut got = 0;
        for host in 3..60 {
            got = take_all(&mut book, host);
            assert!(got >= 1, "host {host}");
        }
        assert!(got < 3 && book.total() <= BOUNDS.total_max, "{got}");
        book.give_back(1, 100 * MIB);
        assert!(take_all(&mut book, 100) >= 5, "what one gives back is there for others");
    }

    #[test]
    fn who_has_nothing_gets_one_thing_if_it_fits_at_all() {
        let mut book = Book::default();
        for host in 1..4 {
            assert!(book.take(host, 100 * MIB, BOUNDS), "its first");
            assert!(!book.take(host, 100 * MIB, BOUNDS));
        }
        assert!(!book.take(5, 100 * MIB + 1, BOUNDS));
        assert!(book.take(5, 100 * MIB, BOUNDS));
        assert!(!book.take(6, 1, BOUNDS), "all is taken");
        assert!(!book.fits(6, u64::MAX, BOUNDS));
        for host in [1, 2, 3, 5] {
            book.give_back(host, 100 * MIB);
        }
        assert!(book.total() == 0 && book.hosts.is_empty(), "nothing is kept of who has nothing");
    }

    #[test]
    fn holdings_are_split_joined_and_given_back_once() {
        let ledger = Ledger::new(Bounds { host_max: 2000, total_max: 8000 });
        let (one, other) = (account(&ledger, 1), account(&ledger, 2));
        let mut all = one.hold(600).unwrap();
        let mut part = all.split(100);
        part.join(one.hold(200).unwrap());
        assert_eq!(ledger.total(), 800);
        let refused = one.hold(201).unwrap_err();
        assert_eq!(refused, NoRoom { asked: 201, held: 800, share: 1000, by_quota: false });
        assert!(one.hold_spare(1).is_none() && other.hold_spare(300).is_some(), "which is dropped at once");
        all.shrink(50);
        assert_eq!(ledger.total(), 350);
        drop((all, part));
        assert_eq!(ledger.total(), 0);
        let mut request = HostBytes::new(vec![1; 100], one.hold(100 + PART_BYTES + TAG_BYTES.min(500)).unwrap());
        let tag = request.split_charge(500);
        request.append(HostBytes::new(vec![2; 50], one.hold(50).unwrap()));
        let input = request.split_off(120);
        assert_eq!((request.len(), &input[..]), (120, &[2; 30][..]));
        drop(request.into_holding());
        assert_eq!(ledger.total(), 500 + 30 + PART_BYTES as u64);
        drop((tag, input));
        assert_eq!(ledger.total(), 0);
    }

    #[test]
    fn the_less_is_left_the_less_far_a_stream_is_ahead() {
        let ledger = Ledger::new(Bounds { host_max: 3200, total_max: 12_800 });
        let account = account(&ledger, 1);
        let part = HostBytes::new(Vec::new(), account.hold(0).unwrap());
        assert_eq!((part.ahead_bytes(150), part.ahead_bytes(1000)), (150, 200));
        let _most = account.hold(1560).unwrap();
        assert_eq!(part.ahead_bytes(150), 5);
        assert_eq!(HostBytes::from(vec![1]).ahead_bytes(150), 150);
    }

    #[test]
    fn who_waits_gets_what_another_gives_back() {
        let ledger = Ledger::new(Bounds { host_max: 200, total_max: 800 });
        let account = account(&ledger, 1);
        let held = account.hold(80).unwrap();
        let soon = || Instant::now() + Duration::from_secs(60);
        assert!(account.hold_until(30, Instant::now(), || false, || false).is_err(), "its time is over");
        assert!(account.hold_until(30, soon(), || true, || false).is_err(), "nobody wants it");
        assert!(account.hold_until(30, Instant::now(), || false, || true).is_ok(), "somebody waits for it");
        assert!(account.hold_urgent(120).is_ok() && account.hold_urgent(121).is_err());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| account.hold_until(30, soon(), || false, || false).map(drop));
            while ledger.waiting.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            drop(held);
            assert!(waits.join().unwrap().is_ok());
        });
        assert_eq!(ledger.total(), 0);
    }
}
