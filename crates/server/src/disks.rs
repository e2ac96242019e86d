//! The thread that looks whether disks answer, and writes to the log which do not.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::shared::Shared;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks at the disks of a target as long as it serves. A disk may hang any other thread, so this one asks none for anything.
pub(crate) fn watch(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::downgrade(shared);
    std::thread::Builder::new().name("diskside-disks".into()).spawn(move || while look(&shared) {})?;
    Ok(())
}

/// One look. False: the target has ended.
fn look(shared: &Weak<Shared>) -> bool {
    std::thread::sleep(LOOK_EVERY);
    let Some(shared) = shared.upgrade().filter(|shared| !shared.has_ended()) else { return false };
    let now = Instant::now();
    shared.disks(|health| health.look(now));
    true
}
