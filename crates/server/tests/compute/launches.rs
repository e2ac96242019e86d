//! Kernels over the wire: launched by a function command, or executed as a standard program over a window of memory.

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::{Answer, builder, pattern};
use crate::standard::{MEMORY, compiled, range};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::{Execution, MemoryRange};
use diskside_server::Running;
use diskside_server::config::{ExportSpec, VolumeSpec};
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::file::FileFlags;
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome, Placement, ResultMask};
use std::path::Path;
use std::sync::Arc;
use zerocopy::IntoBytes;

const TALLY: u16 = 100;
const ENDLESS: u16 = 101;
/// Namespace ID of a volume that no host may write.
const FIXED: u32 = 2;
const PAGE: usize = 4096;
const PAGES: usize = 9;
/// Where the mask lies, behind a window of eleven pages.
const MASK_AT: u64 = 1 << 20;
const WINDOW: u32 = 11 * PAGE as u32;

fn target(dir: &Path, execution_ms: u32) -> Running {
    let export = ExportSpec::new("data", dir).writable();
    let volumes = [format!("data=mem:{},rw", PAGES * PAGE), "fixed=mem:64KiB".to_owned()];
    let compute = builder().compute(|compute| compute.execution_ms = execution_ms).export(export);
    start(volumes.iter().fold(compute, |target, volume| target.volume(volume.parse().unwrap())))
}

fn connected(running: &Running) -> Client {
    let mut client = Client::connect(running);
    for (pind, name) in [(TALLY, "tally"), (ENDLESS, "rereads")] {
        client.load(pind, &compiled(name)).ok();
        client.activate(pind, true).ok();
    }
    client
}

fn volume(nsid: u32) -> Endpoint {
    Endpoint::whole(EndpointKind::Volume(nsid))
}

fn args(add: u32, odd: bool) -> Vec<u8> {
    [add, odd.into(), 0, 0].into_iter().flat_map(u32::to_le_bytes).collect()
}

fn added(bytes: &[u8], add: u8) -> Vec<u8> {
    bytes.iter().map(|byte| byte.wrapping_add(add)).collect()
}

impl Client {
    /// Executes a kernel over these ranges and files; the first so many may only be read.
    fn execute_kernel(&mut self, ranges: &[MemoryRange], files: &[Endpoint], readable: u64, args: &[u8]) -> Answer {
        let cparam1 = readable | (files.len() as u64 - readable) << 16;
        self.execute_with(Execution { pind: TALLY, cparam1, ..Execution::default() }, ranges, files, args)
    }

    fn execute_with(
        &mut self,
        execution: Execution,
        ranges: &[MemoryRange],
        files: &[Endpoint],
        args: &[u8],
    ) -> Answer {
        let entries: Vec<u8> = files.iter().flat_map(Endpoint::to_bytes).collect();
        let data = [ranges.as_bytes(), &entries, args].concat();
        let (ranges, data_len) = (ranges.len() as u32, data.len() as u32);
        self.execute(Execution { ranges, data_len, ..execution }, &data)
    }

    fn mask(&mut self) -> u64 {
        u64::from_le_bytes(self.memory_read(MASK_AT, 8).try_into().unwrap())
    }
}

#[test]
fn a_kernel_is_executed_over_a_window_of_memory_and_its_mask() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path(), 10_000);
    let mut client = connected(&running);
    let pages = pattern(PAGES * PAGE, 7);
    client.fill(&pages);
    let (window, mask) = (range(0, WINDOW), range(MASK_AT, 8));
    let old = vec![0xee; WINDOW as usize];
    // Without a mask the result is written whole, and nothing behind it.
    client.memory_write(0, &old).ok();
    let answer = client.execute_kernel(&[window], &[volume(VOLUME)], 1, &args(1, false));
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, (PAGES * PAGE) as u64));
    let expected = [&added(&pages, 1)[..], &old[PAGES * PAGE..]].concat();
    assert!(client.memory_read(0, WINDOW) == expected);
    // Pages that the kernel holds back stay in memory as they were, and so it does without a range for the mask.
    for ranges in [&[window][..], &[window, mask]] {
        client.memory_write(0, &old).ok();
        client.memory_write(MASK_AT, &0x7ff_u64.to_le_bytes()).ok();
        let answer = client.execute_kernel(ranges, &[volume(VOLUME)], 1, &args(2, true));
        assert_eq!((answer.status, answer.result), (Status::SUCCESS, (PAGES * PAGE) as u64));
        let mut expected = old.clone();
        for page in (1..PAGES).step_by(2) {
            expected[page * PAGE..][..PAGE].copy_from_slice(&added(&pages[page * PAGE..][..PAGE], 2));
        }
        assert!(client.memory_read(0, WINDOW) == expected);
        assert_eq!(client.mask(), if ranges.len() == 2 { 0b0_1010_1010 } else { 0x7ff });
    }
    // Nor is what the host held back written. Bits of pages that the result has not are left out of what is told.
    client.memory_write(0, &old).ok();
    client.memory_write(MASK_AT, &0b110_0000_1100_u64.to_le_bytes()).ok();
    client.execute_kernel(&[window, mask], &[volume(VOLUME)], 1, &args(3, true)).ok();
    let mut expected = old.clone();
    expected[3 * PAGE..4 * PAGE].copy_from_slice(&added(&pages[3 * PAGE..4 * PAGE], 3));
    assert!(client.memory_read(0, WINDOW) == expected);
    assert_eq!(client.mask(), 0b1000);
    // The ranges of a set are the same.
    let rsid = client.create_set(&[window]).result as u16;
    let execution = Execution { pind: TALLY, rsid, cparam1: 1, ..Execution::default() };
    let data = [&volume(VOLUME).to_bytes()[..], &args(4, false)].concat();
    client.execute(execution, &data).ok();
    assert!(client.memory_read(0, (PAGES * PAGE) as u32) == added(&pages, 4));
}

#[test]
fn a_kernel_that_is_executed_reads_and_writes_files_and_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path(), 10_000);
    let mut client = connected(&running);
    let pages = pattern(PAGES * PAGE, 8);
    std::fs::write(dir.path().join("in"), &pages).unwrap();
    std::fs::write(dir.path().join("out"), b"").unwrap();
    let file = |client: &mut Client, name: &str, flags| {
        let handle = client.open(&format!("data/{name}"), flags);
        Endpoint { generation: handle.generation, ..Endpoint::whole(EndpointKind::File(handle.id)) }
    };
    let (from, to) = (file(&mut client, "in", FileFlags::READ), file(&mut client, "out", FileFlags::READ_WRITE));
    let window = [range(0, WINDOW)];
    // With each policy, and with one access at a time.
    for (policy, add) in [(0, 1), (1, 2), (0x100, 3), (0x201, 4)] {
        let execution = Execution { pind: TALLY, cparam1: 1 | 1 << 16, cparam2: policy, ..Execution::default() };
        client.execute_with(execution, &window, &[from, to], &args(add, false)).ok();
        assert!(std::fs::read(dir.path().join("out")).unwrap() == added(&pages, add as u8), "{policy:#x}");
    }
    client.execute_kernel(&window, &[from, volume(VOLUME)], 1, &args(5, false)).ok();
    assert!(client.queue.read(VOLUME, 0, PAGES as u32).ok() == added(&pages, 5));
    // The shipped ones need no load: sums of the words of each unit.
    let pind = client.pind("ndp_aggregate");
    let mut summed = (PAGE as u64).to_le_bytes().to_vec();
    summed.extend([100_u32, 4].into_iter().flat_map(u32::to_le_bytes));
    let execution = Execution { pind, cparam1: 1, ..Execution::default() };
    let answer = client.execute_with(execution, &window, &[from], &summed);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, PAGES as u64 * 16));
    let rows: Vec<u64> = pages
        .chunks(PAGE)
        .enumerate()
        .flat_map(|(at, page)| {
            let words = page.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            [(at * PAGE) as u64, words.fold(0, u64::wrapping_add)]
        })
        .collect();
    assert_eq!(client.memory_read(0, PAGES as u32 * 16), rows.as_bytes());
}

#[test]
fn an_execution_of_a_kernel_that_cannot_be_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path(), 10_000);
    let mut client = connected(&running);
    let (window, mask, data) = (range(0, WINDOW), range(MASK_AT, 8), volume(VOLUME));
    let old = vec![0xee; WINDOW as usize];
    client.memory_write(0, &old).ok();
    let good = args(1, false);
    let part = Endpoint::new(EndpointKind::Volume(VOLUME), 0, 4096);
    let appended = Endpoint { placement: Placement::Append, ..Endpoint::whole(EndpointKind::File(1)) };
    let gone = Endpoint { generation: 9, ..Endpoint::whole(EndpointKind::File(77)) };
    let no_file =
        "a kernel's file is a file of an export or a volume: type 2 or 1, offset 0, to the end, without flags";
    let (invalid, failed) = (Status::INVALID_FIELD.dnr(), Status::FUNCTION_FAILED.dnr());
    let wide: Vec<MemoryRange> = (0..3).map(|at| range(at * 4096, 4096)).collect();
    type Case<'a> = (&'a [MemoryRange], &'a [Endpoint], u64, &'a [u8], Status, &'a str);
    let cases: [Case<'_>; 10] = [
        (&[], &[data], 1, &good, invalid, "was given 0 memory ranges: a kernel takes one for its result"),
        (&wide, &[data], 1, &good, invalid, "was given 3 memory ranges: a kernel takes one for its result"),
        (
            &[range(0, 1 << 20), range(MASK_AT, 8)],
            &[data],
            1,
            &good,
            invalid,
            "the second, its mask, has no bit for some",
        ),
        (&[window], &[part], 1, &good, invalid, no_file),
        (&[window], &[Endpoint::whole(EndpointKind::Memory(MEMORY))], 1, &good, invalid, no_file),
        (&[window], &[data, appended], 1, &good, invalid, no_file),
        (&[window], &[volume(77)], 1, &good, Status::NAMESPACE_NOT_REACHABLE.dnr(), "no volume with namespace ID 77"),
        (
            &[window],
            &[data, volume(FIXED)],
            1,
            &good,
            Status::NAMESPACE_WRITE_PROTECTED.dnr(),
            "volume fixed is read-only",
        ),
        (&[window], &[gone], 1, &good, failed, "handle 77 is not open"),
        (
            &[window],
            &[data],
            1,
            &good[..8],
            invalid,
            "the arguments are 8 bytes, the function's structure `tally_args` is 16",
        ),
    ];
    for (ranges, files, readable, args, status, told) in cases {
        client.execute_kernel(ranges, files, readable, args).fails_with(status);
        let (_, said) = client.said();
        assert!(said.to_lowercase().contains(&told.to_lowercase()), "{told}: {said}");
    }
    // Parameters that say nothing, and a mask of pages that the window has not.
    let odd = |cparam1, cparam2| Execution { pind: TALLY, cparam1, cparam2, ..Execution::default() };
    for (execution, told) in [
        (odd(1 | 1 << 32, 0), "byte 40 of the command: CPARAM1 has the number of files"),
        (odd(17, 0), "byte 40 of the command: CPARAM1 has the number of files"),
        (odd(9 | 8 << 16, 0), "byte 40 of the command: CPARAM1 has the number of files"),
        (odd(3, 0), "byte 40 of the command: the data is shorter than the entries"),
        (odd(1, 0x300), "byte 48 of the command: CPARAM2 says of a kernel"),
        (odd(1, 1 << 40), "byte 48 of the command: CPARAM2 says of a kernel"),
        (odd(1, 65), "1 to 64 accesses may be under way at a time"),
    ] {
        client.execute_with(execution, &[window], &[data], &good).fails_with(invalid);
        assert!(client.said().1.contains(told), "{told}");
    }
    client.memory_write(MASK_AT, &(1_u64 << 11).to_le_bytes()).ok();
    client.execute_kernel(&[window, mask], &[data], 1, &good).fails_with(invalid);
    assert!(client.said().1.contains("the mask has blocks behind the room for its result"));
    // A kernel that sets such a bit itself fails, and so does one whose result has no room.
    let strange: Vec<u8> = [1_u32, 0, 0, 11].into_iter().flat_map(u32::to_le_bytes).collect();
    client.execute_kernel(&[window], &[data], 1, &strange).fails_with(failed);
    assert!(client.said().1.contains("kernel/tally marked a block behind the room for its result, which has 11"));
    client.execute_kernel(&[range(0, 4096)], &[data], 1, &good).fails_with(failed);
    assert!(client.said().1.contains("out-of-bounds write of 4096 bytes of output at offset 4096"));
    assert!(client.memory_read(0, WINDOW) == old, "nothing was written");
    // What a kernel returns is the result of the command.
    let fails: Vec<u8> = [1_u32, 0, 1, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    let answer = client.execute_kernel(&[window], &[data], 1, &fails);
    assert_eq!((answer.status, answer.result as i64), (Status::SUCCESS, -34));
    assert!(client.memory_read(0, WINDOW) == old, "nothing was written");
}

#[test]
fn an_execution_of_a_kernel_ends_with_its_time_or_when_it_is_aborted() {
    let dir = tempfile::tempdir().unwrap();
    let execution = Execution { pind: ENDLESS, cparam1: 1, ..Execution::default() };
    let data = [range(0, 4096).as_bytes(), &volume(VOLUME).to_bytes(), &[0; 8]].concat();
    let execution = Execution { ranges: 1, data_len: data.len() as u32, ..execution };
    let running = target(dir.path(), 200);
    let mut client = connected(&running);
    client.execute(execution, &data).fails_with(Status::FUNCTION_FAILED.dnr());
    assert!(client.said().1.contains("deadline"), "{}", client.said().1);
    // Its memory is free again.
    client.memory_write(0, &[1; 8]).ok();
    let running = target(dir.path(), 10_000);
    let mut client = connected(&running);
    let cid = client.queue.post(Sqe::execute_program(COMPUTE, &execution), Some(&data), 0).unwrap();
    client.controller.admin.command(Sqe::abort(1, cid), None, 0).ok();
    let answer = client.queue.wait(cid).unwrap();
    assert_eq!(answer.status, Status::COMMAND_ABORT_REQUESTED);
    client.memory_write(0, &[1; 8]).ok();
}

/// Pages that a kernel holds back were sent all the same, as zeroes.
#[test]
fn only_pages_that_are_marked_are_sent() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path(), 10_000);
    let mut client = connected(&running);
    let pages = pattern(PAGES * PAGE, 9);
    client.fill(&pages);
    let launch = |result_mask, odd| FunctionRequest {
        sources: vec![volume(VOLUME)],
        args: args(0, odd),
        result_len_max: u64::from(WINDOW),
        result_mask,
        ..FunctionRequest::new(FunctionKind::Launch, TALLY)
    };
    let (whole, trailer) = client.run(&launch(ResultMask::Kernel, false));
    assert!(trailer.outcome == Outcome::Ok && trailer.hop == 0 && whole == pages, "{}", trailer.message);
    let (sent, trailer) = client.run(&launch(ResultMask::Kernel, true));
    assert_eq!((trailer.hop, trailer.returned, trailer.result_len), (2, (PAGES * PAGE) as i64, 2 + 4 * PAGE as u64));
    assert_eq!(sent[..2], [0b1010_1010, 0]);
    let odd: Vec<u8> = pages.chunks(PAGE).skip(1).step_by(2).flatten().copied().collect();
    assert!(sent[2..] == odd);
    let (sent, trailer) = client.run(&launch(ResultMask::Host(vec![0b110, 1]), true));
    assert!(trailer.hop == 2 && sent[..2] == [0b10, 0] && sent[2..] == pages[PAGE..2 * PAGE]);
    let (sent, trailer) = client.run(&launch(ResultMask::Host(vec![0b110, 1]), false));
    assert!(
        trailer.hop == 2
            && sent[..2] == [0b110, 1]
            && sent[2..] == [&pages[PAGE..3 * PAGE], &pages[8 * PAGE..]].concat()
    );
    let (sent, trailer) = client.run(&launch(ResultMask::Host(Vec::new()), false));
    assert!(trailer.hop == 2 && sent == [0, 0] && trailer.returned == (PAGES * PAGE) as i64);
    // A host that knows no masks has zeroes there.
    let (sent, trailer) = client.run(&launch(ResultMask::Unknown, true));
    let mut zeroed = pages.clone();
    zeroed.chunks_mut(PAGE).step_by(2).for_each(|page| page.fill(0));
    assert!(trailer.hop == 0 && sent == zeroed);
    // A bit for a page that there is no room for.
    let told = "byte 32 of the data: the mask has blocks behind the room for the result";
    let wide = launch(ResultMask::Host(vec![0, 0b1000]), false);
    client.is_refused(FunctionKind::Launch, &wide, Status::INVALID_FIELD.dnr(), told);
    let wide = FunctionRequest { result_len_max: 0, ..launch(ResultMask::Host(vec![0xff; 513]), false) };
    client.is_refused(FunctionKind::Launch, &wide, Status::INVALID_FIELD.dnr(), told);
}

/// Kernels were never launched over a disk with faults. An access that the disk fails is an error that the kernel gets, and what it
/// then returns is the result: nothing is written to the window or sent.
#[test]
fn a_kernel_gets_the_errors_of_a_disk() {
    let faulty = |plan| {
        let memory = Arc::new(MemoryMedium::new((PAGES * PAGE) as u64, false).unwrap());
        Arc::new(FaultyMedium::new(memory, PAGE as u32, plan))
    };
    let broken = faulty(FaultPlan { eio_ppm: 1_000_000, ..FaultPlan::default() });
    let full = faulty(FaultPlan { enospc_ppm: 1_000_000, ..FaultPlan::default() });
    let running = start(
        builder()
            .volume(format!("data=mem:{},rw", PAGES * PAGE).parse().unwrap())
            .medium(VolumeSpec::new("broken", "faulty").writable(), broken)
            .medium(VolumeSpec::new("full", "faulty").writable(), full),
    );
    let mut client = connected(&running);
    let (data, broken, full) = (volume(VOLUME), volume(2), volume(3));
    client.fill(&pattern(PAGES * PAGE, 10));
    let (window, old) = (range(0, WINDOW), vec![0xee; WINDOW as usize]);
    client.memory_write(0, &old).ok();
    // Read, and written.
    for (files, errno) in [
        (&[broken][..], libc::EIO),
        (&[data, broken], libc::EIO),
        (&[data, full], libc::ENOSPC),
        (&[full, broken], libc::EIO),
    ] {
        let answer = client.execute_kernel(&[window], files, 1, &args(1, false));
        assert_eq!((answer.status, answer.result as i64), (Status::SUCCESS, -i64::from(errno)), "{files:?}");
        assert!(client.memory_read(0, WINDOW) == old, "nothing was written");
    }
    let launch = |source| FunctionRequest {
        sources: vec![source],
        args: args(1, false),
        result_len_max: u64::from(WINDOW),
        ..FunctionRequest::new(FunctionKind::Launch, TALLY)
    };
    let (sent, trailer) = client.run(&launch(broken));
    assert_eq!((sent.len(), trailer.returned), (0, -i64::from(libc::EIO)), "{}", trailer.message);
    // Its end is an error of one launch, not of what comes after it.
    let (sent, trailer) = client.run(&launch(full));
    assert!(trailer.outcome == Outcome::Ok && sent == [1; PAGES * PAGE], "{}", trailer.message);
}

/// A read that a disk cut short after some sectors of a page was taken for the end of the file, and the kernel got fewer bytes than
/// there are.
#[test]
fn a_read_that_is_cut_short_is_continued() {
    let memory = Arc::new(MemoryMedium::new((PAGES * PAGE) as u64, false).unwrap());
    let short = FaultyMedium::new(memory, 512, FaultPlan { short_ppm: 50_000, ..FaultPlan::default() });
    let short_spec = VolumeSpec { block: 512, ..VolumeSpec::new("short", "faulty").writable() };
    let running = start(
        builder().volume(format!("data=mem:{},rw", PAGES * PAGE).parse().unwrap()).medium(short_spec, Arc::new(short)),
    );
    let mut client = connected(&running);
    for _ in 0..20 {
        let request = FunctionRequest {
            sources: vec![volume(2)],
            args: args(1, false),
            result_len_max: u64::from(WINDOW),
            ..FunctionRequest::new(FunctionKind::Launch, TALLY)
        };
        let (sent, trailer) = client.run(&request);
        assert!(trailer.outcome == Outcome::Ok && sent == [1; PAGES * PAGE], "{}", trailer.message);
    }
}
