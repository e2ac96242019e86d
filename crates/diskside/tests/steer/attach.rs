//! A target in the session's own process.

use crate::world::{NQN, at, numbers};
use diskside::embedded;
use diskside::host::ConnectOptions;
use diskside::session::{OpenMode, Session, SessionOptions, Where};
use diskside::target::Target;
use diskside::target::config::ExportSpec;

/// No socket at all: what a program that serves its own files does.
#[test]
fn a_target_of_this_process_is_used_by_the_name_that_it_was_given() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("n"), numbers(1000)).expect("written");
    let builder = Target::builder().nqn(NQN).listen([]).export(ExportSpec::new("data", dir.path()).writable());
    let running = builder.build().expect("a target").start().expect("started");
    assert!(running.handle().local_addresses().is_empty());
    let session = Session::new(SessionOptions::default());
    let connection = embedded::connect(running.handle(), &ConnectOptions::default()).expect("connected");
    session.attach("here", connection).expect("it runs functions");

    let file = session.open("diskside://here/data/n").expect("it is there");
    let stats = session.function("stats64").expect("shipped");
    let device = file.fold_fn(&stats, &[], &at(Where::Device)).wait().expect("it runs");
    let host = file.fold_fn(&stats, &[], &at(Where::Host)).wait().expect("it runs");
    assert_eq!(device.result, host.result);
    assert!(device.received_bytes < 1024, "{}", device.received_bytes);
    let made = session.open_as(&"diskside://here/data/made".parse().expect("a URL"), OpenMode::Create).expect("made");
    made.pwrite(0, numbers(3), true).wait().expect("written");
    assert_eq!(std::fs::read(dir.path().join("made")).expect("there"), numbers(3));

    let handle = running.handle().clone();
    handle.stop_now();
    running.wait().expect("stopped");
    let gone = embedded::connect(&handle, &ConnectOptions::default()).expect_err("it is gone");
    assert!(gone.to_string().contains("embedded target"), "{gone}");
}
