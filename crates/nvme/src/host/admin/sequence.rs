//! The steps of bringing a controller up, and what follows from each answer.

use std::time::{Duration, Instant};

use zerocopy::FromBytes;

use crate::wire::{
    AsyncEventConfig, Cap, Cc, Csts, IdentifyController, NSID_ALL, Sqe, admin_opcode, cns, feature, log_page, property,
};

use super::super::connection::ConnectionError;
use super::super::info::ControllerInfo;
use super::super::learn::nsids;
use super::super::submission::{Answer, CommandError, Completed, Data};
use super::{Admin, AdminEvent, POLL_INTERVAL, Purpose, TRANSFER_LEN_MAX};

impl Admin {
    /// Goes on with what the answer to one of our commands, or a caller's, leads to.
    pub(super) fn on_answer(&mut self, now: Instant, purpose: Purpose, outcome: Result<Answer, CommandError>) {
        let setup = |step, error| ConnectionError::Setup { step, error };
        match (purpose, outcome) {
            (Purpose::User(user_data), outcome) => {
                self.events.push_back(AdminEvent::Completed(Completed { user_data, outcome }));
            }
            // Nothing is to be said about commands of our own when the connection has ended.
            (Purpose::Abort { queue_id, command_id }, outcome) => {
                let aborted = outcome.is_ok_and(|answer| answer.result & 1 == 0);
                self.events.push_back(AdminEvent::Aborted { queue_id, command_id, aborted });
            }
            (Purpose::Descriptors(info), outcome) => self.on_descriptors(info, outcome),
            (Purpose::Namespace(info), outcome) => self.on_namespace(info, outcome),
            (Purpose::DiscoveryHeader | Purpose::DiscoveryPart | Purpose::DiscoveryCheck, Err(error)) => {
                self.discovery = None;
                self.events.push_back(AdminEvent::Discovered(Err(error)));
            }
            (Purpose::DiscoveryHeader, Ok(answer)) => self.on_discovery_header(&answer.bytes),
            (Purpose::DiscoveryPart, Ok(answer)) => self.on_discovery_part(&answer.bytes),
            (Purpose::DiscoveryCheck, Ok(answer)) => self.on_discovery_check(&answer.bytes),
            (_, Err(CommandError::ConnectionLost)) => {}
            (Purpose::Capabilities, Ok(answer)) => self.enable(now, Cap(answer.result)),
            (Purpose::Capabilities, Err(error)) => self.connection.fail(setup("reading CAP", error)),
            (Purpose::Enable, Ok(_)) => {
                self.send(Purpose::PollStatus, Sqe::property_get(property::CSTS, false), Data::None);
            }
            (Purpose::Enable, Err(error)) => self.connection.fail(setup("setting CC.EN", error)),
            (Purpose::PollStatus, Ok(answer)) => self.on_status(now, Csts(answer.result as u32)),
            (Purpose::PollStatus, Err(error)) => self.connection.fail(setup("reading CSTS", error)),
            (Purpose::IdentifyController, Ok(answer)) => self.on_identify(&answer.bytes),
            (Purpose::IdentifyController, Err(error)) => self.connection.fail(setup("Identify Controller", error)),
            (Purpose::Queues, Ok(answer)) => self.on_queues(answer.result as u32),
            (Purpose::Queues, Err(error)) => self.connection.fail(setup("asking for I/O queues", error)),
            // A controller without events can still be used.
            (Purpose::EventConfig, _) => self.list_namespaces(None),
            (Purpose::ActiveNamespaces { so_far, changed }, Ok(answer)) => {
                self.on_active_namespaces(so_far, changed, &answer.bytes);
            }
            (Purpose::ActiveNamespaces { .. }, Err(error)) => {
                self.connection.fail(setup("listing namespaces", error));
            }
            (Purpose::ChangedNamespaces, outcome) => {
                let bytes = outcome.map(|answer| answer.bytes).unwrap_or_default();
                let changed = nsids(&bytes).take_while(|nsid| *nsid != 0 && *nsid != NSID_ALL).collect();
                self.list_namespaces(Some(changed));
            }
            (Purpose::EventRequest, Ok(answer)) => self.on_event(answer.result as u32),
            (Purpose::EventRequest | Purpose::Acknowledge, _) => {}
            (Purpose::KeepAlive, Ok(_)) => {}
            (Purpose::KeepAlive, Err(error)) => self.connection.fail(setup("Keep Alive", error)),
            (Purpose::Shutdown, Ok(_)) => {
                self.send(Purpose::PollShutdown, Sqe::property_get(property::CSTS, false), Data::None);
            }
            (Purpose::PollShutdown, Ok(answer)) => {
                if Csts(answer.result as u32).shutdown() == 0b10 {
                    self.connection.disconnect(now);
                } else {
                    self.next_poll = Some(now + POLL_INTERVAL);
                }
            }
            (Purpose::Shutdown | Purpose::PollShutdown, Err(error)) => {
                self.connection.fail(setup("shutting down", error));
            }
        }
    }

    /// Enables the controller with all its command sets (Base 3.5.1).
    fn enable(&mut self, now: Instant, cap: Cap) {
        let wait = Duration::from_millis(500 * cap.to().max(1));
        self.ready_deadline = Some(now + wait.max(self.config.connect_timeout));
        let css = if cap.css_multiple() == 1 { 0b110 } else { 0 };
        self.cc = Cc::default().with_enable(1).with_css(css).with_iosqes(6).with_iocqes(4);
        self.send(Purpose::Enable, Sqe::property_set(property::CC, false, self.cc.0.into()), Data::None);
    }

    fn on_status(&mut self, now: Instant, csts: Csts) {
        if csts.fatal() == 1 {
            self.connection.fail(ConnectionError::NotReady("CSTS.CFS says that it has failed"));
        } else if csts.ready() == 1 {
            self.ready_deadline = None;
            self.send(Purpose::IdentifyController, Sqe::identify(cns::CONTROLLER, 0, 0), Data::ReceiveBytes(4096));
        } else {
            self.next_poll = Some(now + POLL_INTERVAL);
        }
    }

    fn on_identify(&mut self, bytes: &[u8]) {
        let Ok(id) = IdentifyController::ref_from_bytes(bytes) else {
            return self.connection.fail(ConnectionError::Unsupported("Identify Controller is too short"));
        };
        let wants_io = self.config.io_queues > 0;
        let lacks = if id.sgl_support.get() & 3 == 0 {
            Some("it does not support SGLs")
        } else if id.in_capsule_offset_16.get() != 0 {
            Some("it wants in-capsule data at an offset (ICDOFF)")
        } else if wants_io && (id.io_command_capsule_16.get() < 4 || id.io_response_capsule_16.get() < 1) {
            Some("its I/O capsules are too small (IOCCSZ, IORCSZ)")
        } else {
            None
        };
        if let Some(lacks) = lacks {
            return self.connection.fail(ConnectionError::Unsupported(lacks));
        }
        let mut info = ControllerInfo::parse(id, TRANSFER_LEN_MAX);
        let most = if id.commands_max.get() == 0 { u16::MAX } else { id.commands_max.get() };
        info.io_queue_entries = self.config.io_queue_entries.clamp(2, most.max(2));
        let events = id.async_events.get();
        self.info = Some(info);
        let wanted = events & (AsyncEventConfig::NAMESPACE_ATTRIBUTE | AsyncEventConfig::DISCOVERY_LOG);
        if wants_io {
            let count = u32::from(self.config.io_queues) - 1;
            self.send(Purpose::Queues, Sqe::set_features(feature::NUMBER_OF_QUEUES, count << 16 | count), Data::None);
        }
        self.send(Purpose::EventConfig, Sqe::set_features(feature::ASYNC_EVENT_CONFIG, wanted), Data::None);
        self.request_event();
    }

    fn on_queues(&mut self, granted: u32) {
        if let Some(info) = &mut self.info {
            let count = (granted & 0xffff).min(granted >> 16) + 1;
            info.io_queues = self.config.io_queues.min(count as u16);
        }
    }

    fn request_event(&mut self) {
        self.send(Purpose::EventRequest, Sqe::new(admin_opcode::ASYNC_EVENT_REQUEST, 0), Data::None);
    }

    fn on_event(&mut self, result: u32) {
        let (kind, info, lid) = (result & 7, result >> 8 & 0xff, (result >> 16) as u8);
        const NOTICE: u32 = 2;
        match (kind, info) {
            (NOTICE, 0x00) => {
                let sqe = Sqe::get_log_page(log_page::CHANGED_NAMESPACES, 0, 4096, 0, false);
                self.send(Purpose::ChangedNamespaces, sqe, Data::ReceiveBytes(4096));
            }
            (NOTICE, 0xf0) => {
                self.read_discovery_header(Purpose::Acknowledge, false);
                self.events.push_back(AdminEvent::DiscoveryChanged);
            }
            _ => {
                let sqe = Sqe::get_log_page(lid, 0, 512, 0, false);
                self.send(Purpose::Acknowledge, sqe, Data::ReceiveBytes(512));
            }
        }
        self.request_event();
    }
}
