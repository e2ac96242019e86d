//! The standard computing commands: memory, range sets, Execute Program and copies, as any NVMe host sends them.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, SOURCES, VOLUME, locally, object, shared_memory, start, target};
use crate::common::{Answer, builder, pattern};
use diskside_nvme::Status;
use diskside_nvme::wire::memory::{
    ComputeNamespace, Execution, MemoryCopySource, MemoryNamespace, MemoryRange, memory_log,
};
use diskside_nvme::wire::{CSI_COMPUTE, CSI_SLM};
use diskside_nvme::wire::{CopySourceEntry, Sqe, cns};
use diskside_server::config::VolumeSpec;
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::function::{StatisticsPage, function_log};
use zerocopy::{FromBytes, IntoBytes};

/// Namespace ID of the memory namespace, and its size.
pub(crate) const MEMORY: u32 = 1023;
const MEMORY_LEN: u64 = 64 << 20;
/// A program index that no shipped program has.
const FREE: u16 = 100;

impl Client {
    pub(crate) fn memory_write(&mut self, start: u64, bytes: &[u8]) -> Answer {
        self.queue.command(Sqe::memory_write(MEMORY, start, bytes.len() as u32), Some(bytes), 0)
    }

    pub(crate) fn memory_read(&mut self, start: u64, len: u32) -> Vec<u8> {
        self.queue.command(Sqe::memory_read(MEMORY, start, len), None, len as usize).ok()
    }

    pub(crate) fn create_set(&mut self, ranges: &[MemoryRange]) -> Answer {
        let sqe = Sqe::create_range_set(COMPUTE, ranges.len() as u8);
        self.controller.admin.command(sqe, Some(ranges.as_bytes()), 0)
    }

    fn delete_set(&mut self, rsid: u16) -> Answer {
        self.controller.admin.command(Sqe::delete_range_set(COMPUTE, rsid), None, 0)
    }

    pub(crate) fn execute(&mut self, execution: Execution, data: &[u8]) -> Answer {
        self.queue.command(Sqe::execute_program(COMPUTE, &execution), Some(data).filter(|d| !d.is_empty()), 0)
    }

    /// Waits until a program runs. One that ends sooner than it is seen is not waited for longer than a while.
    fn await_engine(&mut self) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            let page = StatisticsPage::decode(&self.log(function_log::STATISTICS, 0)).unwrap().0;
            if page.engines_busy.get() > 0 {
                return;
            }
        }
    }

    fn admin_page(&mut self, sqe: Sqe, len: usize) -> Vec<u8> {
        self.controller.admin.command(sqe, None, len).ok()
    }

    pub(crate) fn load_exec(&mut self, pind: u16, name: &str) {
        self.load(pind, &compiled(name)).ok();
        self.activate(pind, true).ok();
    }
}

pub(crate) fn range(start: u64, len: u32) -> MemoryRange {
    MemoryRange::new(MEMORY, start, len)
}

/// An object from a source beside this file.
pub(crate) fn compiled(name: &str) -> Vec<u8> {
    compiled_with(name, &[])
}

pub(crate) fn compiled_with(name: &str, options: &[&str]) -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let clang = std::env::var("DISKSIDE_CLANG").unwrap_or_else(|_| "clang".into());
    let dir = tempfile::tempdir().unwrap();
    let object = dir.path().join("object.o");
    let done = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-fno-builtin", "-c", "-I"])
        .arg(format!("{root}/crates/abi/include"))
        .arg(format!("{SOURCES}{name}.bpf.c"))
        .args(options)
        .arg("-o")
        .arg(&object)
        .status();
    assert!(done.unwrap().success(), "{name}.bpf.c compiles");
    std::fs::read(object).unwrap()
}

#[test]
fn memory_is_written_read_filled_and_copied() {
    let running = target(1);
    let mut client = Client::connect(&running);
    assert_eq!(client.memory_read(0, 4096), [0; 4096], "it begins as zeroes");
    let bytes = pattern(300 << 10, 5);
    client.memory_write(4096, &bytes).ok();
    assert_eq!(client.memory_read(4096, 300 << 10), bytes);
    assert_eq!(client.memory_read(5000, 40), bytes[904..944]);
    client.queue.command(Sqe::memory_fill(MEMORY, 4100, 8), None, 0).ok();
    assert_eq!(client.memory_read(4096, 16), [&bytes[..4], &[0; 8], &bytes[12..16]].concat());
    client.queue.command(Sqe::memory_fill(MEMORY, 0, 0), None, 0).ok();
    client.memory_write(MEMORY_LEN - 4, &[7; 4]).ok();
    let sources = [MemoryCopySource::new(MEMORY, MEMORY_LEN - 4, 4), MemoryCopySource::new(MEMORY, 8192, 1000)];
    let copy = Sqe::memory_copy(MEMORY, 1 << 20, 1004, 2, 4);
    client.queue.command(copy, Some(sources.as_bytes()), 0).ok();
    assert_eq!(client.memory_read(1 << 20, 1008), [&[7; 4], &bytes[4096..5096], &[0; 4]].concat());
}

#[test]
fn each_bad_memory_command_has_its_status() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let mut command = |sqe, data: Option<&[u8]>, len| client.queue.command(sqe, data, len);
    for (start, len) in [(2, 8), (8, 6), (MEMORY_LEN, 4), (MEMORY_LEN - 4, 8), (u64::MAX - 3, 8)] {
        command(Sqe::memory_read(MEMORY, start, len), None, 8).fails_with(Status::INVALID_FIELD.dnr());
        command(Sqe::memory_fill(MEMORY, start, len), None, 0).fails_with(Status::INVALID_FIELD.dnr());
        command(Sqe::memory_write(MEMORY, start, len), Some(&vec![0; len as usize]), 0)
            .fails_with(Status::INVALID_FIELD.dnr());
    }
    command(Sqe::memory_read(MEMORY, 0, 16), None, 8).fails_with(Status::DATA_SGL_LENGTH_INVALID.dnr());
    command(Sqe::memory_write(MEMORY, 0, 16), Some(&[0; 8]), 0).fails_with(Status::DATA_SGL_LENGTH_INVALID.dnr());
    command(Sqe::memory_write(MEMORY, 0, 16), None, 0).fails_with(Status::DATA_SGL_LENGTH_INVALID.dnr());
    command(Sqe::memory_read(COMPUTE, 0, 16), None, 16).fails_with(Status::INVALID_OPCODE.dnr());
    command(Sqe::new(0x08, MEMORY), None, 0).fails_with(Status::INVALID_OPCODE.dnr());

    let own = |start, len| MemoryCopySource::new(MEMORY, start, len);
    let volume = |nsid, slba, blocks| CopySourceEntry::new(nsid, slba, blocks);
    let mut copy = |len: u64, ranges: u32, format: u8, data: &[u8]| {
        client.queue.command(Sqe::memory_copy(MEMORY, 0, len, ranges, format), Some(data), 0)
    };
    let of_memory = |source: MemoryCopySource| source.as_bytes().to_vec();
    let of_volume = |source: CopySourceEntry| source.as_bytes().to_vec();
    copy(8, 1, 0, &of_memory(own(64, 8))).fails_with(Status::INVALID_FIELD.dnr());
    copy(12, 1, 4, &of_memory(own(64, 8))).fails_with(Status::INVALID_FIELD.dnr());
    copy(8, 2, 4, &of_memory(own(64, 8))).fails_with(Status::DATA_SGL_LENGTH_INVALID.dnr());
    copy(6, 1, 4, &of_memory(own(64, 6))).fails_with(Status::INVALID_FIELD.dnr());
    copy(8, 1, 4, &of_memory(own(4, 8))).fails_with(Status::OVERLAPPING_IO_RANGE.dnr());
    copy(8, 1, 4, &of_memory(own(MEMORY_LEN, 8))).fails_with(Status::INVALID_FIELD.dnr());
    copy(8, 1, 4, &of_memory(own(64, 8).with_fast_only())).fails_with(Status::FAST_COPY_NOT_POSSIBLE.dnr());
    copy(8, 1, 4, &of_memory(MemoryCopySource::new(VOLUME, 64, 8)))
        .fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    copy(33 << 20, 1, 4, &of_memory(own(64, 8))).fails_with(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr());
    copy(4096, 1, 2, &of_volume(volume(MEMORY, 0, 1))).fails_with(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT.dnr());
    copy(4096, 1, 3, &of_volume(volume(77, 0, 1))).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    copy(4096, 1, 2, &of_volume(volume(VOLUME, 256, 1))).fails_with(Status::LBA_OUT_OF_RANGE.dnr());
    copy(4096, 1, 2, &of_volume(volume(VOLUME, u64::MAX, 1))).fails_with(Status::LBA_OUT_OF_RANGE.dnr());
    copy(4096, 1, 2, &of_volume(volume(VOLUME, 0, 2))).fails_with(Status::INVALID_FIELD.dnr());
    assert!(client.errors()[0].message.contains("the command copies 4096 bytes and its sources have 8192"));
}

#[test]
fn bytes_go_from_a_volume_to_memory_and_back() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = format!("data={},size=4MiB,rw", dir.path().join("data.img").display());
    for spec in ["data=mem:4MiB,rw", &file, "data=mem:4MiB,rw,block=512"] {
        let running = start(builder().volume(spec.parse::<VolumeSpec>().unwrap()));
        let mut client = Client::connect(&running);
        let block = if spec.ends_with("512") { 512 } else { 4096_usize };
        let bytes = pattern(64 * block, 3);
        client.queue.command(Sqe::write(VOLUME, 0, 64), Some(&bytes), 0).ok();
        let sources = [CopySourceEntry::new(VOLUME, 40, 10), CopySourceEntry::new(VOLUME, 0, 3)];
        let copy = Sqe::memory_copy(MEMORY, 12, 13 * block as u64, 2, 2);
        client.queue.command(copy, Some(sources.as_bytes()), 0).ok();
        let want = [&bytes[40 * block..50 * block], &bytes[..3 * block]].concat();
        assert!(client.memory_read(12, 13 * block as u32) == want, "{spec}");

        let len = 2 * block as u32;
        let sources = [MemoryCopySource::new(MEMORY, 16, len - 4), MemoryCopySource::new(MEMORY, 12, 4)];
        let back = Sqe::copy(VOLUME, 60, 2, 4).with_fua();
        client.queue.command(back, Some(sources.as_bytes()), 0).ok();
        let got = client.queue.command(Sqe::read(VOLUME, 60, 3), None, 3 * block).ok();
        let turned = [&want[4..2 * block], &want[..4], &bytes[62 * block..63 * block]].concat();
        assert!(got == turned, "{spec}");

        let mut copy = |slba, source: MemoryCopySource| {
            client.queue.command(Sqe::copy(VOLUME, slba, 1, 4), Some(source.as_bytes()), 0)
        };
        copy(0, MemoryCopySource::new(MEMORY, 0, 100)).fails_with(Status::INVALID_FIELD.dnr());
        copy(0, MemoryCopySource::new(VOLUME, 0, 4096)).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        copy((4 << 20) / block as u64 - 1, MemoryCopySource::new(MEMORY, 0, len))
            .fails_with(Status::LBA_OUT_OF_RANGE.dnr());
        copy((4 << 20) / block as u64, MemoryCopySource::new(MEMORY, 0, len))
            .fails_with(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let running = start(builder().volume("data=mem:1MiB,ro".parse().unwrap()));
    let mut client = Client::connect(&running);
    let source = MemoryCopySource::new(MEMORY, 0, 4096);
    let copy = Sqe::copy(VOLUME, 0, 1, 4);
    client.queue.command(copy, Some(source.as_bytes()), 0).fails_with(Status::NAMESPACE_WRITE_PROTECTED.dnr());
}

#[test]
fn a_medium_that_fails_has_its_status_in_copies() {
    let plans = [
        (FaultPlan { eio_ppm: 1_000_000, ..FaultPlan::default() }, Status::WRITE_FAULT),
        (FaultPlan { enospc_ppm: 1_000_000, ..FaultPlan::default() }, Status::CAPACITY_EXCEEDED),
        (FaultPlan { flush_eio_ppm: 1_000_000, ..FaultPlan::default() }, Status::SUCCESS),
    ];
    for (plan, written) in plans {
        let reads_fail = plan.eio_ppm > 0;
        let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(1 << 20, false).unwrap()), 4096, plan);
        let running = start(builder().medium(VolumeSpec::new("data", "faulty").writable(), Arc::new(medium)));
        let mut client = Client::connect(&running);
        let source = MemoryCopySource::new(MEMORY, 0, 8192);
        let to_volume = Sqe::copy(VOLUME, 0, 1, 4);
        assert_eq!(client.queue.command(to_volume, Some(source.as_bytes()), 0).status, written);
        if written.is_success() {
            let durable = client.queue.command(to_volume.with_fua(), Some(source.as_bytes()), 0);
            assert_eq!(durable.status, Status::WRITE_FAULT, "it is not durable");
        }
        client.memory_write(0, &[7; 4096]).ok();
        let source = CopySourceEntry::new(VOLUME, 0, 1);
        let read = client.queue.command(Sqe::memory_copy(MEMORY, 0, 4096, 1, 2), Some(source.as_bytes()), 0).status;
        assert_eq!(read, if reads_fail { Status::UNRECOVERED_READ_ERROR } else { Status::SUCCESS });
    }
}

#[test]
fn range_sets_are_made_listed_and_deleted() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let made = client.create_set(&[range(0, 64), range(128, 4096)]);
    assert_eq!((made.status, made.result), (Status::SUCCESS, 1));
    let overlapping = client.create_set(&[range(64, 8), range(0, 64)]);
    assert_eq!(overlapping.result, 2, "sets may overlap each other; ranges of one may touch");
    let page = client.admin_page(Sqe::get_log_page(memory_log::RANGE_SETS, 0, 4096, 0, false), 4096);
    assert_eq!((page[0], &page[32..36], &page[128..132]), (2, &[1, 0, 2, 0][..], &[2, 0, 2, 0][..]));
    assert_eq!(page[64..128], *[range(0, 64), range(128, 4096)].as_bytes());

    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    // For another host there is no such set.
    let page = other.admin_page(Sqe::get_log_page(memory_log::RANGE_SETS, 0, 64, 0, false), 64);
    assert_eq!(page[0], 0);
    other.delete_set(1).fails_with(Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER.dnr());
    let pind = other.pind("stats64");
    let execution = Execution { pind, rsid: 1, ..Execution::default() };
    other.execute(execution, &[]).fails_with(Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER.dnr());
    client.delete_set(1).ok();
    client.delete_set(1).fails_with(Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER.dnr());
    client.delete_set(0).fails_with(Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER.dnr());

    client.create_set(&[]).fails_with(Status::MAXIMUM_MEMORY_RANGES_EXCEEDED.dnr());
    let most: Vec<MemoryRange> = (0..239).map(|n| range(n * 8, 8)).collect();
    client.create_set(&most).ok();
    let too_many: Vec<MemoryRange> = (0..240).map(|n| range(n * 8, 8)).collect();
    client.create_set(&too_many).fails_with(Status::MAXIMUM_MEMORY_RANGES_EXCEEDED.dnr());
    for (bad, status) in [
        (vec![range(4, 8)], Status::INVALID_MEMORY_RANGE_SET),
        (vec![range(8, 4)], Status::INVALID_MEMORY_RANGE_SET),
        (vec![range(8, 0)], Status::INVALID_MEMORY_RANGE_SET),
        (vec![range(MEMORY_LEN, 8)], Status::INVALID_MEMORY_RANGE_SET),
        (vec![range(u64::MAX - 7, 8)], Status::INVALID_MEMORY_RANGE_SET),
        (vec![range(0, 16), range(8, 8)], Status::OVERLAPPING_MEMORY_RANGES),
        (vec![MemoryRange::new(VOLUME, 0, 8)], Status::INVALID_MEMORY_NAMESPACE),
        (vec![MemoryRange::new(77, 0, 8)], Status::INVALID_MEMORY_NAMESPACE),
    ] {
        client.create_set(&bad).fails_with(status.dnr());
    }
    assert!(client.errors()[0].message.contains("namespace 77 is no memory namespace"));
    let mut admin = |sqe, data| client.controller.admin.command(sqe, data, 0);
    let one = range(0, 8);
    let create = Sqe::create_range_set(COMPUTE, 1);
    admin(create, Some(&one.as_bytes()[..31])).fails_with(Status::DATA_SGL_LENGTH_INVALID.dnr());
    admin(create, None).fails_with(Status::DATA_SGL_LENGTH_INVALID.dnr());
    admin(create.with_bits(10, 0, 4, 2), Some(one.as_bytes())).fails_with(Status::INVALID_FIELD.dnr());
    admin(Sqe::create_range_set(MEMORY, 1), Some(one.as_bytes())).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    let answers = (0..1024).map(|_| client.create_set(&[one])).collect::<Vec<_>>();
    let refused: Vec<_> = answers.iter().filter(|answer| !answer.status.is_success()).collect();
    assert_eq!(refused.len(), 2, "1,024 sets, two of which were there");
    assert!(refused.iter().all(|answer| answer.status == Status::MAXIMUM_MEMORY_RANGE_SETS_EXCEEDED.dnr()));
}

#[test]
fn the_sets_of_a_host_go_with_its_last_controller() {
    let volume = VolumeSpec::new("data", "mem:1MiB").writable();
    let running = start(builder().volume(volume).grant(shared_memory()));
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    let mut client = Client::connect(&running);
    let rsid = client.create_set(&[range(0, 64)]).result as u16;
    client.queue.command(Sqe::memory_fill(MEMORY, 0, 4), None, 0).ok();
    // The last eighth is for hosts that have less than an eighth.
    for _ in 1..1024 - 1024 / 8 {
        other.create_set(&[range(0, 64)]).ok();
    }
    other.create_set(&[range(0, 64)]).fails_with(Status::MAXIMUM_MEMORY_RANGE_SETS_EXCEEDED.dnr());
    drop(client);
    for _ in 0..2000 {
        if other.create_set(&[range(0, 64)]).status.is_success() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("set {rsid} outlives its host");
}

#[test]
fn a_shipped_function_runs_over_memory() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let bytes = pattern(64 << 10, 8);
    client.memory_write(0, &bytes).ok();
    let want = locally("stats64", &[], &bytes);
    let pind = client.pind("stats64");
    let ranges = [range(0, 64 << 10), range(1 << 20, 4096)];
    let rsid = client.create_set(&ranges).result as u16;
    let by_set = client.execute(Execution { pind, rsid, ..Execution::default() }, &[]);
    assert!(by_set.status.is_success(), "{}", by_set.status);
    assert_eq!(by_set.result, want.len() as u64, "RVAL is what the program returned");
    assert_eq!(client.memory_read(1 << 20, want.len() as u32), want);

    let (to, len) = (2 << 20, (64 << 10) as u32);
    let ranges = [range(0, len), range(to, 4096)];
    let inline = Execution { pind, ranges: 2, data_len: 64, ..Execution::default() };
    assert_eq!(client.execute(inline, ranges.as_bytes()).result, want.len() as u64);
    assert_eq!(client.memory_read(to, want.len() as u32), want);
    client.queue.command(Sqe::memory_fill(MEMORY, to, 4096), None, 0).ok();
    let of_linux = Execution { data_len: 0, ..inline };
    assert_eq!(client.execute(of_linux, ranges.as_bytes()).result, want.len() as u64, "without DLEN all data counts");
    assert_eq!(client.memory_read(to, want.len() as u32), want);
}

#[test]
fn a_loaded_program_gets_ranges_data_and_parameters() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load(FREE, &compiled("exec")).ok();
    let run = Execution { pind: FREE, cparam1: 0x1122_3344_5566_7788, cparam2: 10, ..Execution::default() };
    client.execute(run, &[]).fails_with(Status::PROGRAM_NOT_ACTIVATED.dnr());
    client.activate(FREE, true).ok();
    let rsid = client.create_set(&[range(64, 64), range(8192, 8)]).result as u16;
    let answer = client.execute(Execution { rsid, ..run }, &5_u64.to_le_bytes());
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 2005));
    for start in [64, 8192] {
        assert_eq!(client.memory_read(start, 8), run.cparam1.to_le_bytes());
    }
    assert_eq!(client.memory_read(72, 8), [0; 8]);
    let inline = [range(0, 8).as_bytes(), &9_u64.to_le_bytes()].concat();
    let answer = client.execute(Execution { ranges: 1, data_len: 40, ..run }, &inline);
    assert_eq!(answer.result, 1009, "data that follows inline ranges is the program's");
    let answer = client.execute(Execution { ranges: 1, data_len: 32, ..run }, &inline);
    assert_eq!(answer.result, 1000, "DLEN says how much of it counts");
    assert_eq!(client.execute(run, &[]).result, 0, "no ranges are fine, too");
}

#[test]
fn each_bad_execution_has_its_status() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_exec(FREE, "exec");
    client.load_exec(FREE + 1, "trap");
    let one = range(0, 64);
    let data = one.as_bytes();
    let run = Execution { pind: FREE, ranges: 1, data_len: 32, ..Execution::default() };
    for (execution, data, status) in [
        (Execution { rsid: 1, ..run }, data, Status::INVALID_FIELD),
        (Execution { data_len: 33, ..run }, data, Status::INVALID_FIELD),
        (Execution { data_len: 31, ..run }, data, Status::INVALID_FIELD),
        (Execution { ranges: 2, ..run }, data, Status::INVALID_FIELD),
        (Execution { ranges: 240, data_len: 0, ..run }, data, Status::MAXIMUM_MEMORY_RANGES_EXCEEDED),
        (Execution { ranges: u32::MAX, ..run }, data, Status::MAXIMUM_MEMORY_RANGES_EXCEEDED),
        (Execution { ranges: 0, data_len: 0, rsid: 7, ..run }, &[], Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER),
        (Execution { pind: 9999, ..run }, data, Status::INVALID_PROGRAM_INDEX),
        (Execution { pind: FREE + 2, ..run }, data, Status::NO_PROGRAM),
        (Execution { pind: client.pind("stats64"), ..run }, data, Status::INVALID_FIELD),
    ] {
        let answer = client.execute(execution, data);
        assert_eq!(answer.status, status.dnr(), "{execution:?}");
    }
    assert!(client.errors()[0].message.contains("it takes two: its input and its output"));
    for (bad, status) in [
        (range(4, 64), Status::INVALID_MEMORY_RANGE_SET),
        (range(MEMORY_LEN - 8, 64), Status::INVALID_MEMORY_RANGE_SET),
        (MemoryRange::new(VOLUME, 0, 64), Status::INVALID_MEMORY_NAMESPACE),
    ] {
        client.execute(run, bad.as_bytes()).fails_with(status.dnr());
    }
    client.load_exec(FREE + 3, "walk");
    let answer = client.execute(Execution { pind: FREE + 3, ..run }, data);
    assert_eq!(answer.status, Status::FUNCTION_NOT_FOUND.dnr(), "it has two");
    let told = &client.errors()[0].message;
    assert!(
        told.contains("several functions: stroll, walk") || told.contains("several functions: walk, stroll"),
        "{told}"
    );
    client.load_exec(FREE + 4, "step");
    let answer = client.execute(Execution { pind: FREE + 4, ..run }, data);
    assert_eq!(answer.status, Status::FUNCTION_KIND_NOT_SUPPORTED.dnr());
    assert_eq!(client.errors()[0].message, "`step` is of kind `traverse`, which Execute Program does not run");
    let twice = [one, one];
    client
        .execute(Execution { ranges: 2, data_len: 64, ..run }, twice.as_bytes())
        .fails_with(Status::OVERLAPPING_MEMORY_RANGES.dnr());
    client.execute(Execution { pind: FREE + 1, ..run }, data).fails_with(Status::FUNCTION_FAILED.dnr());
    let told = &client.errors()[0].message;
    assert!(told.contains("trap.bpf.c:7") && told.contains("out-of-bounds read of 1 bytes of range 1"), "{told}");
    let endless = Execution { cparam2: u64::MAX, ..run };
    client.execute(endless, data).fails_with(Status::FUNCTION_FAILED.dnr());
    assert!(client.errors()[0].message.contains("budget"), "{}", client.errors()[0].message);
    let elsewhere = Sqe::execute_program(COMPUTE, &run);
    let on = |nsid| Sqe::execute_program(nsid, &run);
    client.queue.command(on(77), Some(data), 0).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    client.queue.command(elsewhere.with_bits(2, 0, 16, FREE.into()), Some(data), 0).ok();
}

/// A command that touches memory which a program has waits until the program ends; others do not.
#[test]
fn memory_of_a_running_program_is_nobody_else_s() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let mut other = client.controller.io_queue(2, 64);
    client.load_exec(FREE, "exec");
    // A large range, because the budget grows with the bytes.
    let (len, start) = (32 << 20, 8 << 20);
    let mut rsid = client.create_set(&[range(start, len)]).result as u16;
    // A program that ends before the commands below have come, because this machine is busy, says nothing: once more.
    for _ in 0..50 {
        let execution = Execution { pind: FREE, rsid, cparam1: u64::MAX, cparam2: 120_000_000, ..Execution::default() };
        let execute = client.queue.post(Sqe::execute_program(COMPUTE, &execution), None, 0).unwrap();
        client.await_engine();
        let outside = other.command(Sqe::memory_write(MEMORY, 0, 8), Some(&[1; 8]), 0);
        let inside = other.post(Sqe::memory_write(MEMORY, start, 8), Some(&[2; 8]), 0).unwrap();
        outside.ok();
        let still_in_use = client.delete_set(rsid).status == Status::MEMORY_RANGE_SET_IN_USE;
        other.wait(inside).unwrap().ok();
        client.queue.wait(execute).unwrap().ok();
        if still_in_use {
            assert_eq!(client.memory_read(start, 8), [2; 8], "the write came after the program");
            client.delete_set(rsid).ok();
            return;
        }
        rsid = client.create_set(&[range(start, len)]).result as u16;
    }
    panic!("no program was still running when a write came");
}

#[test]
fn pages_say_what_there_is() {
    let running = start(builder().compute(|compute| compute.active_programs = 200));
    let mut client = Client::connect(&running);
    let of = |nsid, csi| Sqe::identify(cns::COMMAND_SET_NAMESPACE, nsid, csi);
    let page = client.admin_page(of(COMPUTE, CSI_COMPUTE), 4096);
    let id = ComputeNamespace::read_from_prefix(&page).unwrap().0;
    assert_eq!((id.programs_active_max.get(), id.range_sets_max.get()), (200, 1024));
    assert_eq!((id.range_granularity_exponent.get(), id.ranges_max, id.program_mib_max.get()), (3, 239, 64));
    let page = client.admin_page(of(MEMORY, CSI_SLM), 4096);
    let id = MemoryNamespace::read_from_prefix(&page).unwrap().0;
    assert_eq!((id.size.get(), id.granularity_exponent, id.copy_ranges_max.get()), (MEMORY_LEN, 2, 128));
    let controller = Sqe::identify(cns::COMMAND_SET_CONTROLLER, 0, CSI_SLM);
    assert_eq!(client.admin_page(controller, 4096), [0; 4096]);

    client.load(FREE, object("stats64")).ok();
    let list = Sqe::get_log_page(memory_log::PROGRAMS, 0, 64 * 257, 0, false);
    let page = client.admin_page(list, 64 * 257);
    let shipped = usize::from(client.pind("stats64"));
    let record = |index: usize| &page[64 * (index + 1)..64 * (index + 2)];
    assert_eq!(u32::from_le_bytes(page[..4].try_into().unwrap()), 256);
    assert_eq!((record(shipped)[0] & 7, record(shipped)[1]), (0b110, 0), "device-defined and active");
    assert_eq!((record(FREE.into())[0], record(FREE.into())[1]), (0b001, 0xc0), "downloaded, not active");
    assert_eq!(record(200), [0; 64]);
    let types = client.admin_page(Sqe::get_log_page(memory_log::PROGRAM_TYPES, 0, 32, 0, false), 32);
    assert_eq!((types[0], types[16]), (1, 0xc0));
    let descriptors = client.admin_page(Sqe::identify(cns::NAMESPACE_DESCRIPTORS, MEMORY, 0), 4096);
    assert!(descriptors.windows(5).any(|window| window == [4, 1, 0, 0, CSI_SLM]));
    for csi in [CSI_SLM, CSI_COMPUTE] {
        let effects = client.admin_page(Sqe::get_log_page(5, 0, 4096, csi, false), 4096);
        assert_eq!(effects[0x89 * 4] & 1, 1, "range sets are an admin command");
        assert_eq!(effects[1024 + 4] & 1, 1, "opcode 01h: Memory Copy, or Execute Program");
        assert_eq!(effects[1024 + 5 * 4] & 1, u8::from(csi == CSI_SLM), "opcode 05h: Memory Write alone");
    }
}

#[test]
fn a_target_can_do_without_memory() {
    let toml = "[compute]\nmemory = '0'\n[[volume]]\nname = 'data'\npath = 'mem:1MiB'";
    let settings = diskside_server::config::Settings::from_toml(toml, "d.toml").unwrap();
    let mut config = diskside_server::config::ServeConfig::resolve(settings).unwrap();
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    let running = start(diskside_server::Target::builder().config(config));
    let mut client = Client::connect(&running);
    client.queue.command(Sqe::memory_read(MEMORY, 0, 4), None, 4).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
    client.execute(Execution::default(), &[]).fails_with(Status::INVALID_OPCODE.dnr());
    let descriptors = Sqe::identify(cns::NAMESPACE_DESCRIPTORS, MEMORY, 0);
    client.controller.admin.command(descriptors, None, 4096).fails_with(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
}
