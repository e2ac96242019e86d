//! Identify and the log pages of programs, memory and range sets.

use diskside_nvme::Status;
use diskside_nvme::wire::memory::{
    ComputeNamespace, MemoryNamespace, ProgramDescriptor, ProgramOccupancy, memory_log, program_types_page,
    range_sets_page,
};
use diskside_nvme::wire::{CSI_COMPUTE, CSI_SLM, PROGRAM_TYPE_EBPF};
use diskside_nvme::wire::{Sqe, cns};
use diskside_wire::function::program_state;
use zerocopy::{FromZeros, IntoBytes};

use super::MEMORY_GRANULARITY_EXPONENT;
use super::copy::COPY_RANGES_MAX;
use super::sets::{RANGE_GRANULARITY_EXPONENT, RANGE_SETS_MAX, RANGES_MAX};
use super::state::Standard;
use crate::call::context::CallContext;
use crate::environment::Environment;

const IDENTIFY_LEN: usize = 4096;

/// Identify of the two command sets (CNS 05h and 06h). Nothing is known of the latter: zeroes.
pub(crate) fn identify(standard: &Standard, compute: &Environment, sqe: &Sqe) -> Vec<u8> {
    let of_namespace = matches!(sqe.identify_cns(), cns::COMMAND_SET_NAMESPACE | cns::COMMAND_SET_ALLOCATED_NAMESPACE);
    let mut bytes = match sqe.identify_csi() {
        CSI_COMPUTE if of_namespace => {
            let mut id = ComputeNamespace::new_zeroed();
            id.programs_active_max.set(compute.config.active_programs);
            id.range_sets_max.set(RANGE_SETS_MAX);
            id.range_granularity_exponent.set(RANGE_GRANULARITY_EXPONENT);
            id.ranges_max = RANGES_MAX;
            id.program_mib_max.set(compute.config.program_memory.bytes() >> 20);
            id.as_bytes().to_vec()
        }
        CSI_SLM if of_namespace => {
            let mut id = MemoryNamespace::new_zeroed();
            id.size.set(standard.memory.len() as u64);
            id.granularity_exponent = MEMORY_GRANULARITY_EXPONENT;
            id.copy_ranges_max.set(COPY_RANGES_MAX);
            id.as_bytes().to_vec()
        }
        _ => Vec::new(),
    };
    bytes.resize(IDENTIFY_LEN, 0);
    bytes
}

/// A log page of the compute namespace.
pub(crate) fn log(standard: &Standard, context: &CallContext, lid: u8) -> Result<Vec<u8>, Status> {
    Ok(match lid {
        memory_log::PROGRAMS => programs(context),
        memory_log::PROGRAM_TYPES => program_types_page(&[PROGRAM_TYPE_EBPF]),
        memory_log::RANGE_SETS => range_sets_page(standard.sets().of(&context.host.nqn)),
        _ => return Err(Status::INVALID_LOG_PAGE.dnr()),
    })
}

/// The Program List: a record for each program index.
fn programs(context: &CallContext) -> Vec<u8> {
    let programs = &context.environment.programs;
    let mut list = vec![ProgramDescriptor::empty(); programs.indexes()];
    for program in programs.directory(&context.host.nqn, |program| context.may_run(program)).1 {
        let has = |bit| program.state & bit != 0;
        let occupancy = if has(program_state::DEVICE_DEFINED) {
            ProgramOccupancy::DeviceDefined
        } else {
            ProgramOccupancy::Downloaded
        };
        let puid = Some(program.puid.get()).filter(|puid| *puid != 0);
        if let Some(record) = list.get_mut(usize::from(program.pind.get())) {
            *record = ProgramDescriptor::new(occupancy, has(program_state::ACTIVE), program.program_type, puid);
        }
    }
    ProgramDescriptor::page(list.into_iter())
}
