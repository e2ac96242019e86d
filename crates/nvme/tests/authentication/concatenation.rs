//! Secure channel concatenation: an authentication makes the key of a channel, and in the clear there is nothing more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use diskside_nvme::auth::{
    Accepted, AuthError, Concatenation, Controller, Credentials, Explanation, Group, Hash, Host, Policy, Received,
    Sent, Step,
};
use diskside_nvme::controller::{ChannelKind, ConnectionError};
use diskside_nvme::wire::{AUTHENTICATION_REQUIRED, CONCATENATION_REQUIRED, Sqe, cns};
use diskside_nvme::{Nqn, Status};

use super::gate::enable as ready;
use super::raw::{Queue, With};
use super::support::pair::{SUBSYSTEM, Target, identity};
use super::support::rng::Rng;
use super::{credentials, host_keys, names, policy};

fn wanting(two_way: bool) -> Credentials {
    Credentials { concatenate: true, ..credentials(two_way) }
}

fn controller(accepted: Accepted, concatenation: Concatenation) -> Controller {
    Controller::new(names(), host_keys(), accepted).concatenating(concatenation)
}

/// The channel's key on both sides when it is over; `change` may change the host's messages.
fn keys_of(
    host: &mut Host,
    controller: &mut Controller,
    mut change: impl FnMut(&mut Vec<u8>),
) -> Result<[Vec<u8>; 2], Explanation> {
    static SEEDS: AtomicU64 = AtomicU64::new(1);
    let mut rng = Rng::new(SEEDS.fetch_add(1, Ordering::Relaxed));
    let mut random = move |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = rng.next() as u8);
    let mut step = host.start();
    loop {
        step = match step {
            Step::Send(mut message) => {
                change(&mut message);
                if let Sent::Compute(work) = controller.sent(&message) {
                    assert!(controller.computed(work.run(&mut random)));
                }
                host.sent()
            }
            Step::Receive(len) => match controller.received(len as usize) {
                Received::Message(message) | Received::Authenticated(message) | Received::Failed(message) => {
                    host.received(&message)
                }
                other => panic!("there is a message: {other:?}"),
            },
            Step::Compute(work) => host.computed(work.run(&mut random)),
            Step::Failed(AuthError::Theirs(explanation)) => return Err(explanation),
            Step::Failed(error) => panic!("{error}"),
            Step::Authenticated => {
                let [ours, theirs] =
                    [host.take_generated(), controller.take_generated()].map(|psk| psk.expect("a key"));
                assert_eq!(ours.identity, theirs.identity);
                assert!(ours.identity.starts_with("NVMe1G0"), "{}", ours.identity);
                return Ok([ours.key.to_vec(), theirs.key.to_vec()]);
            }
        };
    }
}

#[test]
fn both_sides_make_the_same_key_and_each_time_another() {
    let mut seen = Vec::new();
    for hash in [Hash::Sha256, Hash::Sha384] {
        for group in [Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096] {
            for two_way in [false, true] {
                let mut host = Host::new(names(), wanting(two_way), 3);
                let mut controller = controller(super::only(hash, group), Concatenation::IfAsked);
                let [ours, theirs] = keys_of(&mut host, &mut controller, |_| {}).unwrap();
                assert_eq!(ours, theirs, "{hash} {group} {two_way}");
                assert_eq!(ours.len(), hash.len_bytes());
                assert!(!seen.contains(&ours));
                seen.push(ours);
            }
        }
    }
}

#[test]
fn no_key_is_made_of_nothing_that_is_shared() {
    for (hash, group, explanation) in [
        (Hash::Sha512, Group::Ffdhe2048, Explanation::HashNotUsable),
        (Hash::Sha256, Group::Null, Explanation::GroupNotUsable),
    ] {
        let mut host = Host::new(names(), wanting(false), 0);
        let mut controller = controller(super::only(hash, group), Concatenation::IfAsked);
        assert_eq!(keys_of(&mut host, &mut controller, |_| {}), Err(explanation));
    }
    // With all of them one is chosen of which a key can be made.
    let mut host = Host::new(names(), wanting(false), 0);
    let first = Accepted { hashes: vec![Hash::Sha512, Hash::Sha384], groups: vec![Group::Null, Group::Ffdhe2048] };
    assert_eq!(keys_of(&mut host, &mut controller(first, Concatenation::IfAsked), |_| {}).unwrap()[0].len(), 48);
}

#[test]
fn who_does_not_want_a_channel_where_one_is_due_and_the_other_way_round_is_refused() {
    for (wants, concatenation) in
        [(false, Concatenation::Required), (true, Concatenation::Never), (true, Concatenation::Replace)]
    {
        let mut host = Host::new(names(), Credentials { concatenate: wants, ..credentials(false) }, 0);
        let mut controller = controller(super::only(Hash::Sha256, Group::Ffdhe2048), concatenation);
        assert_eq!(keys_of(&mut host, &mut controller, |_| {}), Err(Explanation::ConcatenationMismatch), "{wants}");
    }
}

/// An attacker in between could otherwise take the channel away from two that both want it.
#[test]
fn nobody_in_between_can_change_what_follows() {
    for (wants, to) in [(true, 0), (true, 1), (false, 2)] {
        let mut host = Host::new(names(), Credentials { concatenate: wants, ..credentials(true) }, 0);
        let mut controller = controller(super::only(Hash::Sha256, Group::Ffdhe2048), Concatenation::IfAsked);
        let mut is_first = true;
        let refused = keys_of(&mut host, &mut controller, |message| {
            if std::mem::take(&mut is_first) {
                message[6] = to;
            }
        });
        assert_eq!(refused, Err(Explanation::Failed), "{wants} {to}");
    }
}

#[test]
fn a_reply_without_its_part_of_the_key_is_refused() {
    let mut host = Host::new(names(), wanting(false), 0);
    let mut controller = controller(super::only(Hash::Sha256, Group::Ffdhe2048), Concatenation::Required);
    let refused = keys_of(&mut host, &mut controller, |message| {
        if message[1] == 2 {
            message[8] = 0;
        }
    });
    assert_eq!(refused, Err(Explanation::IncorrectPayload));
}

fn target(channel_required: bool) -> Target {
    let accepted = Accepted { hashes: Hash::ALL.to_vec(), groups: vec![Group::Ffdhe2048] };
    let authentication = Policy { channel_required, accepted, ..policy() };
    let config = diskside_nvme::controller::SubsystemConfig {
        authentication,
        ..diskside_nvme::controller::SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1")
    };
    let mut target = Target::with_config(config);
    target.add(1, 1024, diskside_nvme::controller::BlockSize::B512);
    target
}

#[test]
fn in_the_clear_there_is_the_controller_and_nothing_else() {
    let now = Instant::now();
    for channel_required in [false, true] {
        let mut target = target(channel_required);
        let mut queue = Queue::new(&mut target, now);
        let answer = queue.connect(&mut target, now, 0, None, &identity());
        assert_eq!(answer.result & AUTHENTICATION_REQUIRED, AUTHENTICATION_REQUIRED);
        assert_eq!(answer.result & CONCATENATION_REQUIRED != 0, channel_required);
        let cntlid = answer.result as u16;
        assert!(queue.connection.take_generated().is_none());
        queue.authenticate(&mut target, now, Host::new(names(), wanting(true), 0), |_, _| {}).unwrap();
        let (whose, psk) = queue.connection.take_generated().expect("a key");
        assert_eq!(whose, names());
        assert!(queue.connection.take_generated().is_none(), "it is told once");

        // As Linux does before it comes again.
        ready(&mut queue, &mut target, now);
        let identify = Sqe::identify(cns::CONTROLLER, 0, 0);
        let answer = queue.command(&mut target, now, identify, With::Transport(4096)).unwrap();
        assert!(answer.status.is_success());
        for sqe in [Sqe::get_log_page(0xc0, 0, 512, 0, false), Sqe::new(0x85, 0), Sqe::new(0xc1, 0)] {
            let answer = queue.command(&mut target, now, sqe, With::Nothing).unwrap();
            assert!(answer.status.is(Status::AUTHENTICATION_REQUIRED), "{answer:?}");
        }
        // No I/O queue: at once where a channel is due, otherwise once it has authenticated.
        let mut io = Queue::new(&mut target, now);
        let answer = io.connect(&mut target, now, 1, Some(cntlid), &identity());
        if channel_required {
            assert!(answer.status.is(Status::AUTHENTICATION_REQUIRED), "{answer:?}");
        } else {
            io.authenticate(&mut target, now, Host::new(names(), credentials(false), 0), |_, _| {}).unwrap();
            assert_eq!(io.connection.error(), Some(&ConnectionError::Authentication(AuthError::QueueGone)));
        }

        // Over the channel it needs no more proof, and may make another key.
        assert!(psk.identity.contains(identity().nqn.as_str()));
        let mut admin = Queue::new(&mut target, now);
        admin.connection.set_channel(names(), ChannelKind::Generated);
        let answer = admin.connect(&mut target, now, 0, None, &identity());
        assert!(answer.status.is_success() && answer.result & AUTHENTICATION_REQUIRED == 0, "{answer:?}");
        assert!(admin.connection.has_proved_itself());
        ready(&mut admin, &mut target, now);
        let mut io = Queue::new(&mut target, now);
        io.connection.set_channel(names(), ChannelKind::Generated);
        let connected = io.connect(&mut target, now, 1, Some(answer.result as u16), &identity());
        assert!(connected.status.is_success() && connected.result & AUTHENTICATION_REQUIRED == 0);
        if channel_required {
            let mut plain = Queue::new(&mut target, now);
            let refused = plain.connect(&mut target, now, 2, Some(answer.result as u16), &identity());
            assert!(refused.status.is(Status::AUTHENTICATION_REQUIRED), "no queue in the clear: {refused:?}");
        }
        admin.authenticate(&mut target, now, Host::new(names(), credentials(false), 9), |_, _| {}).unwrap();
        assert!(admin.connection.take_generated().is_none(), "the host did not want one");
    }
}

/// A key that an authentication made says no more than that the host had one of its keys then.
#[test]
fn a_generated_key_opens_nothing_once_the_host_has_a_key_of_its_own_for_channels_or_none_at_all() {
    let now = Instant::now();
    let of = |keys| Policy { hosts: [(identity().nqn, keys)].into(), ..policy() };
    let with_channel_key = diskside_nvme::auth::HostKeys { has_channel_key: true, ..host_keys() };
    for policy in [of(with_channel_key), of(Default::default()), Policy { hosts: Default::default(), ..policy() }] {
        let mut target = target(true);
        target.subsystem.set_authentication(policy);
        let mut queue = Queue::new(&mut target, now);
        queue.connection.set_channel(names(), ChannelKind::Generated);
        let answer = queue.connect(&mut target, now, 0, None, &identity());
        assert!(answer.status.is(Status::CONNECT_INVALID_HOST), "{answer:?}");
    }
}
