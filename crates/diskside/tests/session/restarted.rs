//! Targets that go and come back.

use crate::world::{Served, at, numbers, serve, session};
use diskside::Location;
use diskside::session::{OpenMode, Policy, SessionError, Where};
use std::time::Duration;

/// A target that was restarted has forgotten handles and programs; the session gets them again.
#[test]
fn a_target_that_comes_back_is_used_on() {
    let served = Served::new();
    served.file("n", &numbers(10_000, 5));
    let address = served.address();
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("n")).unwrap();
    let source = served.dir.path().join("own.bpf.c");
    let text = "#include \"diskside.h\"\nSEC(\"read/own\")\n\
        __s64 own(__u64 *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        *out = in_len;\nreturn 8;\n}\n";
    std::fs::write(&source, text).unwrap();
    let own = session.function(&source).unwrap();
    let before = file.fold_fn(&own, &[], &at(Where::Device)).wait().unwrap();
    let Served { running, dir } = served;
    running.handle().stop_now();
    running.wait().unwrap();
    let _again = serve(dir.path(), &address);
    let after = file.fold_fn(&own, &[], &at(Where::Device)).wait().unwrap();
    assert_eq!((before.result, after.result), (80_000_u64.to_le_bytes().to_vec(), 80_000_u64.to_le_bytes().to_vec()));
}

/// A read that was under way failed, with one of five errors, though runs went on.
#[test]
fn a_read_under_way_goes_on_at_a_target_that_comes_back() {
    let served = Served::new();
    let bytes = numbers(4 << 20, 5);
    served.file("n", &bytes);
    let address = served.address();
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("n")).unwrap();
    let Served { mut running, dir } = served;
    for round in 0..6 {
        session.drop_cache();
        let read = file.pread(0, bytes.len());
        std::thread::sleep(Duration::from_millis(2 * round));
        running.handle().stop_now();
        running.wait().unwrap();
        running = serve(dir.path(), &address);
        assert!(read.wait().unwrap()[..] == bytes, "round {round}");
    }
    // Another version is not mixed with what was read before.
    session.drop_cache();
    let read = file.pread(0, bytes.len());
    running.handle().stop_now();
    running.wait().unwrap();
    let other = numbers(4 << 20, 6);
    std::fs::write(dir.path().join("n"), &other).unwrap();
    let _again = serve(dir.path(), &address);
    let read = read.wait();
    assert!(
        read.as_ref().map_or_else(
            |error| matches!(error, SessionError::Changed(_)),
            |read| read[..] == other || read[..] == bytes
        ),
        "{read:?}"
    );
}

/// Bytes that were written and not flushed may be gone with a target that was restarted. A read had the file opened
/// again, and the flush after it said that all was well.
#[test]
fn a_flush_after_a_restart_says_that_writes_before_may_be_lost() {
    let served = Served::new();
    served.file("bits", &[0; 4096]);
    let address = served.address();
    let session = session(Policy::Adaptive);
    let location = served.url("bits").parse::<Location>().unwrap();
    let file = session.open_as(&location, OpenMode::Write).unwrap();
    let bitmap = session.function("bitmap").unwrap();
    let input = || vec![3, 0xff, 5, 0x55];
    let Served { mut running, dir } = served;
    let writes: [&dyn Fn(); 3] = [
        &|| assert_eq!(file.pwrite(0, vec![7; 16], false).wait().unwrap(), 16),
        &|| drop(file.pwrite_fn(0, input(), &bitmap, &[], &at(Where::Device)).wait().unwrap()),
        &|| {
            file.pwrite(0, vec![7; 16], false).wait().unwrap();
            file.sync().wait().unwrap();
            file.pwrite(0, vec![8; 16], true).wait().unwrap();
        },
    ];
    // Writes, flushes and truncations failed until somebody read: nobody had the file opened again for them.
    for round in 0..4 {
        file.pwrite(0, vec![9; 16], false).wait().unwrap();
        if round % 2 == 0 {
            file.sync().wait().unwrap();
        }
        running.handle().stop_now();
        running.wait().unwrap();
        running = serve(dir.path(), &address);
        match round {
            0 => assert_eq!(file.pwrite(0, vec![7; 16], false).wait().unwrap(), 16),
            1 => drop(file.pwrite(0, vec![7; 16], true).wait().unwrap()),
            2 => file.truncate(4096).unwrap(),
            _ => {}
        }
        let flushed = file.sync().wait();
        assert_eq!(flushed.is_err(), round % 2 == 1, "round {round}: {flushed:?}");
        file.sync().wait().unwrap();
    }
    for (write, at_risk) in writes.into_iter().zip([true, true, false]) {
        write();
        running.handle().stop_now();
        running.wait().unwrap();
        running = serve(dir.path(), &address);
        file.pread(0, 16).wait().unwrap();
        let flushed = file.sync().wait();
        assert_eq!(flushed.is_err(), at_risk, "{flushed:?}");
        if let Err(error) = flushed {
            assert!(error.to_string().contains("may be lost, write it again"), "{error}");
            file.sync().wait().unwrap();
        }
    }
}

/// A function that wrote into a file failed at a target that had been restarted, where one that read went on.
#[test]
fn a_file_at_a_target_that_comes_back_is_written_on() {
    let served = Served::new();
    served.file("bits", &[0; 4096]);
    let address = served.address();
    let session = session(Policy::Adaptive);
    let location = served.url("bits").parse::<Location>().unwrap();
    let file = session.open_as(&location, OpenMode::Write).unwrap();
    let bitmap = session.function("bitmap").unwrap();
    let write = |offset| file.pwrite_fn(offset, vec![3, 0xff, 5, 0x55], &bitmap, &[], &at(Where::Device)).wait();
    let written = write(0).unwrap().written_bytes;
    let expanded = std::fs::read(served.dir.path().join("bits")).unwrap()[..written as usize].to_vec();
    assert!(expanded.iter().any(|byte| *byte != 0));
    let Served { running, dir } = served;
    running.handle().stop_now();
    running.wait().unwrap();
    let _again = serve(dir.path(), &address);
    assert_eq!(write(1000).unwrap().written_bytes, written);
    assert_eq!(std::fs::read(dir.path().join("bits")).unwrap()[1000..][..expanded.len()], expanded);
}

/// A server that was stopped ended in the middle of a call, which began again at the next one.
#[test]
fn a_call_that_runs_ends_before_its_target_does() {
    let served = Served::new();
    served.file("n", &numbers(1000, 5));
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("n")).unwrap();
    let source = served.dir.path().join("spin.bpf.c");
    let text = "#include \"diskside.h\"\nSEC(\"read/spin\")\n\
        __s64 spin(__u64 *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        for (volatile __u64 i = 0; i < 300000000; i++) ;\n*out = in_len;\nreturn 8;\n}\n";
    std::fs::write(&source, text).unwrap();
    let spin = session.function(&source).unwrap();
    let mut options = at(Where::Device);
    options.limits.budget = Some(1 << 40);
    let call = file.fold_fn(&spin, &[], &options);
    let handle = served.running.handle().clone();
    let compute = handle.compute().unwrap();
    let begun = || compute.statistics().0.started.get();
    // Loading the program is work, too.
    while begun() == 0 || compute.working() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    handle.stop();
    // Others are not taken any more: they would keep it from ending.
    let late = file.fold_fn(&spin, &[], &options);
    let ran = call.wait().unwrap();
    assert_eq!(ran.result, 8000_u64.to_le_bytes());
    let ended = std::time::Instant::now();
    served.running.wait().unwrap();
    assert!(ended.elapsed() < Duration::from_secs(5), "it does not wait for nothing: {:?}", ended.elapsed());
    assert_eq!(begun(), 1);
    drop(late);
}
