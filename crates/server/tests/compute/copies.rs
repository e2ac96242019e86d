//! Copies from memory to a volume that cannot be: each with its status, and nothing of it is written.

use crate::client::{COMPUTE, Client, VOLUME, target};
use crate::common::{Controller, pattern};
use crate::standard::MEMORY;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::MemoryCopySource;
use zerocopy::IntoBytes;

const MEMORY_LEN: u64 = 64 << 20;
const BLOCKS: u64 = 256;
const INVALID: Status = Status::INVALID_FIELD.dnr();
const TOO_LONG: Status = Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr();
const BEYOND: Status = Status::LBA_OUT_OF_RANGE.dnr();
const NO_MEMORY: Status = Status::INVALID_NAMESPACE_OR_FORMAT.dnr();

fn source(start: u64, len: u32) -> MemoryCopySource {
    MemoryCopySource::new(MEMORY, start, len)
}

#[test]
fn a_copy_to_a_volume_that_cannot_be_has_its_status_and_writes_nothing() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let before = pattern(BLOCKS as usize * 4096, 6);
    client.fill(&before);
    client.memory_write(0, &[7; 8192]).ok();
    let block = source(0, 4096);
    // First block, descriptor format, sources; the message, where the error records have one.
    let cases = [
        ("a format of volumes", 0, 3, vec![block], INVALID, ""),
        ("no format", 0, 1, vec![block], INVALID, ""),
        ("no such format", 0, 15, vec![block], INVALID, ""),
        ("129 sources", 0, 4, vec![source(0, 4); 129], TOO_LONG, ""),
        ("more than 32 MiB", 0, 4, vec![source(0, 32 << 20), block], TOO_LONG, "Command Size Limit Exceeded"),
        ("half a block", 0, 4, vec![source(0, 2048)], INVALID, "2048 bytes are no whole blocks of 4096 bytes"),
        (
            "no word",
            0,
            4,
            vec![source(0, 4090), source(0, 6)],
            INVALID,
            "4090 bytes at 0 do not start and end at a multiple of 4",
        ),
        (
            "between words",
            0,
            4,
            vec![block, source(2, 4096)],
            INVALID,
            "4096 bytes at 2 do not start and end at a multiple of 4",
        ),
        (
            "behind the memory",
            0,
            4,
            vec![block, source(MEMORY_LEN - 4, 4096)],
            INVALID,
            "4096 bytes at 67108860 do not lie in the namespace, which has 67108864 bytes",
        ),
        (
            "behind everything",
            0,
            4,
            vec![source(u64::MAX - 3, 4096)],
            INVALID,
            "4096 bytes at 18446744073709551612 do not lie in the namespace, which has 67108864 bytes",
        ),
        (
            "of a volume",
            0,
            4,
            vec![block, MemoryCopySource::new(VOLUME, 0, 4096)],
            NO_MEMORY,
            "Invalid Namespace or Format",
        ),
        ("of nothing", 0, 4, vec![MemoryCopySource::new(77, 0, 4096)], NO_MEMORY, "Invalid Namespace or Format"),
        (
            "only if it is fast",
            0,
            4,
            vec![block, block.with_fast_only()],
            Status::FAST_COPY_NOT_POSSIBLE.dnr(),
            "Fast Copy Not Possible",
        ),
        ("over the end", BLOCKS - 1, 4, vec![source(0, 8192)], BEYOND, "LBA Out of Range"),
        ("behind the end", BLOCKS, 4, vec![block], BEYOND, ""),
        ("at the end of numbers", u64::MAX, 4, vec![block], BEYOND, ""),
    ];
    for (what, slba, format, sources, status, told) in cases {
        let sqe = Sqe::copy(VOLUME, slba, sources.len() as u32, format);
        let answer = client.queue.command(sqe, Some(sources.as_bytes()), 0);
        assert_eq!(answer.status, status, "{what}");
        if !told.is_empty() {
            let said = client.said().1;
            assert!(said == told || said.starts_with(&format!("{told} (SCT")), "{what}: {said}");
        }
    }
    let short = client.queue.command(Sqe::copy(VOLUME, 0, 2, 4), Some(block.as_bytes()), 0);
    short.fails_with(Status::DATA_SGL_LENGTH_INVALID.dnr());
    for nsid in [77, MEMORY, COMPUTE] {
        let status = if nsid == 77 { NO_MEMORY } else { Status::INVALID_OPCODE.dnr() };
        let answer = client.queue.command(Sqe::copy(nsid, 0, 1, 4), Some(block.as_bytes()), 0);
        assert_eq!(answer.status, status, "to namespace {nsid}");
    }
    for (part, wanted) in (0..).zip(before.chunks(512 << 10)) {
        assert!(client.queue.read(VOLUME, part * 128, 128).ok() == wanted, "a refused copy wrote");
    }
}

/// A controller whose host enabled the NVM command set alone knows nothing of memory.
#[test]
fn without_its_command_set_there_is_no_copy_from_memory() {
    let running = target(1);
    let controller = Controller::connect(&running);
    let mut queue = controller.io_queue(1, 64);
    queue.command(Sqe::copy(VOLUME, 0, 1, 4), Some(source(0, 4096).as_bytes()), 0).fails_with(INVALID);
    let read = queue.command(Sqe::memory_read(MEMORY, 0, 4), None, 4);
    read.fails_with(Status::IO_COMMAND_SET_NOT_ENABLED.dnr());
}
