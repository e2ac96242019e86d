//! Two listeners of one server are two paths, of which one is closed, and the configuration that is read again opens it.

mod common;

use common::{Controller, NQN, start};
use diskside_nvme::Status;
use diskside_nvme::wire::{AnaGroup, AsyncEventConfig, Sqe, admin_opcode, feature, log_page};
use diskside_server::config::{ListenSpec, PathState, ServeConfig, Settings};
use diskside_server::{Running, Target};
use zerocopy::FromBytes;

fn config(listen: &str) -> ServeConfig {
    let text = format!(
        "nqn = '{NQN}'\nreactors = 2\nlisten = {listen}\n[[volume]]\nname = 'data'\npath = 'mem:1MiB'\nrw = true\n"
    );
    ServeConfig::resolve(Settings::from_toml(&text, "d.toml").unwrap()).unwrap()
}

fn target(listen: &str) -> Running {
    start(Target::builder().config(config(listen)))
}

fn state(controller: &mut Controller) -> u8 {
    let page = controller.admin.command(Sqe::ana_log(false, 0, 64, false), None, 64).ok();
    AnaGroup::read_from_prefix(&page[16..]).unwrap().0.state
}

const READ_LEN: usize = 4096;

#[test]
fn a_path_is_a_listener_and_its_state_changes_while_hosts_are_connected() {
    let running = target("['127.0.0.1:0', '127.0.0.1:0,path=inaccessible']");
    // As many connections of each path as reactors, and more: they are on both.
    let mut paths = [0, 1].map(|listener| {
        let mut controller = Controller::through(&running, listener);
        let notices = AsyncEventConfig::ASYMMETRIC_ACCESS;
        controller.admin.command(Sqe::set_features(feature::ASYNC_EVENT_CONFIG, notices), None, 0).ok();
        let queues = [1, 2, 3].map(|queue| controller.io_queue(queue, 32));
        (controller, queues)
    });
    let outcomes = |paths: &mut [(Controller, [common::Queue; 3]); 2]| {
        [0, 1].map(|path| {
            let (controller, queues) = &mut paths[path];
            let ended = queues.each_mut().map(|queue| queue.command(Sqe::read(1, 0, 1), None, READ_LEN).status);
            assert!(ended.iter().all(|one| *one == ended[0]), "{ended:?}");
            (state(controller), ended[0])
        })
    };
    let (open, closed) = (Status::SUCCESS, Status::ANA_INACCESSIBLE);
    assert_eq!(outcomes(&mut paths), [(1, open), (3, closed)]);

    let events: Vec<u16> = paths
        .iter_mut()
        .map(|(controller, _)| controller.admin.post(Sqe::new(admin_opcode::ASYNC_EVENT_REQUEST, 0), None, 0).unwrap())
        .collect();
    let reloaded =
        running.handle().reload(&config("['127.0.0.1:0,path=inaccessible', '127.0.0.1:0,path=non-optimized']"));
    let reloaded = reloaded.unwrap();
    let [a, b] = running.handle().local_addresses() else { panic!("two addresses") };
    assert_eq!(reloaded.paths, [format!("{a} inaccessible"), format!("{b} non-optimized")]);
    assert!(reloaded.waiting.is_empty(), "{:?}", reloaded.waiting);
    let states =
        [(a, "inaccessible"), (b, "non-optimized")].map(|(address, state)| (address.to_string(), state.to_owned()));
    assert_eq!(running.handle().stats().paths, states);
    for ((controller, _), event) in paths.iter_mut().zip(events) {
        let told = controller.admin.wait(event).unwrap().result;
        assert_eq!(told, 2 | 3 << 8 | u64::from(log_page::ANA) << 16);
    }
    assert_eq!(outcomes(&mut paths), [(3, closed), (2, open)]);
    let listen = running.handle().config().listen;
    assert_eq!(
        listen.iter().map(|one| one.path).collect::<Vec<_>>(),
        [PathState::Inaccessible, PathState::NonOptimized]
    );
    // The host that comes now finds the same.
    assert_eq!(state(&mut Controller::through(&running, 0)), 3);
    assert_eq!(running.handle().reload(&running.handle().config()).unwrap().paths, [""; 0]);
}

#[test]
fn a_listener_that_the_file_no_longer_names_stays_as_it_is() {
    let running = target("['127.0.0.1:0', '127.0.0.2:0,path=inaccessible']");
    let reloaded = running.handle().reload(&config("['127.0.0.1:0,path=non-optimized']")).unwrap();
    assert_eq!((reloaded.paths.len(), reloaded.waiting), (1, vec!["listen"]));
    assert_eq!([0, 1].map(|listener| state(&mut Controller::through(&running, listener))), [2, 3]);
}

#[test]
fn sockets_that_the_process_was_given_have_the_states_of_their_addresses() {
    let sockets = [0, 1].map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let closed = sockets[1].local_addr().unwrap();
    let config = config(&format!("['127.0.0.1:4420', '{closed},path=inaccessible']"));
    let running = start(Target::builder().config(config.clone()).inherited(sockets.into()));
    assert_eq!([0, 1].map(|listener| state(&mut Controller::through(&running, listener))), [1, 3]);
    let mut open = config;
    open.listen[1].path = PathState::Optimized;
    let reloaded = running.handle().reload(&open).unwrap();
    assert_eq!((reloaded.paths, reloaded.waiting), (vec![format!("{closed} optimized")], vec![]));
}

#[test]
fn an_embedder_names_paths() {
    let address = "127.0.0.1:0".parse().unwrap();
    let paths = PathState::ALL.map(|path| ListenSpec { address, path });
    let running = start(Target::builder().nqn(NQN).listen_as(paths).volume("data=mem:1MiB".parse().unwrap()));
    assert_eq!([0, 1, 2].map(|listener| state(&mut Controller::through(&running, listener))), [1, 2, 3]);
    let mut own = Controller::connect_loop(&running);
    assert_eq!(state(&mut own), 1, "a host in the server's process needs no path");
}
