//! The counters of a connection, which cost one relaxed addition each.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($(#[doc = $help:literal] $name:ident,)*) => {
        /// What a connection has done since it was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $help] pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Stats {
            /// Every counter with its name and what it counts, in a fixed order.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), $help, self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Commands sent on I/O queues.
    commands,
    /// Bytes of data that reads brought.
    read_bytes,
    /// Bytes of data that writes carried.
    written_bytes,
    /// Commands that a controller answered with an error.
    command_errors,
    /// Commands sent again, after a loss or a transient error.
    retries,
    /// Commands that took longer than their timeout.
    timeouts,
    /// Commands that a controller aborted on our demand.
    aborts,
    /// Associations made, the first one included.
    associations,
    /// Associations lost.
    losses,
    /// System calls that sent or waited, of all queues.
    enters,
    /// Times that a queue's thread slept.
    sleeps,
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
