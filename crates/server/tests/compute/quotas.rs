//! Quotas: each is hit with what it says, is there again when something is given back, and bears on no other host.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::client::{Client, VOLUME, locally, object, start};
use crate::common::{Controller, Queue, builder, pattern, tcp};
use crate::standard::{compiled, compiled_with};
use diskside_nvme::Status;
use diskside_nvme::wire::{CONTROLLER_ID_DYNAMIC, Sqe};
use diskside_server::config::{ServeConfig, Settings, Size};
use diskside_server::{Running, TargetBuilder};
use diskside_wire::function::{
    CapabilityPage, Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, StateName, StatisticsEntry,
    StatisticsPage, function_log, quota_limit, statistics_kind,
};

const ANN: &str = "nqn.2026-11.org.example:ann";
pub(crate) const BOB: &str = "nqn.2026-11.org.example:bob";
const FREE: u16 = 200;
const MIB: u64 = 1 << 20;

fn config(quotas: &str) -> ServeConfig {
    config_of(&format!("[[host]]\nname = 'ann'\nnqn = '{ANN}'\ngroups = ['readers']\n{quotas}"))
}

/// With hosts beside bob, and with quotas.
pub(crate) fn config_of(more: &str) -> ServeConfig {
    let text = format!(
        "[[host]]\nname = 'bob'\nnqn = '{BOB}'\n\
         [[volume]]\nname = 'data'\npath = 'mem:16MiB'\nrw = true\nnsid = {VOLUME}\n{more}"
    );
    ServeConfig::resolve(Settings::from_toml(&text, "a test").unwrap()).unwrap()
}

pub(crate) fn target(quotas: &str) -> Running {
    target_of(builder(), quotas)
}

fn target_of(builder: TargetBuilder, quotas: &str) -> Running {
    let config = config(quotas);
    let mut builder = builder.volume(config.volumes[0].clone()).limits(|limits| {
        limits.transfer = Size::from_mib(4);
    });
    for host in &config.known_hosts {
        builder = builder.host(host.clone());
    }
    start(config.quotas.iter().cloned().fold(builder, |builder, quota| builder.quota(quota)))
}

/// The statistics of the quota of this name, as a host gets them.
fn told(client: &mut Client, name: &str) -> Option<StatisticsEntry> {
    let (_, entries) = StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap();
    entries.into_iter().find(|entry| entry.kind == statistics_kind::QUOTA && entry.name() == name)
}

/// The statistics of a limit of the quota of this name.
pub(crate) fn limit(client: &mut Client, name: &str, number: u32) -> StatisticsEntry {
    let (_, entries) = StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap();
    let is_limit = |entry: &StatisticsEntry| entry.kind == statistics_kind::QUOTA_LIMIT && entry.id.get() == number;
    let found = entries.into_iter().find(|entry| is_limit(entry) && entry.name() == name);
    found.unwrap_or_else(|| panic!("{name} has no limit {number}"))
}

/// How much of it a host has, may have, and was refused.
fn level(client: &mut Client, name: &str, number: u32) -> [u64; 3] {
    let entry = limit(client, name, number);
    [entry.written.get(), entry.read.get(), entry.failed.get()]
}

fn refusals(client: &mut Client) -> u64 {
    told(client, "ann").unwrap().failed.get()
}

fn capabilities(client: &mut Client) -> CapabilityPage {
    CapabilityPage::decode(&client.log(function_log::CAPABILITIES, 0)).unwrap().0
}

#[test]
fn a_host_has_so_many_connections_and_one_that_ends_makes_room() {
    let running = target("[[quota]]\nof = ['ann']\nconnections = 3\n");
    let busy = Status::CONNECT_CONTROLLER_BUSY;
    let mut ann = Client::connect_as(&running, ANN);
    let second = ann.controller.io_queue(2, 64);
    let connect = |host: &str, queue_id: u16, controller: u16| {
        let mut queue = Queue::negotiate(Box::new(tcp(running.handle().local_addresses()[0]))).unwrap();
        queue.connect(running.handle().nqn(), host, queue_id, 32, controller, 0)
    };
    assert_eq!(connect(ANN, 3, ann.controller.id), Err(busy));
    assert_eq!(connect(ANN, 0, CONTROLLER_ID_DYNAMIC), Err(busy), "a further controller is a connection, too");
    let bob = Client::connect_as(&running, BOB);
    let _more: Vec<_> = (2..8).map(|queue_id| bob.controller.io_queue(queue_id, 32)).collect();
    assert_eq!(refusals(&mut ann), 2);
    assert_eq!(level(&mut ann, "ann", quota_limit::CONNECTIONS), [3, 3, 2]);
    assert!(told(&mut ann, "bob").is_none(), "it has none");
    ann.queue.read(VOLUME, 0, 1).ok();
    // The target sees the end of a connection in its own time.
    drop(second);
    let began = Instant::now();
    while connect(ANN, 4, ann.controller.id) == Err(busy) {
        assert!(began.elapsed() < Duration::from_secs(20), "a place was never given back");
        std::thread::sleep(Duration::from_millis(2));
    }
    // Who is over what it may have now keeps what it has.
    running.handle().reload_hosts(&config("[[quota]]\nof = ['readers']\nconnections = 2\n")).unwrap();
    ann.queue.read(VOLUME, 0, 1).ok();
    assert_eq!(Controller::connect_as(running.handle(), ANN, 0).err(), Some(busy));
    running.handle().reload_hosts(&config("")).unwrap();
    Controller::connect_as(running.handle(), ANN, 0).unwrap();
}

#[test]
fn a_host_loads_so_many_programs_and_has_states_of_so_many_bytes() {
    let running =
        target("[[quota]]\nof = ['*']\nprograms = 2\nstate = '1MiB'\n[[quota]]\nof = ['bob']\nprograms = 32\n");
    let (mut ann, mut bob) = (Client::connect_as(&running, ANN), Client::connect_as(&running, BOB));
    assert_eq!(
        (capabilities(&mut ann).host_programs_max.get(), capabilities(&mut bob).host_programs_max.get()),
        (2, 32)
    );
    for index in 0..2 {
        ann.load(FREE + index, object("wc")).ok();
    }
    ann.load(FREE + 2, object("wc")).fails_with(Status::INSUFFICIENT_PROGRAM_RESOURCES.dnr());
    assert_eq!(ann.said().1, "this host has 2 programs, all that it may have; unload one");
    for index in 3..8 {
        bob.load(FREE + index, object("wc")).ok();
    }
    ann.controller.admin.command(Sqe::unload_program(crate::client::COMPUTE, FREE), None, 0).ok();
    ann.load(FREE + 2, object("wc")).ok();
    assert_eq!(refusals(&mut ann), 1);
    assert_eq!(level(&mut ann, "ann", quota_limit::PROGRAMS), [2, 2, 1]);
    assert_eq!(level(&mut ann, "bob", quota_limit::PROGRAMS), [5, 32, 0]);

    ann.controller.admin.command(Sqe::unload_program(crate::client::COMPUTE, FREE + 1), None, 0).ok();
    ann.load_counter(FREE);
    let state = |client: &mut Client, name: &str, len_bytes: u64| {
        let counts = client.counts(false);
        FunctionRequest { state: Some(StateName { name: name.into(), len_bytes: len_bytes as u32 }), ..counts }
    };
    let kept = state(&mut ann, "a", MIB - 64);
    ann.result(&kept);
    let more = state(&mut ann, "b", 128);
    let said = "this host has 1 named states of 1048512 bytes, and its quota, `state`, allows 1048576 bytes of them";
    ann.is_refused(FunctionKind::Read, &more, Status::INSUFFICIENT_RESOURCES.dnr(), said);
    let fits = state(&mut ann, "b", 64);
    ann.result(&fits);
    bob.load_counter(FREE + 20);
    let own = state(&mut bob, "b", MIB);
    bob.result(&own);
    assert_eq!(refusals(&mut ann), 2);
    assert_eq!(level(&mut bob, "ann", quota_limit::STATE), [MIB, MIB, 1]);
    assert_eq!(level(&mut bob, "ann", quota_limit::PROGRAMS), [2, 2, 1], "each has its own");
    drop(ann);
    let began = Instant::now();
    while level(&mut bob, "ann", quota_limit::STATE) != [0, MIB, 1] {
        assert!(began.elapsed() < Duration::from_secs(20), "who is gone has nothing, and keeps its counters");
    }
}

#[test]
fn calls_of_a_host_and_what_is_kept_for_it_stay_within_its_memory() {
    let running = target("[[quota]]\nof = ['ann']\nmemory = '128MiB'\n");
    let (mut ann, mut bob) = (Client::connect_as(&running, ANN), Client::connect_as(&running, BOB));
    assert_eq!(
        (capabilities(&mut ann).host_memory_max.get(), capabilities(&mut bob).host_memory_max.get()),
        (128 * MIB, 512 * MIB)
    );
    // A call that may need 150 MiB.
    let greedy = compiled_with("output", &["-DNUMERATOR=1", "-DCONSTANT=157286400ull"]);
    for (client, pind) in [(&mut ann, FREE), (&mut bob, FREE + 1)] {
        client.fill(&[1; 4096]);
        client.load(pind, &greedy).ok();
        client.activate(pind, true).ok();
    }
    let over = |pind: u16| FunctionRequest {
        sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, 4096)],
        ..FunctionRequest::new(FunctionKind::Read, pind)
    };
    let (result, trailer) = ann.run(&over(FREE));
    assert_eq!((trailer.outcome, result.len()), (Outcome::Refused, 0));
    assert!(trailer.message.contains("all calls of a host together have 100663296;"), "{}", trailer.message);
    assert_eq!(bob.result(&over(FREE + 1)), [7]);
    assert_eq!(refusals(&mut ann), 1);
    let usual = ann.over("stats64", &[], 4096);
    assert_eq!(ann.result(&usual), locally("stats64", &[], &[1; 4096]), "what needs less runs");
    // A quarter is for what is kept, an eighth of that for what somebody waits for.
    ann.load_counter(FREE + 2);
    bob.load_counter(FREE + 3);
    let state = |client: &mut Client, name: &str| {
        let counts = client.counts(false);
        FunctionRequest { state: Some(StateName { name: name.into(), len_bytes: 15 << 20 }), ..counts }
    };
    let (first, large, own) = (state(&mut ann, "first"), state(&mut ann, "large"), state(&mut bob, "large"));
    ann.result(&first);
    let tag = ann.tag();
    ann.send(tag, &large).fails_with(Status::INSUFFICIENT_RESOURCES.dnr());
    let said = ann.said().1;
    assert!(said.starts_with("no room for 15728") && said.contains("its quota, `memory`, says how many"), "{said}");
    bob.result(&own);
    assert_eq!(refusals(&mut ann), 2);
    let [used, max, refused] = level(&mut bob, "ann", quota_limit::MEMORY);
    assert!((15 << 20..max).contains(&used) && (max, refused) == (128 * MIB, 2), "{used} of {max}, {refused}");
    running.handle().reload_hosts(&config("")).unwrap();
    ann.result(&large);
}

/// The rule for turns was tested without a target, so nobody would have noticed if a quota did not reach it. Here two hosts want the
/// only engine: with equal shares the short call overtakes the long one, and with a small share it ends after it. The test
/// looks at the order of the answers, and not at times.
#[test]
fn a_host_with_a_small_cpu_share_waits_for_one_with_a_large_one() {
    // These take many turns.
    const TRIPS: u64 = 1 << 29;
    let shares = "[[quota]]\nof = ['ann']\ncpu_share = 10000\n[[quota]]\nof = ['bob']\ncpu_share = 1\n";
    for (quotas, expected) in [("", ["bob", "ann"]), (shares, ["ann", "bob"])] {
        let running = target_of(builder().compute(|compute| compute.engines = 1), quotas);
        let spin = compiled("spin");
        let ready = |host: &str, pind: u16| {
            let mut client = Client::connect_as(&running, host);
            client.load(pind, &spin).ok();
            client.activate(pind, true).ok();
            client
        };
        let (mut ann, mut bob) = (ready(ANN, FREE), ready(BOB, FREE + 1));
        let begin = |client: &mut Client, pind: u16, trips: u64| {
            let sources = vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, 4096)];
            let (args, budget) = (trips.to_le_bytes().to_vec(), u64::MAX);
            let request = FunctionRequest { args, sources, budget, ..FunctionRequest::new(FunctionKind::Read, pind) };
            let tag = client.tag();
            client.send(tag, &request).ok();
            tag
        };
        let (long, short) = (begin(&mut ann, FREE, 4 * TRIPS), begin(&mut bob, FREE + 1, TRIPS));
        let (sender, ended) = mpsc::channel();
        std::thread::scope(|scope| {
            for (name, (mut client, tag)) in [("ann", (ann, long)), ("bob", (bob, short))] {
                let sender = sender.clone();
                scope.spawn(move || {
                    let (result, trailer) = client.finish(tag);
                    sender.send(name).unwrap();
                    assert_eq!((trailer.outcome, &result[..]), (Outcome::Ok, &[7][..]), "{}", trailer.message);
                });
            }
        });
        assert_eq!(ended.try_iter().collect::<Vec<_>>(), expected, "{quotas}");
    }
}

#[test]
fn commands_beyond_a_hosts_rate_wait_and_nobody_elses_do() {
    let running = target("[[quota]]\nof = ['ann']\niops = 200\n");
    let (mut ann, mut bob) = (Client::connect_as(&running, ANN), Client::connect_as(&running, BOB));
    bob.fill(&pattern(4 << 20, 1));
    // Fifty milliseconds' worth pass at once; the rest takes a second for each two hundred, however many queues ask.
    let (began, mut other) = (Instant::now(), ann.controller.io_queue(2, 64));
    for queue in [&mut ann.queue, &mut other] {
        let posted: Vec<u16> = (0..40).map(|_| queue.post(Sqe::read(VOLUME, 0, 1), None, 4096).unwrap()).collect();
        posted.into_iter().for_each(|cid| drop(queue.wait(cid).unwrap().ok()));
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300), "80 commands took {took:?}");

    // A large command passes, and the next waits for what it took.
    running.handle().reload_hosts(&config("[[quota]]\nof = ['ann']\nbytes_per_s = '64KiB'\n")).unwrap();
    assert_eq!(ann.queue.read(VOLUME, 0, 1024).ok(), pattern(4 << 20, 1));
    let waits = other.post(Sqe::read(VOLUME, 0, 1), None, 4096).unwrap();
    for _ in 0..100 {
        bob.queue.write(VOLUME, 0, &pattern(4096, 1)).ok();
    }
    // For a minute, unless it may take more. Nobody here waits for so long.
    running.handle().reload_hosts(&config("[[quota]]\nof = ['ann']\niops = 1000000\n")).unwrap();
    assert_eq!(other.wait(waits).unwrap().ok(), pattern(4096, 1));
    let entry = told(&mut bob, "ann").unwrap();
    assert!(entry.operations.get() >= 2 && entry.busy_us.get() > 0, "{entry:?}");
    assert_eq!(entry.failed.get(), 0);
}

#[test]
fn a_target_that_stops_does_not_wait_for_rates() {
    let running = target("[[quota]]\nof = ['ann']\nbytes_per_s = '64KiB'\n");
    let (mut ann, mut bob) = (Client::connect_as(&running, ANN), Client::connect_as(&running, BOB));
    ann.queue.read(VOLUME, 0, 1024).ok();
    let waits = ann.queue.post(Sqe::read(VOLUME, 0, 1), None, 4096).unwrap();
    let began = Instant::now();
    while told(&mut bob, "ann").unwrap().operations.get() == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "it never waited");
    }
    running.handle().stop();
    assert_eq!(ann.queue.wait(waits).unwrap().ok().len(), 4096);
    running.wait().unwrap();
}
