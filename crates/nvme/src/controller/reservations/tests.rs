//! What each command does to reservations, one rule a test.

use zerocopy::FromBytes;

use super::*;
use crate::wire::ReservationNotice::{RegistrationPreempted, ReservationPreempted, ReservationReleased};
use crate::wire::ReservationType::*;

const A: HostId = [0xa; 16];
const B: HostId = [0xb; 16];
const C: HostId = [0xc; 16];
const INVALID: Status = Status::INVALID_FIELD.dnr();

/// A, B and C with the keys 1, 2 and 3.
fn three() -> Reserved {
    let mut reserved = Reserved::default();
    for (host, key) in [(A, 1), (B, 2), (C, 3)] {
        reserved.register(host, RegisterAction::Register, false, (0, key)).unwrap();
    }
    reserved
}

/// The three, and A has acquired.
fn held(kind: ReservationType) -> Reserved {
    let mut reserved = three();
    assert_eq!(reserved.acquire(A, 1, kind), Ok(Vec::new()));
    reserved
}

fn told(all: &[(HostId, ReservationNotice)]) -> Result<Vec<Told>, Status> {
    Ok(all.iter().map(|&(host, notice)| Told { host, notice }).collect())
}

/// GEN, type, and of each registrant its host's number, key, and whether it holds.
fn reported(reserved: &Reserved) -> (u32, u8, Vec<(u8, u64, bool)>) {
    let report = reserved.report();
    let (head, rest) = ReservationStatus::ref_from_prefix(&report).unwrap();
    let all = <[ReservationRegistrant]>::ref_from_bytes(rest).unwrap();
    assert_eq!((usize::from(head.registrants.get()), head.persists), (all.len(), 0));
    assert!(all.iter().all(|one| one.controller_id.get() == 0xffff));
    let all = all.iter().map(|one| (one.host_id[0], one.key.get(), one.status == 1)).collect();
    (head.generation.get(), head.kind, all)
}

#[test]
fn a_host_registers_replaces_its_key_and_gives_it_up() {
    let mut reserved = Reserved::default();
    let mut register = |action, ignore_key, keys| reserved.register(A, action, ignore_key, keys).map(drop);
    let (first, other, gone) = (RegisterAction::Register, RegisterAction::Replace, RegisterAction::Unregister);
    assert_eq!(register(gone, true, (0, 0)), Err(CONFLICT), "it is not registered");
    assert_eq!(register(other, false, (0, 5)), Err(CONFLICT), "nor has it a key to replace");
    assert_eq!(register(first, false, (0, 0)), Err(INVALID), "zero is no key");
    assert_eq!(register(first, false, (0, 5)), Ok(()));
    assert_eq!(register(first, false, (9, 5)), Ok(()), "with the same key again");
    assert_eq!(register(first, true, (5, 6)), Err(CONFLICT), "another key is for Replace");
    assert_eq!(register(other, false, (4, 6)), Err(CONFLICT), "a wrong key");
    assert_eq!(register(other, false, (5, 0)), Err(INVALID));
    assert_eq!(register(other, false, (5, 6)), Ok(()));
    assert_eq!(register(other, true, (0, 7)), Ok(()), "IEKEY: whatever its key is");
    assert_eq!(register(gone, false, (6, 0)), Err(CONFLICT));
    assert_eq!(register(gone, false, (7, 0)), Ok(()));
    assert_eq!(register(other, true, (0, 8)), Ok(()), "IEKEY: whether it is registered or not");
    assert_eq!(register(gone, true, (0, 0)), Ok(()));
    assert_eq!(reported(&reserved), (7, 0, vec![]), "GEN counts those that succeeded");
}

#[test]
fn registrants_are_bounded() {
    let mut reserved = Reserved::default();
    let mut register = |number: usize| {
        let host = (number as u128).to_le_bytes();
        reserved.register(host, RegisterAction::Register, false, (0, 1))
    };
    for number in 0..REGISTRANTS_MAX {
        register(number).unwrap();
    }
    assert_eq!(register(REGISTRANTS_MAX), Err(Status::INSUFFICIENT_RESOURCES.dnr()));
    assert!(register(3).is_ok(), "one that is known");
    assert_eq!(reported(&reserved).0, REGISTRANTS_MAX as u32 + 1);
}

#[test]
fn a_reservation_is_acquired_by_a_registrant_while_nobody_else_holds_it() {
    for kind in ReservationType::ALL {
        let mut reserved = held(kind);
        let everybody = kind.is_of_all_registrants();
        assert_eq!(reported(&reserved), (3, kind as u8, vec![(10, 1, true), (11, 2, everybody), (12, 3, everybody)]));
        assert_eq!(reserved.acquire(A, 1, kind), told(&[]), "it has it already");
        assert_eq!(reserved.acquire(A, 2, kind), Err(CONFLICT), "a wrong key");
        let other = if kind == WriteExclusive { ExclusiveAccess } else { WriteExclusive };
        assert_eq!(reserved.acquire(A, 1, other), Err(CONFLICT), "another type");
        assert_eq!(reserved.acquire(B, 2, kind).is_ok(), everybody, "all registrants hold it");
        assert_eq!(reserved.acquire([9; 16], 0, kind), Err(CONFLICT), "not registered");
        assert_eq!(reported(&reserved).0, 3, "GEN is not about these");
    }
}

#[test]
fn a_release_is_the_holders_of_the_type_that_it_holds() {
    for kind in ReservationType::ALL {
        let mut reserved = held(kind);
        let mut release = |host, key, kind| reserved.release(host, ReleaseAction::Release, key, kind);
        assert_eq!(release(B, 1, Some(kind)), Err(CONFLICT), "a wrong key");
        if !kind.is_of_all_registrants() {
            assert_eq!(release(B, 2, Some(kind)), told(&[]), "of one who holds nothing: nothing happens");
        }
        let other = if kind == WriteExclusive { ExclusiveAccess } else { WriteExclusive };
        assert_eq!(release(A, 1, Some(other)), Err(INVALID));
        assert_eq!(release(A, 1, None), Err(INVALID));
        let notices = [(B, ReservationReleased), (C, ReservationReleased)];
        let expected = if kind.excludes_registrants() { told(&[]) } else { told(&notices) };
        assert_eq!(release(A, 1, Some(kind)), expected);
        assert_eq!(release(A, 1, Some(kind)), told(&[]), "there is none any more");
        assert_eq!(reported(&reserved), (3, 0, vec![(10, 1, false), (11, 2, false), (12, 3, false)]));
    }
}

#[test]
fn a_clear_takes_everything_and_tells_the_others() {
    let mut reserved = held(ExclusiveAccess);
    assert_eq!(reserved.release(B, ReleaseAction::Clear, 1, None), Err(CONFLICT));
    let notices = [(A, ReservationPreempted), (C, ReservationPreempted)];
    assert_eq!(reserved.release(B, ReleaseAction::Clear, 2, None), told(&notices));
    assert_eq!(reported(&reserved), (4, 0, vec![]));
}

#[test]
fn unregistering_gives_up_what_the_host_holds() {
    for kind in [WriteExclusive, ExclusiveAccess, WriteExclusiveRegistrantsOnly, ExclusiveAccessRegistrantsOnly] {
        let mut reserved = held(kind);
        let notices = [(B, ReservationReleased), (C, ReservationReleased)];
        let expected = if kind.excludes_registrants() { told(&[]) } else { told(&notices) };
        assert_eq!(reserved.register(A, RegisterAction::Unregister, false, (1, 0)), expected);
        assert_eq!(reported(&reserved), (4, 0, vec![(11, 2, false), (12, 3, false)]));
    }
}

#[test]
fn one_of_all_registrants_lasts_until_the_last_of_them() {
    let mut reserved = held(WriteExclusiveAllRegistrants);
    for (host, key) in [(A, 1), (B, 2)] {
        assert_eq!(reserved.register(host, RegisterAction::Unregister, false, (key, 0)), told(&[]));
        assert_eq!(reserved.exclusion(&host), Exclusion::Writes);
    }
    assert_eq!(reported(&reserved), (5, 5, vec![(12, 3, true)]));
    assert_eq!(reserved.register(C, RegisterAction::Unregister, false, (3, 0)), told(&[]));
    assert_eq!((reported(&reserved), reserved.exclusion(&A)), ((6, 0, vec![]), Exclusion::Nothing));
}

#[test]
fn a_preempt_of_the_holder_takes_its_place() {
    let mut reserved = held(WriteExclusive);
    reserved.register(C, RegisterAction::Replace, false, (3, 1)).unwrap();
    assert_eq!(reserved.preempt(B, (1, 1), WriteExclusive), Err(CONFLICT), "a wrong key of its own");
    // C has the same key as the holder.
    let notices = [(A, RegistrationPreempted), (C, RegistrationPreempted)];
    assert_eq!(reserved.preempt(B, (2, 1), WriteExclusive), told(&notices));
    assert_eq!(reported(&reserved), (5, 1, vec![(11, 2, true)]));
    assert_eq!(reserved.exclusion(&A), Exclusion::Writes);
}

#[test]
fn a_preempt_can_change_the_type_which_the_others_are_told() {
    let mut reserved = held(WriteExclusive);
    let notices = [(A, RegistrationPreempted), (C, ReservationReleased)];
    assert_eq!(reserved.preempt(B, (2, 1), WriteExclusiveRegistrantsOnly), told(&notices));
    assert_eq!(reported(&reserved), (4, 3, vec![(11, 2, true), (12, 3, false)]));
    // By the holder itself, too: it stays registered.
    assert_eq!(reserved.preempt(B, (2, 2), ExclusiveAccess), told(&[(C, ReservationReleased)]));
    assert_eq!(reported(&reserved), (5, 2, vec![(11, 2, true), (12, 3, false)]));
}

#[test]
fn a_preempt_of_others_leaves_the_reservation() {
    let mut reserved = held(WriteExclusive);
    assert_eq!(reserved.preempt(B, (2, 3), ExclusiveAccess), told(&[(C, RegistrationPreempted)]));
    assert_eq!(reported(&reserved), (4, 1, vec![(10, 1, true), (11, 2, false)]));
    // The holder fences a registrant off.
    assert_eq!(reserved.preempt(A, (1, 2), WriteExclusive), told(&[(B, RegistrationPreempted)]));
    assert_eq!(reported(&reserved), (5, 1, vec![(10, 1, true)]));
    assert_eq!(reserved.preempt(A, (1, 2), WriteExclusive), Err(CONFLICT), "nobody has that key");
    assert_eq!(reserved.preempt(A, (1, 0), WriteExclusive), Err(INVALID), "zero is for all registrants");
    assert_eq!(reported(&reserved).0, 5);
}

#[test]
fn a_preempt_without_a_reservation_takes_registrations() {
    let mut reserved = three();
    assert_eq!(reserved.preempt(A, (1, 3), WriteExclusive), told(&[(C, RegistrationPreempted)]));
    assert_eq!(reserved.preempt(A, (1, 0), WriteExclusive), Err(CONFLICT), "nobody has that key");
    assert_eq!(reserved.preempt(A, (1, 1), WriteExclusive), told(&[]), "its own");
    assert_eq!(reported(&reserved), (5, 0, vec![(11, 2, false)]));
}

#[test]
fn a_preempt_of_all_registrants_is_by_key_or_of_all_others() {
    let mut reserved = held(ExclusiveAccessAllRegistrants);
    assert_eq!(reserved.preempt(B, (2, 1), WriteExclusive), told(&[(A, RegistrationPreempted)]));
    assert_eq!(reported(&reserved), (4, 6, vec![(11, 2, true), (12, 3, true)]), "it stays one of all");
    assert_eq!(reserved.preempt(B, (2, 7), WriteExclusive), Err(CONFLICT));
    assert_eq!(reserved.preempt(C, (3, 0), WriteExclusive), told(&[(B, RegistrationPreempted)]));
    assert_eq!(reported(&reserved), (5, 1, vec![(12, 3, true)]));
}
