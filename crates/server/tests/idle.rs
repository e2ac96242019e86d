//! Idle connections, in a process of their own so that nothing else takes memory meanwhile.

mod common;

use std::time::{Duration, Instant};

use common::{Controller, HOST, Queue, memory_target, tcp};

#[test]
fn a_thousand_idle_connections_cost_little_memory_and_no_time() {
    let running = memory_target(1);
    let address = running.handle().local_addresses()[0];
    let controller = Controller::connect(&running);
    let wait_for_connections = |holds: &dyn Fn(u64) -> bool| {
        let until = Instant::now() + Duration::from_secs(20);
        while !holds(running.handle().stats().reactors[0].connections) {
            assert!(Instant::now() < until, "not within 20 s");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let before = resident_bytes();
    let idle: Vec<Queue> = (1..=1000)
        .map(|turn| {
            let mut queue = Queue::negotiate(Box::new(tcp(address))).unwrap();
            if turn <= 60 {
                queue.connect(running.handle().nqn(), HOST, turn, 64, controller.id, 0).unwrap();
            }
            queue
        })
        .collect();
    wait_for_connections(&|count| count >= 1001);
    let each = (resident_bytes() - before) / 1000;
    println!("{each} bytes for an idle connection, the test's own half included");
    assert!(each < 16 << 10, "{each} bytes for an idle connection, the test's own half included");
    let turns = || running.handle().stats().reactors[0].turns;
    std::thread::sleep(Duration::from_millis(200));
    let (turns_before, began) = (turns(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let rate = (turns() - turns_before) as f64 / began.elapsed().as_secs_f64();
    assert!(rate < 50.0, "{rate} turns a second while nothing happens");
    drop(idle);
    wait_for_connections(&|count| count == 1);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
