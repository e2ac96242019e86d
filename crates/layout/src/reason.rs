//! Why a file is read the plain way and not at the volume: typed, with words, and counted.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the reasons, their names and their words in one place.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident = $name:literal, $words:literal;)+) => {
        /// Why a file is read the plain way.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[doc = $doc])+ $reason,)+
        }

        impl Reason {
            /// All of them, in order.
            pub const ALL: &[Self] = &[$(Self::$reason,)+];

            /// A short name for tables and JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$reason => $name,)+ }
            }

            /// What is the matter, and what helps where something does.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$reason => $words,)+ }
            }
        }
    };
}

reasons! {
    // The file is not admitted.
    /// A directory, a pipe, a device.
    NotRegular = "not-regular", "it is no regular file";
    /// Neither ext4 nor XFS.
    FileSystem = "file-system", "its file system is neither ext4 nor XFS; on others the places of extents mean something else";
    /// The file system has no block device, as tmpfs.
    NoDevice = "no-device", "its file system is not on a block device";
    /// The journal holds data (ext4 `data=journal`).
    DataJournal = "data-journal", "its newest data may be in ext4's journal (data=journal), where the volume cannot find it";
    /// Encrypted by the file system.
    Encrypted = "encrypted", "it is encrypted by the file system";
    /// Compressed by the file system.
    Compressed = "compressed", "it is compressed by the file system";
    /// Under fs-verity.
    Verity = "verity", "it is under fs-verity, and reads at the volume would not be verified";
    /// Used in place.
    Dax = "dax", "it is used in place, past the page cache (DAX)";
    /// On XFS's realtime device.
    Realtime = "realtime", "its data is on the realtime device of XFS";
    /// Device mapper, RAID or LVM between the file system and the volume.
    Stacked = "stacked", "its device is made of others (device mapper, LVM, RAID)";
    /// The device is none that is served.
    UnknownDisk = "unknown-disk", "its device is no Diskside volume that is connected; name the volume to use";
    /// The volume is not the one that is mounted.
    OtherVolume = "other-volume", "the volume holds another file system than the one that is mounted";
    /// The device's blocks are larger than the file system's, or carry metadata.
    Blocks = "blocks", "the device's blocks do not fit those of the file system";
    // It is, but nothing can be proved now.
    /// Someone else's file.
    NotOwner = "not-owner", "it belongs to someone else: a lease needs its owner, or CAP_LEASE";
    /// Someone has it open for writing.
    Writer = "writer", "someone has it open for writing, or mapped writable";
    /// The file system has no leases.
    NoLeases = "no-leases", "its file system gives no leases";
    /// Someone opened it for writing meanwhile.
    LeaseBroken = "lease-broken", "someone opened it for writing, or truncated it, meanwhile";
    /// Extents moved under the lease (deduplication).
    Remapped = "remapped", "its extents moved meanwhile (deduplication)";
    /// Extents or times changed.
    Changed = "changed", "it changed meanwhile";
    /// Too fresh for its times to tell.
    TooFresh = "too-fresh", "it was changed just now, and the kernel's clock for such times is too coarse to notice more";
    /// The handle crossed a fork.
    Forked = "forked", "it was opened before a fork, and its lease is the parent's; open it again";
    // Its extents cannot be used.
    /// An extent that cannot be read in place.
    Extent = "extent", "an extent cannot be read in place";
    /// More extents than the limit.
    TooManyExtents = "too-many-extents", "it is in too many pieces; copying it puts it together";
    /// An extent is outside the volume.
    OutOfDevice = "out-of-device", "an extent is outside of the volume";
    // Writing.
    /// Not the only one who has it open.
    Opened = "opened", "someone else has it open: only a file that nobody else has can be written at the volume";
    /// A write takes rights from the file.
    Rights = "rights", "a write takes its set-user-ID, set-group-ID or capabilities away, which only the file system does";
    /// An extent of zeroes by flag.
    Unwritten = "unwritten", "it has space that was never written: the volume's bytes would not be seen";
    /// Shared with other files.
    Shared = "shared", "it shares blocks with other files";
    /// It takes longer than the kernel waits for a lease.
    Slow = "slow", "it takes longer than the kernel lets a file be kept from others";
    /// The page cache keeps pages.
    Cached = "cached", "the page cache does not let go of its pages";
    /// The range is not in the file.
    Range = "range", "the output may reach past its end: only space that it has is written at the volume";
    /// No file of the pool for a new file.
    Pool = "pool", "a new file is written at the volume only where the pool beside it has a file as long as the output may be";
    // Neither.
    /// A system call or the volume failed.
    Failed = "failed", "something failed on the way";
}

impl Reason {
    /// Whether it may be gone at the next try.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Self::LeaseBroken | Self::Remapped | Self::Changed)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A reason, with what was found.
#[derive(Debug, thiserror::Error)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The finding; may be empty.
    pub found: String,
    /// The system's error, if there was one.
    #[source]
    pub source: Option<io::Error>,
}

impl Refusal {
    /// A reason with what was found.
    #[must_use]
    pub fn new(reason: Reason, found: impl Into<String>) -> Self {
        Self { reason, found: found.into(), source: None }
    }

    /// A system call that failed.
    #[must_use]
    pub fn failed(what: &str, source: io::Error) -> Self {
        Self { reason: Reason::Failed, found: what.into(), source: Some(source) }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self::new(reason, "")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.words())?;
        if !self.found.is_empty() {
            write!(f, " ({})", self.found)?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

/// How many requests went to the volume, and how many did not, by reason.
#[derive(Debug)]
pub struct Counters {
    at_volume: AtomicU64,
    retried: AtomicU64,
    plain: [AtomicU64; Reason::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self { at_volume: AtomicU64::new(0), retried: AtomicU64::new(0), plain: [const { AtomicU64::new(0) }; _] }
    }
}

impl Counters {
    /// A request was proved and its result used.
    pub fn note_at_volume(&self) {
        self.at_volume.fetch_add(1, Ordering::Relaxed);
    }

    /// A result was thrown away, and the request is tried once more.
    pub fn note_retry(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// A request took the plain path.
    pub fn note_plain(&self, reason: Reason) {
        self.plain[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that were proved.
    #[must_use]
    pub fn at_volume(&self) -> u64 {
        self.at_volume.load(Ordering::Relaxed)
    }

    /// Results that were thrown away and asked for once more.
    #[must_use]
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// Requests that took the plain path, by reason; those that never happened are left out.
    #[must_use]
    pub fn plain(&self) -> Vec<(Reason, u64)> {
        let count = |reason: &Reason| self.plain[*reason as usize].load(Ordering::Relaxed);
        Reason::ALL.iter().map(|reason| (*reason, count(reason))).filter(|(_, count)| *count > 0).collect()
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at the volume, {} asked twice", self.at_volume(), self.retried())?;
        for (reason, count) in self.plain() {
            write!(f, ", {count} plain: {}", reason.name())?;
        }
        Ok(())
    }
}
