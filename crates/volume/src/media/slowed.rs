//! A medium that is slower than it is, so that figures of other disks, and of links to them, can be made anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diskside_io::Errno;

use crate::medium::{Access, Medium, Properties, Shortened, Step};

/// Any medium, each of whose accesses takes a time of its own, and all of which share a rate.
#[derive(Debug)]
pub struct SlowedMedium {
    inner: Arc<dyn Medium>,
    properties: Properties,
    latency: Duration,
    /// Bytes a second.
    rate: Option<u64>,
    since: Instant,
    /// When all bytes so far have been moved, in nanoseconds from then on.
    free_ns: AtomicU64,
}

impl SlowedMedium {
    /// `inner`, whose accesses end so much later, and no more than `rate` bytes of them in a second.
    pub fn new(inner: Arc<dyn Medium>, latency: Duration, rate: Option<u64>) -> Self {
        // What passes for a disk passes the page cache by.
        let properties = Properties { direct: true, ..inner.properties().clone() };
        Self { inner, properties, latency, rate, since: Instant::now(), free_ns: AtomicU64::new(0) }
    }

    /// How long moving so many bytes takes, those included that were asked for before.
    fn transfer(&self, len: u64) -> Duration {
        let Some(rate) = self.rate.filter(|_| len > 0) else { return Duration::ZERO };
        let now_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let cost_ns = u64::try_from(u128::from(len) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX);
        let end = |free_ns: u64| free_ns.max(now_ns).saturating_add(cost_ns);
        let before = self.free_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free_ns| Some(end(free_ns)));
        let before = before.unwrap_or_else(|free_ns| free_ns);
        Duration::from_nanos(end(before) - now_ns)
    }
}

impl Medium for SlowedMedium {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(&self, access: &Access<'_>) -> Step {
        let len = match access {
            Access::Read { len, .. } => *len as u64,
            Access::Write { data, .. } => data.len() as u64,
            Access::Delta(delta) => delta.as_bytes().len() as u64,
            Access::Flush | Access::Zero { .. } => 0,
        };
        let step = self.inner.start(access);
        Step { delay: step.delay + self.latency + self.transfer(len), action: step.action }
    }

    fn busy_for(&self) -> Duration {
        if self.rate.is_none() {
            return Duration::ZERO;
        }
        let now_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let free_ns = self.free_ns.load(Ordering::Relaxed);
        Duration::from_nanos(free_ns.saturating_sub(now_ns)).saturating_sub(AHEAD)
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn has_name(&self) -> bool {
        self.inner.has_name()
    }

    fn shortened(&self) -> Option<Shortened> {
        self.inner.shortened()
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }

    fn drop_cached(&self) -> Result<(), Errno> {
        self.inner.drop_cached()
    }

    fn refused(&self, access: &Access<'_>) {
        self.inner.refused(access);
    }
}

/// Accesses that come while bytes of so much time are still to be moved wait without being counted: they may go before it is their turn.
const AHEAD: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::MemoryMedium;
    use crate::medium::Action;

    fn slowed(latency_us: u64, rate: Option<u64>) -> SlowedMedium {
        let memory = Arc::new(MemoryMedium::new(1 << 20, false).unwrap());
        SlowedMedium::new(memory, Duration::from_micros(latency_us), rate)
    }

    #[test]
    fn every_access_takes_its_latency() {
        let medium = slowed(90, None);
        for access in [Access::Read { offset: 0, len: 4096 }, Access::Flush] {
            assert_eq!(medium.start(&access).delay, Duration::from_micros(90));
        }
        assert!(medium.memory().is_none() && medium.properties().direct, "no way past it");
        assert!(matches!(medium.start(&Access::Read { offset: 0, len: 4096 }).action, Action::Bytes(_)));
    }

    #[test]
    fn accesses_share_the_rate() {
        // A MiB takes a second, less what has passed since the first was asked for.
        let medium = slowed(0, Some(1 << 20));
        let delays: Vec<_> = (0..4).map(|_| medium.start(&Access::Read { offset: 0, len: 256 << 10 }).delay).collect();
        assert!(delays.windows(2).all(|pair| pair[0] < pair[1]), "{delays:?}");
        assert!(delays[3] <= Duration::from_secs(1) && delays[0] <= Duration::from_millis(250), "{delays:?}");
        assert_eq!(medium.start(&Access::Flush).delay, Duration::ZERO);
        let busy = medium.busy_for();
        assert!(busy > Duration::from_millis(500) && busy < Duration::from_secs(1), "{busy:?}");
        assert_eq!(slowed(90, None).busy_for(), Duration::ZERO);
    }
}
