//! The errors of messages are those of the specification, and let nobody in.

use diskside_nvme::auth::message::{Challenge, ControllerMessage, HostMessage, Negotiate, Reply, transaction_of};
use diskside_nvme::auth::{AuthError, Controller, Explanation, Group, Hash, Host, Received, Sent, Step};
use proptest::prelude::*;

use super::{converse, converse_through, credentials, host_keys, names, only};

fn controller() -> Controller {
    Controller::new(names(), host_keys(), only(Hash::Sha256, Group::Ffdhe2048))
}

fn random(bytes: &mut [u8]) {
    bytes.fill(0x5a);
}

/// Gives it a message; what it then says.
fn answer(controller: &mut Controller, message: &[u8]) -> ControllerMessage {
    match controller.sent(message) {
        Sent::Taken => {}
        Sent::Compute(work) => assert!(controller.computed(work.run(&mut random))),
        other => panic!("it says something: {other:?}"),
    }
    match controller.received(4096) {
        Received::Message(bytes) | Received::Failed(bytes) | Received::Authenticated(bytes) => {
            ControllerMessage::parse(&bytes).unwrap()
        }
        other => panic!("there is something to receive: {other:?}"),
    }
}

fn offer() -> Negotiate {
    Negotiate { transaction: 9, channel: 0, has_dhchap: true, hashes: vec![1], groups: vec![1] }
}

fn negotiate() -> Vec<u8> {
    HostMessage::Negotiate(offer()).to_bytes()
}

fn failure(explanation: Explanation) -> ControllerMessage {
    ControllerMessage::Failure1 { transaction: 9, explanation }
}

/// A controller that waits for the answer to its challenge, and a right one.
fn challenged() -> (Controller, Reply) {
    let mut controller = controller();
    let ControllerMessage::Challenge(challenge) = answer(&mut controller, &negotiate()) else { panic!("a challenge") };
    let mut host = Host::new(names(), credentials(true), 9);
    host.sent();
    let bytes = ControllerMessage::Challenge(challenge).to_bytes();
    let Step::Compute(work) = host.received(&bytes) else { panic!("it answers") };
    let Step::Send(reply) = host.computed(work.run(&mut random)) else { panic!("it answers") };
    let HostMessage::Reply(reply) = HostMessage::parse(&reply).unwrap() else { panic!("a reply") };
    (controller, reply)
}

#[test]
fn every_message_of_a_conversation_comes_back_as_it_was() {
    let ended = converse(Host::new(names(), credentials(true), 0x1234), controller());
    for (index, bytes) in ended.said.iter().enumerate() {
        assert_eq!(transaction_of(bytes), 0x1234);
        let again = match index {
            1 | 3 => ControllerMessage::parse(bytes).unwrap().to_bytes(),
            _ => HostMessage::parse(bytes).unwrap().to_bytes(),
        };
        assert_eq!(again, *bytes, "message {index}");
        // Cut short at any place it is none; with more behind it, as hosts send, it is the same.
        for len in 0..bytes.len() {
            let cut = &bytes[..len];
            let error =
                if index % 2 == 1 { ControllerMessage::parse(cut).err() } else { HostMessage::parse(cut).err() };
            assert_eq!(error, Some(Explanation::IncorrectPayload), "message {index}, {len} bytes");
        }
        let longer = [bytes.as_slice(), &[0; 64]].concat();
        match index % 2 {
            1 => assert_eq!(ControllerMessage::parse(&longer), ControllerMessage::parse(bytes)),
            _ => assert_eq!(HostMessage::parse(&longer), HostMessage::parse(bytes)),
        }
    }
}

#[test]
fn an_offer_that_cannot_be_used_is_refused_with_the_reason() {
    let changed = |at: usize, value: u8| {
        let mut bytes = negotiate();
        bytes[at] = value;
        bytes
    };
    for (what, message, explanation) in [
        ("another protocol", changed(8, 2), Explanation::ProtocolNotUsable),
        ("a secure channel behind it", changed(6, 1), Explanation::ConcatenationMismatch),
        ("an unknown hash", changed(12, 9), Explanation::HashNotUsable),
        ("an unknown group", changed(42, 9), Explanation::GroupNotUsable),
        ("no protocols", changed(7, 0), Explanation::IncorrectPayload),
        ("fewer protocols than it says", changed(7, 2), Explanation::IncorrectPayload),
        ("more hashes than there is room for", changed(10, 31), Explanation::IncorrectPayload),
        ("more groups than there is room for", changed(11, 31), Explanation::IncorrectPayload),
        ("an unknown message", changed(1, 0x77), Explanation::IncorrectMessage),
        ("an unknown kind", changed(0, 2), Explanation::IncorrectMessage),
    ] {
        let mut controller = controller();
        assert_eq!(answer(&mut controller, &message), failure(explanation), "{what}");
        assert_eq!(controller.error(), Some(&AuthError::Ours(explanation)), "{what}");
        // It is over: nothing more is heard.
        assert!(matches!(controller.sent(&negotiate()), Sent::Failed), "{what}");
        assert_eq!(controller.received(4096), Received::OutOfTurn, "{what}");
    }
}

#[test]
fn what_comes_out_of_turn_ends_it() {
    let (_, reply) = challenged();
    let messages = [
        HostMessage::Reply(reply.clone()),
        HostMessage::Success2 { transaction: 9 },
        HostMessage::Failure2 { transaction: 9, explanation: Explanation::Failed },
    ];
    for message in &messages {
        let said = answer(&mut controller(), &message.to_bytes());
        assert_eq!(said, failure(Explanation::IncorrectMessage), "first of all {message:?}");
    }
    for message in [HostMessage::Negotiate(offer()), HostMessage::Success2 { transaction: 9 }] {
        let (mut controller, _) = challenged();
        assert_eq!(answer(&mut controller, &message.to_bytes()), failure(Explanation::IncorrectMessage));
    }
    // A message where one is to be received first.
    let mut controller = controller();
    let Sent::Compute(work) = controller.sent(&negotiate()) else { panic!("it computes") };
    assert!(matches!(controller.sent(&negotiate()), Sent::OutOfTurn), "while it computes");
    assert_eq!(controller.received(4096), Received::OutOfTurn, "while it computes");
    assert!(controller.computed(work.run(&mut random)));
    assert_eq!(controller.received(15), Received::TooLong);
    assert_eq!(
        answer(&mut controller, &HostMessage::Reply(reply.clone()).to_bytes()),
        failure(Explanation::IncorrectMessage)
    );
    // The same answer twice: the second has nothing to answer.
    let (mut controller, reply) = challenged();
    let said = answer(&mut controller, &HostMessage::Reply(reply.clone()).to_bytes());
    assert!(matches!(said, ControllerMessage::Success1 { answer: Some(_), .. }));
    assert_eq!(answer(&mut controller, &HostMessage::Reply(reply).to_bytes()), failure(Explanation::IncorrectMessage));
}

#[test]
fn an_answer_that_is_malformed_is_not_looked_at() {
    let with = |change: &dyn Fn(&mut Reply)| {
        let (mut controller, mut reply) = challenged();
        change(&mut reply);
        answer(&mut controller, &HostMessage::Reply(reply).to_bytes())
    };
    for (what, change) in [
        ("another transaction", &(|reply: &mut Reply| reply.transaction = 8) as &dyn Fn(&mut Reply)),
        ("a longer hash", &|reply| {
            reply.answer = vec![0; 48];
            reply.challenge = None;
        }),
        ("no half", &|reply| reply.public = Vec::new()),
        ("a short half", &|reply| reply.public.truncate(255)),
        ("a long half", &|reply| reply.public.insert(0, 0)),
        ("0", &|reply| reply.public.fill(0)),
        ("beyond the prime", &|reply| reply.public.fill(0xff)),
    ] {
        assert_eq!(with(change), failure(Explanation::IncorrectPayload), "{what}");
    }
    for (what, change) in [
        ("a bit", &(|reply: &mut Reply| reply.answer[31] ^= 1) as &dyn Fn(&mut Reply)),
        ("another half", &|reply| reply.public[100] ^= 1),
    ] {
        assert_eq!(with(change), failure(Explanation::Failed), "{what}");
    }
    // Linux says a sequence number where it wants no proof, and a challenge without a number where it wants a key for TLS.
    for change in [&(|reply: &mut Reply| reply.challenge = None) as &dyn Fn(&mut Reply), &|reply| reply.sequence = 0] {
        let said = with(change);
        assert!(matches!(said, ControllerMessage::Success1 { answer: None, .. }), "{said:?}");
    }
}

/// The result of one queue's work must not let another queue in, whatever the embedder mixes up.
#[test]
fn work_of_another_queue_changes_nothing() {
    let (mut ours, mut reply) = challenged();
    let (mut theirs, right) = challenged();
    reply.answer[0] ^= 1;
    let Sent::Compute(wrong) = ours.sent(&HostMessage::Reply(reply).to_bytes()) else { panic!("it computes") };
    let Sent::Compute(right) = theirs.sent(&HostMessage::Reply(right).to_bytes()) else { panic!("it computes") };
    assert!(!ours.computed(right.run(&mut random)));
    assert_eq!(ours.received(4096), Received::OutOfTurn);
    assert!(ours.computed(wrong.run(&mut random)));
    assert!(matches!(ours.received(4096), Received::Failed(_)));
}

#[test]
fn the_last_word_must_be_of_this_transaction() {
    let (mut controller, reply) = challenged();
    answer(&mut controller, &HostMessage::Reply(reply).to_bytes());
    let said = answer(&mut controller, &HostMessage::Success2 { transaction: 8 }.to_bytes());
    assert_eq!(said, failure(Explanation::IncorrectPayload));
}

#[test]
fn a_host_refuses_what_it_did_not_offer() {
    let challenge = |change: &dyn Fn(&mut Challenge)| {
        let mut ours = credentials(false);
        ours.accepted = only(Hash::Sha256, Group::Ffdhe2048);
        let mut host = Host::new(names(), ours, 9);
        host.sent();
        let mut public = vec![0; 256];
        public[255] = 2;
        let (hash, group, challenge) = (Hash::Sha256, Group::Ffdhe2048, vec![1; 32]);
        let mut message = Challenge { transaction: 9, hash, group, sequence: 1, challenge, public };
        change(&mut message);
        match host.received(&ControllerMessage::Challenge(message).to_bytes()) {
            Step::Compute(_) => Ok(()),
            Step::Send(bytes) => {
                let HostMessage::Failure2 { explanation, .. } = HostMessage::parse(&bytes).unwrap() else {
                    panic!("it gives up")
                };
                let Step::Failed(error) = host.sent() else { panic!("it is over") };
                Err((explanation, error))
            }
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(challenge(&|_| {}), Ok(()));
    let ours = |explanation| Err((explanation, AuthError::Ours(explanation)));
    let longer = |challenge: &mut Challenge| {
        challenge.hash = Hash::Sha512;
        challenge.challenge = vec![1; 64];
    };
    assert_eq!(challenge(&longer), Err((Explanation::HashNotUsable, AuthError::NotOffered("sha512"))));
    let null = |challenge: &mut Challenge| {
        challenge.group = Group::Null;
        challenge.public = Vec::new();
    };
    assert_eq!(challenge(&null), Err((Explanation::GroupNotUsable, AuthError::NotOffered("null"))));
    assert_eq!(challenge(&|challenge| challenge.transaction = 1), ours(Explanation::IncorrectPayload));
    assert_eq!(challenge(&|challenge| challenge.public[255] = 1), ours(Explanation::IncorrectPayload));
    assert_eq!(challenge(&|challenge| challenge.public.truncate(200)), ours(Explanation::IncorrectPayload));
}

/// The explanation that a host of transaction 9 sends for a message that it must refuse, and its own error.
fn gives_up(host: &mut Host, message: &[u8]) -> (Explanation, AuthError) {
    let Step::Send(bytes) = host.received(message) else { panic!("it says so: {message:x?}") };
    let said = HostMessage::parse(&bytes).unwrap();
    let HostMessage::Failure2 { transaction: 9, explanation } = said else { panic!("it gives up: {said:?}") };
    let Step::Failed(error) = host.sent() else { panic!("it is over") };
    (explanation, error)
}

/// A host that waits for a challenge, the controller, and the challenge.
fn awaits_challenge(two_way: bool) -> (Host, Controller, Vec<u8>) {
    let (mut host, mut controller) = (Host::new(names(), credentials(two_way), 9), controller());
    host.sent();
    let challenge = answer(&mut controller, &negotiate());
    (host, controller, challenge.to_bytes())
}

/// A host that has answered the challenge and waits for the last word; with the challenge, and with the last word.
fn awaits_success(two_way: bool) -> (Host, Vec<u8>, Vec<u8>) {
    let (mut host, mut controller, challenge) = awaits_challenge(two_way);
    let Step::Compute(work) = host.received(&challenge) else { panic!("it answers") };
    let Step::Send(reply) = host.computed(work.run(&mut random)) else { panic!("it answers") };
    let success = answer(&mut controller, &reply).to_bytes();
    host.sent();
    (host, challenge, success)
}

/// Tests made only challenges that a host refuses. One without proof of the controller would be let in by anything that passes
/// for a success.
#[test]
fn a_host_refuses_what_comes_out_of_turn() {
    let incorrect = (Explanation::IncorrectMessage, AuthError::Ours(Explanation::IncorrectMessage));
    for two_way in [false, true] {
        let (mut host, challenge, success) = awaits_success(two_way);
        assert_eq!(gives_up(&mut host, &challenge), incorrect, "a second challenge");
        assert_eq!(gives_up(&mut host, &success), incorrect, "a success when it is over");
        let (mut host, _, _) = awaits_challenge(two_way);
        assert_eq!(gives_up(&mut host, &success), incorrect, "a success first of all");
        let (mut host, _, challenge) = awaits_challenge(two_way);
        let Step::Compute(work) = host.received(&challenge) else { panic!("it answers") };
        assert_eq!(gives_up(&mut host, &challenge), incorrect, "a second challenge while it computes");
        assert!(matches!(host.computed(work.run(&mut random)), Step::Failed(_)), "it is over");
    }
}

#[test]
fn a_host_refuses_messages_that_no_controller_sends() {
    let (_, reply) = challenged();
    let (_, challenge, success) = awaits_success(true);
    let another = |message: &[u8], at: usize, value: u8| {
        let mut message = message.to_vec();
        message[at] = value;
        message
    };
    for message in [
        negotiate(),
        HostMessage::Reply(reply).to_bytes(),
        HostMessage::Success2 { transaction: 9 }.to_bytes(),
        HostMessage::Failure2 { transaction: 9, explanation: Explanation::Failed }.to_bytes(),
        // Of another kind, and unknown.
        another(&challenge, 0, 0),
        another(&success, 0, 0),
        another(&success, 1, 0x77),
    ] {
        for mut host in [awaits_challenge(false).0, awaits_success(false).0, awaits_success(true).0] {
            let explanation = Explanation::IncorrectMessage;
            assert_eq!(gives_up(&mut host, &message), (explanation, AuthError::Ours(explanation)), "{message:x?}");
        }
    }
}

#[test]
fn a_host_takes_a_success_of_its_own_transaction_and_hash_alone() {
    let explanation = Explanation::IncorrectPayload;
    for two_way in [false, true] {
        let refused = |transaction: u16, other: Option<Hash>| {
            let (mut host, _, success) = awaits_success(two_way);
            let right = ControllerMessage::parse(&success).unwrap();
            let ControllerMessage::Success1 { hash, answer, .. } = right else { panic!("a success: {right:?}") };
            assert_eq!(answer.is_some(), two_way);
            let (hash, answer) = match other {
                None => (hash, answer),
                Some(other) => (other, answer.map(|_| vec![0; other.len_bytes()])),
            };
            let message = ControllerMessage::Success1 { transaction, hash, answer };
            assert_eq!(gives_up(&mut host, &message.to_bytes()), (explanation, AuthError::Ours(explanation)));
        };
        refused(8, None);
        refused(9, Some(Hash::Sha384));
        refused(9, Some(Hash::Sha512));
        // As it was, it is taken.
        let (mut host, _, success) = awaits_success(two_way);
        match host.received(&success) {
            Step::Authenticated => assert!(!two_way),
            Step::Send(_) => assert!(two_way && matches!(host.sent(), Step::Authenticated)),
            step => panic!("{step:?}"),
        }
    }
}

#[test]
fn a_host_refuses_a_success_that_is_cut_short_or_says_nonsense() {
    let explanation = Explanation::IncorrectPayload;
    let (_, _, success) = awaits_success(true);
    assert_eq!(success.len(), 16 + 32);
    for len in 0..success.len() {
        let (mut host, _, success) = awaits_success(true);
        let refused = gives_up(&mut host, &success[..len]);
        assert_eq!(refused, (explanation, AuthError::Ours(explanation)), "{len} bytes");
    }
    // A host that wants no proof needs no more than the header.
    for len in 0..16 {
        let (mut host, _, success) = awaits_success(false);
        let refused = gives_up(&mut host, &success[..len]);
        assert_eq!(refused, (explanation, AuthError::Ours(explanation)), "{len} bytes");
    }
    for (what, at, value) in [("the length of no hash", 6, 31), ("an answer that is neither there nor not", 8, 2)] {
        for two_way in [false, true] {
            let (mut host, _, mut success) = awaits_success(two_way);
            success[at] = value;
            assert_eq!(gives_up(&mut host, &success), (explanation, AuthError::Ours(explanation)), "{what}");
        }
    }
}

/// An attacker without the key could reflect the host's messages, or skip the proof.
#[test]
fn a_host_that_wants_proof_takes_nothing_else() {
    for answer in [None, Some(vec![0; 32])] {
        let mut host = Host::new(names(), credentials(true), 9);
        host.sent();
        let mut controller = controller();
        let challenge = super::malformed::answer(&mut controller, &negotiate());
        let Step::Compute(work) = host.received(&challenge.to_bytes()) else { panic!("it answers") };
        let Step::Send(reply) = host.computed(work.run(&mut random)) else { panic!("it answers") };
        let HostMessage::Reply(reply) = HostMessage::parse(&reply).unwrap() else { panic!("a reply") };
        host.sent();
        let answer = answer.map(|_| reply.answer.clone());
        let success = ControllerMessage::Success1 { transaction: 9, hash: Hash::Sha256, answer };
        assert!(matches!(host.received(&success.to_bytes()), Step::Send(_)));
        let Step::Failed(error) = host.sent() else { panic!("it is over") };
        assert_eq!(error, AuthError::WrongControllerKey);
    }
}

/// An answer covers the sequence number that came with its challenge (NVMe Base 8.3.5.5.5). Tests altered this number only to 0,
/// and only in a reply, where it means that the host wants no proof.
#[test]
fn an_answer_to_another_sequence_number_proves_nothing() {
    const CHALLENGE: u8 = 1;
    const REPLY: u8 = 2;
    /// Of both messages.
    const SEQUENCE_AT: usize = 12;
    for hash in Hash::ALL {
        for bit in 0..32 {
            let altered = |kind| {
                let host = Host::new(names(), credentials(true), 9);
                let controller = Controller::new(names(), host_keys(), only(hash, Group::Null));
                let ended = converse_through(host, controller, |message| {
                    if message[1] == kind {
                        message[SEQUENCE_AT + bit / 8] ^= 1 << (bit % 8);
                    }
                });
                (ended.host, ended.controller)
            };
            let theirs = || Err(AuthError::Theirs(Explanation::Failed));
            assert_eq!(altered(CHALLENGE), (theirs(), Err(AuthError::WrongHostKey)), "{hash}, bit {bit}");
            assert_eq!(altered(REPLY), (Err(AuthError::WrongControllerKey), theirs()), "{hash}, bit {bit}");
        }
    }
}

proptest! {
    /// Any bytes, in any order: no panic, and nobody gets in.
    #[test]
    fn bytes_without_the_key_get_nobody_in(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..6),
        first in any::<bool>(),
    ) {
        let mut controller = controller();
        if first {
            answer(&mut controller, &negotiate());
        }
        for message in &messages {
            match controller.sent(message) {
                Sent::Authenticated => prop_assert!(false, "it was admitted"),
                Sent::Compute(work) => assert!(controller.computed(work.run(&mut random))),
                _ => {}
            }
            prop_assert!(!matches!(controller.received(4096), Received::Authenticated(_)));
            let mut host = Host::new(names(), credentials(true), 0);
            host.sent();
            prop_assert!(!matches!(host.received(message), Step::Authenticated));
        }
    }

    #[test]
    fn replies_come_back(
        transaction: u16, sequence: u32, hash in 1_u8..4, two_way: bool,
        public in proptest::collection::vec(any::<u8>(), 0..1024), fill: u8,
    ) {
        let len = Hash::from_id(hash).unwrap().len_bytes();
        let challenge = two_way.then(|| vec![!fill; len]);
        let message = HostMessage::Reply(Reply { transaction, answer: vec![fill; len], challenge, sequence, public });
        prop_assert_eq!(HostMessage::parse(&message.to_bytes()), Ok(message));
    }
}
