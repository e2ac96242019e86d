//! The controller's side of one queue: what it answers to the host's messages.

use std::fmt;

use super::concatenation::{NO_CHANNEL, makes_key};
use super::message::{Challenge, ControllerMessage, Explanation, HostMessage, Negotiate, Reply, transaction_of};
use super::work::{Exchange, Outcome, Task, Verify};
use super::{Accepted, AuthError, Concatenation, Done, Group, Hash, HostKeys, Names, TlsPsk, Work};

/// Authenticates the host of one queue, and again whenever it asks for it.
#[derive(Debug)]
pub struct Controller {
    names: Names,
    keys: HostKeys,
    accepted: Accepted,
    concatenation: Concatenation,
    transaction: u16,
    /// SC_C, as the host offered it.
    channel: u8,
    /// The key that the authentication made, from when the host's answer was found right.
    generated: Option<TlsPsk>,
    /// The choice from the host's offer.
    hash: Hash,
    /// The host wants proof of us.
    must_answer: bool,
    stage: Stage,
    error: Option<AuthError>,
}

/// The outcome of a message that the host sent.
#[derive(Debug)]
pub enum Sent {
    /// It is taken; the host receives next.
    Taken,
    /// It is taken once this is computed: then comes [`Controller::computed`].
    Compute(Work),
    /// It ends the authentication: the host is who it says.
    Authenticated,
    /// It ends the authentication: see [`Controller::error`].
    Failed,
    /// Something is being computed. Nothing changes.
    OutOfTurn,
}

/// The next thing that a host receives.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A message, and the transaction continues.
    Message(Vec<u8>),
    /// The last message: the host is who it says.
    Authenticated(Vec<u8>),
    /// The last message: see [`Controller::error`].
    Failed(Vec<u8>),
    /// There is none. Nothing changes.
    OutOfTurn,
    /// The message is longer than the host wants to receive. Nothing changes.
    TooLong,
}

enum Stage {
    /// The host begins.
    Idle,
    /// Work of this number is under way.
    Computing(u64),
    /// The host receives next.
    Ready { message: Vec<u8>, then: Then },
    /// The host sends its answer next.
    AwaitsReply(Box<Exchange>),
    /// The host says next what it thinks of our answer.
    AwaitsSuccess2,
    /// It is over, and failed.
    Failed,
}

/// The next step after the host received a message.
enum Then {
    Reply(Box<Exchange>),
    Success2,
    Authenticated,
    Failed,
}

impl Controller {
    /// For a queue of the host with these keys.
    pub fn new(names: Names, keys: HostKeys, accepted: Accepted) -> Self {
        Self {
            names,
            keys,
            accepted,
            concatenation: Concatenation::Never,
            transaction: 0,
            channel: NO_CHANNEL,
            generated: None,
            hash: Hash::Sha256,
            must_answer: false,
            stage: Stage::Idle,
            error: None,
        }
    }

    /// The same, which may make the key of a secure channel.
    #[must_use]
    pub fn concatenating(self, concatenation: Concatenation) -> Self {
        Self { concatenation, ..self }
    }

    /// Takes the keys and choices that hold now, and whether they may make the key of a secure channel. They may have changed since
    /// the host connected.
    pub fn set_keys(&mut self, keys: HostKeys, accepted: Accepted, concatenates: bool) {
        (self.keys, self.accepted) = (keys, accepted);
        if !concatenates {
            self.concatenation = Concatenation::Never;
        }
    }

    /// Whether a transaction has begun and is not over.
    pub fn is_busy(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Takes the key of the secure channel that must follow, if the authentication made one: once it is over.
    pub fn take_generated(&mut self) -> Option<TlsPsk> {
        self.generated.take_if(|_| matches!(self.stage, Stage::Idle))
    }

    /// Why it failed, if it did.
    pub fn error(&self) -> Option<&AuthError> {
        self.error.as_ref()
    }

    /// The host sent a message (Authentication Send).
    pub fn sent(&mut self, bytes: &[u8]) -> Sent {
        let stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Computing(ticket) => {
                self.stage = Stage::Computing(ticket);
                return Sent::OutOfTurn;
            }
            stage => stage,
        };
        let message = match HostMessage::parse(bytes) {
            Ok(message) => message,
            Err(explanation) => return self.refuse(bytes, &stage, explanation),
        };
        match (stage, message) {
            (Stage::Idle, HostMessage::Negotiate(offer)) => {
                self.transaction = offer.transaction;
                self.channel = offer.channel;
                self.generated = None;
                match self.choose(&offer) {
                    Ok((hash, group)) => self.compute(Task::Challenge { hash, group }),
                    Err(explanation) => self.fail(explanation, AuthError::Ours(explanation)),
                }
            }
            (Stage::AwaitsReply(exchange), HostMessage::Reply(reply)) => self.on_reply(*exchange, reply),
            (Stage::AwaitsSuccess2, HostMessage::Success2 { transaction }) if transaction == self.transaction => {
                self.stage = Stage::Idle;
                Sent::Authenticated
            }
            (Stage::AwaitsReply(_) | Stage::AwaitsSuccess2, HostMessage::Failure2 { explanation, .. }) => {
                self.error = Some(AuthError::Theirs(explanation));
                Sent::Failed
            }
            (Stage::AwaitsSuccess2, HostMessage::Success2 { .. }) => {
                self.fail(Explanation::IncorrectPayload, AuthError::Ours(Explanation::IncorrectPayload))
            }
            (stage, _) => self.refuse(bytes, &stage, Explanation::IncorrectMessage),
        }
    }

    /// The work is done, and what the host receives next is ready. False, and nothing changes, if it is not the work that
    /// was handed out last.
    pub fn computed(&mut self, done: Done) -> bool {
        if !matches!(self.stage, Stage::Computing(ticket) if ticket == done.ticket) {
            return false;
        }
        match done.outcome {
            Outcome::Challenge(exchange) => {
                let message = ControllerMessage::Challenge(Challenge {
                    transaction: self.transaction,
                    hash: exchange.hash,
                    group: exchange.group,
                    sequence: exchange.sequence,
                    challenge: exchange.challenge.clone(),
                    public: exchange.public.clone(),
                });
                self.hash = exchange.hash;
                self.ready(&message, Then::Reply(Box::new(exchange)));
            }
            Outcome::Verified { fits: false, .. } => {
                let have_ended = self.keys.keys.is_empty() && self.keys.has_ended_keys;
                let why = if have_ended { AuthError::HostKeysEnded } else { AuthError::WrongHostKey };
                self.fail(Explanation::Failed, why);
            }
            Outcome::Verified { fits: true, answer, psk } => {
                if answer.is_none() && self.must_answer {
                    self.fail(Explanation::Failed, AuthError::NoControllerKey);
                    return true;
                }
                if psk.is_none() && self.channel != NO_CHANNEL {
                    let explanation = Explanation::ConcatenationMismatch;
                    self.fail(explanation, AuthError::Ours(explanation));
                    return true;
                }
                self.generated = psk;
                let then = if answer.is_some() { Then::Success2 } else { Then::Authenticated };
                let message = ControllerMessage::Success1 { transaction: self.transaction, hash: self.hash, answer };
                self.ready(&message, then);
            }
            Outcome::Answered { .. } => self.stage = Stage::Failed,
        }
        true
    }

    /// The host receives (Authentication Receive), and takes so many bytes.
    pub fn received(&mut self, len_max: usize) -> Received {
        match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Ready { message, then } if message.len() > len_max => {
                self.stage = Stage::Ready { message, then };
                Received::TooLong
            }
            Stage::Ready { message, then } => match then {
                Then::Reply(exchange) => {
                    self.stage = Stage::AwaitsReply(exchange);
                    Received::Message(message)
                }
                Then::Success2 => {
                    self.stage = Stage::AwaitsSuccess2;
                    Received::Message(message)
                }
                Then::Authenticated => {
                    self.stage = Stage::Idle;
                    Received::Authenticated(message)
                }
                Then::Failed => Received::Failed(message),
            },
            stage => {
                self.stage = stage;
                Received::OutOfTurn
            }
        }
    }

    /// The choice from the host's offer: the first of ours.
    fn choose(&self, offer: &Negotiate) -> Result<(Hash, Group), Explanation> {
        if !offer.has_dhchap {
            return Err(Explanation::ProtocolNotUsable);
        }
        if !self.concatenation.takes(offer.channel) {
            return Err(Explanation::ConcatenationMismatch);
        }
        let fits = |hash, group| offer.channel == NO_CHANNEL || makes_key(hash, group);
        let mut hashes = self.accepted.hashes.iter().filter(|hash| fits(Some(**hash), None));
        let mut groups = self.accepted.groups.iter().filter(|group| fits(None, Some(**group)));
        let hash = hashes.find(|hash| offer.hashes.contains(&hash.id()));
        let group = groups.find(|group| offer.groups.contains(&group.id()));
        Ok((*hash.ok_or(Explanation::HashNotUsable)?, *group.ok_or(Explanation::GroupNotUsable)?))
    }

    fn on_reply(&mut self, exchange: Exchange, reply: Reply) -> Sent {
        let fits = reply.transaction == self.transaction
            && reply.answer.len() == exchange.hash.len_bytes()
            && exchange.group.accepts(&reply.public)
            && (self.channel == NO_CHANNEL || reply.challenge.is_some());
        if !fits {
            return self.fail(Explanation::IncorrectPayload, AuthError::Ours(Explanation::IncorrectPayload));
        }
        self.must_answer = reply.challenge.is_some() && reply.sequence != 0;
        let (names, keys) = (self.names.clone(), self.keys.clone());
        self.compute(Task::Verify(Box::new(Verify { names, keys, exchange, reply, channel: self.channel })))
    }

    fn compute(&mut self, task: Task) -> Sent {
        let work = Work::new(task);
        self.stage = Stage::Computing(work.ticket);
        Sent::Compute(work)
    }

    /// A message that cannot be understood, or not now.
    fn refuse(&mut self, bytes: &[u8], stage: &Stage, explanation: Explanation) -> Sent {
        // A failure is final; the first reason is the one to tell.
        if let Stage::Failed = stage {
            return Sent::Failed;
        }
        if let Stage::Idle = stage {
            self.transaction = transaction_of(bytes);
        }
        self.fail(explanation, AuthError::Ours(explanation))
    }

    fn fail(&mut self, explanation: Explanation, error: AuthError) -> Sent {
        self.error.get_or_insert(error);
        let message = ControllerMessage::Failure1 { transaction: self.transaction, explanation };
        self.ready(&message, Then::Failed);
        Sent::Taken
    }

    fn ready(&mut self, message: &ControllerMessage, then: Then) {
        self.stage = Stage::Ready { message: message.to_bytes(), then };
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Computing(_) => "Computing",
            Self::Ready { .. } => "Ready",
            Self::AwaitsReply(_) => "AwaitsReply",
            Self::AwaitsSuccess2 => "AwaitsSuccess2",
            Self::Failed => "Failed",
        })
    }
}
