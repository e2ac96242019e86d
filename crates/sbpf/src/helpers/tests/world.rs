//! `ds_log`, `ds_now` and `ds_fail`.

use super::*;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Recorder {
    lines: Arc<Mutex<Vec<Vec<u8>>>>,
    failures: Arc<Mutex<Vec<Vec<u8>>>>,
    now: u64,
}

impl Environment for Recorder {
    fn log(&mut self, message: &[u8]) {
        self.lines.lock().unwrap().push(message.to_vec());
    }

    fn fail(&mut self, why: &[u8]) {
        self.failures.lock().unwrap().push(why.to_vec());
    }

    fn now_ns(&mut self) -> u64 {
        self.now += 5;
        self.now
    }
}

#[test]
fn lines_reach_the_environment_cut_to_their_limit() {
    let recorder = Recorder::default();
    let mut host = Host::with(0, Box::new(recorder.clone()));
    let text = vec![b'x'; 3000];
    host.over("ds_log", &text, &[INPUT, 5]).unwrap();
    host.over("ds_log", &text, &[INPUT, 3000]).unwrap();
    host.over("ds_log", &text, &[INPUT, 0]).unwrap();
    assert_eq!(recorder.lines.lock().unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [5, 256, 0]);
}

#[test]
fn the_clock_is_the_environments() {
    let mut host = Host::with(0, Box::new(Recorder::default()));
    assert_eq!([host.call("ds_now", &[]), host.call("ds_now", &[])], [Ok(5), Ok(10)]);
}

#[test]
fn a_failure_has_its_words_and_its_number() {
    let recorder = Recorder::default();
    let mut host = Host::with(0, Box::new(recorder.clone()));
    let text = vec![b'x'; 3000];
    assert_eq!(host.over("ds_fail", &text, &[22, INPUT, 5]), Ok((-22_i64).cast_unsigned()));
    assert_eq!(host.over("ds_fail", &text, &[0, INPUT, 3000]), Ok(0));
    assert!(host.over("ds_fail", &text, &[1, INPUT, 3001]).is_err());
    assert_eq!(recorder.failures.lock().unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [5, 256]);
}

#[test]
fn effects_are_declared() {
    for helper in standard().iter() {
        let does_io = helper.name == "ds_log" || helper.effects.uses_files;
        assert_eq!(helper.effects.does_io, does_io, "{}", helper.name);
        assert_eq!(helper.effects.uses_clock, helper.name == "ds_now", "{}", helper.name);
    }
}
