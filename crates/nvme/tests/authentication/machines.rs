//! A host and a controller that keep to the rules.

use diskside_nvme::auth::{Accepted, AuthError, Controller, Explanation, Group, Hash, Host, HostKeys, Secret};

use super::{converse, credentials, host_keys, key, names, only};

#[test]
fn every_hash_and_group_authenticates_one_and_two_ways() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            for two_way in [false, true] {
                let host = Host::new(names(), credentials(two_way), 3);
                let controller = Controller::new(names(), host_keys(), only(hash, group));
                let ended = converse(host, controller);
                assert_eq!((ended.host, ended.controller), (Ok(()), Ok(())), "{hash} {group} {two_way}");
                let expected = if two_way { 5 } else { 4 };
                assert_eq!(ended.said.len(), expected, "{hash} {group}");
                assert_eq!(ended.said[2].len(), 16 + 2 * hash.len_bytes() + group.len_bytes());
            }
        }
    }
}

#[test]
fn keys_of_every_length_and_transform_work_whatever_the_hash() {
    for len in [32, 48, 64] {
        for transform in [None, Some(Hash::Sha256), Some(Hash::Sha384), Some(Hash::Sha512)] {
            let secret = Secret::new(&vec![9; len], transform).unwrap();
            let mut ours = credentials(true);
            ours.key = secret.clone();
            let keys = HostKeys { keys: vec![secret], ..host_keys() };
            for hash in Hash::ALL {
                let host = Host::new(names(), ours.clone(), 0);
                let ended = converse(host, Controller::new(names(), keys.clone(), only(hash, Group::Null)));
                assert_eq!((ended.host, ended.controller), (Ok(()), Ok(())), "{len} {transform:?} {hash}");
            }
        }
    }
}

/// While a key is changed for another the controller has both.
#[test]
fn any_of_several_keys_will_do() {
    let both =
        HostKeys { keys: vec![key(8, None), key(1, Some(Hash::Sha256))], controller_key: None, ..Default::default() };
    for (seed, transform) in [(8, None), (1, Some(Hash::Sha256))] {
        let mut ours = credentials(false);
        ours.key = key(seed, transform);
        let controller = Controller::new(names(), both.clone(), Accepted::usual());
        assert_eq!(converse(Host::new(names(), ours, 0), controller).controller, Ok(()));
    }
}

#[test]
fn a_wrong_key_gets_nobody_in() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let keys = HostKeys { keys: vec![key(4, Some(Hash::Sha256))], ..host_keys() };
        let host = Host::new(names(), credentials(true), 0);
        let ended = converse(host, Controller::new(names(), keys, only(Hash::Sha384, group)));
        assert_eq!(ended.host, Err(AuthError::Theirs(Explanation::Failed)));
        assert_eq!(ended.controller, Err(AuthError::WrongHostKey));
    }
    // No key at all fits nothing.
    let keys = HostKeys { keys: Vec::new(), ..host_keys() };
    let ended = converse(Host::new(names(), credentials(false), 0), Controller::new(names(), keys, Accepted::usual()));
    assert_eq!(ended.controller, Err(AuthError::WrongHostKey));
}

/// The key is bound to the names: another host with the same key, or another subsystem, is another.
#[test]
fn answers_are_bound_to_the_names() {
    let mut other = names();
    other.host = diskside_nvme::Nqn::new("nqn.2026-01.test:other").unwrap();
    let keys = HostKeys { keys: vec![key(1, None)], controller_key: None, ..Default::default() };
    let mut ours = credentials(false);
    ours.key = key(1, None);
    let ended = converse(Host::new(other, ours, 0), Controller::new(names(), keys, Accepted::usual()));
    assert_eq!(ended.controller, Err(AuthError::WrongHostKey));
}

#[test]
fn a_controller_that_does_not_prove_itself_is_given_up() {
    let other = HostKeys { controller_key: Some(key(5, None)), ..host_keys() };
    let controller = Controller::new(names(), other, only(Hash::Sha512, Group::Ffdhe2048));
    let ended = converse(Host::new(names(), credentials(true), 0), controller);
    assert_eq!(ended.host, Err(AuthError::WrongControllerKey));
    assert_eq!(ended.controller, Err(AuthError::Theirs(Explanation::Failed)));

    let none = HostKeys { controller_key: None, ..host_keys() };
    let ended = converse(Host::new(names(), credentials(true), 0), Controller::new(names(), none, Accepted::usual()));
    assert_eq!(ended.host, Err(AuthError::Theirs(Explanation::Failed)));
    assert_eq!(ended.controller, Err(AuthError::NoControllerKey));
}

#[test]
fn what_both_sides_do_not_have_in_common_is_named() {
    for (accepted, explanation) in [
        (Accepted { hashes: Vec::new(), ..Accepted::usual() }, Explanation::HashNotUsable),
        (Accepted { groups: Vec::new(), ..Accepted::usual() }, Explanation::GroupNotUsable),
    ] {
        let ended =
            converse(Host::new(names(), credentials(false), 0), Controller::new(names(), host_keys(), accepted));
        assert_eq!(ended.host, Err(AuthError::Theirs(explanation)));
        assert_eq!(ended.controller, Err(AuthError::Ours(explanation)));
    }
}

/// A machine that can be used again and again: hosts authenticate again on a queue that works.
#[test]
fn authenticating_again_needs_the_key_again() {
    use diskside_nvme::auth::{Received, Sent, Step};
    let mut controller = Controller::new(names(), host_keys(), only(Hash::Sha256, Group::Null));
    let mut random = |bytes: &mut [u8]| bytes.fill(5);
    for (transaction, seed) in [(0, 1), (1, 1), (2, 3)] {
        let mut ours = credentials(false);
        ours.key = key(seed, Some(Hash::Sha256));
        let mut host = Host::new(names(), ours, transaction);
        for _ in 0..2 {
            let Step::Send(message) = host_step(&mut host, &mut controller, &mut random) else { panic!("it sends") };
            let Sent::Compute(work) = controller.sent(&message) else { panic!("it computes") };
            assert!(controller.computed(work.run(&mut random)));
            assert!(matches!(host.sent(), Step::Receive(_)));
        }
        assert!(controller.is_busy());
        match controller.received(4096) {
            Received::Authenticated(_) if seed == 1 => assert!(!controller.is_busy()),
            Received::Failed(_) if seed == 3 => assert_eq!(controller.error(), Some(&AuthError::WrongHostKey)),
            other => panic!("{seed}: {other:?}"),
        }
    }

    /// The negotiation first; after it, the answer to what there is to receive.
    fn host_step(host: &mut Host, controller: &mut Controller, random: &mut dyn FnMut(&mut [u8])) -> Step {
        if !controller.is_busy() {
            return host.start();
        }
        let Received::Message(message) = controller.received(4096) else { panic!("there is a challenge") };
        let Step::Compute(work) = host.received(&message) else { panic!("it computes") };
        host.computed(work.run(random))
    }
}
