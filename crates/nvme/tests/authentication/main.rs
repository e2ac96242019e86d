//! In-band authentication: both machines against each other, what they say to everything that is wrong, and the gate.

#![allow(unreachable_pub, reason = "the modules of a test share what they have")]

mod channel;
mod concatenation;
mod gate;
mod life;
mod machines;
mod malformed;
mod raw;
#[path = "../support/mod.rs"]
mod support;

use diskside_nvme::auth::{Accepted, Controller, Credentials, Hash, Host, HostKeys, Names, Policy, Secret};
use diskside_nvme::{Nqn, auth};
use std::collections::BTreeMap;
use support::pair::{SUBSYSTEM, identity};
use support::rng::Rng;

pub(crate) fn key(seed: u8, transform: Option<Hash>) -> Secret {
    Secret::new(&[seed; 32], transform).unwrap()
}

pub(crate) fn names() -> Names {
    Names { host: identity().nqn, subsystem: Nqn::new(SUBSYSTEM).unwrap() }
}

/// The host has key 1, and wants proof of key 2 if `two_way`.
pub(crate) fn credentials(two_way: bool) -> Credentials {
    let controller_key = two_way.then(|| key(2, None));
    Credentials {
        key: key(1, Some(Hash::Sha256)),
        controller_key,
        accepted: Accepted::everything(),
        concatenate: false,
    }
}

pub(crate) fn host_keys() -> HostKeys {
    HostKeys { keys: vec![key(1, Some(Hash::Sha256))], controller_key: Some(key(2, None)), ..Default::default() }
}

/// The policy for the tests' host, which must authenticate. There is no group, which would take time.
pub(crate) fn policy() -> Policy {
    let accepted = Accepted { hashes: Hash::ALL.to_vec(), groups: vec![auth::Group::Null] };
    Policy { required: true, hosts: BTreeMap::from([(identity().nqn, host_keys())]), accepted, ..Policy::open() }
}

pub(crate) fn only(hash: Hash, group: auth::Group) -> Accepted {
    Accepted { hashes: vec![hash], groups: vec![group] }
}

/// How a conversation ended, for the host and for the controller; with what they said.
pub(crate) struct Ended {
    pub(crate) host: Result<(), auth::AuthError>,
    pub(crate) controller: Result<(), auth::AuthError>,
    pub(crate) said: Vec<Vec<u8>>,
}

/// Lets both talk until it is over.
pub(crate) fn converse(host: Host, controller: Controller) -> Ended {
    converse_through(host, controller, |_| {})
}

/// The same, where somebody in between may change each message.
pub(crate) fn converse_through(
    mut host: Host,
    mut controller: Controller,
    mut change: impl FnMut(&mut Vec<u8>),
) -> Ended {
    use auth::{Received, Sent, Step};
    let mut rng = Rng::new(7);
    let mut random = move |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = rng.next() as u8);
    let mut said = Vec::new();
    let mut admitted = None;
    let mut step = host.start();
    loop {
        step = match step {
            Step::Send(mut message) => {
                change(&mut message);
                said.push(message.clone());
                match controller.sent(&message) {
                    Sent::Taken => {}
                    Sent::Compute(work) => assert!(controller.computed(work.run(&mut random))),
                    Sent::Authenticated => admitted = Some(Ok(())),
                    Sent::Failed => admitted = Some(Err(controller.error().expect("it failed").clone())),
                    Sent::OutOfTurn => panic!("the controller was ready"),
                }
                host.sent()
            }
            Step::Receive(len) => {
                let mut message = match controller.received(len as usize) {
                    Received::Message(message) => message,
                    Received::Authenticated(message) => {
                        admitted = Some(Ok(()));
                        message
                    }
                    Received::Failed(message) => {
                        admitted = Some(Err(controller.error().expect("it failed").clone()));
                        message
                    }
                    other => panic!("there is a message: {other:?}"),
                };
                change(&mut message);
                said.push(message.clone());
                host.received(&message)
            }
            Step::Compute(work) => host.computed(work.run(&mut random)),
            Step::Authenticated => {
                return Ended { host: Ok(()), controller: admitted.expect("the controller knows"), said };
            }
            Step::Failed(error) => {
                return Ended { host: Err(error), controller: admitted.expect("the controller knows"), said };
            }
        };
    }
}
