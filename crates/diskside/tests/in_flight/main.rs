//! Very many calls in flight at a time: what waits for a server holds no thread.

#[path = "../copies/proxy.rs"]
#[allow(dead_code, unreachable_pub, reason = "a file of helpers")]
mod proxy;

use diskside::session::{
    FailureKind, File, OpenMode, Pending, Prepared, RunOptions, Session, SessionError, SessionFunction, SessionKernel,
    SessionOptions, SessionTraversal, Where,
};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use diskside::{Location, host::ConnectOptions};
use proxy::{Proxy, Way};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CALLS: usize = 1000;
/// Threads that a thousand calls may begin together, of which the clock is one.
const THREADS_MAX: usize = 8;
/// Longer than any of this takes, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long calls are left alone, so that they come as far as they can.
const SETTLE: Duration = Duration::from_millis(300);

/// Threads are counted in the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server that can fall silent, and files that are open there, or at the same server by another way.
struct World {
    _running: Running,
    dir: tempfile::TempDir,
    way: Proxy,
    address: String,
    session: Session,
}

/// One call of each kind.
struct Calls {
    world: World,
    file: File,
    out: File,
    stats: SessionFunction,
    copy: SessionFunction,
    chain: SessionTraversal,
    count: SessionKernel,
    prepared: Prepared,
}

const CHAIN: &str = r#"
#include "diskside.h"
SEC("traverse/chain")
__s64 chain(struct ds_traverse *t)
{
    if (t->data_len) {
        ds_memcpy(t->scratch, t->data, 8);
        t->result_len = 8;
        return 1;
    }
    t->next[0] = (struct ds_next){ .offset = 8, .len = 8 };
    t->nnext = 1;
    return 0;
}
"#;
const COUNT: &str = r#"
#include "isp_agent.h"
SEC("kernel/count")
__s64 count(struct ds_kernel *k, const void *args, __s64 *result)
{
    char *buffer = malloc_ik(4096);
    result[0] = pread_ik(0, buffer, 64, 0);
    return 8;
}
"#;

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let builder = Target::builder().nqn("nqn.2026-11.org.example:flight").listen(["127.0.0.1:0".parse().unwrap()]);
        let running = builder.export(ExportSpec::new("data", dir.path()).writable()).build().unwrap().start().unwrap();
        let address = running.handle().local_addresses()[0];
        std::fs::write(dir.path().join("n"), (0..1000_u64).flat_map(u64::to_le_bytes).collect::<Vec<_>>()).unwrap();
        let connect = ConnectOptions { command_timeout: PATIENCE, keep_alive: PATIENCE, ..ConnectOptions::default() };
        let session = Session::new(SessionOptions { connect, ..SessionOptions::default() });
        Self { _running: running, dir, way: Proxy::new(address, Way::Open), address: address.to_string(), session }
    }

    fn open_at(&self, address: &str, name: &str, mode: OpenMode) -> File {
        let url = format!("diskside://{address}/data/{name}");
        self.session.open_as(&Location::try_from(url.as_ref()).unwrap(), mode).unwrap()
    }

    fn source(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// A call of any kind, and what it gave.
type Call = Box<dyn FnOnce() -> Result<Vec<u8>, SessionError>>;

fn call<T: 'static>(pending: Pending<T>, result: impl FnOnce(T) -> Vec<u8> + 'static) -> Call {
    Box::new(move || pending.wait().map(result))
}

impl Calls {
    fn new() -> Self {
        let world = World::new();
        let way = world.way.address.to_string();
        let (file, out) = (world.open_at(&way, "n", OpenMode::Read), world.open_at(&way, "out", OpenMode::Create));
        let stats = world.session.function("stats64").unwrap();
        let copy = world.session.function("copy").unwrap();
        let chain = world.session.traversal(&world.source("chain.bpf.c", CHAIN)).unwrap();
        let count = world.session.kernel(&world.source("count.bpf.c", COUNT)).unwrap();
        let prepared = file.prepare(0..64, &stats, &[], &there()).unwrap();
        Self { world, file, out, stats, copy, chain, count, prepared }
    }

    /// The call with this number: the kinds take turns.
    fn begin(&self, number: usize, options: &RunOptions) -> Call {
        let (file, session, stats) = (&self.file, &self.world.session, &self.stats);
        let one = std::slice::from_ref(file);
        let start = (number % 100 * 8) as u64;
        match number % 6 {
            0 => call(file.pread_fn(start.., stats, &[], options), |ran| ran.result),
            1 => call(session.submit_run(one, stats, &[], options, None), |ran| ran.result),
            2 => call(session.traverse(one, &self.chain, &[], 64, options), |found| found.result),
            3 => call(session.launch(one, &[], &self.count, &[], options), |ran| ran.result),
            4 => {
                let bytes = vec![number as u8; 16];
                let written = self.out.pwrite_fn(number as u64 * 16, bytes, &self.copy, &[], options);
                call(written, |ran| ran.written_bytes.to_le_bytes().to_vec())
            }
            _ => call(self.prepared.call(&[]), |result| result),
        }
    }

    /// Each kind once, which also has its programs loaded.
    fn results(&self) -> Vec<Vec<u8>> {
        (0..600).map(|number| self.begin(number, &there())()).collect::<Result<_, _>>().unwrap()
    }
}

fn there() -> RunOptions {
    RunOptions { place: Where::Device, ..RunOptions::default() }
}

/// Threads of this process now.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Each call had a thread that slept until the server answered: a thousand calls were a thousand threads. Now they have none, and
/// their results are the ones that they have one by one.
#[test]
fn a_thousand_calls_that_wait_for_a_server_hold_no_threads() {
    let _alone = alone();
    let calls = Calls::new();
    let expected = calls.results();
    calls.world.way.set(Way::Silent);
    let before = threads();
    let under_way: Vec<Call> = (0..CALLS).map(|number| calls.begin(number, &there())).collect();
    std::thread::sleep(SETTLE);
    let during = threads();
    assert!(during <= before + THREADS_MAX, "{before} threads became {during}");
    calls.world.way.set(Way::Open);
    for (number, call) in under_way.into_iter().enumerate() {
        assert_eq!(call().unwrap(), expected[number % 600], "call {number}");
    }
    let written = std::fs::read(calls.world.dir.path().join("out")).unwrap();
    for number in (0..CALLS).filter(|number| number % 6 == 4) {
        assert_eq!(written[number * 16..][..16], [number as u8; 16], "call {number}");
    }
}

/// The first calls of a program load it first: one of them does, and the others waited for that in threads.
#[test]
fn calls_that_wait_for_their_program_hold_no_threads() {
    let _alone = alone();
    let calls = Calls::new();
    let sum = calls.world.source(
        "sum.bpf.c",
        "#include \"diskside.h\"\nSEC(\"read/sum\")\n__s64 sum(__u64 *out, const __u64 *in, __u64 len)\n{ *out = in[0]; return 8; }\n",
    );
    let sum = calls.world.session.function(&sum).unwrap();
    calls.world.way.set(Way::Silent);
    let before = threads();
    let under_way: Vec<_> = (0..CALLS).map(|_| calls.file.pread_fn(16..24, &sum, &[], &there())).collect();
    std::thread::sleep(SETTLE);
    let during = threads();
    assert!(during <= before + THREADS_MAX, "{before} threads became {during}");
    calls.world.way.set(Way::Open);
    for call in under_way {
        assert_eq!(call.wait().unwrap().result, 2_u64.to_le_bytes());
    }
}

/// Calls for a server that has fallen silent keep nobody from one that answers, however many they are.
#[test]
fn a_silent_server_delays_no_calls_of_another_one() {
    let _alone = alone();
    let calls = Calls::new();
    let expected = calls.results();
    let living = calls.world.open_at(&calls.world.address, "n", OpenMode::Read);
    calls.world.way.set(Way::Silent);
    let waiting: Vec<Call> = (0..CALLS).map(|number| calls.begin(number, &there())).collect();
    let began = Instant::now();
    let answered: Vec<_> = (0..100).map(|number| living.pread_fn(number * 8.., &calls.stats, &[], &there())).collect();
    for (number, call) in answered.into_iter().enumerate() {
        let number = (0..600).step_by(6).find(|kind| kind % 100 == number);
        let result = call.wait().unwrap().result;
        assert!(number.is_none_or(|number| result == expected[number]));
    }
    assert!(began.elapsed() < PATIENCE / 2, "they took {:?}", began.elapsed());
    calls.world.way.set(Way::Open);
    waiting.into_iter().for_each(|call| drop(call().unwrap()));
}

/// A call that is cancelled at a silent server ends soon all the same, without a thread that looks at the clock for it. Writes and
/// kernels, whose effects are not known before the server says so, are waited for.
#[test]
fn a_thousand_calls_at_a_silent_server_are_cancelled_at_once() {
    let _alone = alone();
    let calls = Calls::new();
    calls.results();
    let session = &calls.world.session;
    let url = format!("diskside://{}/data/n", calls.world.way.address);
    let late = [session.open_late(&Location::try_from(url.as_ref()).unwrap()).unwrap()];
    calls.world.way.set(Way::Silent);
    let before = threads();
    let begin = |at: usize| match at % 2 {
        0 => calls.file.pread_fn((at % 100 * 8) as u64.., &calls.stats, &[], &there()),
        // By its path, in one round trip.
        _ => session.submit_run(&late, &calls.stats, &[], &there(), None),
    };
    let under_way: Vec<_> = (0..CALLS).map(begin).collect();
    std::thread::sleep(SETTLE);
    let began = Instant::now();
    under_way.iter().for_each(Pending::cancel);
    let during = threads();
    assert!(during <= before + THREADS_MAX, "{before} threads became {during}");
    for call in under_way {
        assert_eq!(call.wait().unwrap_err().kind(), FailureKind::Cancelled);
    }
    assert!(began.elapsed() < PATIENCE / 2, "they took {:?}", began.elapsed());
    calls.world.way.set(Way::Open);
    assert!(calls.begin(0, &there())().is_ok(), "others continue");
}
