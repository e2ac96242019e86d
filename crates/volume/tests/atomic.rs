//! Atomic media over disks that lose power at any byte: no page is torn, and none is older than what was acknowledged.

mod files;
mod power;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diskside_io::Errno;
use diskside_io::request::block_on;
use diskside_volume::VolumeSpec;
use diskside_volume::blocking::moved_elsewhere;
use diskside_volume::media::{self, AtomicMedium, AtomicOptions};
use diskside_volume::medium::{Access, Action, Medium, Properties, Step};
use files::Files;
use power::{Disk, Power, SECTOR, begin};

const PAGE: usize = 16 << 10;
const PAGES: u64 = 12;
const VOLUME_LEN: usize = PAGES as usize * PAGE;
/// A few groups: it begins again all the time.
const JOURNAL_LEN: usize = 112 << 10;

/// A page of a version: each sector says which, and where it belongs.
fn page(number: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![version as u8; PAGE];
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        sector[..24]
            .copy_from_slice(&[number.to_le_bytes(), version.to_le_bytes(), (index as u64).to_le_bytes()].concat());
    }
    if version == 0 { vec![0; PAGE] } else { bytes }
}

fn version_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[8..16].try_into().unwrap())
}

/// A round: what is on the disks, until their power fails, and what has to be there then.
fn round(seed: u64, (volume, journal): (Vec<u8>, Vec<u8>), known: &mut [u64], next: &mut u64) -> (Vec<u8>, Vec<u8>) {
    let power = Power::new(40 + seed % 1500, seed);
    let disks = [Disk::new(&power, volume), Disk::new(&power, journal)];
    let [volume, journal] = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Medium>);
    let mut attempted: Vec<u64> = known.to_vec();
    // Power can fail while the journal is carried out, too.
    if let Ok(medium) = AtomicMedium::new(volume, journal, &AtomicOptions::new(PAGE as u32)) {
        'running: loop {
            let mut under_way = Vec::new();
            let first = power.state.lock().unwrap().next();
            for at in 0..1 + first % 5 {
                let number = (first / 7 + at) % PAGES;
                *next += 1;
                attempted[number as usize] = *next;
                // A version of 0 is one of zeroes.
                let (begun, version) = if next.is_multiple_of(11) {
                    attempted[number as usize] = 0;
                    let access = Access::Zero { offset: number * PAGE as u64, len: PAGE as u64, deallocate: true };
                    (begin(&medium, &access), 0)
                } else {
                    let data = &page(number, *next)[..];
                    let access = Access::Write { offset: number * PAGE as u64, data, durable: false };
                    (begin(&medium, &access), *next)
                };
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
                    Err(_) => break 'running,
                }
            }
        }
    }
    let [volume, journal] = disks.map(|disk| disk.after_power_loss());
    // With power again, the volume has to be whole.
    let power = Power::new(u64::MAX, 0);
    let disks = [Disk::new(&power, volume), Disk::new(&power, journal.clone())];
    let [again, its_journal] = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Medium>);
    let medium = AtomicMedium::new(again, its_journal, &AtomicOptions::new(PAGE as u32)).expect("it can be opened");
    for number in 0..PAGES {
        let action = medium.start(&Access::Read { offset: number * PAGE as u64, len: PAGE }).action;
        let Action::Bytes(bytes) = action else { panic!("{action:?}") };
        let mut found = vec![0; PAGE];
        bytes.copy_to(&mut found);
        let version = version_of(&found);
        assert!(found == page(number, version), "seed {seed}: page {number} is torn");
        let (was, tried) = (known[number as usize], attempted[number as usize]);
        assert!(
            version == was || version == tried,
            "seed {seed}: page {number} has version {version}; {was} was acknowledged, and {tried} was under way"
        );
        known[number as usize] = version;
    }
    // The next round begins with the journal as it is, and not as an orderly end leaves it.
    let [volume, journal] = disks.each_ref().map(|disk| disk.after_power_loss());
    drop(medium);
    (volume, journal)
}

/// A journal that began again could be left with its first old group whole, and the next one not: an old version of a
/// page replaced a newer one when the volume was opened. The journal is emptied before it begins again.
///
/// `DISKSIDE_CUTS` says how often.
#[test]
fn no_page_is_torn_or_lost_wherever_power_fails() {
    let cuts = std::env::var("DISKSIDE_CUTS").map_or(1500, |cuts| cuts.parse().unwrap());
    let mut disks = (vec![0; VOLUME_LEN], vec![0; JOURNAL_LEN]);
    let (mut known, mut next) = (vec![0; PAGES as usize], 0);
    for seed in 1..=cuts {
        disks = round(seed, disks, &mut known, &mut next);
    }
    assert!(next > cuts, "{next} writes in {cuts} rounds");
}

/// The journal has the second page when power fails, and the volume has 11 of its 32 sectors, and those not surely: without the
/// journal it is torn. Else the test above would show nothing.
#[test]
fn without_the_journal_pages_are_torn() {
    let power = Power::new(123, 3);
    let disks = [Disk::new(&power, vec![0; VOLUME_LEN]), Disk::new(&power, vec![0; JOURNAL_LEN])];
    let [volume, journal] = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Medium>);
    let medium = AtomicMedium::new(volume, journal, &AtomicOptions::new(PAGE as u32)).unwrap();
    let mut number = 0;
    loop {
        number += 1;
        let access = Access::Write { offset: number * PAGE as u64, data: &page(number, 7), durable: false };
        let Ok(future) = begin(&medium, &access) else { break };
        if moved_elsewhere(block_on(future)).is_err() {
            break;
        }
    }
    // A failed write is not given as it is: half of it may be there.
    let torn = medium.start(&Access::Read { offset: number * PAGE as u64, len: PAGE }).action;
    assert!(matches!(torn, Action::Failed(Errno::IO)), "{torn:?}");
    let bytes = disks[0].after_power_loss();
    let at = number as usize * PAGE;
    assert!(bytes[at..at + PAGE] != page(number, 7) && bytes[at..at + PAGE] != page(number, 0));
}

/// A disk with room for its first bytes alone, such as a file with holes on a disk that is nearly full.
#[derive(Debug)]
struct Full {
    disk: Arc<Disk>,
    room_len: u64,
    asked: AtomicU64,
}

impl Medium for Full {
    fn properties(&self) -> &Properties {
        self.disk.properties()
    }

    fn start(&self, access: &Access<'_>) -> Step {
        self.disk.start(access)
    }

    fn may_lack_space(&self) -> bool {
        true
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if offset + len > self.room_len { Err(Errno::NOSPC) } else { Ok(()) }
    }
}

/// A write that found no room was in the journal already: the volume took no more writes of anybody, and could not be opened again as long as
/// its disk was full.
#[test]
fn a_write_without_room_fails_alone() {
    let power = Power::new(u64::MAX, 1);
    let disks = [Disk::new(&power, vec![0; VOLUME_LEN]), Disk::new(&power, vec![0; JOURNAL_LEN])];
    let room_len = 5 * PAGE as u64;
    let full = Arc::new(Full { disk: Arc::clone(&disks[0]), room_len, asked: AtomicU64::new(0) });
    let [inner, journal] = [Arc::clone(&full) as Arc<dyn Medium>, Arc::clone(&disks[1]) as Arc<dyn Medium>];
    let medium = AtomicMedium::new(Arc::clone(&inner), Arc::clone(&journal), &AtomicOptions::new(PAGE as u32)).unwrap();
    let write = |number: u64| {
        let access = Access::Write { offset: number * PAGE as u64, data: &page(number, 7), durable: true };
        moved_elsewhere(block_on(begin(&medium, &access).unwrap()))
    };
    for number in [4, 5, 0, 11, 4, 0] {
        let wanted = if number < 5 { Ok(PAGE as u64) } else { Err(Errno::NOSPC) };
        assert_eq!(write(number), wanted, "{number}");
    }
    // Whole pieces of 64 KiB are asked for once; the second has room for its first page alone, which is asked for each time.
    assert_eq!(full.asked.load(Ordering::Relaxed), 2 + 2 + 1 + 2 + 2);
    drop(medium);
    drop(AtomicMedium::new(inner, journal, &AtomicOptions::new(PAGE as u32)).expect("it is opened again"));
    let bytes = disks[0].after_power_loss();
    assert!(bytes[4 * PAGE..5 * PAGE] == page(4, 7) && bytes[5 * PAGE..6 * PAGE] == page(5, 0));
}

fn open(text: &str) -> io::Result<Arc<dyn Medium>> {
    media::open(&text.parse::<VolumeSpec>().map_err(io::Error::other)?)
}

#[test]
fn a_file_with_a_journal_is_opened_again_and_without_it_only_after_an_orderly_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    let plain = format!("data={},rw,size=1MiB", path.display());
    let medium = open(&format!("{plain},atomic=16KiB")).unwrap();
    assert_eq!((medium.properties().atomic_len, medium.properties().volatile_write_cache), (16 << 10, false));
    let access = Access::Write { offset: 0, data: &page(5, 9), durable: false };
    let Action::Elsewhere(future) = medium.start(&access).action else { panic!("the journal does it") };
    assert_eq!(moved_elsewhere(block_on(future)), Ok(PAGE as u64));
    // As after a kill: the journal as it is now, beside the volume.
    let journal = dir.path().join("data.img.journal");
    let killed = Files::now([&journal, &path]);
    drop(medium);
    assert!(open(&plain).is_ok(), "it ended in order");
    killed.put_back();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    for without in [plain.clone(), format!("data={}", path.display())] {
        let told = open(&without).unwrap_err().to_string();
        let wanted =
            "has writes that may not be in the volume: serve it with rw and atomic= once, and end that in order";
        assert!(told.contains(wanted), "{told}");
    }
    drop(open(&format!("{plain},atomic=4KiB")).unwrap());
    let medium = open(&plain).unwrap();
    assert!(matches!(medium.start(&Access::Read { offset: 0, len: PAGE }).action, Action::File { .. }));
    assert_eq!(std::fs::read(&path).unwrap()[..PAGE], page(5, 9));
}

#[test]
fn a_file_that_is_no_journal_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other] = ["data.img", "other"].map(|name| dir.path().join(name));
    std::fs::write(&other, vec![b'x'; 8 << 20]).unwrap();
    let spec = format!("data={},rw,size=1MiB,atomic=4KiB,journal={}", path.display(), other.display());
    let told = open(&spec).unwrap_err().to_string();
    assert!(told.ends_with("other is not a journal: name a file that is not there, or a device of zeroes"), "{told}");
    assert!(std::fs::read(&other).unwrap().iter().all(|byte| *byte == b'x'));
    std::fs::write(&other, vec![0; 1 << 20]).unwrap();
    let told = open(&spec).unwrap_err().to_string();
    assert!(told.ends_with("other is shorter than 4194304 bytes"), "{told}");
    std::fs::remove_file(&other).unwrap();
    assert_eq!(open(&spec).unwrap().properties().atomic_len, 4096);
}

/// The journal was made in a file of a known name, and a link of that name was followed: the user of a server, in a directory of its
/// own, could have root write zeroes over any file at the next start.
#[test]
fn no_link_in_the_place_of_a_new_journal_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let [path, precious, new] = ["data.img", "precious", "data.img.journal-new"].map(|name| dir.path().join(name));
    std::fs::write(&precious, "precious").unwrap();
    let spec = format!("data={},rw,size=1MiB,atomic=4KiB", path.display());
    std::os::unix::fs::symlink(&precious, &new).unwrap();
    drop(open(&spec).unwrap());
    assert!(std::fs::read(&precious).unwrap() == b"precious", "it is not written over");
    let journal = dir.path().join("data.img.journal");
    assert!(journal.symlink_metadata().unwrap().is_file() && !new.is_symlink());
    // The rest of one that a full disk cut short is not in the way.
    std::fs::rename(&journal, &new).unwrap();
    assert_eq!(open(&spec).unwrap().properties().atomic_len, 4096);
}

#[test]
fn what_cannot_be_promised_is_refused() {
    for (text, wanted) in [
        ("a=x,rw,atomic=3KiB", "is not 4, 8, 16, 32 or 64 KiB"),
        ("a=x,rw,atomic=128KiB", "is not 4, 8, 16, 32 or 64 KiB"),
        ("a=x,atomic=4KiB", "nobody writes a read-only volume; add `rw`, or drop `atomic=`"),
        ("a=mem:1MiB,rw,atomic=4KiB", "memory does not outlive the target; drop `atomic=`"),
        ("a=/dev/sdz,rw,atomic=4KiB", "the journal of a device has to be named: journal=PATH"),
        ("a=x,rw,journal=y", "a journal is for atomic writes: add atomic=16KiB, or drop `journal=`"),
    ] {
        let told = text.parse::<VolumeSpec>().unwrap_err();
        assert!(told.ends_with(wanted), "{told}");
    }
}
