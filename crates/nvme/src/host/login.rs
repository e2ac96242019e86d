//! How a host proves who it is, before its queue takes commands.

use std::sync::Arc;
use std::time::Instant;

use crate::auth::{self, Credentials, Done, Names, Step};
use crate::wire::Sqe;

use super::commands::Kind;
use super::connection::{Connection, ConnectionError, Event, State};
use super::submission::{Answer, CommandError, Data, NoBuffers};

/// With what a host proves who it is, and when.
#[derive(Clone, Debug, Default)]
pub enum Login {
    /// There is no key: a controller that asks for one is given up.
    #[default]
    Never,
    /// When the controller asks.
    IfAsked(Arc<Credentials>),
    /// In any case: a controller that does not ask is given up, lest it be another than the one that is meant. Discovery
    /// controllers need not ask; they tell names and addresses alone.
    Always(Arc<Credentials>),
}

impl Connection {
    /// Connect succeeded, and says whether the controller asks for authentication.
    pub(super) fn log_in(&mut self, controller_id: u16, asks: bool, wants_channel: bool) {
        let mut credentials = match &self.config.login {
            Login::Always(_) if !asks && !self.config.subsystem.is_discovery() => {
                return self.end(ConnectionError::AuthenticationNotAsked, State::Draining);
            }
            _ if !asks => return self.go_live(controller_id),
            Login::Never => return self.end(ConnectionError::AuthenticationRequired, State::Draining),
            Login::IfAsked(credentials) | Login::Always(credentials) => Credentials::clone(credentials),
        };
        credentials.concatenate |= wants_channel;
        let (host, subsystem) = (self.config.host.nqn.clone(), self.config.subsystem.clone());
        // A host has one transaction on each queue.
        let host = auth::Host::new(Names { host, subsystem }, credentials, self.config.queue_id);
        let step = host.start();
        self.authentication = Some((Box::new(host), controller_id));
        self.state = State::Authenticating;
        self.connect_deadline = self.connect_deadline.map(|deadline| deadline + self.config.connect_timeout);
        self.follow(step);
    }

    /// Takes the result that [`Event::Compute`] asked for.
    pub fn computed(&mut self, _now: Instant, done: Done) {
        if self.state == State::Authenticating
            && let Some((host, _)) = &mut self.authentication
        {
            let step = host.computed(done);
            self.follow(step);
        }
    }

    /// A message was taken, or came.
    pub(super) fn on_authentication(&mut self, outcome: Result<Answer, CommandError>) {
        let Some((host, _)) = self.authentication.as_mut().filter(|_| self.state == State::Authenticating) else {
            return;
        };
        let step = match outcome {
            Ok(answer) if answer.bytes.is_empty() => host.sent(),
            Ok(answer) => host.received(&answer.bytes),
            Err(error) => {
                let error = ConnectionError::Setup { step: "authentication", error };
                return self.end(error, State::Draining);
            }
        };
        self.follow(step);
    }

    fn follow(&mut self, step: Step) {
        match step {
            Step::Send(message) => {
                let sqe = Sqe::authentication_send(message.len() as u32);
                self.begin(Kind::Authentication, sqe, Data::SendBytes(message), &mut NoBuffers);
            }
            Step::Receive(len) => {
                let sqe = Sqe::authentication_receive(len);
                self.begin(Kind::Authentication, sqe, Data::ReceiveBytes(len), &mut NoBuffers);
            }
            Step::Compute(work) => self.events.push_back(Event::Compute(work)),
            Step::Authenticated => {
                let Some((mut host, controller_id)) = self.authentication.take() else { return };
                match host.take_generated() {
                    None => self.go_live(controller_id),
                    // In the clear nothing more is said.
                    Some(psk) => {
                        self.events.push_back(Event::Channel(psk));
                        self.end(ConnectionError::ChannelFollows, State::Draining);
                    }
                }
            }
            Step::Failed(error) => self.end(ConnectionError::Authentication(error), State::Draining),
        }
    }
}
