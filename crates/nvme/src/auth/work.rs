//! The computations of an authentication, apart from the machines: random bytes, exponentiations, answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use subtle::{Choice, ConstantTimeEq as _};
use zeroize::Zeroizing;

use super::concatenation::NO_CHANNEL;
use super::group::{EXPONENT_LEN_MAX, Exponent, Group};
use super::hash::Hash;
use super::message::{Challenge, Reply};
use super::response::Context;
use super::tls::TlsPsk;
use super::{Credentials, HostKeys, Names};

/// Something to compute: up to some milliseconds of a processor. It owns all that it needs, so any thread will do.
pub struct Work {
    pub(super) ticket: u64,
    pub(super) task: Task,
}

/// The result of a [`Work`].
pub struct Done {
    /// The queue of the work: results of another queue's are ignored.
    pub(super) ticket: u64,
    pub(super) outcome: Outcome,
}

pub(super) enum Task {
    /// The controller asks the host.
    Challenge { hash: Hash, group: Group },
    /// The controller looks at the host's answer.
    Verify(Box<Verify>),
    /// The host answers.
    Answer(Box<Answer>),
}

pub(super) enum Outcome {
    Challenge(Exchange),
    Verified { fits: bool, answer: Option<Vec<u8>>, psk: Option<TlsPsk> },
    Answered { reply: Reply, expected: Option<Zeroizing<Vec<u8>>>, psk: Option<TlsPsk> },
}

/// The part of its challenge that a controller keeps until the answer comes.
pub(super) struct Exchange {
    pub(super) hash: Hash,
    pub(super) group: Group,
    pub(super) sequence: u32,
    pub(super) challenge: Vec<u8>,
    pub(super) exponent: Exponent,
    pub(super) public: Vec<u8>,
}

pub(super) struct Verify {
    pub(super) names: Names,
    pub(super) keys: HostKeys,
    pub(super) exchange: Exchange,
    pub(super) reply: Reply,
    /// SC_C.
    pub(super) channel: u8,
}

pub(super) struct Answer {
    pub(super) names: Names,
    pub(super) credentials: Credentials,
    pub(super) challenge: Challenge,
    /// SC_C.
    pub(super) channel: u8,
}

impl Work {
    /// Work that nothing else has the number of.
    pub(super) fn new(task: Task) -> Self {
        static TICKETS: AtomicU64 = AtomicU64::new(1);
        Self { ticket: TICKETS.fetch_add(1, Ordering::Relaxed), task }
    }

    /// Computes it. `random` fills what it is given with bytes that nobody can guess.
    pub fn run(self, random: &mut dyn FnMut(&mut [u8])) -> Done {
        self.run_with(&mut Exponents::default(), Instant::now(), random)
    }

    /// The same, with an exponent of these if it is a challenge.
    pub fn run_with(self, exponents: &mut Exponents, now: Instant, random: &mut dyn FnMut(&mut [u8])) -> Done {
        let outcome = match self.task {
            Task::Challenge { hash, group } => {
                Outcome::Challenge(Exchange::new(hash, exponents.of(group, now, random), random))
            }
            Task::Verify(verify) => verify.run(),
            Task::Answer(answer) => answer.run(random),
        };
        Done { ticket: self.ticket, outcome }
    }
}

/// Exponents of challenges, each used for a few seconds: a host that asks for challenges and answers none costs nothing then.
/// Challenges and sequence numbers are new each time, and elements of small order are refused, so that no answer and no key
/// repeats.
#[derive(Default)]
pub struct Exponents(BTreeMap<Group, Used>);

/// An exponent, since when it is used, and its public value.
struct Used {
    since: Instant,
    exponent: Exponent,
    public: Vec<u8>,
}

impl Exponents {
    /// How long one is used.
    pub const USED_MAX: Duration = Duration::from_secs(5);

    fn of(&mut self, group: Group, now: Instant, random: &mut dyn FnMut(&mut [u8])) -> (Group, Exponent, Vec<u8>) {
        self.0.retain(|_, used| now.duration_since(used.since) < Self::USED_MAX);
        let used = self.0.entry(group).or_insert_with(|| {
            let exponent = random_exponent(group, random);
            Used { since: now, public: exponent.public(), exponent }
        });
        (group, used.exponent.clone(), used.public.clone())
    }
}

impl Exchange {
    fn new(
        hash: Hash,
        (group, exponent, public): (Group, Exponent, Vec<u8>),
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Self {
        let (challenge, sequence) = (random_challenge(hash, random), random_sequence(random));
        Self { hash, group, sequence, challenge, exponent, public }
    }
}

impl Verify {
    fn run(self) -> Outcome {
        let Self { names, keys, exchange, reply, channel } = self;
        let context = Context { hash: exchange.hash, names: &names, transaction: reply.transaction, channel };
        let shared = exchange.exponent.shared(&reply.public);
        let shared = shared.as_ref().map(|shared| shared.as_slice());
        let challenge = context.augmented(&exchange.challenge, shared);
        // All keys are tried, whichever fits: the time says nothing of them.
        let fits = keys.keys.iter().fold(Choice::from(0), |fits, key| {
            fits | context.of_host(key, &challenge, exchange.sequence).ct_eq(&reply.answer)
        });
        let fits = bool::from(fits);
        let asked = reply.challenge.as_ref().filter(|_| fits && reply.sequence != 0);
        let answer = asked.zip(keys.controller_key.as_ref()).map(|(challenge, key)| {
            context.of_controller(key, &context.augmented(challenge, shared), reply.sequence).to_vec()
        });
        let psk = (fits && channel != NO_CHANNEL)
            .then_some(())
            .and_then(|()| context.generated(shared?, &exchange.challenge, reply.challenge.as_ref()?));
        Outcome::Verified { fits, answer, psk }
    }
}

impl Answer {
    fn run(self, random: &mut dyn FnMut(&mut [u8])) -> Outcome {
        let Self { names, credentials, challenge, channel } = self;
        let Challenge { transaction, hash, group, .. } = challenge;
        let context = Context { hash, names: &names, transaction, channel };
        let exponent = random_exponent(group, random);
        let shared = exponent.shared(&challenge.public);
        let shared = shared.as_ref().map(|shared| shared.as_slice());
        let asked = context.augmented(&challenge.challenge, shared);
        let answer = context.of_host(&credentials.key, &asked, challenge.sequence).to_vec();
        let mut reply = Reply { transaction, answer, challenge: None, sequence: 0, public: exponent.public() };
        let ours = random_challenge(hash, random);
        let expected = credentials.controller_key.as_ref().map(|key| {
            reply.sequence = random_sequence(random);
            context.of_controller(key, &context.augmented(&ours, shared), reply.sequence)
        });
        let concatenates = channel != NO_CHANNEL;
        let psk = concatenates.then_some(()).and_then(|()| context.generated(shared?, &challenge.challenge, &ours));
        // Without a sequence number it is not a question, but a part of the channel's key.
        reply.challenge = (expected.is_some() || concatenates).then_some(ours);
        Outcome::Answered { reply, expected, psk }
    }
}

fn random_exponent(group: Group, random: &mut dyn FnMut(&mut [u8])) -> Exponent {
    let mut bytes = Zeroizing::new([0; EXPONENT_LEN_MAX]);
    random(&mut *bytes);
    Exponent::new(group, &bytes)
}

fn random_challenge(hash: Hash, random: &mut dyn FnMut(&mut [u8])) -> Vec<u8> {
    let mut challenge = vec![0; hash.len_bytes()];
    random(&mut challenge);
    challenge
}

/// Never zero, which would say that there is no question.
fn random_sequence(random: &mut dyn FnMut(&mut [u8])) -> u32 {
    let mut bytes = [0; 4];
    random(&mut bytes);
    u32::from_le_bytes(bytes).max(1)
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.task {
            Task::Challenge { .. } => "Work(challenge)",
            Task::Verify(_) => "Work(verify)",
            Task::Answer(_) => "Work(answer)",
        })
    }
}

impl fmt::Debug for Exponents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done(…)")
    }
}

/// The prototype that made these exchanged the same formulas with Linux.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Secret;

    /// Peers that asked for challenges of the largest group by the hundred, and answered none, had everybody wait for seconds to
    /// be let in.
    #[test]
    fn challenges_of_some_seconds_share_an_exponent_and_nothing_else() {
        let mut count = 0_u8;
        let mut random = |bytes: &mut [u8]| {
            count += 1;
            bytes.fill(count);
        };
        let (mut exponents, now) = (Exponents::default(), Instant::now());
        let mut challenge = |after: Duration, group| {
            let work = Work::new(Task::Challenge { hash: Hash::Sha256, group });
            match work.run_with(&mut exponents, now + after, &mut random).outcome {
                Outcome::Challenge(exchange) => exchange,
                _ => unreachable!(),
            }
        };
        let short = Exponents::USED_MAX - Duration::from_millis(1);
        let (first, second) = (challenge(Duration::ZERO, Group::Ffdhe2048), challenge(short, Group::Ffdhe2048));
        assert_eq!(first.public, second.public);
        assert!(first.challenge != second.challenge && first.sequence != second.sequence);
        assert_ne!(challenge(short, Group::Ffdhe3072).public[..256], first.public);
        assert_ne!(challenge(Exponents::USED_MAX, Group::Ffdhe2048).public, first.public, "for some seconds alone");
    }

    const VECTOR_A: &str = "9e9f9d6a9515bf24b6c86bd03615c567d0ca9bd6c5f26e429d9dd64c463261d9";
    const VECTOR_B: &str =
        "cac42417c919d206912ef753beec1622c7d208924b9a9c6124240e6c781a0f96cf993b301c9950ccd57d1cba3a19b83e";
    const VECTOR_C: &str =
        "be3ad9ab2de1488236a69138e740b32b47634bea8d4da3e2b2044d0e68ee88819596febaa1bc29697947d5b5a8b4e55c";

    fn names() -> Names {
        Names { host: crate::Nqn::unchecked("hostnqn"), subsystem: crate::Nqn::unchecked("subsysnqn") }
    }

    fn key(transform: Option<Hash>) -> Secret {
        Secret::new(&(0..32).collect::<Vec<u8>>(), transform).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn exponent(first: u8, last: u8) -> Exponent {
        let mut bytes = [0; 32];
        (bytes[0], bytes[31]) = (first, last);
        Exponent::exactly(Group::Ffdhe2048, &bytes)
    }

    #[test]
    fn a_host_answers_without_a_group_as_the_vector_says() {
        let names = names();
        let context = Context { hash: Hash::Sha256, names: &names, transaction: 0, channel: 0 };
        let challenge = context.augmented(&(0..32).collect::<Vec<u8>>(), None);
        assert_eq!(hex(&context.of_host(&key(None), &challenge, 1)), VECTOR_A);
    }

    #[test]
    fn both_sides_answer_in_a_group_as_the_vectors_say() {
        let (host, controller) = (exponent(0x40, 3), exponent(0x80, 1));
        let shared = host.shared(&controller.public()).unwrap();
        assert_eq!(shared, controller.shared(&host.public()).unwrap());
        assert_eq!(hex(&Hash::Sha256.digest(&shared)[..8]), "f396c625b5092072");

        let names = names();
        let context = Context { hash: Hash::Sha384, names: &names, transaction: 0x0506, channel: 0 };
        let challenge = context.augmented(&(0..48).collect::<Vec<u8>>(), Some(&shared));
        let answer = context.of_host(&key(Some(Hash::Sha384)), &challenge, 0x0102_0304);
        assert_eq!(hex(&answer), VECTOR_B);

        let challenge = context.augmented(&(0..48).map(|n| 0xff - n).collect::<Vec<u8>>(), Some(&shared));
        let answer = context.of_controller(&key(Some(Hash::Sha256)), &challenge, 0x0a0b_0c0d);
        assert_eq!(hex(&answer), VECTOR_C);
    }
}
