//! Answers to Identify (Base 5.1.13, NVM 4.1.5).

use zerocopy::IntoBytes;

use crate::status::Status;
use crate::wire::memory::COPY_FORMAT_MEMORY;
use crate::wire::{CSI_COMPUTE, CSI_SLM};
use crate::wire::{
    CSI_NVM, ControllerList, DeltaSupport, IdentifyController, IdentifyNamespace, IndependentNamespace, LbaFormat,
    NSID_ALL, NvmControllerLimits, RESERVATION_CAPABILITIES, Version, cns, descriptor_type,
};

use super::ana::{self, PathState};
use super::command::events_of;
use super::config::{Namespace, SubsystemConfig};
use super::connection::{ABORTS_MAX, ASYNC_EVENTS_MAX, IN_CAPSULE_LEN};
use super::io::{COPY_FORMATS, COPY_LEN_MAX, COPY_RANGES_MAX, WIDE_EXPONENT};
use super::namespaces::Namespaces;
use super::shared::{Controller, ERROR_LOG_ENTRIES};
use super::subsystem::{ADMIN_ENTRIES_MAX, pad};

/// The version of the specification that is implemented: 2.0.0.
pub(super) const VERSION: Version = Version(2 << 16);

/// Bytes of every Identify structure.
const LEN: usize = 4096;

/// The question of an Identify.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) cns: u8,
    pub(super) nsid: u32,
    /// CNTID: the first controller of a list.
    pub(super) controller: u16,
    pub(super) csi: u8,
}

/// The side that answers.
#[derive(Debug)]
pub(super) enum Answer {
    /// We, with these bytes.
    Ours(Vec<u8>),
    /// The embedder, whose command set it is.
    Embedder,
}

/// Answers a question. `all_command_sets`: the host enabled them all (CC.CSS), else only NVM namespaces exist for it.
pub(super) fn answer(
    controller: &Controller,
    namespaces: &Namespaces,
    all_command_sets: bool,
    question: Question,
) -> Result<Answer, Status> {
    let Question { cns, nsid, csi, .. } = question;
    if cns == cns::CONTROLLER {
        return Ok(Answer::Ours(identify_controller(controller, namespaces)));
    }
    if controller.subsystem.is_discovery() {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let config = &controller.subsystem.config;
    let visible = |namespace: &&Namespace| all_command_sets || namespace.csi == CSI_NVM;
    let find = |nsid: u32| -> Result<Option<&Namespace>, Status> {
        if nsid == 0 || nsid > config.namespaces_max {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        }
        Ok(namespaces.get(nsid).filter(visible))
    };
    let ours = |bytes: &[u8]| Ok(Answer::Ours(bytes.to_vec()));
    match cns {
        // The structure is the NVM command set's, and asks for no other. To hosts that do not tell command sets apart here
        // (SPDK enables all that there are, and gives a controller up when this fails) a namespace of another one is as one
        // that is not active; who knows of it asks by CNS 05h and 08h.
        cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => match find(nsid)?.filter(|namespace| namespace.csi == CSI_NVM) {
            None => ours(IdentifyNamespace::zeroed().as_bytes()),
            Some(namespace) => ours(identify_namespace(namespace, namespaces.path).as_bytes()),
        },
        cns::ACTIVE_NAMESPACES | cns::ALLOCATED_NAMESPACES => namespace_list(nsid, namespaces.iter().filter(visible)),
        cns::COMMAND_SET_ACTIVE_NAMESPACES | cns::COMMAND_SET_ALLOCATED_NAMESPACES => {
            check_csi(config, csi)?;
            namespace_list(nsid, namespaces.iter().filter(visible).filter(|namespace| namespace.csi == csi))
        }
        cns::NAMESPACE_DESCRIPTORS => {
            let namespace = find(nsid)?.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.dnr())?;
            Ok(Answer::Ours(descriptors(namespace)))
        }
        cns::COMMAND_SET_NAMESPACE | cns::COMMAND_SET_ALLOCATED_NAMESPACE => {
            let Some(namespace) = find(nsid)? else { return ours(&[0; LEN]) };
            if namespace.csi != csi {
                return Err(Status::INVALID_IO_COMMAND_SET.dnr());
            }
            Ok(of_command_set(config, csi))
        }
        cns::COMMAND_SET_CONTROLLER => {
            check_csi(config, csi)?;
            if csi == CSI_NVM {
                let mut limits = NvmControllerLimits::zeroed();
                limits.verify_exponent = WIDE_EXPONENT;
                limits.write_zeroes_exponent = WIDE_EXPONENT;
                return ours(limits.as_bytes());
            }
            Ok(of_command_set(config, csi))
        }
        cns::INDEPENDENT_NAMESPACE => match find(nsid)? {
            None => ours(IndependentNamespace::zeroed().as_bytes()),
            Some(namespace) => ours(independent_namespace(namespace, config).as_bytes()),
        },
        cns::ATTACHED_CONTROLLERS if find(nsid)?.is_none() => ours(ControllerList::new([]).as_bytes()),
        cns::ATTACHED_CONTROLLERS | cns::CONTROLLERS => {
            let ids = controller.subsystem.controller_ids();
            ours(ControllerList::new(ids.range(question.controller..).copied()).as_bytes())
        }
        cns::IO_COMMAND_SETS => {
            // One vector of 64 bits per combination; the only one is all that there are.
            let mut vectors = vec![0; LEN];
            let sets = config.command_sets.iter().fold(1 << CSI_NVM, |bits: u64, set| bits | 1 << (set.csi & 63));
            vectors[..8].copy_from_slice(&sets.to_le_bytes());
            Ok(Answer::Ours(vectors))
        }
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

fn identify_controller(controller: &Controller, namespaces: &Namespaces) -> Vec<u8> {
    let config = &controller.subsystem.config;
    let discovery = controller.subsystem.is_discovery();
    let mut id = IdentifyController::zeroed();
    pad(&mut id.serial, &config.serial);
    pad(&mut id.model, &config.model);
    pad(&mut id.firmware, &config.firmware);
    id.controller_id.set(controller.cntlid);
    id.version.set(VERSION.0);
    id.async_events.set(events_of(discovery));
    id.attributes.set(1);
    id.controller_type = if discovery { 2 } else { 1 };
    id.transfer_max_exponent = (config.transfer_len_max / 4096).ilog2() as u8;
    id.async_event_limit = ASYNC_EVENTS_MAX - 1;
    id.error_log_entries = (ERROR_LOG_ENTRIES - 1) as u8;
    // Extended offsets, and effects and supported pages on I/O controllers.
    id.log_attributes = if discovery { 1 << 2 } else { 1 << 1 | 1 << 2 | 1 << 5 };
    id.keep_alive_100ms.set(KEEP_ALIVE_GRANULARITY_100MS);
    id.commands_max.set(config.queue_entries_max.max(ADMIN_ENTRIES_MAX));
    // SGLs without restrictions of alignment, longer than the data if need be, with offsets into the capsule.
    id.sgl_support.set(1 | 1 << 18 | 1 << 20);
    id.subsystem_nqn = config.nqn.to_field();
    id.sq_entry_size = 0x66;
    id.cq_entry_size = 0x44;
    id.io_response_capsule_16.set(1);
    id.io_command_capsule_16.set(64 / 16);
    id.sgl_descriptors_max = 1;
    id.abort_limit = ABORTS_MAX - 1;
    if discovery {
        return id.as_bytes().to_vec();
    }
    id.multi_path = 1 << 1 | 1 << 3;
    id.ana_transition_s = ana::TRANSITION_S;
    id.ana_capabilities = ana::CAPABILITIES;
    id.ana_group_max.set(ana::GROUP);
    id.ana_groups.set(1);
    id.subsystem_report = 1;
    id.firmware_updates = 1 << 1 | 1;
    id.warning_temperature_k.set(343);
    id.critical_temperature_k.set(353);
    id.namespaces_max.set(config.namespaces_max);
    id.allowed_namespaces.set(config.namespaces_max);
    id.optional_nvm_commands.set(
        IdentifyController::COMPARE
            | IdentifyController::DATASET_MANAGEMENT
            | IdentifyController::WRITE_ZEROES
            | IdentifyController::SELECT
            | IdentifyController::RESERVATIONS
            | IdentifyController::TIMESTAMP
            | IdentifyController::VERIFY
            | IdentifyController::COPY,
    );
    let memory = config.has_memory();
    id.copy_formats.set(COPY_FORMATS | u16::from(memory) << COPY_FORMAT_MEMORY);
    // RRSUP: reachability is reported.
    id.reachability = memory.into();
    // Flush does not take all namespaces at once.
    id.volatile_write_cache = 0b10 << 1 | config.write_cache as u8;
    id.io_command_capsule_16.set((64 + IN_CAPSULE_LEN) / 16);
    // The values for every volume; each says more of itself. Writes are whole in normal operation as they are without power.
    let volumes = namespaces.iter().filter(|namespace| namespace.csi == CSI_NVM);
    let atomic = volumes.map(|namespace| namespace.atomic_blocks).min().unwrap_or(1).max(1) - 1;
    id.atomic_write_normal.set(atomic);
    id.atomic_write_power_fail.set(atomic);
    // Disconnect of I/O queues.
    id.optional_fabrics_commands.set(1);
    id.as_bytes().to_vec()
}

/// Granularity of the keep alive timer in units of 100 ms.
pub(super) const KEEP_ALIVE_GRANULARITY_100MS: u16 = 10;

fn identify_namespace(namespace: &Namespace, path: PathState) -> IdentifyNamespace {
    let mut id = IdentifyNamespace::zeroed();
    let shift = namespace.block_size.shift();
    id.size.set(namespace.blocks);
    id.capacity.set(namespace.blocks);
    id.lba_formats[0] = LbaFormat::new(shift as u8);
    id.sharing = 1;
    id.attributes = namespace.read_only as u8;
    id.reservations = reservations(namespace);
    id.nguid = namespace.uuid;
    id.ana_group.set(ana::GROUP);
    // What may not be known through a path that is not there (Base 2.0, 8.1.3.3); size and capacity are, and without them Linux
    // takes the namespace away.
    if path != PathState::Inaccessible {
        id.utilization.set(namespace.blocks);
        id.capacity_bytes = (u128::from(namespace.blocks) << shift).to_le_bytes();
    }
    // Media work in pages of 4 KiB whatever the size of a block: writes and deallocations are best aligned to them.
    let page = (4096 >> shift) - 1;
    id.features = 1 << 4;
    if namespace.atomic_blocks > 1 {
        // NSABP: NAWUN and NAWUPF are given. A write has no boundary that it may not cross.
        id.features |= 1 << 1;
        id.atomicity[0].set(namespace.atomic_blocks - 1);
        id.atomicity[1].set(namespace.atomic_blocks - 1);
    }
    id.delta = DeltaSupport::new(namespace.delta_len_max);
    id.write_granularity.set(page);
    id.write_alignment.set(page);
    id.deallocate_granularity.set(page);
    id.deallocate_alignment.set(page);
    if namespace.deallocate {
        id.deallocation = 0b001 | 1 << 3;
    }
    let copy_blocks = COPY_LEN_MAX >> shift;
    id.copy_range_blocks_max.set(copy_blocks.min(u16::MAX.into()) as u16);
    id.copy_blocks_max.set(copy_blocks as u32);
    id.copy_ranges_max = (COPY_RANGES_MAX - 1) as u8;
    id
}

/// RESCAP: a host that may not write makes no reservations, and a namespace without blocks has none.
fn reservations(namespace: &Namespace) -> u8 {
    if namespace.csi == CSI_NVM && !namespace.read_only { RESERVATION_CAPABILITIES } else { 0 }
}

fn independent_namespace(namespace: &Namespace, config: &SubsystemConfig) -> IndependentNamespace {
    let mut id = IndependentNamespace::zeroed();
    id.sharing = 1;
    id.reservations = reservations(namespace);
    id.attributes = namespace.read_only as u8;
    id.ana_group.set(ana::GROUP);
    id.status = 1;
    if config.has_memory() {
        id.reachability_group.set(reachability_group(namespace.csi));
    }
    id
}

/// The reachability group of a namespace: all of a command set are in one. 0: in none.
pub(super) fn reachability_group(csi: u8) -> u32 {
    REACHABILITY_GROUPS.iter().find(|(_, member)| *member == csi).map_or(0, |(group, _)| *group)
}

/// Reachability groups and the command set of their namespaces.
pub(super) const REACHABILITY_GROUPS: [(u32, u8); 3] = [(1, CSI_NVM), (2, CSI_SLM), (3, CSI_COMPUTE)];
/// Reachability associations and their groups: volumes with memory, for copies; memory with programs, to run them over.
pub(super) const REACHABILITY_ASSOCIATIONS: [(u32, [u32; 2]); 2] = [(1, [1, 2]), (2, [2, 3])];

/// Descriptors that tell the namespace apart (CNS 03h): UUID, NGUID and command set.
fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let mut list = Vec::with_capacity(LEN);
    let mut push = |kind: u8, value: &[u8]| {
        list.extend_from_slice(&[kind, value.len() as u8, 0, 0]);
        list.extend_from_slice(value);
    };
    push(descriptor_type::NGUID, &namespace.uuid);
    push(descriptor_type::UUID, &namespace.uuid);
    push(descriptor_type::CSI, &[namespace.csi]);
    list.resize(LEN, 0);
    list
}

/// Up to 1,024 NSIDs above `after`.
fn namespace_list<'a>(after: u32, namespaces: impl Iterator<Item = &'a Namespace>) -> Result<Answer, Status> {
    if after >= NSID_ALL - 1 {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    }
    let mut list = vec![0; LEN];
    let above = namespaces.map(|namespace| namespace.nsid).filter(|nsid| *nsid > after);
    for (entry, nsid) in list.chunks_exact_mut(4).zip(above) {
        entry.copy_from_slice(&nsid.to_le_bytes());
    }
    Ok(Answer::Ours(list))
}

fn check_csi(config: &SubsystemConfig, csi: u8) -> Result<(), Status> {
    if csi == CSI_NVM || config.command_set(csi).is_some() { Ok(()) } else { Err(Status::INVALID_IO_COMMAND_SET.dnr()) }
}

/// CNS 05h and 06h of a command set: the embedder's if it said so, else zeroes, which mean no limits and no features.
fn of_command_set(config: &SubsystemConfig, csi: u8) -> Answer {
    match config.command_set(csi) {
        Some(set) if set.identify => Answer::Embedder,
        _ => Answer::Ours(vec![0; LEN]),
    }
}
