//! Bytes that one call read from a disk are there for the next, and never older than the last write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::{COMPUTE, Client, VOLUME, encode, function, locally, start};
use crate::common::{builder, pattern};
use diskside_io::buffer::{Hugepages, SharedMemory};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::{ServeConfig, Settings, VolumeSpec};
use diskside_volume::medium::{Access, Action, Medium, Properties, Step};
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, StatisticsEntry,
    StatisticsPage, function_log, statistics_kind,
};

/// A disk that counts what is read of it.
#[derive(Debug)]
struct Disk {
    bytes: SharedMemory,
    properties: Properties,
    read: AtomicU64,
}

impl Disk {
    fn new(len: u64) -> Arc<Self> {
        let bytes = SharedMemory::zeroed(len as usize, Hugepages::No);
        let properties = Properties {
            len_bytes: len,
            read_only: false,
            volatile_write_cache: false,
            thin: false,
            direct: true,
            atomic_len: 0,
            delta_len: 0,
        };
        Arc::new(Self { bytes, properties, read: AtomicU64::new(0) })
    }

    /// Bytes that were read since the last time.
    fn take_read(&self) -> u64 {
        self.read.swap(0, Ordering::SeqCst)
    }
}

impl Medium for Disk {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(&self, access: &Access<'_>) -> Step {
        match *access {
            Access::Read { offset, len } => {
                self.read.fetch_add(len as u64, Ordering::SeqCst);
                Action::Bytes(self.bytes.slice(offset as usize..offset as usize + len)).into()
            }
            Access::Write { offset, data, .. } => {
                self.bytes.write(offset as usize, data);
                Action::Done(data.len() as u64).into()
            }
            Access::Zero { .. } => Action::WriteZeroes.into(),
            Access::Delta(_) => Action::Failed(diskside_io::Errno::OPNOTSUPP).into(),
            Access::Flush => Action::Done(0).into(),
        }
    }
}

const LEN: usize = 1 << 20;

/// A target with a disk of 4 MiB, whose first one is filled.
fn disk_target(settings: &str) -> (Running, Arc<Disk>, Vec<u8>) {
    let (disk, bytes) = (Disk::new(4 << 20), pattern(LEN, 1));
    disk.bytes.write(0, &bytes);
    let toml = format!("listen = ['127.0.0.1:0']\n{settings}");
    let config = Settings::from_toml(&toml, "d.toml").and_then(ServeConfig::resolve).unwrap();
    let builder = builder()
        .config(config)
        .medium(VolumeSpec::new("data", "disk").writable(), Arc::clone(&disk) as Arc<dyn Medium>);
    (start(builder), disk, bytes)
}

fn page(client: &mut Client) -> StatisticsPage {
    StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap().0
}

fn clear(client: &mut Client, nsid: u64) -> crate::common::Answer {
    client.queue.command(Sqe::function_clear(COMPUTE, ClearSelect::Cache, nsid, 0..0), None, 0)
}

#[test]
fn a_second_call_reads_nothing_from_the_disk() {
    let (running, disk, bytes) = disk_target("");
    let mut client = Client::connect(&running);
    let request = client.over("stats64", &[], LEN as u64);
    let (result, trailer) = client.run(&request);
    assert_eq!((&result, trailer.media_read), (&locally("stats64", &[], &bytes), LEN as u64));
    assert_eq!(disk.take_read(), LEN as u64);
    for (name, request) in [("stats64", request.clone()), ("stats32", client.over("stats32", &[], LEN as u64))] {
        let (result, trailer) = client.run(&request);
        assert_eq!((result, trailer.media_read), (locally(name, &[], &bytes), 0));
    }
    assert_eq!(disk.take_read(), 0, "another host and another function as well");
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    assert_eq!(other.run(&request).1.media_read, 0);
    let page = page(&mut client);
    let blocks = LEN as u64 / (32 << 10);
    assert_eq!((page.cache_misses.get(), page.cache_hits.get()), (blocks, 3 * blocks));
    assert_eq!((page.media_read.get(), page.cache_read.get()), (LEN as u64, 3 * LEN as u64));
    assert!(page.cache_len.get() >= LEN as u64 && page.cache_len_max.get() == 256 << 20);

    // Clear drops it: of another volume not, of this one, of all.
    clear(&mut client, 77).fails_with(Status::NAMESPACE_NOT_REACHABLE.dnr());
    assert_eq!(client.errors()[0].message, "there is no volume with namespace ID 77");
    clear(&mut client, 1 << 40).fails_with(Status::NAMESPACE_NOT_REACHABLE.dnr());
    for nsid in [VOLUME.into(), 0] {
        assert_eq!(client.run(&request).1.media_read, 0);
        clear(&mut client, nsid).ok();
        assert_eq!(client.run(&request).1.media_read, LEN as u64);
    }
}

/// Each way to write has to drop what was kept.
#[test]
fn a_call_sees_what_anybody_wrote_before_it() {
    let (running, disk, mut bytes) = disk_target("");
    let mut client = Client::connect(&running);
    let request = client.over("stats64", &[], LEN as u64);
    let check = |client: &mut Client, bytes: &[u8], read: u64, what: &str| {
        assert_eq!(client.result(&request), locally("stats64", &[], bytes), "after {what}");
        assert_eq!(disk.take_read(), read, "after {what}");
    };
    check(&mut client, &bytes, LEN as u64, "nothing");

    let block = pattern(4096, 2);
    client.queue.write(VOLUME, 9, &block).ok();
    bytes[9 * 4096..10 * 4096].copy_from_slice(&block);
    check(&mut client, &bytes, 32 << 10, "a write");

    client.queue.command(Sqe::write_zeroes(VOLUME, 20, 2, false), None, 0).ok();
    bytes[20 * 4096..22 * 4096].fill(0);
    check(&mut client, &bytes, 32 << 10, "Write Zeroes");

    let input = crate::client::runs(2048);
    disk.bytes.write(2 << 20, &input);
    let bitmap = FunctionRequest {
        kind: FunctionKind::Write,
        sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 2 << 20, 2048)],
        sinks: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 100_000, 65_536)],
        args: encode(&function("bitmap"), &[]),
        ..client.over("bitmap", &[], 0)
    };
    client.result(&bitmap);
    disk.take_read();
    bytes[100_000..165_536].copy_from_slice(&locally("bitmap", &[], &input));
    check(&mut client, &bytes, 3 * (32 << 10), "the output of a function");
}

#[test]
fn a_call_that_is_too_long_keeps_nothing_and_so_does_a_cache_of_nothing() {
    for (cache, reads) in [("0", [LEN, LEN]), ("1MiB", [LEN, LEN]), ("2MiB", [LEN, 0])] {
        let (running, disk, _) = disk_target(&format!("[compute]\ncache = '{cache}'"));
        let mut client = Client::connect(&running);
        let request = client.over("stats64", &[], LEN as u64);
        for read in reads {
            client.result(&request);
            assert_eq!(disk.take_read(), read as u64, "a cache of {cache}");
        }
        assert!(page(&mut client).cache_len.get() <= 2 << 20);
    }
}

/// A lookup waits for blocks that are not kept; from then on they are followed at once, and what was written since is
/// seen.
#[test]
fn a_second_lookup_reads_nothing_from_the_disk() {
    second_lookups("", 32 << 10);
}

/// Nothing was kept of a volume of more than half of the cache, although lookups touch little of it: one that was 16 MiB longer than
/// another had a tenth of its lookups, and nothing said why.
#[test]
fn nor_does_one_in_a_volume_that_is_longer_than_the_cache() {
    second_lookups("[compute]\ncache = '512KiB'", 4096);
}

/// Lookups of which the disk reads so many bytes at a time.
fn second_lookups(settings: &str, unit_len_bytes: u64) {
    const MARK: u64 = 1 << 63;
    let (running, disk, _) = disk_target(settings);
    // A store of one leaf with the keys 40 and 41, whose values are far from each other.
    let mut leaf = [0; 64];
    (leaf[1], leaf[33], leaf[34]) = (1, MARK | 64 << 10, MARK | 256 << 10);
    leaf[2..33].fill(u64::MAX);
    (leaf[2], leaf[3]) = (40, 41);
    let leaf: Vec<u8> = leaf.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    disk.bytes.write(0, &leaf);
    for (key, at) in [(40, 64 << 10), (41, 256 << 10)] {
        disk.bytes.write(at, &[key; 64]);
    }
    let mut client = Client::connect(&running);
    let request = FunctionRequest {
        sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, LEN as u64)],
        args: vec![0; 16],
        result_len_max: 64,
        ..FunctionRequest::new(FunctionKind::Traverse, client.pind("kv_get"))
    };
    let request = FunctionRequest { function: Some("kv_get".into()), ..request };
    let handle = client.prepare(&request);
    let lookup = |client: &mut Client, key: u64, value: u8, blocks: u64, what: &str| {
        let args: Vec<u8> = [key, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(client.call(handle, &args, 64).ok(), [value; 64], "{what}");
        assert_eq!(disk.take_read(), blocks * unit_len_bytes, "{what}");
    };
    lookup(&mut client, 40, 40, 2, "the first");
    lookup(&mut client, 40, 40, 0, "the same again");
    lookup(&mut client, 41, 41, 1, "one whose leaf is kept and whose value is not");
    lookup(&mut client, 41, 41, 0, "the same again");
    client.queue.write(VOLUME, 16, &[7; 4096]).ok();
    lookup(&mut client, 40, 7, 1, "one whose value was written");
    lookup(&mut client, 41, 41, 0, "the other");
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    assert!(page(&mut other).cache_hits.get() >= 6);
    clear(&mut other, VOLUME.into()).ok();
    lookup(&mut client, 41, 41, 2, "after a Clear");

    // An operator saw who reads how much, and not by which function, nor that anybody called one.
    let (page, entries) = StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap();
    let is_lookup = |entry: &&StatisticsEntry| entry.kind == statistics_kind::FUNCTION && entry.name() == "kv_get";
    let counted = entries.iter().find(is_lookup).expect("its row");
    assert_eq!((page.prepared_calls.get(), counted.operations.get(), counted.failed.get()), (7, 7, 0));
    assert_eq!(counted.read.get(), 7 * (512 + 64));
}
