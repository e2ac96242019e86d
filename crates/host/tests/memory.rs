//! Device memory of a real target, and programs that are executed over it.

mod common;

use common::{builder, connect, memory_target, pattern, read_now, start, write_now};
use diskside_host::Volume;
use diskside_host::function::{Compute, DeviceMemory};
use diskside_nvme::Status;
use diskside_nvme::wire::CopySourceEntry;
use diskside_server::config::Size;

const LEN: u64 = 64 << 20;

fn memory_of(volume: &Volume) -> DeviceMemory {
    let compute = Compute::new(volume.connection()).unwrap();
    DeviceMemory::new(&compute).unwrap().expect("a target has memory unless it is configured otherwise")
}

#[test]
fn it_is_read_written_zeroed_and_copied_to_and_from_volumes() {
    let running = memory_target(8);
    let volume = connect(&running);
    let memory = memory_of(&volume);
    assert_eq!(memory.len_bytes(), LEN);
    // More parts than are under way at once, the last one short.
    let bytes = pattern((3 << 20) + 8, 1);
    memory.write(4, &bytes).unwrap();
    let mut found = vec![0; bytes.len()];
    memory.read(4, &mut found).unwrap();
    assert!(found == bytes);
    memory.clear(8..24).unwrap();
    memory.read(0, &mut found[..32]).unwrap();
    assert_eq!(found[..32], [&[0; 4], &bytes[..4], &[0; 16], &bytes[20..28]].concat());
    memory.read(0, &mut []).unwrap();

    write_now(&volume, 0, &bytes[..1 << 20]);
    let block = u64::from(volume.block_len());
    let sources = [CopySourceEntry::new(1, 2, 3), CopySourceEntry::new(1, 0, 1)];
    memory.copy_from_volumes(4096, 4 * block, &sources).unwrap();
    let mut copied = vec![0; 4 * block as usize];
    memory.read(4096, &mut copied).unwrap();
    let len = block as usize;
    assert!(copied == [&bytes[2 * len..5 * len], &bytes[..len]].concat());
    memory.copy_to_volume(1, 100, 4096, 2 * block as u32).unwrap();
    assert!(read_now(&volume, 100 * block, 2 * len) == copied[..2 * len]);
}

#[test]
fn range_sets_are_made_listed_and_deleted() {
    let running = memory_target(1);
    let (one, other) = (memory_of(&connect(&running)), memory_of(&connect(&running)));
    assert_eq!(one.sets().unwrap(), []);
    // More than one page of the list has room for, and all of one host see them.
    let made: Vec<_> = (0..200_u64).map(|index| (one.create_set(index * 64, 64).unwrap(), index * 64)).collect();
    let listed = other.sets().unwrap();
    let expected: Vec<_> = made.iter().map(|(rsid, start)| (*rsid, *start..start + 64)).collect();
    assert_eq!(listed, expected);
    for (rsid, _) in &made[1..] {
        other.delete_set(*rsid).unwrap();
    }
    assert_eq!(one.sets().unwrap(), expected[..1]);
    let error = one.delete_set(made[5].0).unwrap_err();
    assert!(error.is_status(Status::INVALID_MEMORY_RANGE_SET_IDENTIFIER), "{error}");
    let error = one.create_set(LEN, 8).unwrap_err();
    assert!(error.is_status(Status::INVALID_MEMORY_RANGE_SET), "{error}");
}

#[test]
fn programs_are_executed_over_ranges_and_failures_are_explained() {
    let running = memory_target(1);
    let volume = connect(&running);
    let compute = Compute::new(volume.connection()).unwrap();
    let memory = memory_of(&volume);
    let wc = compute.programs().unwrap().into_iter().find(|program| program.name == "wc").unwrap();
    memory.write(0, b"one two\nthree\n\n\n").unwrap();
    assert_eq!(memory.execute(wc.index, &[0..16, 64..88], &[], (0, 0)).unwrap(), 24);
    let mut counted = [0; 24];
    memory.read(64, &mut counted).unwrap();
    let expected: Vec<u8> = [4_u64, 3, 16].into_iter().flat_map(u64::to_le_bytes).collect();
    assert_eq!(counted[..], expected[..]);
    let error = memory.execute(wc.index, &[0..16, 64..72], &[], (0, 0)).unwrap_err();
    assert!(error.is_status(Status::FUNCTION_FAILED), "{error}");
    assert!(error.to_string().contains("wc"), "the target says why: {error}");
    let error = memory.execute(wc.index, &[0..16, 8..72], &[], (0, 0)).unwrap_err();
    assert!(error.is_status(Status::OVERLAPPING_MEMORY_RANGES), "{error}");
    let error = memory.copy_to_volume(1, 0, 0, 8).unwrap_err();
    assert!(error.to_string().contains("no whole blocks"), "the target says why: {error}");
}

#[test]
fn a_target_may_have_none() {
    let volume = "data=mem:1MiB".parse().unwrap();
    let running = start(builder().compute(|compute| compute.memory = Size::from_bytes(0)).volume(volume));
    let compute = Compute::new(connect(&running).connection()).unwrap();
    assert!(DeviceMemory::new(&compute).unwrap().is_none());
}
