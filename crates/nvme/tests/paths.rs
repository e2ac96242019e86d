//! One host with two paths: what each state lets through, and what the log page says of it.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use diskside_nvme::controller::{
    Access, BlockSize, CommandSet, MediumId, Namespace, PathState, SubsystemConfig, Visibility,
};
use diskside_nvme::host::{CommandError, Data};
use diskside_nvme::wire::{
    AnaGroup, AnaHeader, CSI_COMPUTE, IdentifyController, IdentifyNamespace, IndependentNamespace, PersistChange,
    RegisterAction, Sqe, cns, feature, log_page,
};
use diskside_nvme::{Nqn, Status};
use support::pair::{Pair, SUBSYSTEM, Target, admin_config, namespace};
use zerocopy::FromBytes;

use PathState::{Inaccessible, NonOptimized, Optimized};

/// Two volumes and a namespace of programs, and the host's two paths, over the listeners 0 and 1.
fn two_paths() -> (Pair, Pair) {
    let io_commands = vec![(0x81, 0)];
    let programs = CommandSet { csi: CSI_COMPUTE, io_commands, ..CommandSet::default() };
    let config =
        SubsystemConfig { command_sets: vec![programs], ..SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1") };
    let mut target = Target::with_config(config);
    target.add(1, 64, BlockSize::B512);
    target.add(3, 64, BlockSize::B512);
    let programs = Namespace { csi: CSI_COMPUTE, ..namespace(9, MediumId(9), 0, BlockSize::B512) };
    target.subsystem.add_namespace(programs).unwrap();
    let mut beside = target.beside();
    (target.config.listener, beside.config.listener) = (Some(0), Some(1));
    (Pair::connect(target, admin_config(SUBSYSTEM, 1)), Pair::connect(beside, admin_config(SUBSYSTEM, 1)))
}

fn set(pair: &Pair, states: [PathState; 2]) {
    pair.target.subsystem.set_path_states(states.to_vec());
}

fn status<T>(outcome: Result<T, CommandError>) -> Status {
    match outcome {
        Ok(_) => Status::SUCCESS,
        Err(CommandError::Status { status, .. }) => status,
        Err(error) => panic!("{error:?}"),
    }
}

/// The whole log page: its count of changes, and of its group, if it is there, the state and the namespaces.
fn paths(pair: &mut Pair, groups_only: bool, retain: bool) -> (u64, Option<(u8, Vec<u32>)>) {
    // Whatever else there was to tell.
    drop(pair.admin_events());
    let bytes = pair.admin(Sqe::ana_log(groups_only, 0, 4096, retain), Data::ReceiveBytes(4096)).unwrap().bytes;
    let (head, rest) = AnaHeader::read_from_prefix(&bytes).unwrap();
    if head.groups.get() == 0 {
        return (head.changes.get(), None);
    }
    let (group, rest) = AnaGroup::read_from_prefix(rest).unwrap();
    assert_eq!((head.groups.get(), group.group.get(), group.changes), (1, 1, head.changes));
    let nsids = rest.chunks_exact(4).map(|nsid| u32::from_le_bytes(nsid.try_into().unwrap()));
    let (namespaces, behind): (Vec<u32>, Vec<u32>) = {
        let all: Vec<u32> = nsids.collect();
        let (namespaces, behind) = all.split_at(group.namespaces.get() as usize);
        (namespaces.to_vec(), behind.to_vec())
    };
    assert!(behind.iter().all(|word| *word == 0), "zeroes are behind the page");
    (head.changes.get(), Some((group.state, namespaces)))
}

#[test]
fn each_state_lets_through_what_the_specification_says() {
    let (mut a, mut b) = two_paths();
    let mut outcomes = |state| {
        set(&a, [state, Optimized]);
        let send = |bytes: &[u8]| Data::SendBytes(bytes.to_vec());
        let register = Sqe::reservation_register(1, RegisterAction::Register, true, PersistChange::Keep);
        let io = [
            status(a.read(1, 0, 1, 512)),
            status(a.io(Sqe::write(1, 0, 1), send(&[7; 512]))),
            status(a.io(Sqe::flush(3), Data::None)),
            status(a.io(register, send(&[[0; 8], [1; 8]].concat()))),
        ];
        let admin = [
            status(a.admin(Sqe::identify(cns::NAMESPACE, 1, 0), Data::ReceiveBytes(4096))),
            status(a.admin(Sqe::ana_log(false, 0, 64, true), Data::ReceiveBytes(64))),
            status(a.admin(Sqe::get_features(feature::KEEP_ALIVE_TIMER, 0), Data::None)),
        ];
        assert_eq!(admin, [Status::SUCCESS; 3], "{state:?}");
        assert_eq!(status(b.read(1, 0, 1, 512)), Status::SUCCESS, "the other path is as it was");
        (io, status(a.admin(Sqe::get_features(feature::WRITE_ATOMICITY, 0), Data::None)))
    };
    for state in [Optimized, NonOptimized] {
        assert_eq!(outcomes(state), ([Status::SUCCESS; 4], Status::SUCCESS), "{state:?}");
    }
    let closed = Status::ANA_INACCESSIBLE;
    assert_eq!(outcomes(Inaccessible), ([closed; 4], closed), "and a host repeats them elsewhere: no DNR");
    assert_eq!(outcomes(Optimized).0, [Status::SUCCESS; 4], "it is open again");
}

#[test]
fn what_a_controller_says_of_paths() {
    let (mut a, _b) = two_paths();
    let mut identify = |cns, nsid| a.admin(Sqe::identify(cns, nsid, 0), Data::ReceiveBytes(4096)).unwrap().bytes;
    let id = IdentifyController::read_from_bytes(&identify(cns::CONTROLLER, 0)).unwrap();
    assert_eq!(id.multi_path, 0b1010, "several controllers, and their states");
    assert_eq!((id.ana_transition_s, id.ana_capabilities), (1, 0b100_0111));
    assert_eq!((id.ana_group_max.get(), id.ana_groups.get()), (1, 1));
    assert_eq!(id.async_events.get(), 1 << 8 | 1 << 11);
    for nsid in [1, 3] {
        let id = IdentifyNamespace::read_from_bytes(&identify(cns::NAMESPACE, nsid)).unwrap();
        assert_eq!(
            (id.ana_group.get(), id.utilization.get(), id.capacity_bytes[..4].to_vec()),
            (1, 64, vec![0, 128, 0, 0])
        );
    }
    for nsid in [1, 9] {
        let (id, _) = IndependentNamespace::read_from_prefix(&identify(cns::INDEPENDENT_NAMESPACE, nsid)).unwrap();
        assert_eq!(id.ana_group.get(), 1, "namespace {nsid}");
    }
    let pages = a.admin(Sqe::get_log_page(log_page::SUPPORTED_PAGES, 0, 1024, 0, false), Data::ReceiveBytes(1024));
    assert_eq!(pages.unwrap().bytes[usize::from(log_page::ANA) * 4], 1);
    set(&a, [Inaccessible; 2]);
    let id = a.admin(Sqe::identify(cns::NAMESPACE, 1, 0), Data::ReceiveBytes(4096)).unwrap().bytes;
    let id = IdentifyNamespace::read_from_bytes(&id).unwrap();
    assert_eq!((id.utilization.get(), id.capacity_bytes), (0, [0; 16]), "what may not be known is not told");
    assert_eq!((id.size.get(), id.capacity.get()), (64, 64), "but the volume is there");
}

#[test]
fn the_bytes_of_the_log_page() {
    let (mut a, _b) = two_paths();
    set(&a, [NonOptimized, Optimized]);
    let mut expected = vec![0; 64];
    expected[0] = 1;
    expected[8] = 1;
    expected[16] = 1;
    expected[20] = 3;
    expected[24] = 1;
    expected[32] = 2;
    (expected[48], expected[52], expected[56]) = (1, 3, 9);
    let mut read = |groups_only, offset, len| {
        a.admin(Sqe::ana_log(groups_only, offset, len, true), Data::ReceiveBytes(len)).unwrap().bytes
    };
    assert_eq!(read(false, 0, 64), expected, "60 bytes, and zeroes behind them");
    assert_eq!(read(false, 48, 12), expected[48..60], "its namespaces alone");
    let mut groups = expected[..48].to_vec();
    groups[20] = 0;
    assert_eq!(read(true, 0, 48), groups);
}

#[test]
fn changes_are_counted_for_the_hosts_that_they_concern() {
    let (mut a, mut b) = two_paths();
    for (states, counts) in [
        ([NonOptimized, Optimized], (1, 0)),
        ([NonOptimized, Optimized], (1, 0)),
        ([Inaccessible, Inaccessible], (2, 1)),
        ([Optimized, Inaccessible], (3, 1)),
    ] {
        set(&a, states);
        assert_eq!((paths(&mut a, false, true).0, paths(&mut b, true, true).0), counts, "{states:?}");
    }
    a.target.subsystem.set_path_states(Vec::new());
    assert_eq!((paths(&mut a, false, true), paths(&mut b, false, true)), {
        let page = Some((1, vec![1, 3, 9]));
        ((3, page.clone()), (2, page))
    });
}

#[derive(Debug)]
struct Sees(BTreeSet<u32>);

impl Visibility for Sees {
    fn access(&self, _host: &Nqn, namespace: &Namespace) -> Access {
        if self.0.contains(&namespace.nsid) { Access::Read } else { Access::None }
    }
}

#[test]
fn the_log_page_has_the_namespaces_that_the_host_sees() {
    let (mut a, _b) = two_paths();
    assert_eq!(paths(&mut a, false, false), (0, Some((1, vec![1, 3, 9]))));
    let subsystem = Arc::clone(&a.target.subsystem);
    subsystem.remove_namespace(3).unwrap();
    assert_eq!(paths(&mut a, false, false), (1, Some((1, vec![1, 9]))));
    let larger = Namespace { blocks: 128, ..subsystem.namespaces()[0].clone() };
    let smaller = subsystem.namespaces()[0].clone();
    subsystem.update_namespace(larger).unwrap();
    subsystem.update_namespace(smaller).unwrap();
    assert_eq!(paths(&mut a, false, false).0, 1, "sizes are not in the page");
    subsystem.set_visibility(Arc::new(Sees([9].into())));
    assert_eq!(paths(&mut a, false, false), (2, Some((1, vec![9]))));
    subsystem.set_visibility(Arc::new(Sees([].into())));
    assert_eq!(paths(&mut a, false, false), (3, None), "a group of none is not told");
    assert_eq!(paths(&mut a, true, false), (3, Some((1, vec![]))), "unless groups are what is asked for");
}

#[test]
fn a_queue_has_the_path_of_its_controller_and_a_host_of_this_process_has_all() {
    let (mut a, mut b) = two_paths();
    set(&a, [Inaccessible, Optimized]);
    // Its controller came through listener 1; the queue that it connects now comes through listener 0.
    b.target.config.listener = Some(0);
    let config = b.admin.io_queue_config(1).unwrap();
    b.io = None;
    b.run();
    let end = support::pair::ControllerEnd::new(b.target.accept(b.now));
    b.io = Some((diskside_nvme::host::Connection::new(config, b.now), end));
    b.run();
    assert!(b.io_event().is_some());
    assert_eq!(status(b.read(1, 0, 1, 512)), Status::SUCCESS);
    assert_eq!(status(a.read(1, 0, 1, 512)), Status::ANA_INACCESSIBLE);
    let mut own = a.target.beside();
    own.config.listener = None;
    let mut own = Pair::connect(own, admin_config(SUBSYSTEM, 1));
    assert_eq!(status(own.read(1, 0, 1, 512)), Status::SUCCESS);
    assert_eq!(paths(&mut own, false, false).1.unwrap().0, 1);
}
