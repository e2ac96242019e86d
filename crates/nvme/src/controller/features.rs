//! Features of a controller (Base 5.1.12 Get Features, 5.1.25 Set Features).

use std::collections::BTreeMap;
use std::time::Instant;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::status::Status;
use crate::wire::{AsyncEventConfig, CSI_NVM, HostBehavior, NSID_ALL, ReservationNotice, feature};

use super::ana;
use super::command::events_of;
use super::shared::Controller;

/// Values that a host set, or the defaults.
#[derive(Clone, Debug)]
pub(super) struct Features {
    pub(super) keep_alive_ms: u32,
    pub(super) async_event_config: u32,
    pub(super) host_behavior: HostBehavior,
    /// Notices of reservations that the host does not want, by NSID.
    pub(super) reservation_masks: BTreeMap<u32, u32>,
    arbitration: u32,
    temperature_thresholds_k: [u16; 2],
    error_recovery: u32,
    write_atomicity: u32,
    /// Milliseconds since 1970 that the host set, and when.
    timestamp: Option<(u64, Instant)>,
    /// I/O queues that were granted, 0's based, in both halves.
    queues: u32,
}

/// Warning temperature threshold by default, in kelvin: there is no sensor, so it is never reached.
const TEMPERATURE_DEFAULT_K: u16 = 343;

impl Features {
    pub(super) fn new(keep_alive_ms: u32) -> Self {
        Self {
            keep_alive_ms,
            async_event_config: 0,
            host_behavior: HostBehavior::new_zeroed(),
            reservation_masks: BTreeMap::new(),
            arbitration: 0,
            temperature_thresholds_k: [TEMPERATURE_DEFAULT_K, 0],
            error_recovery: 0,
            write_atomicity: 0,
            timestamp: None,
            queues: 0,
        }
    }
}

/// The answer of Set Features or Get Features.
#[derive(Debug, Default)]
pub(super) struct FeatureAnswer {
    /// Dword 0.
    pub(super) value: u32,
    pub(super) data: Vec<u8>,
}

impl FeatureAnswer {
    fn value(value: u32) -> Self {
        Self { value, data: Vec::new() }
    }
}

/// Features that are supported: whether they can be changed.
pub(super) fn supported(fid: u8, discovery: bool) -> Option<Changeable> {
    use feature::{
        ARBITRATION, ASYNC_EVENT_CONFIG, ERROR_RECOVERY, HOST_BEHAVIOR, HOST_IDENTIFIER, INTERRUPT_COALESCING,
        INTERRUPT_VECTOR_CONFIG, IO_COMMAND_SET_PROFILE, KEEP_ALIVE_TIMER, NUMBER_OF_QUEUES, POWER_MANAGEMENT,
        RESERVATION_MASK, RESERVATION_PERSISTENCE, TEMPERATURE_THRESHOLD, TIMESTAMP, VOLATILE_WRITE_CACHE,
        WRITE_ATOMICITY,
    };
    match fid {
        ASYNC_EVENT_CONFIG | KEEP_ALIVE_TIMER => Some(Changeable::Yes),
        HOST_IDENTIFIER => Some(Changeable::No),
        RESERVATION_MASK if !discovery => Some(Changeable::Yes),
        RESERVATION_PERSISTENCE if !discovery => Some(Changeable::No),
        _ if discovery => None,
        // There are no interrupts over fabrics, but hosts read these as they do everywhere.
        INTERRUPT_COALESCING | INTERRUPT_VECTOR_CONFIG => Some(Changeable::No),
        ARBITRATION
        | POWER_MANAGEMENT
        | TEMPERATURE_THRESHOLD
        | ERROR_RECOVERY
        | VOLATILE_WRITE_CACHE
        | NUMBER_OF_QUEUES
        | WRITE_ATOMICITY
        | TIMESTAMP
        | HOST_BEHAVIOR
        | IO_COMMAND_SET_PROFILE => Some(Changeable::Yes),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changeable {
    Yes,
    No,
}

/// Sets a feature. `data` is complete.
pub(super) fn set(
    controller: &Controller,
    now: Instant,
    (fid, nsid): (u8, u32),
    value: u32,
    save: bool,
    data: &[u8],
) -> Result<FeatureAnswer, Status> {
    let discovery = controller.subsystem.is_discovery();
    if supported(fid, discovery).is_none() {
        return Err(Status::INVALID_FIELD.dnr());
    }
    check_path(controller, ana::is_of_path(fid, nsid, true))?;
    if save {
        return Err(Status::FEATURE_NOT_SAVEABLE.dnr());
    }
    let done = Ok(FeatureAnswer::default());
    match fid {
        feature::ARBITRATION => controller.change_features(|features| features.arbitration = value),
        feature::POWER_MANAGEMENT => {
            // There is one power state.
            if value & 0x1f != 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
        }
        feature::TEMPERATURE_THRESHOLD => return set_temperature(controller, value),
        feature::ERROR_RECOVERY => {
            // DULBE needs a namespace that can report deallocated blocks.
            if value & 1 << 16 != 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
            controller.change_features(|features| features.error_recovery = value);
        }
        feature::VOLATILE_WRITE_CACHE => {
            if !controller.subsystem.config.write_cache {
                return Err(Status::INVALID_FIELD.dnr());
            }
            controller.set_write_cache(value & 1 != 0);
        }
        feature::NUMBER_OF_QUEUES => return set_queues(controller, value),
        feature::WRITE_ATOMICITY => controller.change_features(|features| features.write_atomicity = value & 1),
        feature::ASYNC_EVENT_CONFIG => {
            if AsyncEventConfig(value).0 & !(events_of(discovery) | ASYNC_EVENTS_IGNORED) != 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
            controller.change_features(|features| features.async_event_config = value);
        }
        feature::TIMESTAMP => {
            let bytes: [u8; 8] = data.try_into().map_err(|_| Status::INTERNAL_ERROR)?;
            let milliseconds = u64::from_le_bytes(bytes) & TIMESTAMP_MASK;
            controller.change_features(|features| features.timestamp = Some((milliseconds, now)));
        }
        feature::KEEP_ALIVE_TIMER => {
            if value == 0 && !discovery {
                return Err(Status::KEEP_ALIVE_TIMEOUT_INVALID.dnr());
            }
            controller.change_features(|features| features.keep_alive_ms = value);
        }
        feature::HOST_BEHAVIOR => {
            let behavior = HostBehavior::read_from_bytes(data).map_err(|_| Status::INTERNAL_ERROR)?;
            controller.change_features(|features| features.host_behavior = behavior);
        }
        feature::IO_COMMAND_SET_PROFILE => {
            // Combination 0 is the only one, see Identify CNS 1Ch.
            if value & 0x1ff != 0 {
                return Err(Status::IO_COMMAND_SET_COMBINATION_REJECTED.dnr());
            }
        }
        feature::RESERVATION_MASK => return mask_reservations(controller, nsid, value),
        feature::RESERVATION_PERSISTENCE => {
            volumes(controller, nsid)?;
            // PTPL: nothing persists through power loss.
            if value & 1 != 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
        }
        feature::INTERRUPT_COALESCING | feature::INTERRUPT_VECTOR_CONFIG => {
            return Err(Status::FEATURE_NOT_CHANGEABLE.dnr());
        }
        // Over fabrics the Host Identifier comes with Connect (Base 5.1.25.1.28).
        _ => return Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
    }
    done
}

/// SMART warnings (bits 7:0) and firmware, telemetry and other notices may be asked for by any host: they never happen.
const ASYNC_EVENTS_IGNORED: u32 = 0xff | 0x3 << 9;

/// The low six bytes are milliseconds since 1970.
const TIMESTAMP_MASK: u64 = (1 << 48) - 1;

/// Gets a feature. `select` is 0 for the current value, 1 default, 2 saved, 3 capabilities.
pub(super) fn get(
    controller: &Controller,
    now: Instant,
    (fid, nsid): (u8, u32),
    select: u8,
    value: u32,
) -> Result<FeatureAnswer, Status> {
    let changeable = supported(fid, controller.subsystem.is_discovery()).ok_or(Status::INVALID_FIELD.dnr())?;
    check_path(controller, ana::is_of_path(fid, nsid, false))?;
    let current = controller.features();
    let default = Features::new(current.keep_alive_ms);
    let features = match select {
        0 => current,
        // Nothing is saved, so that the saved value is the default (Base 5.1.12).
        1 | 2 => default,
        // Capabilities: bit 1 of a namespace, bit 2 changeable; none can be saved.
        3 => {
            let changes = if changeable == Changeable::Yes { 1 << 2 } else { 0 };
            return Ok(FeatureAnswer::value(changes | u32::from(is_of_namespace(fid)) << 1));
        }
        _ => return Err(Status::INVALID_FIELD.dnr()),
    };
    let config = &controller.subsystem.config;
    Ok(match fid {
        feature::ARBITRATION => FeatureAnswer::value(features.arbitration),
        feature::POWER_MANAGEMENT | feature::IO_COMMAND_SET_PROFILE => FeatureAnswer::value(0),
        feature::TEMPERATURE_THRESHOLD => {
            let (sensor, kind) = temperature_selector(value)?;
            let _ = sensor;
            FeatureAnswer::value(features.temperature_thresholds_k[kind].into())
        }
        feature::ERROR_RECOVERY => FeatureAnswer::value(features.error_recovery),
        feature::VOLATILE_WRITE_CACHE => {
            if !config.write_cache {
                return Err(Status::INVALID_FIELD.dnr());
            }
            FeatureAnswer::value(if select == 0 { controller.write_cache().into() } else { 1 })
        }
        feature::NUMBER_OF_QUEUES => {
            let most = u32::from(config.io_queues_max - 1);
            FeatureAnswer::value(if select == 0 { features.queues } else { most << 16 | most })
        }
        feature::INTERRUPT_COALESCING => FeatureAnswer::value(0),
        // The vector that was asked for (bits 15:0), of which nothing is known.
        feature::INTERRUPT_VECTOR_CONFIG => FeatureAnswer::value(value & 0xffff),
        feature::WRITE_ATOMICITY => FeatureAnswer::value(features.write_atomicity),
        feature::ASYNC_EVENT_CONFIG => FeatureAnswer::value(features.async_event_config),
        feature::TIMESTAMP => {
            let (origin, milliseconds) = match features.timestamp {
                // Origin 001b: set by the host.
                Some((set, at)) => (1_u64, set + now.saturating_duration_since(at).as_millis() as u64),
                None => (0, 0),
            };
            let data = (milliseconds & TIMESTAMP_MASK | origin << 49).to_le_bytes().to_vec();
            FeatureAnswer { value: 0, data }
        }
        feature::KEEP_ALIVE_TIMER => FeatureAnswer::value(features.keep_alive_ms),
        feature::RESERVATION_MASK | feature::RESERVATION_PERSISTENCE if nsid == NSID_ALL => {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        }
        feature::RESERVATION_MASK => {
            volumes(controller, nsid)?;
            FeatureAnswer::value(features.reservation_masks.get(&nsid).copied().unwrap_or(0))
        }
        feature::RESERVATION_PERSISTENCE => {
            volumes(controller, nsid)?;
            FeatureAnswer::value(0)
        }
        feature::HOST_BEHAVIOR => FeatureAnswer { value: 0, data: features.host_behavior.as_bytes().to_vec() },
        _ => {
            // EXHID: identifiers have 128 bits over fabrics.
            if value & 1 == 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
            FeatureAnswer { value: 1, data: controller.host_id.to_vec() }
        }
    })
}

/// Whether a feature has a value for each namespace.
pub(super) const fn is_of_namespace(fid: u8) -> bool {
    matches!(fid, feature::RESERVATION_MASK | feature::RESERVATION_PERSISTENCE)
}

/// Whether the path is open, where it has to be.
fn check_path(controller: &Controller, has_to_be: bool) -> Result<(), Status> {
    if has_to_be { controller.subsystem.snapshot_for(controller).path.check() } else { Ok(()) }
}

/// The volumes that this NSID names: one, or all that the host sees.
fn volumes(controller: &Controller, nsid: u32) -> Result<Vec<u32>, Status> {
    let namespaces = controller.subsystem.snapshot_for(controller);
    let volumes = namespaces.iter().filter(|namespace| namespace.csi == CSI_NVM).map(|namespace| namespace.nsid);
    let named: Vec<u32> = volumes.filter(|volume| nsid == NSID_ALL || *volume == nsid).collect();
    if named.is_empty() && nsid != NSID_ALL { Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr()) } else { Ok(named) }
}

/// Masks notices of reservations (Base 2.0, 5.27.1.24). The mask is the host's own: one that is fenced off must not keep the others
/// from hearing of it.
fn mask_reservations(controller: &Controller, nsid: u32, mask: u32) -> Result<FeatureAnswer, Status> {
    if mask & !ReservationNotice::MASK_ALL != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let masks = volumes(controller, nsid)?.into_iter().map(|nsid| (nsid, mask));
    controller.change_features(|features| features.reservation_masks.extend(masks));
    Ok(FeatureAnswer::default())
}

/// Grants I/O queues (Base 5.1.25.1.7): the smaller of what is asked for and what there is, in both halves.
fn set_queues(controller: &Controller, value: u32) -> Result<FeatureAnswer, Status> {
    let (submission, completion) = (value & 0xffff, value >> 16);
    if submission == 0xffff || completion == 0xffff {
        return Err(Status::INVALID_FIELD.dnr());
    }
    // The number is agreed on before the first of them connects.
    if controller.has_queues() {
        return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
    }
    // Over fabrics queues come in pairs.
    let granted = submission.min(completion).min(u32::from(controller.subsystem.config.io_queues_max) - 1);
    let value = granted << 16 | granted;
    controller.change_features(|features| features.queues = value);
    Ok(FeatureAnswer::value(value))
}

fn set_temperature(controller: &Controller, value: u32) -> Result<FeatureAnswer, Status> {
    let (_, kind) = temperature_selector(value)?;
    controller.change_features(|features| features.temperature_thresholds_k[kind] = value as u16);
    Ok(FeatureAnswer::default())
}

/// TMPSEL (bits 19:16) and THSEL (bits 21:20): the composite temperature alone, and its over and under threshold.
fn temperature_selector(value: u32) -> Result<(u32, usize), Status> {
    let (sensor, kind) = (value >> 16 & 0xf, (value >> 20 & 3) as usize);
    let all = sensor == 0xf;
    if (sensor != 0 && !all) || kind > 1 { Err(Status::INVALID_FIELD.dnr()) } else { Ok((sensor, kind)) }
}
