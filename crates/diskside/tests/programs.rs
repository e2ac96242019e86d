//! The host's client of a compute namespace: prepared calls, cancelling, loading and unloading.

use diskside::host::function::{
    Compute, Endpoint, Files, FunctionError, FunctionKind, FunctionRequest, Program, RemoteFile,
};
use diskside::host::{ConnectOptions, Connection, KeySource};
use diskside::io::request::block_on;
use diskside::session::{Plan, RunOptions, Session, SessionFunction, SessionOptions, Side, Where};
use diskside::target::config::{ExportSpec, HostSpec, KeyFile, Requirement};
use diskside::target::{Running, Target, TargetBuilder};
use diskside::wire::file::FileFlags;
use diskside::wire::function::Outcome;
use diskside_nvme::Status;
use diskside_nvme::auth::{Hash, TlsSecret};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-11.org.example:programs";
/// Longer than any of this takes, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A target with a file of 64 bytes, and a client of it.
struct Fixture {
    running: Running,
    dir: tempfile::TempDir,
    compute: Compute,
    /// Its handle is valid as long as it is held.
    file: RemoteFile,
    session: Session,
}

impl Fixture {
    fn new() -> Self {
        Self::of(Target::builder())
    }

    fn of(builder: TargetBuilder) -> Self {
        Self::reached(builder, "nvme-tcp", ConnectOptions::default())
    }

    /// One that is reached by this scheme.
    fn reached(builder: TargetBuilder, scheme: &str, connect: ConnectOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("n"), [1; 64]).unwrap();
        let target = builder.nqn(NQN).listen(["127.0.0.1:0".parse().unwrap()]);
        let running = target.export(ExportSpec::new("data", dir.path()).writable()).build().unwrap().start().unwrap();
        let url = format!("{scheme}://{}/{NQN}", running.handle().local_addresses()[0]);
        let connection = Connection::connect(&url.parse().unwrap(), &connect).unwrap();
        let compute = Compute::new(&connection).unwrap();
        let file = Files::of(&compute).open(b"data/n", FileFlags::READ).unwrap();
        let session = Session::new(SessionOptions { connect, ..SessionOptions::default() });
        Self { running, dir, compute, file, session }
    }

    /// A function whose body is `body`.
    fn function(&self, name: &str, body: &str) -> SessionFunction {
        let source = format!(
            "#include \"diskside.h\"\nSEC(\"read/{name}\")\n\
             __s64 {name}(__u64 *out, const __u64 *in, __u64 in_len, const __u64 *args, const struct ds_call *call)\n\
             {{\n{body}\n}}\n"
        );
        let path = self.dir.path().join(format!("{name}.bpf.c"));
        std::fs::write(&path, source).unwrap();
        self.session.function(&path).unwrap()
    }

    /// Waits until the target has begun so many calls.
    fn await_begun(&self, calls: u64) {
        let until = Instant::now() + PATIENCE;
        while self.compute.statistics().unwrap().0.started.get() < calls {
            assert!(Instant::now() < until, "the call did not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A program that runs is not unloaded.
    fn assert_in_use(&self, program: &Program) {
        let error = self.compute.unload(program.index).unwrap_err();
        assert!(error.is_status(Status::PROGRAM_IN_USE), "{error}");
    }

    fn load(&self, function: &SessionFunction) -> Program {
        self.compute.load(function.object()).unwrap()
    }

    /// A call of a program over the file.
    fn request(&self, index: u16) -> FunctionRequest {
        let source = self.file.endpoint(0, Endpoint::TO_END);
        FunctionRequest { sources: vec![source], ..FunctionRequest::new(FunctionKind::Read, index) }
    }
}

fn ended_as(error: &FunctionError, outcome: Outcome) -> bool {
    error.trailer().is_some_and(|trailer| trailer.outcome == outcome)
}

#[test]
fn a_prepared_call_takes_other_arguments_each_time() {
    let fixture = Fixture::new();
    let echo = fixture.load(&fixture.function("echo", "*out = args[0] * 1000 + args[1] + in_len;\nreturn 8;"));
    let args: Vec<u8> = [5_u64, 6].into_iter().flat_map(u64::to_le_bytes).collect();
    let request = FunctionRequest { args, ..fixture.request(echo.index) };
    let prepared = fixture.compute.prepare(&request).unwrap();
    let result = |args: &[u8]| {
        let outcome = block_on(prepared.call(args, 8)).unwrap();
        u64::from_le_bytes(outcome.result[..].try_into().unwrap())
    };
    assert_eq!(result(&[]), 5070, "the request's own");
    for n in 0..100_u64 {
        assert_eq!(result(&n.to_le_bytes()), n * 1000 + 70, "its first eight bytes are replaced, for this call");
    }
    assert_eq!(result(&[]), 5070);
    // The last clone gives it up at the target, so any number can be prepared one after another.
    let limit = 3 * fixture.compute.capabilities().programs.get().max(100);
    for _ in 0..limit {
        drop(fixture.compute.prepare(&request).unwrap().clone());
    }
    assert_eq!(result(&[]), 5070, "what is held stays");
}

#[test]
fn a_prepared_call_that_fails_says_why_and_the_next_one_works() {
    let fixture = Fixture::new();
    let body = "if (args[0]) *out = in[in_len];\nelse *out = in_len;\nreturn 8;";
    let program = fixture.load(&fixture.function("sometimes", body));
    let request = FunctionRequest { args: vec![0; 8], ..fixture.request(program.index) };
    let prepared = fixture.compute.prepare(&request).unwrap();
    for _ in 0..3 {
        let error = block_on(prepared.call(&1_u64.to_le_bytes(), 8)).unwrap_err();
        // The buffer has room for the result alone, so the target's error log tells.
        assert!(error.to_string().contains("out-of-bounds read of 8 bytes of input at offset 512"), "{error}");
        assert!(error.to_string().contains("sometimes.bpf.c:5"), "{error}");
        assert_eq!(block_on(prepared.call(&[0; 8], 8)).unwrap().result, 64_u64.to_le_bytes());
    }
}

/// Runs until it is stopped: its loop ends after some hundred years.
const SPIN: &str = "for (volatile __u64 i = 0; i < 1ull << 62; i++) *out = i;\nreturn 8;";

#[test]
fn a_cancelled_call_is_over_when_cancelling_ends() {
    let fixture = Fixture::new();
    let spin = fixture.load(&fixture.function("spin", SPIN));
    let request = FunctionRequest { budget: u64::MAX, ..fixture.request(spin.index) };
    for round in 1..=10 {
        let mut stream = fixture.compute.stream(&request, Vec::new()).unwrap();
        fixture.await_begun(round);
        if round == 10 {
            fixture.assert_in_use(&spin);
        }
        assert!(fixture.compute.cancel(stream.tag(), true, PATIENCE).unwrap(), "it has stopped");
        let error = block_on(diskside::host::drive(async move { stream.next().await.map(drop) })).unwrap_err();
        assert!(ended_as(&error, Outcome::Cancelled), "{error}");
    }
    // Nothing runs any more.
    fixture.compute.unload(spin.index).unwrap();
}

/// The other side is measured now and then. When others kept the device busy, a request waited for that measurement
/// although every byte of its file was here.
#[test]
fn what_is_all_here_does_not_wait_for_a_busy_device() {
    let fixture = Fixture::of(Target::builder().compute(|compute| compute.engines = 1));
    let spin = fixture.load(&fixture.function("spin", SPIN));
    std::fs::write(fixture.dir.path().join("numbers"), vec![1; 1 << 20]).unwrap();
    let address = fixture.running.handle().local_addresses()[0];
    let file = fixture.session.open(&format!("diskside://{address}/data/numbers")).unwrap();
    let until = Instant::now() + PATIENCE;
    while fixture.session.cached_bytes() < 1 << 20 {
        // A file that was only just written is not kept.
        assert_eq!(file.pread(0, 1 << 20).wait().unwrap().len(), 1 << 20);
        assert!(Instant::now() < until, "it is never kept");
    }
    let request = FunctionRequest { budget: u64::MAX, ..fixture.request(spin.index) };
    let endless = fixture.compute.stream(&request, Vec::new()).unwrap();
    while fixture.compute.statistics().unwrap().0.engines_busy.get() == 0 {
        assert!(Instant::now() < until, "it never begins");
    }
    let stats = fixture.session.function("stats64").unwrap();
    // The first of such short requests are not measured.
    for _ in 0..20 {
        let pending = file.fold_fn(&stats, &[], &RunOptions::default());
        while !pending.is_done() {
            assert!(Instant::now() < until, "it waits for the device");
            std::thread::sleep(Duration::from_millis(1));
        }
        let ran = pending.wait().unwrap();
        assert_eq!(ran.decisions[0].1.plan, Plan::Host, "{}", ran.decisions[0].1);
    }
    assert!(fixture.compute.cancel(endless.tag(), true, PATIENCE).unwrap());
    while fixture.session.measured(&file, &stats).unwrap().measured[1] == 0 {
        assert!(Instant::now() < until, "the device was to be measured when it is free");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_result_that_nobody_wants_is_cancelled() {
    let fixture = Fixture::new();
    let spin = fixture.load(&fixture.function("spin", SPIN));
    let request = FunctionRequest { budget: u64::MAX, ..fixture.request(spin.index) };
    let stream = fixture.compute.stream(&request, Vec::new()).unwrap();
    fixture.await_begun(1);
    fixture.assert_in_use(&spin);
    drop(stream);
    let until = Instant::now() + PATIENCE;
    while let Err(error) = fixture.compute.unload(spin.index) {
        assert!(error.is_status(Status::PROGRAM_IN_USE), "{error}");
        assert!(Instant::now() < until, "it goes on: {error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_call_that_is_over_or_never_was_cannot_be_cancelled() {
    let fixture = Fixture::new();
    let quick = fixture.load(&fixture.function("quick", "*out = in_len;\nreturn 8;"));
    assert_eq!(fixture.compute.call(&fixture.request(quick.index)).wait().unwrap().result, 64_u64.to_le_bytes());
    let before = Instant::now();
    // Either way of cancelling is reported at once and without harm to others.
    let _ = fixture.compute.cancel(u64::MAX, true, PATIENCE);
    assert!(before.elapsed() < PATIENCE);
    assert_eq!(fixture.compute.call(&fixture.request(quick.index)).wait().unwrap().result, 64_u64.to_le_bytes());
}

#[test]
fn a_program_is_loaded_once_used_and_unloaded() {
    let fixture = Fixture::new();
    let own = fixture.function("own", "*out = in_len;\nreturn 8;");
    let program = fixture.load(&own);
    assert!(program.own && program.active && !program.device_defined && program.name == "own", "{program:?}");
    assert_eq!(fixture.load(&own), program, "the same content is not loaded again");
    assert_eq!(fixture.compute.object(program.index).unwrap(), own.object());
    let request = fixture.request(program.index);
    assert_eq!(fixture.compute.call(&request).wait().unwrap().result, 64_u64.to_le_bytes());

    fixture.compute.unload(program.index).unwrap();
    assert!(fixture.compute.programs().unwrap().iter().all(|other| other.hash != own.hash()));
    let error = fixture.compute.call(&request).wait().unwrap_err();
    assert!(matches!(error, FunctionError::Command { .. }), "{error}");
    fixture.compute.unload(program.index).unwrap_err();
    let again = fixture.load(&own);
    assert_eq!(fixture.compute.call(&fixture.request(again.index)).wait().unwrap().result, 64_u64.to_le_bytes());
}

#[test]
fn what_came_with_the_target_stays() {
    let fixture = Fixture::new();
    let programs = fixture.compute.programs().unwrap();
    let shipped = programs.iter().find(|program| program.device_defined).expect("shipped functions");
    let error = fixture.compute.unload(shipped.index).unwrap_err();
    assert!(error.to_string().contains("deactivating a program") || error.to_string().contains("unloading"), "{error}");
    assert_eq!(fixture.compute.programs().unwrap().len(), programs.len());
}

/// A session that used more functions than its host may have programs failed at the one too many, for good. Now the
/// program that was used least recently goes, and comes back when it is asked for; one that has a call under way, or is
/// prepared, stays.
#[test]
fn a_session_uses_more_functions_than_a_target_has_room_for() {
    let fixture = Fixture::of(Target::builder().compute(|compute| compute.host_programs = 3));
    let address = fixture.running.handle().local_addresses()[0];
    let file = fixture.session.open(&format!("diskside://{address}/data/n")).unwrap();
    let options = RunOptions { place: Where::Device, ..RunOptions::default() };
    let adds = |n: u64| fixture.function(&format!("add{n}"), &format!("*out = in_len + {n};\nreturn 8;"));
    let functions: Vec<SessionFunction> = (0..6).map(adds).collect();
    let is_there = |function: &SessionFunction| {
        fixture.compute.programs().unwrap().iter().any(|program| program.hash == function.hash())
    };
    for round in 0..2 {
        for (n, function) in (0_u64..).zip(&functions) {
            let ran = file.fold_fn(function, &[], &options).wait().unwrap();
            assert_eq!(ran.result, (64 + n).to_le_bytes(), "round {round}");
        }
    }
    assert_eq!(functions.iter().map(is_there).collect::<Vec<_>>(), [false, false, false, true, true, true]);

    let prepared = file.prepare(.., &functions[0], &[], &options).unwrap();
    let spin = fixture.function("spin", SPIN);
    let cancel = diskside::sandbox::machine::CancelToken::new();
    let mut endless = options.clone();
    endless.limits.budget = Some(u64::MAX);
    endless.limits.cancel = Some(cancel.clone());
    let running = file.fold_fn(&spin, &[], &endless);
    let until = Instant::now() + PATIENCE;
    while fixture.compute.statistics().unwrap().0.engines_busy.get() == 0 {
        assert!(Instant::now() < until, "it never begins");
    }
    // One is left to take turns in.
    for (n, function) in (1_u64..).zip(&functions[1..]) {
        assert_eq!(file.fold_fn(function, &[], &options).wait().unwrap().result, (64 + n).to_le_bytes());
    }
    assert_eq!(prepared.call(&[]).wait().unwrap(), 64_u64.to_le_bytes());
    assert_eq!([&functions[0], &spin, &functions[5]].map(is_there), [true; 3]);
    // With all of them in use there is no room, which is said.
    let _second = file.prepare(.., &functions[5], &[], &options).unwrap();
    let error = file.fold_fn(&functions[1], &[], &options).wait().unwrap_err().to_string();
    assert!(error.contains("this host has 3 programs, all that it may have"), "{error}");
    cancel.cancel();
    running.wait().unwrap_err();
    assert_eq!(file.fold_fn(&functions[1], &[], &options).wait().unwrap().result, 65_u64.to_le_bytes());
}

/// A target that was older than its host, or that let it load no more programs, had every call of a function that follows
/// pointers fail, though all of the files could be read here.
#[test]
fn pointers_are_followed_here_where_the_target_refuses_the_function() {
    let source = r#"
        #include "diskside.h"
        SEC("traverse/second")
        __s64 second(struct ds_traverse *t)
        {
            if (t->data_len) {
                *(__u64 *)t->scratch = *(const __u64 *)t->data;
                t->result_len = 8;
                return 1;
            }
            t->next[0].offset = 8;
            t->next[0].len = 8;
            t->nnext = 1;
            return 0;
        }
    "#;
    let no_programs = Fixture::of(Target::builder().compute(|compute| compute.host_programs = 0));
    let no_room = Fixture::of(Target::builder().compute(|compute| compute.program_memory = "64".parse().unwrap()));
    let willing = Fixture::new();
    for (fixture, why) in
        [(&no_programs, "this host has 0 programs"), (&no_room, "Maximum Program Bytes"), (&willing, "")]
    {
        let path = fixture.dir.path().join("second.bpf.c");
        std::fs::write(&path, source).unwrap();
        let second = fixture.session.traversal(&path.display().to_string()).unwrap();
        let address = fixture.running.handle().local_addresses()[0];
        let file = fixture.session.open(&format!("diskside://{address}/data/n")).unwrap();
        let follow = |place| {
            let options = RunOptions { place, ..RunOptions::default() };
            fixture.session.traverse(std::slice::from_ref(&file), &second, &[], 8, &options).wait()
        };
        // The second time it is known.
        for _ in 0..2 {
            let followed = follow(Where::Auto).unwrap();
            assert_eq!((&followed.result[..], followed.hops), (&[1; 8][..], 2), "{why}");
            let side = if why.is_empty() { Side::Device } else { Side::Host };
            assert_eq!(followed.side, side, "{why}");
            match followed.refused {
                Some(told) => assert!(!why.is_empty() && told.contains(why), "{told}"),
                None => assert!(why.is_empty(), "{why}"),
            }
        }
        match follow(Where::Device) {
            Ok(followed) => assert!(why.is_empty() && followed.side == Side::Device),
            Err(error) => assert!(!why.is_empty() && error.to_string().contains(why), "{error}"),
        }
    }
}

/// Traversals were tested over bare TCP alone. TLS cuts requests and answers into records of its own, and the result and the error
/// must be the same.
#[test]
fn pointers_are_followed_over_tls_as_they_are_without() {
    const NODE_LEN: usize = 4096;
    const NODES: usize = 20;
    // It follows a chain of nodes until one says 1. Their contents are the result, which has more bytes than a record of TLS.
    let source = r#"
        #include "diskside.h"
        struct node { __u64 next; __u8 content[4088]; };
        SEC("traverse/chain")
        __s64 chain(struct ds_traverse *t)
        {
            const struct node *node = t->data;
            __u64 at = t->hop ? node->next : 0;
            if (t->data_len) {
                ds_memcpy(t->scratch + t->result_len, node->content, sizeof(node->content));
                t->result_len += sizeof(node->content);
                if (at == 1)
                    return 1;
            }
            t->next[0] = (struct ds_next){ .offset = at, .len = sizeof(*node) };
            t->nnext = 1;
            return 0;
        }
    "#;
    // A file in which each node leads to the seventh after it, and the last one to `end`; and its contents in this order.
    let chain = |end: u64| {
        let mut bytes = vec![0; NODES * NODE_LEN];
        let mut expected = Vec::new();
        for step in 0..NODES {
            let (at, next) = (step * 7 % NODES, (step + 1) * 7 % NODES);
            let next = if step + 1 == NODES { end } else { (next * NODE_LEN) as u64 };
            let node = &mut bytes[at * NODE_LEN..][..NODE_LEN];
            node[..8].copy_from_slice(&next.to_le_bytes());
            node[8..].iter_mut().enumerate().for_each(|(index, byte)| *byte = (index * 13 + step) as u8);
            expected.extend_from_slice(&node[8..]);
        }
        (bytes, expected)
    };
    let (whole, expected) = chain(1);
    let (broken, _) = chain(1 << 40);
    let keys = tempfile::tempdir().unwrap();
    let (spec, key) = known_by_tls(keys.path());
    let target = Target::builder().host(spec).security(|security| security.require = Requirement::Tls);
    let secure = Fixture::reached(target, "nvme-tcp+tls", key);
    let followed = [(&Fixture::new(), "diskside"), (&secure, "diskside+tls")].map(|(fixture, scheme)| {
        let path = |name: &str| fixture.dir.path().join(name);
        std::fs::write(path("chain.bpf.c"), source).unwrap();
        std::fs::write(path("whole"), &whole).unwrap();
        std::fs::write(path("broken"), &broken).unwrap();
        let chain = fixture.session.traversal(path("chain.bpf.c").to_str().unwrap()).unwrap();
        let address = fixture.running.handle().local_addresses()[0];
        let url = |name: &str| format!("{scheme}://{address}/data/{name}");
        let follow = |name: &str, place| {
            let file = fixture.session.open(&url(name)).unwrap();
            let options = RunOptions { place, ..RunOptions::default() };
            fixture.session.traverse(&[file], &chain, &[], (NODES * NODE_LEN) as u32, &options).wait()
        };
        [(Where::Device, Side::Device), (Where::Host, Side::Host)].map(|(place, side)| {
            let found = follow("whole", place).unwrap();
            assert_eq!((found.side, found.refused), (side, None), "{scheme}");
            assert!(found.result == expected, "{scheme}, {side:?}");
            let error = follow("broken", place).unwrap_err().to_string().replace(&url(""), "");
            assert!(error.contains("hop 20: asks for 4096 bytes at offset 1099511627776"), "{error}");
            (found.hops, found.read_bytes, found.back_edges, error)
        })
    });
    assert_eq!(followed[0], followed[1]);
    // This target says nothing without TLS.
    let address = secure.running.handle().local_addresses()[0];
    let without = SessionOptions {
        connect: ConnectOptions { key: KeySource::None, ..ConnectOptions::default() },
        ..SessionOptions::default()
    };
    let error = Session::new(without).open(&format!("diskside://{address}/data/whole")).unwrap_err().to_string();
    assert!(error.contains("wants TLS"), "{error}");
}

/// A host with a key of TLS: as a target knows it, and as it connects.
fn known_by_tls(directory: &Path) -> (HostSpec, ConnectOptions) {
    const NAME: &str = "nqn.2026-11.org.example:ann";
    let key = TlsSecret::new(&[7; 32], Some(Hash::Sha256)).unwrap().to_text();
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path
    };
    let tls_keys = vec![KeyFile::new(write("known", format!("{}\n", *key)))];
    let spec = HostSpec { name: "ann".into(), nqn: NAME.into(), tls_keys, ..HostSpec::default() };
    let own = write("own", format!("nqn {NAME}\ntls-key {}\n", *key));
    (spec, ConnectOptions { key: KeySource::File(own), ..ConnectOptions::default() })
}
