//! The discovery log: where the subsystem is, and what has changed.

mod common;

use common::{Controller, HOST, NQN, Queue, builder, memory_target, start, tcp};
use diskside_nvme::wire::{
    AsyncEventConfig, DiscoveryEntry, DiscoveryHeader, Sqe, admin_opcode, feature, log_page, subsystem_type,
};
use diskside_server::config::VolumeSpec;
use zerocopy::{FromBytes, IntoBytes};

fn discovery_log(controller: &mut Controller) -> (u64, Vec<DiscoveryEntry>) {
    let log = controller.admin.command(Sqe::get_log_page(log_page::DISCOVERY, 0, 8192, 0, false), None, 8192).ok();
    let header = DiscoveryHeader::read_from_prefix(&log).unwrap().0;
    let entries = log[1024..].chunks(1024).take(header.records.get() as usize);
    (header.generation.get(), entries.map(|entry| DiscoveryEntry::read_from_bytes(entry).unwrap()).collect())
}

fn text(field: &[u8]) -> &str {
    std::str::from_utf8(field).unwrap().trim_end_matches(['\0', ' '])
}

#[test]
fn the_discovery_service_on_the_same_port_tells_where_to_connect() {
    let running = memory_target(1);
    let address = running.handle().local_addresses()[0];
    let (_, entries) = discovery_log(&mut Controller::discovery(&running, HOST));
    let found = entries.iter().find(|entry| entry.kind == subsystem_type::NVM).unwrap();
    assert_eq!(text(&found.nqn), NQN);
    assert_eq!(text(&found.address), address.ip().to_string());
    assert_eq!(text(&found.service), address.port().to_string());
}

#[test]
fn both_families_are_listened_on_and_told() {
    let running = start(builder().listen(["[::1]:0".parse().unwrap()]));
    let [v4, v6] = running.handle().local_addresses() else { panic!("two addresses") };
    let (_, entries) = discovery_log(&mut Controller::discovery(&running, HOST));
    let mut told: Vec<&str> =
        entries.iter().filter(|entry| entry.kind == subsystem_type::NVM).map(|entry| text(&entry.address)).collect();
    told.sort_unstable();
    assert_eq!(told, ["127.0.0.1", "::1"]);
    assert_ne!(v4.port(), 0);
    Queue::negotiate(Box::new(tcp(*v6))).unwrap();
}

#[test]
fn another_address_can_be_advertised() {
    let settings = diskside_server::config::Settings {
        listen: Some(vec!["127.0.0.1:0".parse().unwrap()]),
        advertise: Some(vec!["192.0.2.7:4420".parse().unwrap()]),
        ..Default::default()
    };
    let config = diskside_server::config::ServeConfig::resolve(settings).unwrap();
    let running = start(diskside_server::Target::builder().config(config));
    let (_, entries) = discovery_log(&mut Controller::discovery(&running, HOST));
    let found = entries.iter().find(|entry| entry.kind == subsystem_type::NVM).unwrap();
    assert_eq!((text(&found.address), text(&found.service)), ("192.0.2.7", "4420"));
}

#[test]
fn a_host_that_may_not_connect_does_not_find_it() {
    let running = memory_target(1);
    running.handle().set_hosts(&["nqn.2026-11.org.example:other".into()]).unwrap();
    let of_kind = |entries: &[DiscoveryEntry]| entries.iter().filter(|e| e.kind == subsystem_type::NVM).count();
    assert_eq!(of_kind(&discovery_log(&mut Controller::discovery(&running, HOST)).1), 0);
    let mut other = Controller::discovery(&running, "nqn.2026-11.org.example:other");
    assert_eq!(of_kind(&discovery_log(&mut other).1), 1);
}

/// Each reload counted two generations and told hosts of a change, though nothing of the log had changed: a host that reads the log
/// until its generation stays the same had to read it once more for each.
#[test]
fn a_generation_of_the_log_is_one_in_which_it_changed() {
    let running = start(builder().volume("data=mem:1MiB,rw".parse().unwrap()));
    let handle = running.handle();
    let mut controller = Controller::discovery(&running, HOST);
    let (first, entries) = discovery_log(&mut controller);
    let mut config = handle.config();
    config.volumes.push(VolumeSpec::new("more", "mem:1MiB").writable());
    for _ in 0..2 {
        handle.reload(&config).unwrap();
        assert_eq!(discovery_log(&mut controller).0, first, "volumes are not in it");
    }
    assert_eq!(handle.volumes().len(), 2, "it was read");
    // Hidden from this host, shown again, and both at once to others only.
    let mut generation = first;
    let other = "nqn.2026-11.org.example:other".to_owned();
    let cases = [(vec![other.clone()], 0), (vec![HOST.to_owned(), other], 1), (Vec::new(), 1)];
    for (hosts, shown) in cases {
        config.hosts = hosts;
        handle.reload(&config).unwrap();
        let (now, entries) = discovery_log(&mut controller);
        let count = entries.iter().filter(|entry| entry.kind == subsystem_type::NVM).count();
        assert_eq!((now, count), (generation + 1, shown), "{:?}", config.hosts);
        generation = now;
        handle.reload(&config).unwrap();
        assert_eq!(discovery_log(&mut controller).0, generation);
    }
    assert!(discovery_log(&mut controller).1.as_slice().as_bytes() == entries.as_slice().as_bytes());
}

#[test]
fn a_volume_that_comes_or_goes_is_an_event() {
    let running = memory_target(1);
    let mut controller = Controller::connect(&running);
    let config = AsyncEventConfig::NAMESPACE_ATTRIBUTE;
    controller.admin.command(Sqe::set_features(feature::ASYNC_EVENT_CONFIG, config), None, 0).ok();
    for change in 0..2 {
        let event = controller.admin.post(Sqe::new(admin_opcode::ASYNC_EVENT_REQUEST, 0), None, 0).unwrap();
        if change == 0 {
            running.handle().add_volume(&VolumeSpec::new("more", "mem:1MiB").writable()).unwrap();
        } else {
            running.handle().remove_volume("more").unwrap();
        }
        let event = controller.admin.wait(event).unwrap();
        assert_eq!(event.result & 0xff_ffff, 0x04_00_02, "a notice: namespace attribute changed, log page 04h");
        let sqe = Sqe::get_log_page(log_page::CHANGED_NAMESPACES, 0, 4096, 0, false);
        let log = controller.admin.command(sqe, None, 4096).ok();
        assert_eq!(log[..8], [2, 0, 0, 0, 0, 0, 0, 0], "namespace 2 and no other");
    }
}
