//! Guards across a fork, in a process of their own: a child has all descriptors of its parent, and with them its leases.

mod lab;

use std::fs::{self, File, OpenOptions};

use diskside_layout::{GuardConfig, Proof, Reason, Refusal, WriteGuardConfig, admit, watched, watched_writer};
use diskside_sys::lease::break_time;
use lab::{Kind, Lab};

/// Runs `child` in a forked child, and says whether it returned true there.
fn forked(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child has one thread, uses no lock that another thread may have held but the allocator's, which survives
    // a fork, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no child");
    if pid == 0 {
        let status = if child() { 0 } else { 1 };
        // SAFETY: it takes an integer and does not return.
        unsafe { libc::_exit(status) }
    }
    let mut status = 0;
    // SAFETY: it waits for our own child and writes one integer.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

fn is_told(result: Result<(), Refusal>) -> bool {
    matches!(result, Err(refusal) if refusal.reason == Reason::Forked)
}

/// The child has to open the file again, and its changes to its copies of a guard take no lease from its parent.
#[test]
fn a_forked_child_is_told_to_open_the_file_anew() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let path = lab.mount.join("file");
    fs::write(&path, vec![1; 1 << 16]).and_then(|()| File::open(&path)?.sync_all()).expect("durable");

    let file = File::open(&path).expect("open");
    let admitted = admit(&file).expect("admitted");
    let place = admitted.place.clone();
    let config = GuardConfig {
        proof: Proof::Epoch,
        own_writer: false,
        place: place.clone(),
        moves_under_lease: admitted.moves_under_lease(),
        extents_max: 100,
        clock_tick: std::time::Duration::ZERO,
    };
    let guard = watched(file, config).expect("a guard");
    let (mine, childs) = (guard.begin(0..5).expect("a ticket"), guard.begin(0..5).expect("a ticket"));
    let (guarded, again) = (guard.clone(), guard.clone());
    let told = forked(move || {
        let told = is_told(guarded.begin(0..5).map(drop)) && is_told(guarded.finish(childs));
        drop(guarded);
        told
    });
    assert!(told, "the child was not told");
    again.finish(mine).expect("the parent's lease is in force as before");
    drop((guard, again));

    // The same for writes.
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let guard = watched_writer(file, WriteGuardConfig { place, extents_max: 100, patience: break_time() });
    let guard = guard.expect("a guard");
    let ticket = guard.begin(0..4096).expect("a ticket");
    let other = guard.clone();
    let told = forked(move || {
        let told = is_told(other.begin(0..4096).map(drop));
        drop(other);
        told
    });
    assert!(told, "the child was not told");
    ticket.finish().expect("the parent's lease is in force as before");
}
