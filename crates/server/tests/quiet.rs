//! An end in good order is not worth a warning. Alone in its process, whose warnings it counts.

mod common;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{Controller, builder, start, tcp};
use diskside_nvme::wire::{Cc, Sqe, property};
use diskside_server::Running;
use diskside_server::config::VolumeSpec;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes warnings and errors.
struct Warnings;

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        // A warning about the machine, not about hosts.
        if !words.0.contains("instead of io_uring") {
            WARNINGS.lock().unwrap().push(words.0);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn wait_until_all_are_gone(running: &Running) {
    let until = Instant::now() + Duration::from_secs(20);
    while running.handle().stats().reactors.iter().any(|reactor| reactor.connections > 0) {
        assert!(Instant::now() < until, "connections are left after 20 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A controller's connections end in any order: a process that ends closes its sockets in the order of their numbers,
/// the admin queue's first, and with several reactors each sees its own at its own time. So the I/O queues of a host
/// that left in good order found their controller gone, and each of them warned of it.
#[test]
fn hosts_that_leave_are_no_warning_and_hosts_that_break_the_protocol_are() {
    tracing::subscriber::set_global_default(Warnings).unwrap();
    for reactors in [1, 2] {
        let running = start(builder().volume(VolumeSpec::new("data", "mem:1MiB").writable()).reactors(reactors));
        for shuts_down in [false, true] {
            let mut controller = Controller::connect(&running);
            let mut queues: Vec<_> = (1..=4).map(|id| controller.io_queue(id, 4)).collect();
            queues.iter_mut().for_each(|queue| drop(queue.read(1, 0, 1).ok()));
            if shuts_down {
                let cc = Cc::default().with_enable(1).with_iosqes(6).with_iocqes(4).with_shutdown(1);
                controller.admin.command(Sqe::property_set(property::CC, false, cc.0.into()), None, 0).ok();
            }
            drop(controller);
            queues.iter_mut().for_each(|queue| assert!(queue.step().is_err(), "it ends with its controller"));
            wait_until_all_are_gone(&running);
        }
        // The queues first, as our own host and Linux do.
        let controller = Controller::connect(&running);
        drop((controller.io_queue(1, 4), controller));
        wait_until_all_are_gone(&running);
        // A stop of the target under its hosts.
        let controller = Controller::connect(&running);
        let queue = controller.io_queue(1, 4);
        running.handle().stop();
        running.wait().unwrap();
        drop((queue, controller));
    }
    assert_eq!(WARNINGS.lock().unwrap().as_slice(), [""; 0]);

    let running = common::memory_target(1);
    std::io::Write::write_all(&mut tcp(running.handle().local_addresses()[0]), &[0xff; 64]).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while WARNINGS.lock().unwrap().is_empty() {
        assert!(Instant::now() < until, "no warning of a broken protocol within 20 s");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(WARNINGS.lock().unwrap()[0].contains("broke the protocol"), "{:?}", WARNINGS.lock().unwrap());
}
