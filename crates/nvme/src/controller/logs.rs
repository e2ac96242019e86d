//! Answers to Get Log Page (Base 5.1.12).

use std::net::IpAddr;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::status::Status;
use crate::wire::memory::{memory_log, reachability_page};
use crate::wire::{
    CSI_NVM, CommandEffects, DiscoveryHeader, EffectsLog, FirmwareSlotLog, ReservationPage, SmartLog, admin_opcode,
    log_page, nvm_opcode, reservation_opcode,
};

use super::execute::CSS_ALL;
use super::identify::{REACHABILITY_ASSOCIATIONS, REACHABILITY_GROUPS};
use super::shared::{Controller, ERROR_LOG_ENTRIES};
use super::subsystem::{Subsystems, pad};
use super::{ana, features};

/// A composite temperature of 25 °C: there is no sensor.
const TEMPERATURE_K: u16 = 298;

/// The side that answers.
#[derive(Debug)]
pub(super) enum Answer {
    /// We, with the whole page.
    Ours(Vec<u8>),
    /// The embedder.
    Embedder,
}

/// The log page that a host wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) lid: u8,
    pub(super) csi: u8,
    /// RGO, of the log of Asymmetric Namespace Access.
    pub(super) groups_only: bool,
    /// The host takes the part from this offset, and what the page tells of is over.
    pub(super) taken: Option<u64>,
}

/// The whole page. `local`: the address to which the host connected.
pub(super) fn page(
    subsystems: &Subsystems,
    controller: &Controller,
    wanted: Wanted,
    local: Option<IpAddr>,
) -> Result<Answer, Status> {
    let Wanted { lid, csi, groups_only, taken } = wanted;
    let subsystem = &controller.subsystem;
    if subsystem.is_discovery() {
        return match lid {
            log_page::DISCOVERY => Ok(Answer::Ours(discovery(subsystems, controller, local))),
            log_page::ERROR => Ok(Answer::Ours(errors(controller))),
            log_page::SUPPORTED_PAGES => Ok(Answer::Ours(supported_pages(controller))),
            _ => Err(Status::INVALID_LOG_PAGE.dnr()),
        };
    }
    // A part that there is not is refused, and takes nothing away.
    let clears = |page_len| taken.is_some_and(|offset| start(page_len, offset).is_ok());
    let bytes = match lid {
        log_page::SUPPORTED_PAGES => supported_pages(controller),
        log_page::ERROR => errors(controller),
        log_page::SMART => smart(controller).as_bytes().to_vec(),
        log_page::FIRMWARE_SLOT => {
            let mut revision = [0; 8];
            pad(&mut revision, &subsystem.config.firmware);
            FirmwareSlotLog::new(revision).as_bytes().to_vec()
        }
        log_page::CHANGED_NAMESPACES => changed(controller, clears(CHANGED_LEN)),
        log_page::EFFECTS => effects(controller, csi)?.as_bytes().to_vec(),
        log_page::ANA => {
            let changes = controller.ana_changes();
            let page = paths(controller, changes, groups_only);
            if clears(page.len()) {
                controller.forget_ana_notice(changes);
            }
            page
        }
        log_page::FEATURES => supported_features(),
        log_page::MI_COMMANDS => vec![0; 4096],
        log_page::RESERVATION => controller.reservation_page(clears(size_of::<ReservationPage>())).as_bytes().to_vec(),
        memory_log::REACHABILITY_GROUPS if subsystem.config.has_memory() => reachability_groups(controller),
        memory_log::REACHABILITY_ASSOCIATIONS if subsystem.config.has_memory() => reachability_associations(controller),
        _ if subsystem.config.command_sets.iter().any(|set| set.log_pages.contains(&lid)) => {
            return Ok(Answer::Embedder);
        }
        _ => return Err(Status::INVALID_LOG_PAGE.dnr()),
    };
    Ok(Answer::Ours(bytes))
}

/// The bytes that were asked for, and how many zeroes follow them: what lies behind the page's end reads as those (Base
/// 5.1.12). A start behind it is an error.
pub(super) fn part(page: &[u8], offset: u64, len: usize) -> Result<(&[u8], usize), Status> {
    let from = start(page.len(), offset)?;
    let to = page.len().min(from + len);
    Ok((&page[from..to], len - (to - from)))
}

fn start(page_len: usize, offset: u64) -> Result<usize, Status> {
    let from = usize::try_from(offset).ok().filter(|from| *from <= page_len && from.is_multiple_of(4));
    from.ok_or(Status::INVALID_FIELD.dnr())
}

fn discovery(subsystems: &Subsystems, controller: &Controller, local: Option<IpAddr>) -> Vec<u8> {
    let (generation, entries) = subsystems.discovery_log(&controller.host, local);
    let mut page = DiscoveryHeader::new(generation, entries.len() as u64).as_bytes().to_vec();
    for entry in &entries {
        page.extend_from_slice(entry.as_bytes());
    }
    page
}

fn errors(controller: &Controller) -> Vec<u8> {
    let mut page: Vec<u8> = controller.errors().iter().flat_map(|entry| entry.as_bytes().to_vec()).collect();
    page.resize(ERROR_LOG_ENTRIES * 64, 0);
    page
}

fn smart(controller: &Controller) -> SmartLog {
    // A data unit is a thousand units of 512 bytes, rounded up (Base 5.1.12.1.3).
    let units = |bytes: u64| u128::from(bytes.div_ceil(512_000)).to_le_bytes();
    let totals = controller.totals();
    let mut log = SmartLog::zeroed();
    log.temperature_k.set(TEMPERATURE_K);
    log.spare_percent = 100;
    log.spare_threshold_percent = 10;
    log.data_units_read = units(totals.read_bytes);
    log.data_units_written = units(totals.written_bytes);
    log.read_commands = u128::from(totals.reads).to_le_bytes();
    log.write_commands = u128::from(totals.writes).to_le_bytes();
    log.error_entries = u128::from(totals.errors).to_le_bytes();
    log
}

/// A list of 1024 namespaces.
const CHANGED_LEN: usize = 4096;

fn changed(controller: &Controller, clear: bool) -> Vec<u8> {
    let mut page: Vec<u8> = controller.changed_namespaces(clear).iter().flat_map(|nsid| nsid.to_le_bytes()).collect();
    page.resize(CHANGED_LEN, 0);
    page
}

/// The effects of the commands of a command set. The admin part is the same for all.
fn effects(controller: &Controller, csi: u8) -> Result<EffectsLog, Status> {
    use CommandEffects as E;
    let config = &controller.subsystem.config;
    let set = config.command_set(csi);
    if csi != CSI_NVM && set.is_none() {
        return Err(Status::INVALID_IO_COMMAND_SET.dnr());
    }
    let namespaces = controller.subsystem.snapshot_for(controller);
    let has_deltas = namespaces.iter().any(|namespace| namespace.delta_len_max > 0);
    let mut log = EffectsLog::zeroed();
    for opcode in [
        admin_opcode::GET_LOG_PAGE,
        admin_opcode::IDENTIFY,
        admin_opcode::ABORT,
        admin_opcode::GET_FEATURES,
        admin_opcode::ASYNC_EVENT_REQUEST,
        admin_opcode::KEEP_ALIVE,
    ] {
        log.admin[usize::from(opcode)].set(E::SUPPORTED);
    }
    log.admin[usize::from(admin_opcode::SET_FEATURES)].set(E::SUPPORTED | E::CHANGES_CONTROLLER);
    for (opcode, entry) in config.command_sets.iter().flat_map(|set| &set.admin_commands) {
        log.admin[usize::from(*opcode)].set(entry | E::SUPPORTED);
    }
    if csi == CSI_NVM {
        for opcode in [nvm_opcode::FLUSH, nvm_opcode::READ, nvm_opcode::COMPARE, nvm_opcode::VERIFY] {
            log.io[usize::from(opcode)].set(E::SUPPORTED);
        }
        for opcode in [nvm_opcode::WRITE, nvm_opcode::WRITE_ZEROES, nvm_opcode::DATASET_MANAGEMENT, nvm_opcode::COPY] {
            log.io[usize::from(opcode)].set(E::SUPPORTED | E::CHANGES_BLOCKS);
        }
        if has_deltas {
            log.io[usize::from(nvm_opcode::WRITE_DELTA)].set(E::SUPPORTED | E::CHANGES_BLOCKS);
        }
        for opcode in [
            reservation_opcode::REGISTER,
            reservation_opcode::REPORT,
            reservation_opcode::ACQUIRE,
            reservation_opcode::RELEASE,
        ] {
            log.io[usize::from(opcode)].set(E::SUPPORTED);
        }
    }
    for (opcode, entry) in set.into_iter().flat_map(|set| &set.io_commands) {
        log.io[usize::from(*opcode)].set(entry | E::SUPPORTED);
    }
    Ok(log)
}

/// LID 00h: a dword per page, bit 0 supported.
fn supported_pages(controller: &Controller) -> Vec<u8> {
    let mut pages = [U32::ZERO; 256];
    let ours: &[u8] = if controller.subsystem.is_discovery() {
        &[log_page::SUPPORTED_PAGES, log_page::ERROR, log_page::DISCOVERY]
    } else {
        &[
            log_page::SUPPORTED_PAGES,
            log_page::ERROR,
            log_page::SMART,
            log_page::FIRMWARE_SLOT,
            log_page::CHANGED_NAMESPACES,
            log_page::EFFECTS,
            log_page::ANA,
            log_page::FEATURES,
            log_page::MI_COMMANDS,
            log_page::RESERVATION,
        ]
    };
    let config = &controller.subsystem.config;
    if config.has_memory() && !controller.subsystem.is_discovery() {
        for lid in [memory_log::REACHABILITY_GROUPS, memory_log::REACHABILITY_ASSOCIATIONS] {
            pages[usize::from(lid)].set(1);
        }
    }
    let declared = config.command_sets.iter().flat_map(|set| &set.log_pages);
    for lid in ours.iter().chain(declared) {
        pages[usize::from(*lid)].set(1);
    }
    pages.as_bytes().to_vec()
}

/// LID 0Ch: the state of the path to the namespaces that the host sees.
fn paths(controller: &Controller, changes: u64, groups_only: bool) -> Vec<u8> {
    let namespaces = controller.subsystem.snapshot_for(controller);
    let all_command_sets = controller.cc().css() == CSS_ALL;
    let seen = namespaces.iter().filter(|namespace| all_command_sets || namespace.csi == CSI_NVM);
    let members: Vec<u32> = seen.map(|namespace| namespace.nsid).collect();
    ana::log_page(namespaces.path, &members, changes, groups_only)
}

/// LID 1Ah: which namespaces are in which group.
fn reachability_groups(controller: &Controller) -> Vec<u8> {
    let namespaces = controller.subsystem.snapshot_for(controller);
    let members = |csi: u8| namespaces.iter().filter(|n| n.csi == csi).map(|n| n.nsid).collect::<Vec<u32>>();
    let groups: Vec<(u32, Vec<u32>)> = REACHABILITY_GROUPS.iter().map(|&(id, csi)| (id, members(csi))).collect();
    let records: Vec<(u32, &[u32])> = groups.iter().map(|(id, members)| (*id, &members[..])).collect();
    reachability_page(namespaces.epoch, &records)
}

/// LID 1Bh: which groups reach each other.
fn reachability_associations(controller: &Controller) -> Vec<u8> {
    let records: Vec<(u32, &[u32])> = REACHABILITY_ASSOCIATIONS.iter().map(|(id, groups)| (*id, &groups[..])).collect();
    reachability_page(controller.subsystem.snapshot_for(controller).epoch, &records)
}

/// LID 12h: a dword per feature, bit 0 supported, bit 1 changeable, bit 20 it belongs to a namespace, bit 21 to the controller.
fn supported_features() -> Vec<u8> {
    let mut page = [U32::ZERO; 256];
    for (fid, entry) in page.iter_mut().enumerate() {
        if let Some(changeable) = features::supported(fid as u8, false) {
            let change = if changeable == features::Changeable::Yes { 1 << 1 } else { 0 };
            let scope = if features::is_of_namespace(fid as u8) { 1 << 20 } else { 1 << 21 };
            entry.set(1 | change | scope);
        }
    }
    page.as_bytes().to_vec()
}
