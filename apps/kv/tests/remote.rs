//! A store on a volume of a target, followed there: over memory and the page cache, where steps run on the reactor, and
//! over a file that the page cache is not in front of. And what hostile traversals come to.

use diskside::host::function::{
    Compute, Endpoint, EndpointKind, FunctionError, FunctionKind, FunctionRequest, Program,
};
use diskside::host::{ConnectOptions, InlineVolume, Url, Volume};
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo, Request, block_on};
use diskside::target::config::VolumeSpec;
use diskside::target::{Running, Target};
use diskside_kv::create::{Creation, Keys};
use diskside_kv::drive::{Alarm, Tasks};
use diskside_kv::format::{counting_value, number, text_value};
use diskside_kv::port::{Inline, Shared};
use diskside_kv::remote::RemotePushdown;
use diskside_kv::{Mode, Options, Pairs, Store};
use std::cell::RefCell;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const NQN: &str = "nqn.2026-11.org.example:kv";
const KEYS: u64 = 4096;

/// A target with a store of six levels on volume 1, in memory, on volume 2, a file, and on volume 3, a cached file.
struct World {
    running: Running,
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut bytes = Vec::new();
        Creation::new(Keys::Counting(KEYS)).fill(4).write(&mut bytes).expect("written");
        let file = |name| {
            let path = directory.path().join(name);
            let file = std::fs::File::create(&path).expect("a file");
            file.set_len(4 << 20).expect("room");
            file.write_all_at(&bytes, 0).expect("written");
            path.to_str().expect("a path").to_owned()
        };
        let target = Target::builder()
            .nqn(NQN)
            .listen(["127.0.0.1:0".parse().expect("an address")])
            .volume(VolumeSpec::new("memory", "mem:4MiB").writable())
            .volume(VolumeSpec::new("file", file("file")).writable())
            .volume(VolumeSpec { buffered: true, ..VolumeSpec::new("cached", file("cached")).writable() })
            .build()
            .expect("a target");
        let world = Self { running: target.start().expect("it starts"), _directory: directory };
        let volume = world.volume(1);
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        let write = Request::Write { offset: 0, buffer: Buffer::copy_of(&bytes), durable: false };
        block_on(volume.submit(write)).into_result().expect("written");
        world
    }

    fn url(&self, nsid: u32) -> Url {
        let address = self.running.handle().local_addresses()[0];
        format!("nvme-tcp://{address}/{NQN}/{nsid}").parse().expect("a URL")
    }

    fn volume(&self, nsid: u32) -> Volume {
        Volume::connect(&self.url(nsid), &ConnectOptions::default()).expect("connected")
    }

    fn store(&self, nsid: u32, options: &Options) -> Store {
        let volume = self.volume(nsid);
        let pushdown = RemotePushdown::new(volume.connection(), nsid).expect("the target runs functions");
        Store::open(Box::new(Shared(Arc::new(volume))), Some(Box::new(pushdown)), options).expect("it opens")
    }
}

fn pairs(keys: std::ops::RangeInclusive<u64>) -> Pairs {
    keys.map(|key| (key, counting_value(key))).collect()
}

#[test]
fn a_target_follows_what_a_host_asks_for() {
    let world = World::new();
    for nsid in [1, 2, 3] {
        for cache_levels in [0, 3] {
            let store = world.store(nsid, &Options { cache_levels, ..Options::default() });
            for key in (0..KEYS).step_by(97) {
                assert_eq!(store.block_on(store.get(key)).expect("read"), Some(counting_value(key)));
            }
            assert_eq!(store.block_on(store.get(KEYS)).expect("read"), None);
            let counters = store.counters();
            assert_eq!((counters.reads, counters.pushed), (0, KEYS.div_ceil(97) + 1), "one round trip each");
            let keys: Vec<u64> = (0..100).map(|i| i * 50).collect();
            let values = store.block_on(store.multi_get(&keys)).expect("read");
            for (key, value) in keys.iter().zip(values) {
                assert_eq!(value, (*key < KEYS).then(|| counting_value(*key)));
            }
            assert_eq!(store.block_on(store.range(1000, 2500, u64::MAX)).expect("read"), pairs(1000..=2500));
            assert_eq!(store.block_on(store.sum(0, u64::MAX, u64::MAX)).expect("read"), (KEYS, KEYS * (KEYS - 1) / 2));
        }
    }
}

/// The next traversal of another host sees a write that was acknowledged to the first.
#[test]
fn traversals_see_what_was_written() {
    let world = World::new();
    for nsid in [1, 2, 3] {
        let (writer, reader) = (world.store(nsid, &Options::default()), world.store(nsid, &Options::default()));
        for i in 0..50u64 {
            let value = text_value(&format!("new {i}")).expect("short");
            assert!(writer.block_on(writer.put(i * 80, &value)).expect("written"));
            assert_eq!(reader.block_on(reader.get(i * 80)).expect("read"), Some(value), "volume {nsid}");
        }
    }
}

/// A store on volume 1 whose commands leave by the thread that waits, which also prepares what `make` wants prepared.
fn inline_store<T: Send + 'static>(
    world: &World,
    make: impl FnOnce(&Volume) -> T + Send + 'static,
) -> (Rc<Inline>, Store, T) {
    let volume = InlineVolume::connect(&world.url(1), &ConnectOptions::default()).expect("connected");
    let inline = Rc::new(Inline(RefCell::new(volume)));
    let volume = inline.0.borrow().volume().clone();
    let helper = std::thread::spawn(move || (RemotePushdown::new(volume.connection(), volume.nsid()), make(&volume)));
    while !helper.is_finished() {
        inline.0.borrow_mut().wait(Some(Duration::from_millis(1)));
    }
    let (pushdown, made) = helper.join().expect("no panic");
    let pushdown = pushdown.expect("the target runs functions").by(Rc::clone(&inline));
    let store = Store::open(Box::new(Rc::clone(&inline)), Some(Box::new(pushdown)), &Options::default());
    (inline, store.expect("it opens"), made)
}

#[test]
fn prepared_lookups_leave_by_the_thread_that_waits() {
    let world = World::new();
    let (_, store, ()) = inline_store(&world, |_| ());
    let mut tasks = Tasks::new(store.port());
    for task in 0..32 {
        let store = &store;
        tasks.spawn(async move {
            for i in 0..50 {
                let key = (task * 131 + i * 977) % KEYS;
                assert_eq!(store.get(key).await.expect("read"), Some(counting_value(key)));
            }
        });
    }
    tasks.run(store.port(), &Alarm::default());
    assert_eq!(store.counters().pushed, 32 * 50);
}

/// Calls that arrive together run side by side, more of them than there are lanes: short and long ones, such as trap,
/// such as ask for what is not there, and such as a thread has to run again. Each is answered for itself.
#[test]
fn calls_side_by_side_keep_apart() {
    const NAMES: [(&str, u32, &str); 4] = [
        ("beyond", 1, "asks for 512 bytes at offset 1 of file 1"),
        ("overrun", 2, "out-of-bounds write of 1 bytes of scratch at offset 256"),
        ("endless", 3, "is not done after 4096 hops"),
        ("long_result", 8, "its result is 257 bytes"),
    ];
    let world = World::new();
    let (inline, store, hostile) = inline_store(&world, |volume| {
        let hostile = Hostile::of(volume);
        NAMES.map(|(name, ..)| hostile.compute.prepare(&hostile.request(1, name)).expect("it can be prepared"))
    });
    let mut tasks = Tasks::new(store.port());
    for task in 0..96 {
        let (store, inline, hostile) = (&store, &inline, &hostile);
        tasks.spawn(async move {
            for i in 0..4 {
                let key = (task * 43 + i * 977) % (KEYS + 500);
                let expected = (key < KEYS).then(|| counting_value(key));
                assert_eq!(store.get(key).await.expect("read"), expected, "key {key}");
                let at = (task + i) as usize % 8;
                let Some((name, outcome, says)) = NAMES.get(at) else { continue };
                let call = hostile[at].call_inline(&mut inline.0.borrow_mut(), &[], 256);
                let error = call.await.expect_err("it fails");
                let trailer = error.trailer().unwrap_or_else(|| panic!("{name}: {error}"));
                assert_eq!(trailer.outcome as u32, *outcome, "{name}: {error}");
                // The message is cut to what is left in the buffer.
                let len = trailer.message.len().min(trailer.message.find(says).unwrap_or(0) + says.len());
                assert!(len > says.len() || trailer.message.contains(name), "{name}: {error}");
            }
        });
    }
    tasks.run(store.port(), &Alarm::default());
}

/// A value is replaced while others look it up: each finds one that was there, whole.
#[test]
fn lookups_beside_updates_find_whole_values() {
    const HOT: u64 = 16;
    let value = |key: u64, round: u64| text_value(&format!("{key:031}-{round:031}")).expect("63 bytes");
    let world = World::new();
    let (_, store, ()) = inline_store(&world, |_| ());
    for key in 0..HOT {
        assert!(store.block_on(store.put(key, &value(key, 0))).expect("written"));
    }
    let written = RefCell::new([0; HOT as usize]);
    let mut tasks = Tasks::new(store.port());
    for key in 0..HOT {
        let (store, written) = (&store, &written);
        tasks.spawn(async move {
            for round in 1..40 {
                assert!(store.put(key, &value(key, round)).await.expect("written"));
                written.borrow_mut()[key as usize] = round;
            }
        });
        for _ in 0..4 {
            tasks.spawn(async move {
                for _ in 0..40 {
                    let least = written.borrow()[key as usize];
                    let found = store.get(key).await.expect("read").expect("it is there");
                    let round = number(&found);
                    assert!(found == value(key, round) && round >= least, "key {key}: {round}, {least} was written");
                }
            });
        }
    }
    tasks.run(store.port(), &Alarm::default());
}

struct Hostile {
    compute: Compute,
    program: Program,
}

impl Hostile {
    fn new(world: &World) -> Self {
        Self::of(&world.volume(1))
    }

    fn of(volume: &Volume) -> Self {
        let compute = Compute::new(volume.connection()).expect("the target runs functions");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile.bpf.c");
        let object = diskside::library::object(source.to_str().expect("a path")).expect("it compiles").bytes;
        let program = compute.load(&object).expect("it may run");
        Self { compute, program }
    }

    fn request(&self, nsid: u32, name: &str) -> FunctionRequest {
        let mut request = FunctionRequest::new(FunctionKind::Traverse, self.program.index);
        request.function = Some(name.to_owned());
        request.sources =
            vec![Endpoint::whole(EndpointKind::Volume(nsid)), Endpoint::new(EndpointKind::Volume(nsid), 4096, 512)];
        request.result_len_max = 256;
        request
    }

    /// The error of a call and of a prepared one, which is the same: outcome, hop and message.
    fn fails(&self, nsid: u32, name: &str) -> (u32, u32, String) {
        let request = self.request(nsid, name);
        let failed = |error: FunctionError| {
            let trailer = error.trailer().unwrap_or_else(|| panic!("{name}: {error}"));
            (trailer.outcome as u32, trailer.hop, trailer.message.clone())
        };
        let called = failed(self.compute.call(&request).wait().expect_err("it fails"));
        let prepared = self.compute.prepare(&request).expect("it can be prepared");
        let again = failed(block_on(prepared.call(&[], 256)).expect_err("it fails"));
        // The message of a Call is cut to what is left in its buffer.
        assert!((called.0, called.1) == (again.0, again.1) && called.2.starts_with(&again.2), "{called:?}, {again:?}");
        called
    }
}

/// Each ends with an error that names the hop; nobody else is disturbed.
#[test]
fn hostile_traversals_hurt_nobody() {
    let world = World::new();
    let store = world.store(1, &Options::default());
    let hostile = Hostile::new(&world);
    for nsid in [1, 2, 3] {
        for (name, outcome, hop, says) in [
            ("endless", 3, 4096, "is not done after 4096 hops, the limit"),
            ("spin", 3, 0, "the budget of loop iterations is used up"),
            ("beyond", 1, 1, "asks for 512 bytes at offset 1 of file 1, which is 512 bytes long"),
            ("far", 1, 0, "asks for 8 bytes at offset 18446744073709551612 of file 0, which is 4194304 bytes long"),
            ("other_file", 1, 0, "asks for file 2, and the request lists 2"),
            ("nothing", 1, 0, "asks for 0 bytes at offset 0 of file 0"),
            ("huge", 1, 0, "asks for 1048577 bytes in one read, the limit is 1048576"),
            ("overrun", 2, 0, "out-of-bounds write of 1 bytes of scratch at offset 256"),
            ("long_result", 8, 0, "its result is 257 bytes of a scratch that is 256 bytes long"),
        ] {
            let (got_outcome, got_hop, message) = hostile.fails(nsid, name);
            assert!(message.contains(says), "{name}: {message}");
            assert_eq!((got_outcome, got_hop), (outcome, hop), "{name}: {message}");
            assert_eq!(store.block_on(store.get(7)).expect("others go on"), Some(counting_value(7)));
        }
    }
}

/// The second source is a window of the volume: the program sees it as a file that begins at 0.
#[test]
fn a_range_is_a_file_of_its_own() {
    let world = World::new();
    let hostile = Hostile::new(&world);
    for nsid in [1, 2, 3] {
        let mut expected = Buffer::zeroed(4096);
        let read = Request::Read { offset: 4096, buffer: expected };
        expected = block_on(world.volume(nsid).submit(read)).into_read().expect("read");
        let outcome = hostile.compute.call(&hostile.request(nsid, "window")).wait().expect("it ends");
        assert_eq!(outcome.result, expected[100..356], "volume {nsid}");
        assert_eq!((outcome.trailer.media_read, outcome.trailer.hop), (256, 2));
    }
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let world = World::new();
    let hostile = Hostile::new(&world);
    let says = |request: &FunctionRequest| hostile.compute.call(request).wait().expect_err("it is refused").to_string();
    let mut request = hostile.request(1, "window");
    request.result_len_max = (1 << 20) + 1;
    assert!(says(&request).contains("at most 1 MiB of scratch"), "{}", says(&request));
    let mut request = hostile.request(1, "window");
    request.sources.clear();
    assert!(says(&request).contains("1 to 64 sources"), "{}", says(&request));
    assert!(says(&hostile.request(1, "none")).contains("no traversal `none`"));
    assert!(says(&hostile.request(9, "window")).contains("no volume with namespace ID 9"));
}

/// A volume that goes away half way: the next call says so, the connection lives.
#[test]
fn a_prepared_lookup_outlives_its_volume_with_an_error() {
    let world = World::new();
    let store = world.store(1, &Options { mode: Mode::Pushdown, ..Options::default() });
    assert!(store.block_on(store.get(1)).expect("read").is_some());
    let other = world.store(2, &Options::default());
    world.running.handle().remove_volume("memory").expect("removed");
    let gone = store.block_on(store.get(1));
    let told = gone.expect_err("it is gone").to_string();
    assert!(told.contains("volume memory went away"), "{told}");
    assert!(other.block_on(other.get(1)).expect("read").is_some());
}

/// The error of a refused call comes by another thread, which has to wake the one that turns its own queue: that once
/// slept on, since it was woken where it did not wait.
#[test]
fn a_refusal_is_explained_to_a_thread_that_turns_its_own_queue() {
    let world = World::new();
    let (_, store, ()) = inline_store(&world, |_| ());
    assert!(store.block_on(store.get(1)).expect("read").is_some());
    world.running.handle().remove_volume("memory").expect("removed");
    let told = store.block_on(store.get(1)).expect_err("it is gone").to_string();
    assert!(told.contains("volume memory went away"), "{told}");
}
