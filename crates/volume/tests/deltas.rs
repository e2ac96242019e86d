//! Deltas over disks that lose power at any byte, and over real files: a page is made of its base or not changed at all.

mod files;
mod power;

use std::sync::Arc;

use crc_fast::{CrcAlgorithm, checksum};
use diskside_io::Errno;
use diskside_io::request::block_on;
use diskside_volume::blocking::{self, moved_elsewhere};
use diskside_volume::media::{self, AtomicMedium, AtomicOptions};
use diskside_volume::medium::{Access, Action, Medium};
use diskside_volume::{Volume, VolumeSpec};
use diskside_wire::delta::{Delta, encode_delta};
use files::Files;
use power::{Disk, Power, SECTOR, begin};

const PAGE: usize = 16 << 10;
const PAGES: u64 = 12;
const VOLUME_LEN: usize = PAGES as usize * PAGE;
/// A few groups: it begins again all the time.
const JOURNAL_LEN: usize = 112 << 10;

/// A page of a version: few of its bytes differ from those of another version, and they are in each sector.
fn page(number: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![number as u8; PAGE];
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        sector[..24]
            .copy_from_slice(&[number.to_le_bytes(), version.to_le_bytes(), (index as u64).to_le_bytes()].concat());
    }
    if version == 0 { vec![0; PAGE] } else { bytes }
}

fn version_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[8..16].try_into().unwrap())
}

/// A record that makes a version of a page from another one, perhaps from another page.
fn record(number: u64, version: u64, base: (u64, u64)) -> Option<Vec<u8>> {
    let (at, from) = (number * PAGE as u64, base.0 * PAGE as u64);
    encode_delta(at, &page(number, version), from, &page(base.0, base.1), PAGE)
}

/// What is there; `None`: power has failed.
fn read(medium: &dyn Medium, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut found = vec![0; len];
    let mut done = 0;
    while done < len {
        let access = Access::Read { offset: offset + done as u64, len: len - done };
        let bytes = match medium.start(&access).action {
            Action::Bytes(bytes) => bytes,
            Action::Failed(_) => return None,
            other => panic!("the disks are in memory: {other:?}"),
        };
        bytes.copy_to(&mut found[done..done + bytes.len()]);
        done += bytes.len();
    }
    Some(found)
}

/// Writes whole pages, parts of pages, zeroes, deltas and copies until power fails; then looks at all pages.
fn round(seed: u64, (volume, journal): (Vec<u8>, Vec<u8>), known: &mut [u64], next: &mut u64) -> (Vec<u8>, Vec<u8>) {
    let power = Power::new(40 + seed % 1500, seed);
    let disks = [Disk::new(&power, volume), Disk::new(&power, journal)];
    let [volume, journal] = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Medium>);
    let mut attempted: Vec<u64> = known.to_vec();
    if let Ok(medium) =
        AtomicMedium::new(volume, journal, &AtomicOptions { delta_depth: 3, ..AtomicOptions::new(PAGE as u32) })
    {
        'running: loop {
            let mut under_way = Vec::new();
            let chance = power.state.lock().unwrap().next();
            for at in 0..1 + chance % 5 {
                let number = (chance / 7 + at) % PAGES;
                let offset = number * PAGE as u64;
                *next += 1;
                let other = (number + 5) % PAGES;
                let delta = match *next % 8 {
                    0..5 => record(number, *next, (number, known[number as usize])),
                    5 if at == 0 => record(number, *next, (other, known[other as usize])),
                    _ => None,
                };
                let (begun, version) = if let Some(record) = &delta {
                    (begin(&medium, &Access::Delta(Delta::parse(record).expect("a record"))), *next)
                } else if next.is_multiple_of(11) {
                    (begin(&medium, &Access::Zero { offset, len: PAGE as u64, deallocate: true }), 0)
                } else {
                    (begin(&medium, &Access::Write { offset, data: &page(number, *next), durable: false }), *next)
                };
                attempted[number as usize] = version;
                match begun {
                    Ok(future) => under_way.push((number, version, future)),
                    Err(_) => break 'running,
                }
            }
            for (number, version, future) in under_way {
                match moved_elsewhere(block_on(future)) {
                    Ok(moved) => {
                        assert_eq!(moved, PAGE as u64);
                        known[number as usize] = version;
                    }
                    Err(Errno::STALE | Errno::BADMSG) => panic!("seed {seed}: its base was acknowledged"),
                    Err(_) => break 'running,
                }
            }
            let number = chance % PAGES;
            if let Some(found) = read(&medium, number * PAGE as u64, PAGE) {
                assert!(found == page(number, known[number as usize]), "seed {seed}: page {number} is read as it was");
            }
        }
    }
    let [volume, journal] = disks.map(|disk| disk.after_power_loss());
    // With power again, the volume has to be whole. Power may fail once more while the journal is carried out.
    let power = Power::new(seed % 200, seed);
    let again = [Disk::new(&power, volume), Disk::new(&power, journal)];
    let [its_volume, its_journal] = again.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Medium>);
    drop(AtomicMedium::new(its_volume, its_journal, &AtomicOptions::new(PAGE as u32)));
    let [volume, journal] = again.map(|disk| disk.after_power_loss());
    let disks = {
        let power = Power::new(u64::MAX, 0);
        [Disk::new(&power, volume), Disk::new(&power, journal)]
    };
    let [its_volume, its_journal] = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Medium>);
    let medium =
        AtomicMedium::new(its_volume, its_journal, &AtomicOptions::new(PAGE as u32)).expect("it can be opened");
    for number in 0..PAGES {
        let found = read(&medium, number * PAGE as u64, PAGE).expect("power is there");
        let version = version_of(&found);
        assert!(found == page(number, version), "seed {seed}: page {number} is torn");
        let (was, tried) = (known[number as usize], attempted[number as usize]);
        assert!(
            version == was || version == tried,
            "seed {seed}: page {number} has version {version}; {was} was acknowledged, and {tried} was under way"
        );
        known[number as usize] = version;
    }
    let [volume, journal] = disks.each_ref().map(|disk| disk.after_power_loss());
    drop(medium);
    (volume, journal)
}

/// `DISKSIDE_CUTS` says how often.
#[test]
fn no_page_that_deltas_made_is_torn_or_lost_wherever_power_fails() {
    let cuts = std::env::var("DISKSIDE_CUTS").map_or(1500, |cuts| cuts.parse().unwrap());
    let mut disks = (vec![0; VOLUME_LEN], vec![0; JOURNAL_LEN]);
    let (mut known, mut next) = (vec![0; PAGES as usize], 0);
    for seed in 1..=cuts {
        disks = round(seed, disks, &mut known, &mut next);
    }
    assert!(next > cuts, "{next} writes in {cuts} rounds");
}

fn open(text: &str) -> Arc<dyn Medium> {
    media::open(&text.parse::<VolumeSpec>().expect("a volume")).expect("opened")
}

fn end(medium: &dyn Medium, access: &Access<'_>) -> Result<u64, Errno> {
    match medium.start(access).action {
        Action::Elsewhere(future) => moved_elsewhere(block_on(future)),
        Action::Failed(errno) => Err(errno),
        other => panic!("{other:?}"),
    }
}

fn delta(medium: &dyn Medium, record: &[u8]) -> Result<u64, Errno> {
    end(medium, &Access::Delta(Delta::parse(record).expect("a record")))
}

#[test]
fn deltas_over_another_base_and_false_promises_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    let medium = open(&format!("data={},rw,size=1MiB,atomic=16KiB", path.display()));
    assert_eq!(medium.properties().delta_len, 16 << 10);
    let write = |number, version| {
        let (offset, data) = (number * PAGE as u64, page(number, version));
        assert_eq!(end(&*medium, &Access::Write { offset, data: &data, durable: false }), Ok(PAGE as u64));
    };
    write(1, 1);
    assert_eq!(delta(&*medium, &record(1, 3, (1, 2)).unwrap()), Err(Errno::STALE));
    let two = record(1, 2, (1, 1)).unwrap();
    assert_eq!(delta(&*medium, &two), Ok(PAGE as u64));
    assert_eq!(delta(&*medium, &two), Ok(PAGE as u64), "its answer was lost, and it came again");
    let mut lie = record(1, 3, (1, 2)).unwrap();
    lie[24] ^= 1;
    assert_eq!(delta(&*medium, &lie), Err(Errno::BADMSG));
    assert_eq!(delta(&*medium, &record(2, 9, (1, 1)).unwrap()), Err(Errno::STALE), "the base elsewhere is newer");
    assert_eq!(delta(&*medium, &record(2, 9, (1, 2)).unwrap()), Ok(PAGE as u64));
    assert_eq!(delta(&*medium, &record(64, 2, (64, 1)).unwrap()), Err(Errno::INVAL), "behind the end");
    let far = encode_delta(0, &page(0, 1), u64::MAX - 100, &page(0, 1), PAGE).unwrap();
    assert_eq!(delta(&*medium, &far), Err(Errno::INVAL));
    let crooked = encode_delta(0, &page(0, 1), 100, &page(0, 1), PAGE).unwrap();
    assert_eq!(delta(&*medium, &crooked), Err(Errno::INVAL));
    let long = vec![7; 2 * PAGE];
    let long = encode_delta(0, &long, 0, &long, PAGE).unwrap();
    assert_eq!(delta(&*medium, &long), Err(Errno::INVAL), "longer than the volume promises");
    drop(medium);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[PAGE..2 * PAGE] == page(1, 2) && bytes[2 * PAGE..3 * PAGE] == page(2, 9), "in their places");
    let plain = open(&format!("data={},rw", path.display()));
    assert!(matches!(
        plain.start(&Access::Delta(Delta::parse(&two).unwrap())).action,
        Action::Failed(Errno::OPNOTSUPP)
    ));
}

/// Random deltas, of pages that overlap each other's, beside writes, against a copy in memory; reads of all lengths in between.
#[test]
fn a_volume_with_deltas_reads_as_its_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    const LEN: usize = 1 << 20;
    let text = format!("data={},rw,size=1MiB,atomic=16KiB,delta_depth=2,block=512", path.display());
    let mut model = vec![0_u8; LEN];
    let power = Power::new(0, 42);
    let mut chance = power.state.lock().unwrap();
    for opening in 0..4 {
        let medium = open(&text);
        let volume = Arc::new(Volume::new("data", 1, [1; 16], 512, medium));
        for _ in 0..600 {
            let (kind, len) = (chance.next() % 10, [4096, 8192, 16384][chance.next() as usize % 3]);
            let at = (chance.next() as usize % (LEN - len)) / 512 * 512;
            let mut page = model[at..at + len].to_vec();
            for _ in 0..1 + chance.next() % 6 {
                let from = chance.next() as usize % len;
                let to = len.min(from + 1 + chance.next() as usize % 200);
                page[from..to].fill(chance.next() as u8);
            }
            match kind {
                0 => blocking::write_at(&volume, at as u64, &page).unwrap(),
                1 => {
                    page.fill(0);
                    end(&*volume.medium, &Access::Zero { offset: at as u64, len: len as u64, deallocate: true })
                        .unwrap();
                }
                2 => {
                    let from = (chance.next() as usize % (LEN - len)) / 512 * 512;
                    page.copy_from_slice(&model[from..from + len]);
                    let record = encode_delta(at as u64, &page, from as u64, &page, len).unwrap();
                    delta(&*volume.medium, &record).unwrap();
                }
                _ => {
                    let base = &model[at..at + len];
                    let record = encode_delta(at as u64, &page, at as u64, base, len).expect("few bytes");
                    delta(&*volume.medium, &record).unwrap();
                }
            }
            model[at..at + len].copy_from_slice(&page);
            let (from, len) = (chance.next() as usize % LEN, chance.next() as usize % 100_000);
            let len = len.min(LEN - from);
            let mut found = vec![0; len];
            let range = blocking::blocks_of(&volume, from as u64, len);
            assert!(range.end <= LEN as u64);
            blocking::read_held(&volume, from as u64, &mut found).unwrap();
            assert!(found == model[from..from + len], "opening {opening}: {len} bytes at {from}");
        }
    }
    assert!(std::fs::read(&path).unwrap() == model, "all pages are in their places at an orderly end");
}

/// The journal of a server that knows deltas is not an empty one for a server that knows none, which would lose pages.
#[test]
fn a_journal_with_deltas_is_carried_out_and_begins_as_no_older_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let [path, journal] = ["data.img", "data.img.journal"].map(|name| dir.path().join(name));
    let text = format!("data={},rw,size=1MiB,atomic=16KiB", path.display());
    let medium = open(&text);
    let data = page(3, 1);
    end(&*medium, &Access::Write { offset: 3 * PAGE as u64, data: &data, durable: false }).unwrap();
    assert_eq!(delta(&*medium, &record(3, 2, (3, 1)).unwrap()), Ok(PAGE as u64));
    // As after a kill: both files as they are now. The page may be in its place, or not.
    let mut killed = Files::now([&path, &journal]);
    assert_eq!(&killed.bytes(1)[..8], b"DSKATOM3");
    drop(medium);
    killed.put_back();
    drop(open(&text));
    assert!(std::fs::read(&path).unwrap()[3 * PAGE..4 * PAGE] == page(3, 2));
    // A volume that is not the journal's: the base of the delta is not there, and no whole page comes later.
    without_first_group(killed.bytes(1));
    killed.bytes(0).fill(5);
    killed.put_back();
    let told = media::open(&text.parse::<VolumeSpec>().unwrap()).expect_err("it is refused").to_string();
    assert!(
        told.ends_with("was written for another volume: the base of the page at byte 49152 is not there"),
        "{told}"
    );
}

/// The journal from its second group on: without the page that the delta's base was written with.
fn without_first_group(journal: &mut [u8]) {
    let (first, second) = (4096, 4096 + 4096 + PAGE);
    assert_eq!((&journal[first..first + 8], &journal[second..second + 8]), (&b"DSKATOM2"[..], &b"DSKATOM2"[..]));
    journal.copy_within(second..second + 8192, first);
    journal[first + 8192..].fill(0);
    // The start names the sequence number of the first group.
    journal.copy_within(first + 16..first + 24, 16);
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &journal[..24]) as u32;
    journal[24..28].copy_from_slice(&sum.to_le_bytes());
}
