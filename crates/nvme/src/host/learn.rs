//! How a host learns of namespaces and reads discovery logs.

use zerocopy::FromBytes;

use crate::wire::{CSI_NVM, DiscoveryEntry, DiscoveryHeader, Sqe, cns, log_page};

use super::admin::{Admin, AdminEvent, Purpose};
use super::connection::ConnectionError;
use super::info::{DiscoveredSubsystem, NamespaceInfo};
use super::submission::{Answer, CommandError, Data};

/// The longest part of a discovery log that is read at a time: a multiple of an entry's length.
const DISCOVERY_PART_MAX: u32 = 64 << 10;
/// The most entries of a discovery log that are read.
const DISCOVERY_RECORDS_MAX: u64 = 16_384;
/// How often a discovery log is read again because it changed meanwhile.
const DISCOVERY_TRIES: u32 = 8;
/// The most namespaces that are listed.
const NAMESPACES_MAX: usize = 1 << 20;

/// A discovery log that is being read.
#[derive(Debug)]
pub(super) struct Discovery {
    pub(super) generation: u64,
    pub(super) records: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) tries: u32,
}

impl Admin {
    /// Lists the active namespaces: for the first time, or because some have `changed`.
    pub(super) fn list_namespaces(&mut self, changed: Option<Vec<u32>>) {
        if self.config.subsystem.is_discovery() {
            return self.become_ready(Vec::new());
        }
        self.list_more(Vec::new(), changed);
    }

    pub(super) fn list_more(&mut self, so_far: Vec<u32>, changed: Option<Vec<u32>>) {
        let after = so_far.last().copied().unwrap_or(0);
        let sqe = Sqe::identify(cns::ACTIVE_NAMESPACES, after, 0);
        self.send(Purpose::ActiveNamespaces { so_far, changed }, sqe, Data::ReceiveBytes(4096));
    }

    pub(super) fn on_active_namespaces(&mut self, mut so_far: Vec<u32>, changed: Option<Vec<u32>>, bytes: &[u8]) {
        let before = so_far.len();
        for nsid in nsids(bytes).take_while(|nsid| *nsid != 0) {
            if so_far.last().is_some_and(|last| nsid <= *last) {
                return self.connection.fail(ConnectionError::Unsupported("its list of namespaces does not ascend"));
            }
            so_far.push(nsid);
        }
        if so_far.len() - before == 1024 && so_far.len() < NAMESPACES_MAX {
            return self.list_more(so_far, changed);
        }
        match changed {
            None => self.become_ready(so_far),
            Some(changed) => {
                if let Some(info) = &mut self.info {
                    info.namespaces.clone_from(&so_far);
                }
                self.events.push_back(AdminEvent::NamespacesChanged { active: so_far, changed });
            }
        }
    }

    pub(super) fn become_ready(&mut self, namespaces: Vec<u32>) {
        if let Some(info) = &mut self.info {
            info.namespaces = namespaces;
            self.ready = true;
            self.events.push_back(AdminEvent::Ready(Box::new(info.clone())));
        }
    }

    pub(super) fn on_descriptors(&mut self, mut info: NamespaceInfo, outcome: Result<Answer, CommandError>) {
        match outcome {
            Ok(answer) => info.read_descriptors(&answer.bytes),
            // Controllers of before version 1.3 do not know the list.
            Err(CommandError::Status { .. }) => {}
            Err(error) => return self.tell_namespace(info.nsid, Err(error)),
        }
        let cns = if info.csi == CSI_NVM { cns::NAMESPACE } else { cns::INDEPENDENT_NAMESPACE };
        let sqe = Sqe::identify(cns, info.nsid, 0);
        self.send(Purpose::Namespace(info), sqe, Data::ReceiveBytes(4096));
    }

    pub(super) fn on_namespace(&mut self, mut info: NamespaceInfo, outcome: Result<Answer, CommandError>) {
        let nsid = info.nsid;
        let result = match outcome {
            Err(error) => Err(error),
            Ok(answer) if info.csi != CSI_NVM => {
                info.read_independent(&answer.bytes);
                Ok(info)
            }
            Ok(answer) if info.read_identify(&answer.bytes) => Ok(info),
            Ok(_) if info.blocks == 0 => Err(CommandError::NoSuchNamespace),
            Ok(_) => Err(CommandError::UnsupportedFormat),
        };
        self.tell_namespace(nsid, result);
    }

    pub(super) fn tell_namespace(&mut self, nsid: u32, info: Result<NamespaceInfo, CommandError>) {
        self.events.push_back(AdminEvent::Namespace { nsid, info });
    }

    pub(super) fn read_discovery_header(&mut self, purpose: Purpose, retain: bool) {
        let sqe = Sqe::get_log_page(log_page::DISCOVERY, 0, DiscoveryEntry::LEN, 0, retain);
        self.send(purpose, sqe, Data::ReceiveBytes(DiscoveryEntry::LEN));
    }

    pub(super) fn on_discovery_header(&mut self, bytes: &[u8]) {
        let (Some(discovery), Ok(header)) = (&mut self.discovery, DiscoveryHeader::ref_from_bytes(bytes)) else {
            return;
        };
        discovery.generation = header.generation.get();
        discovery.records = header.records.get().min(DISCOVERY_RECORDS_MAX);
        discovery.bytes.clear();
        self.read_discovery_part();
    }

    pub(super) fn read_discovery_part(&mut self) {
        let Some(discovery) = &self.discovery else { return };
        let have = discovery.bytes.len() as u64;
        let left = discovery.records * u64::from(DiscoveryEntry::LEN) - have;
        if left == 0 {
            // Read the header again: it tells whether the log changed meanwhile.
            return self.read_discovery_header(Purpose::DiscoveryCheck, false);
        }
        let limit = self.info.as_ref().map_or(DISCOVERY_PART_MAX, |info| info.transfer_len_max);
        let len = left.min(limit.min(DISCOVERY_PART_MAX).into()) as u32;
        let offset = u64::from(DiscoveryEntry::LEN) + have;
        let sqe = Sqe::get_log_page(log_page::DISCOVERY, offset, len, 0, true);
        self.send(Purpose::DiscoveryPart, sqe, Data::ReceiveBytes(len));
    }

    pub(super) fn on_discovery_part(&mut self, bytes: &[u8]) {
        let Some(discovery) = &mut self.discovery else { return };
        if bytes.is_empty() {
            let error = CommandError::ShortTransfer { got: 0, want: DiscoveryEntry::LEN };
            self.discovery = None;
            return self.events.push_back(AdminEvent::Discovered(Err(error)));
        }
        discovery.bytes.extend_from_slice(bytes);
        self.read_discovery_part();
    }

    pub(super) fn on_discovery_check(&mut self, bytes: &[u8]) {
        let (Some(discovery), Ok(header)) = (&mut self.discovery, DiscoveryHeader::ref_from_bytes(bytes)) else {
            return;
        };
        discovery.tries += 1;
        if header.generation.get() != discovery.generation && discovery.tries < DISCOVERY_TRIES {
            return self.on_discovery_header(bytes);
        }
        let entries = discovery.bytes.chunks_exact(DiscoveryEntry::LEN as usize);
        let list = entries
            .filter_map(|entry| DiscoveryEntry::ref_from_bytes(entry).ok())
            .filter_map(DiscoveredSubsystem::parse)
            .collect();
        self.discovery = None;
        self.events.push_back(AdminEvent::Discovered(Ok(list)));
    }
}

/// NSIDs of a list.
pub(super) fn nsids(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|entry| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]))
}
