//! A host over a secure channel is the one that its key says, and nobody else; a host with a key for one comes over
//! one.

use std::time::Instant;

use diskside_nvme::auth::{HostKeys, Names, Policy};
use diskside_nvme::controller::{BlockSize, SubsystemConfig};
use diskside_nvme::host::HostIdentity;
use diskside_nvme::wire::{AUTHENTICATION_REQUIRED, CONCATENATION_REQUIRED};
use diskside_nvme::{Nqn, Status};

use super::raw::Queue;
use super::support::pair::{SUBSYSTEM, Target, identity};
use super::{host_keys, names, policy};

fn target(authentication: Policy) -> Target {
    let config = SubsystemConfig { authentication, ..SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1") };
    let mut target = Target::with_config(config);
    target.add(1, 1024, BlockSize::B512);
    target
}

/// The keys of the tests' host, with one for a channel, and another if `other`.
fn keys(other: bool) -> HostKeys {
    HostKeys { has_channel_key: true, ..if other { host_keys() } else { HostKeys::default() } }
}

fn policy_of(keys: HostKeys) -> Policy {
    Policy { hosts: [(identity().nqn, keys)].into(), ..policy() }
}

/// The answer to Connect of an admin queue, for a host that comes over the channel of these names, or without one.
fn connected(policy: &Policy, channel: Option<Names>, host: &HostIdentity) -> (Status, u64) {
    let (mut target, now) = (target(policy.clone()), Instant::now());
    let mut queue = Queue::new(&mut target, now);
    if let Some(names) = channel {
        queue.connection.set_channel(names, diskside_nvme::controller::ChannelKind::Known);
    }
    let answer = queue.connect(&mut target, now, 0, None, host);
    (answer.status, answer.result)
}

#[test]
fn who_comes_over_a_channel_has_proved_who_it_is() {
    for policy in [policy_of(keys(false)), policy_of(keys(true)), Policy { required: false, ..policy_of(keys(false)) }]
    {
        let (status, result) = connected(&policy, Some(names()), &identity());
        assert!(status.is_success() && result & AUTHENTICATION_REQUIRED == 0);
        // It has a key for a channel: without one it may be anybody.
        assert!(connected(&policy, None, &identity()).0.is(Status::CONNECT_INVALID_HOST));
    }
}

#[test]
fn a_channel_is_of_its_host_and_its_subsystem_alone() {
    let policy = policy_of(keys(false));
    let other = Nqn::new("nqn.2026-01.test:other").unwrap();
    let as_other = HostIdentity { nqn: other.clone(), ..identity() };
    assert!(connected(&policy, Some(names()), &as_other).0.is(Status::CONNECT_INVALID_HOST));
    assert!(
        connected(&policy, Some(Names { host: other.clone(), ..names() }), &identity())
            .0
            .is(Status::CONNECT_INVALID_HOST)
    );
    assert!(
        connected(&policy, Some(Names { subsystem: other, ..names() }), &identity()).0.is(Status::CONNECT_INVALID_HOST)
    );
    // One whose host has lost its key meanwhile.
    assert!(connected(&super::policy(), Some(names()), &identity()).0.is(Status::CONNECT_INVALID_HOST));
}

#[test]
fn both_proofs_may_be_required_and_channels_of_all() {
    let both = Policy { both_required: true, channel_required: true, ..policy_of(keys(true)) };
    let (status, result) = connected(&both, Some(names()), &identity());
    assert!(status.is_success() && result & AUTHENTICATION_REQUIRED != 0);
    // A host with another key may make that of a channel by authenticating; one without any may not come at all.
    let all = Policy { channel_required: true, required: false, ..policy() };
    let (status, result) = connected(&all, None, &identity());
    assert!(status.is_success() && result & CONCATENATION_REQUIRED != 0);
    let none = Policy { hosts: policy_of(HostKeys::default()).hosts, ..all.clone() };
    assert!(connected(&none, None, &identity()).0.is(Status::CONNECT_INVALID_HOST));
    let other = Policy { hosts: policy_of(keys(true)).hosts, ..all.clone() };
    assert!(connected(&other, None, &identity()).0.is(Status::CONNECT_INVALID_HOST));
    let stranger = HostIdentity { nqn: Nqn::new("nqn.2026-01.test:stranger").unwrap(), ..identity() };
    assert!(connected(&all, None, &stranger).0.is(Status::CONNECT_INVALID_HOST));
}
