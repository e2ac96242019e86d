//! Write Delta over the wire: pages are made of what is there, and hostile records change nothing.

use diskside_host::{Command, CommandData, CommandFailure, ConnectOptions, Url, Volume};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo as _, Request, block_on};
use diskside_nvme::Status;
use diskside_nvme::host::CommandError;
use diskside_nvme::wire::Sqe;
use diskside_server::config::VolumeSpec;
use diskside_server::{Running, Target};
use diskside_wire::delta::{Delta, encode_delta};

const NQN: &str = "nqn.2026-11.org.example:deltas";
const PAGE: usize = 16 << 10;

fn target(directory: &std::path::Path, options: &str) -> (Running, Volume) {
    let text = format!("data={},size=1MiB,rw{options}", directory.join("image").display());
    let spec: VolumeSpec = text.parse().expect("a volume");
    let builder = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]).volume(spec);
    let running = builder.build().expect("a target").start().expect("started");
    let url: Url = format!("nvme-tcp://{}/{NQN}/1", running.handle().local_addresses()[0]).parse().expect("a URL");
    let volume = Volume::connect(&url, &ConnectOptions::default()).expect("connected");
    (running, volume)
}

/// The status of a command with this data.
fn send(volume: &Volume, sqe: Sqe, data: &[u8]) -> Result<(), Status> {
    let data = if data.is_empty() { CommandData::None } else { CommandData::Send(Buffer::copy_of(data)) };
    let outcome = block_on(volume.command(Command { sqe, data, timeout: None, repeatable: true }));
    match outcome.result {
        Ok(_) => Ok(()),
        Err(CommandFailure::Command(CommandError::Status { status, .. })) => Err(status),
        Err(other) => panic!("{other}"),
    }
}

fn read(volume: &Volume, offset: usize, len: usize) -> Vec<u8> {
    let request = Request::Read { offset: offset as u64, buffer: Buffer::zeroed(len) };
    block_on(volume.submit(request)).into_read().expect("read").to_vec()
}

fn page(byte: u8) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[99..140].fill(byte);
    page
}

fn is(result: Result<(), Status>, wanted: Status) -> bool {
    result.is_err_and(|status| status.is(wanted))
}

#[test]
fn a_page_is_made_of_what_is_there_and_is_read_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let (running, volume) = target(directory.path(), ",atomic=16KiB");
    assert_eq!(volume.delta_len_max(), 16 << 10);
    // From a block that is not a multiple of a page.
    let record = encode_delta(4096, &page(1), 4096, &page(0), PAGE).expect("short");
    let outcome = block_on(volume.write_delta(&Delta::parse(&record).expect("a record")));
    outcome.result.expect("its base is zeroes");
    let all = read(&volume, 0, 1 << 20);
    assert!(all[4096..4096 + PAGE] == page(1) && all[4096 + PAGE..].iter().all(|byte| *byte == 0));
    let again = block_on(volume.write_delta(&Delta::parse(&record).expect("a record")));
    again.result.expect("the result is there");
    let stale = encode_delta(4096, &page(3), 4096, &page(2), PAGE).expect("short");
    assert!(is(send(&volume, Sqe::write_delta(1, 1, 4), &stale), Status::DELTA_BASE_MISMATCH));
    // Each refusal counted as a failure of the medium, and was logged as one, though it is in the nature of deltas.
    assert_eq!(running.handle().stats().volumes["data"].errors, 0);
    let copy = encode_delta(65536, &page(1), 4096, &page(1), PAGE).expect("no runs");
    assert_eq!(send(&volume, Sqe::write_delta(1, 16, 4), &copy), Ok(()));
    drop((volume, running));
    let image = std::fs::read(directory.path().join("image")).expect("read");
    assert!(image[4096..4096 + PAGE] == page(1) && image[65536..65536 + PAGE] == page(1));
}

#[test]
fn hostile_records_are_refused_and_change_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_running, volume) = target(directory.path(), ",atomic=16KiB");
    let fine = encode_delta(0, &page(1), 0, &page(0), PAGE).expect("short");
    let at = |at: usize, bytes: &[u8]| {
        let mut record = fine.clone();
        record[at..at + bytes.len()].copy_from_slice(bytes);
        record
    };
    let refused = [
        ("another place than the command's", at(0, &4096_u64.to_le_bytes())),
        ("a result that the runs do not make", at(24, &[0; 8])),
        ("another length than the command's", at(32, &8192_u32.to_le_bytes())),
        ("runs that are not there", at(36, &u16::MAX.to_le_bytes())),
        ("another version", at(38, &[9])),
        ("a run behind the page", at(40, &u16::MAX.to_le_bytes())),
        ("a longer run than there are bytes", at(42, &u16::MAX.to_le_bytes())),
        ("a base behind the volume", at(8, &(1_u64 << 60).to_le_bytes())),
        ("a base that overflows", at(8, &(u64::MAX - 511).to_le_bytes())),
        ("a crooked base", at(8, &3_u64.to_le_bytes())),
        ("bytes behind it", [&fine[..], &[0]].concat()),
        ("a part of it", fine[..39].to_vec()),
        ("no data", Vec::new()),
        ("more data than the page", vec![0; PAGE + 1]),
    ];
    for (what, record) in refused {
        let told = send(&volume, Sqe::write_delta(1, 0, 4), &record);
        assert!(is(told, Status::INVALID_FIELD), "{what}: {told:?}");
    }
    assert!(is(send(&volume, Sqe::write_delta(1, 0, 5), &fine), Status::INVALID_FIELD), "longer than is promised");
    assert!(is(send(&volume, Sqe::write_delta(1, 253, 4), &fine), Status::LBA_OUT_OF_RANGE));
    assert!(read(&volume, 0, 1 << 20).iter().all(|byte| *byte == 0));
    assert_eq!(send(&volume, Sqe::write_delta(1, 0, 4), &fine), Ok(()), "the connection goes on");
}

#[test]
fn other_volumes_have_no_such_command() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_running, volume) = target(directory.path(), "");
    assert_eq!(volume.delta_len_max(), 0);
    let fine = encode_delta(0, &page(1), 0, &page(0), PAGE).expect("short");
    assert!(is(send(&volume, Sqe::write_delta(1, 0, 4), &fine), Status::INVALID_OPCODE));
}
