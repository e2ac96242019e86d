//! The controller's own answers and checks for memory namespaces; their commands are the embedder's.

mod support;

use diskside_nvme::controller::{BlockSize, CommandSet, MediumId, Namespace, SubsystemConfig};
use diskside_nvme::host::{CommandError, Data};
use diskside_nvme::wire::memory::{MemoryCopySource, memory_log, memory_opcode};
use diskside_nvme::wire::{CSI_COMPUTE, CSI_SLM};
use diskside_nvme::wire::{IdentifyController, IndependentNamespace, Sqe, cns};
use diskside_nvme::{Nqn, Status};
use support::pair::{Pair, SUBSYSTEM, Target, admin_config, namespace};
use zerocopy::{FromBytes, IntoBytes};

fn target(memory: bool) -> Target {
    let mut config = SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "0");
    if memory {
        let io_commands = memory_opcode::ALL.iter().map(|opcode| (*opcode, 0)).collect();
        config.command_sets.push(CommandSet { csi: CSI_SLM, io_commands, ..CommandSet::default() });
        config.command_sets.push(CommandSet { csi: CSI_COMPUTE, ..CommandSet::default() });
    }
    let mut target = Target::with_config(config);
    target.add(1, 1 << 10, BlockSize::B512);
    target.add(2, 1 << 10, BlockSize::B4096);
    if memory {
        for (nsid, csi) in [(7, CSI_SLM), (9, CSI_COMPUTE)] {
            let of = Namespace { csi, ..namespace(nsid, MediumId(u64::MAX), 0, BlockSize::B4096) };
            target.subsystem.add_namespace(of).unwrap();
        }
    }
    target
}

fn get(pair: &mut Pair, sqe: Sqe, len: u32) -> Result<Vec<u8>, Status> {
    match pair.admin(sqe, Data::ReceiveBytes(len)) {
        Ok(answer) => Ok(answer.bytes),
        Err(CommandError::Status { status, .. }) => Err(status),
        Err(error) => panic!("failed otherwise: {error}"),
    }
}

#[test]
fn namespaces_that_reach_each_other_are_told() {
    let mut pair = Pair::connect(target(true), admin_config(SUBSYSTEM, 1));
    let groups = get(&mut pair, Sqe::get_log_page(memory_log::REACHABILITY_GROUPS, 0, 256, 0, false), 256).unwrap();
    let words: Vec<u32> = groups[16..].chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
    assert_eq!(groups[8], 3, "a group for each command set");
    assert_eq!((words[0], words[1], words[8], words[9]), (1, 2, 1, 2), "group 1: two volumes, 1 and 2");
    assert_eq!((words[10], words[11], words[18]), (2, 1, 7), "group 2: the memory namespace");
    assert_eq!((words[19], words[20], words[27]), (3, 1, 9), "group 3: the compute namespace");
    let page = Sqe::get_log_page(memory_log::REACHABILITY_ASSOCIATIONS, 0, 128, 0, false);
    let associations = get(&mut pair, page, 128).unwrap();
    assert_eq!((associations[8], associations[16], associations[48], associations[52]), (2, 1, 1, 2));
    assert_eq!((associations[56], associations[88], associations[92]), (2, 2, 3));
    for (nsid, group) in [(1, 1), (2, 1), (7, 2), (9, 3)] {
        let bytes = get(&mut pair, Sqe::identify(cns::INDEPENDENT_NAMESPACE, nsid, 0), 4096).unwrap();
        assert_eq!(IndependentNamespace::read_from_prefix(&bytes).unwrap().0.reachability_group.get(), group);
    }
    let bytes = get(&mut pair, Sqe::identify(cns::CONTROLLER, 0, 0), 4096).unwrap();
    let id = IdentifyController::read_from_bytes(&bytes).unwrap();
    assert_eq!((id.reachability, id.copy_formats.get()), (1, 0b1_0101));
}

#[test]
fn without_memory_namespaces_nothing_is_told_of_them() {
    let mut pair = Pair::connect(target(false), admin_config(SUBSYSTEM, 1));
    for lid in [memory_log::REACHABILITY_GROUPS, memory_log::REACHABILITY_ASSOCIATIONS] {
        let refused = get(&mut pair, Sqe::get_log_page(lid, 0, 64, 0, false), 64).unwrap_err();
        assert!(refused.is(Status::INVALID_LOG_PAGE));
    }
    let bytes = get(&mut pair, Sqe::identify(cns::CONTROLLER, 0, 0), 4096).unwrap();
    let id = IdentifyController::read_from_bytes(&bytes).unwrap();
    assert_eq!((id.reachability, id.copy_formats.get()), (0, 0b101));
    let sources = [MemoryCopySource::new(7, 0, 512)];
    let refused = pair.io(Sqe::copy(1, 0, 1, 4), Data::SendBytes(sources.as_bytes().to_vec())).unwrap_err();
    assert!(matches!(refused, CommandError::Status { status, .. } if status.is(Status::INVALID_FIELD)), "{refused}");
}
