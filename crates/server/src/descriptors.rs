//! How many connections the open files that the process may have are enough for.

use crate::config::ServeConfig;

/// The most connections at a time: as configured, or as many as there are descriptors for. Half of the files are for handles of
/// exports, also where there are no exports yet; of the rest the server keeps some for itself.
pub(crate) fn connections_max(config: &ServeConfig) -> usize {
    let (wanted, files) = (config.limits.connections, diskside_export::files_max());
    let own = OWN + OF_A_REACTOR * config.reactors as u64 + open_now();
    match usize::try_from(share(files, own)) {
        Ok(max) if max < wanted => {
            tracing::warn!(
                "{files} open files are allowed, enough for {max} connections and not for {wanted} (limits.connections): set \
                 LimitNOFILE={enough} in the unit, or ulimit -Hn {enough}",
                enough = 2 * (wanted as u64 + own)
            );
            max
        }
        _ => wanted,
    }
}

/// The connections that there is room for among so many files, of which the server keeps `own`, but no more than a quarter.
fn share(files: u64, own: u64) -> u64 {
    (files / 2 - own.min(files / 4)).max(1)
}

/// Files that are open now: volumes, exports, listeners, what the embedder has.
fn open_now() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64)
}

/// Files for the page and the numbers, functions' processes, reloads, and what operations on files have open for a moment.
const OWN: u64 = 128;
/// Files of a reactor's rings and wakers.
const OF_A_REACTOR: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections took every descriptor that the process could have, and hosts could open no file.
    #[test]
    fn connections_leave_half_of_the_files_to_exports_and_some_to_the_server() {
        for files in [16, 256, 1024, 4096, 65536, u64::MAX] {
            for own in [0, 100, 10_000] {
                let connections = share(files, own);
                assert!(connections >= files / 4, "{files} {own}");
                assert!(connections + files / 2 + own.min(files / 4) <= files, "{files} {own}");
            }
        }
        assert_eq!(share(65536, 200), 32768 - 200);
        assert_eq!(share(1, 200), 1, "somebody is let in");
    }
}
