//! The host's side of one queue: what it sends, and what it thinks of what it receives.

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::concatenation::{CHANNEL, NO_CHANNEL, makes_key};
use super::message::{Challenge, ControllerMessage, Explanation, HostMessage, Negotiate, RECEIVE_LEN};
use super::work::{Answer, Outcome, Task};
use super::{AuthError, Credentials, Done, Group, Hash, Names, TlsPsk, Work};

/// Authenticates to the controller of one queue, once.
#[derive(Debug)]
pub struct Host {
    names: Names,
    credentials: Credentials,
    transaction: u16,
    /// SC_C.
    channel: u8,
    /// The key that the authentication made.
    generated: Option<TlsPsk>,
    stage: Stage,
}

/// The next step of the host.
#[derive(Debug)]
pub enum Step {
    /// Send this (Authentication Send); then comes [`Host::sent`].
    Send(Vec<u8>),
    /// Receive so many bytes (Authentication Receive); then comes [`Host::received`].
    Receive(u32),
    /// Compute this; then comes [`Host::computed`].
    Compute(Work),
    /// It is done: the queue takes commands.
    Authenticated,
    /// It failed.
    Failed(AuthError),
}

#[derive(Debug)]
enum Stage {
    Negotiating,
    AwaitsChallenge,
    Computing { ticket: u64, hash: Hash },
    Replying { hash: Hash, expected: Option<Zeroizing<Vec<u8>>> },
    AwaitsSuccess1 { hash: Hash, expected: Option<Zeroizing<Vec<u8>>> },
    Confirming,
    GivingUp(AuthError),
    Over,
}

impl Host {
    /// For a queue that the controller asked to authenticate. `transaction` is one that the host has no other of.
    pub fn new(names: Names, credentials: Credentials, transaction: u16) -> Self {
        let channel = if credentials.concatenate { CHANNEL } else { NO_CHANNEL };
        Self { names, credentials, transaction, channel, generated: None, stage: Stage::Negotiating }
    }

    /// Takes the key of the secure channel that must follow, if one was wanted: once the host is authenticated.
    pub fn take_generated(&mut self) -> Option<TlsPsk> {
        self.generated.take()
    }

    /// Begins.
    pub fn start(&self) -> Step {
        let accepted = &self.credentials.accepted;
        let offer = Negotiate {
            transaction: self.transaction,
            channel: self.channel,
            has_dhchap: true,
            hashes: accepted
                .hashes
                .iter()
                .filter(|hash| self.offers(Some(**hash), None))
                .map(|hash| hash.id())
                .collect(),
            groups: accepted
                .groups
                .iter()
                .filter(|group| self.offers(None, Some(**group)))
                .map(|group| group.id())
                .collect(),
        };
        Step::Send(HostMessage::Negotiate(offer).to_bytes())
    }

    /// Whether an accepted choice can make the key that is wanted.
    fn offers(&self, hash: Option<Hash>, group: Option<Group>) -> bool {
        self.channel == NO_CHANNEL || makes_key(hash, group)
    }

    /// The controller took the message that was sent last.
    pub fn sent(&mut self) -> Step {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Negotiating => self.receive(Stage::AwaitsChallenge),
            Stage::Replying { hash, expected } => self.receive(Stage::AwaitsSuccess1 { hash, expected }),
            Stage::Confirming => Step::Authenticated,
            Stage::GivingUp(error) => Step::Failed(error),
            _ => Step::Failed(AuthError::Ours(Explanation::IncorrectMessage)),
        }
    }

    /// The controller's next message.
    pub fn received(&mut self, bytes: &[u8]) -> Step {
        let message = match ControllerMessage::parse(bytes) {
            Ok(message) => message,
            Err(explanation) => return self.give_up(explanation, AuthError::Ours(explanation)),
        };
        match (std::mem::replace(&mut self.stage, Stage::Over), message) {
            (_, ControllerMessage::Failure1 { explanation, .. }) => Step::Failed(AuthError::Theirs(explanation)),
            (Stage::AwaitsChallenge, ControllerMessage::Challenge(challenge)) => self.on_challenge(challenge),
            (
                Stage::AwaitsSuccess1 { hash, expected },
                ControllerMessage::Success1 { transaction, hash: said, answer },
            ) => {
                if transaction != self.transaction || said != hash {
                    let explanation = Explanation::IncorrectPayload;
                    return self.give_up(explanation, AuthError::Ours(explanation));
                }
                self.on_success(expected, answer)
            }
            _ => {
                let explanation = Explanation::IncorrectMessage;
                self.give_up(explanation, AuthError::Ours(explanation))
            }
        }
    }

    /// The work is done.
    pub fn computed(&mut self, done: Done) -> Step {
        let Done { ticket: done, outcome } = done;
        match (std::mem::replace(&mut self.stage, Stage::Over), outcome) {
            (Stage::Computing { ticket, hash }, Outcome::Answered { reply, expected, psk }) if ticket == done => {
                if psk.is_none() && self.channel != NO_CHANNEL {
                    let explanation = Explanation::ConcatenationMismatch;
                    return self.give_up(explanation, AuthError::Ours(explanation));
                }
                self.generated = psk;
                self.stage = Stage::Replying { hash, expected };
                Step::Send(HostMessage::Reply(reply).to_bytes())
            }
            _ => Step::Failed(AuthError::Ours(Explanation::IncorrectMessage)),
        }
    }

    fn on_challenge(&mut self, challenge: Challenge) -> Step {
        let accepted = &self.credentials.accepted;
        // A controller that chooses for itself may have been made to choose what is weak.
        if !accepted.hashes.contains(&challenge.hash) || !self.offers(Some(challenge.hash), None) {
            let error = AuthError::NotOffered(challenge.hash.name());
            return self.give_up(Explanation::HashNotUsable, error);
        }
        if !accepted.groups.contains(&challenge.group) || !self.offers(None, Some(challenge.group)) {
            let error = AuthError::NotOffered(challenge.group.name());
            return self.give_up(Explanation::GroupNotUsable, error);
        }
        if challenge.transaction != self.transaction || !challenge.group.accepts(&challenge.public) {
            let explanation = Explanation::IncorrectPayload;
            return self.give_up(explanation, AuthError::Ours(explanation));
        }
        let (names, credentials, hash) = (self.names.clone(), self.credentials.clone(), challenge.hash);
        let work = Work::new(Task::Answer(Box::new(Answer { names, credentials, challenge, channel: self.channel })));
        self.stage = Stage::Computing { ticket: work.ticket, hash };
        Step::Compute(work)
    }

    fn on_success(&mut self, expected: Option<Zeroizing<Vec<u8>>>, answer: Option<Vec<u8>>) -> Step {
        match (expected, answer) {
            (None, _) => Step::Authenticated,
            (Some(expected), Some(answer)) if bool::from(expected.ct_eq(&answer)) => {
                self.stage = Stage::Confirming;
                Step::Send(HostMessage::Success2 { transaction: self.transaction }.to_bytes())
            }
            (Some(_), _) => self.give_up(Explanation::Failed, AuthError::WrongControllerKey),
        }
    }

    fn receive(&mut self, stage: Stage) -> Step {
        self.stage = stage;
        Step::Receive(RECEIVE_LEN)
    }

    fn give_up(&mut self, explanation: Explanation, error: AuthError) -> Step {
        self.stage = Stage::GivingUp(error);
        Step::Send(HostMessage::Failure2 { transaction: self.transaction, explanation }.to_bytes())
    }
}
