//! Which journal belongs to which image, and when one cannot be used: acknowledged writes are neither lost nor replaced by older ones.

mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diskside_io::request::block_on;
use diskside_volume::VolumeSpec;
use diskside_volume::blocking::moved_elsewhere;
use diskside_volume::media;
use diskside_volume::medium::{Access, Action, Medium};
use files::Files;

const PAGE: usize = 16 << 10;

/// An image with a journal, each where it is said.
struct Volume {
    image: PathBuf,
    journal: PathBuf,
}

impl Volume {
    fn new(directory: &Path, name: &str) -> Self {
        Self { image: directory.join(name), journal: directory.join(format!("{name}-writes")) }
    }

    fn open(&self) -> io::Result<Arc<dyn Medium>> {
        open(&format!("v={},rw,size=1MiB,atomic=16KiB,journal={}", self.image.display(), self.journal.display()))
    }

    fn open_without(&self) -> io::Result<Arc<dyn Medium>> {
        open(&format!("v={},rw", self.image.display()))
    }

    /// Writes pages of versions 1 to `last`, and gives the files as a kill would leave them then.
    fn killed_after(&self, last: u8) -> Files {
        let medium = self.open().unwrap();
        for version in 1..=last {
            for number in 0..8 {
                write(&*medium, number, version);
            }
        }
        Files::now([&self.image, &self.journal])
    }

    fn pages(&self) -> Vec<u8> {
        std::fs::read(&self.image).unwrap().chunks(PAGE).take(8).map(|page| page[0]).collect()
    }
}

fn open(text: &str) -> io::Result<Arc<dyn Medium>> {
    media::open(&text.parse::<VolumeSpec>().map_err(io::Error::other)?)
}

fn write(medium: &dyn Medium, number: u64, version: u8) {
    let access = Access::Write { offset: number * PAGE as u64, data: &vec![version; PAGE], durable: true };
    let Action::Elsewhere(future) = medium.start(&access).action else { panic!("the journal does it") };
    assert_eq!(moved_elsewhere(block_on(future)), Ok(PAGE as u64));
}

fn told(result: io::Result<Arc<dyn Medium>>) -> String {
    result.map(drop).expect_err("it is refused").to_string()
}

/// An image was served without its journal after a kill, was written, and was served with it again: its journal's old writes replaced
/// newer ones, which had been acknowledged and flushed.
#[test]
fn an_image_is_not_served_without_its_journal_wherever_that_is() {
    let directory = tempfile::tempdir().unwrap();
    let volume = Volume::new(directory.path(), "a");
    volume.killed_after(2).put_back();
    let without = told(volume.open_without());
    assert!(
        without.contains("a-writes has writes that may not be in the volume: serve it with rw and atomic= once"),
        "{without}"
    );
    let other = told(open(&format!("v={},rw,atomic=16KiB", volume.image.display())));
    assert!(
        other.contains("are in another journal than") && other.contains("a-writes: name that by journal="),
        "{other}"
    );
    assert!(!directory.path().join("a.journal").exists(), "no new one is made");
    drop(volume.open().unwrap());
    assert_eq!(volume.pages(), [2; 8]);
    drop(volume.open_without().unwrap());
    drop(open(&format!("v={},rw,atomic=16KiB", volume.image.display())).expect("it was closed in order"));
}

/// The journal of a link was another one than that of the file that it leads to.
#[test]
fn a_link_to_an_image_has_no_other_journal() {
    let directory = tempfile::tempdir().unwrap();
    let [image, link] = ["image", "link"].map(|name| directory.path().join(name));
    let by = |path: &Path| open(&format!("v={},rw,size=1MiB,atomic=16KiB", path.display()));
    let medium = by(&image).unwrap();
    write(&*medium, 0, 1);
    drop(medium);
    std::os::unix::fs::symlink(&image, &link).unwrap();
    drop(by(&link).unwrap());
    assert!(!directory.path().join("link.journal").exists());
}

/// Two images with each other's journals exchanged their content.
#[test]
fn an_image_is_not_served_with_the_journal_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| Volume::new(directory.path(), name));
    one.killed_after(1).put_back();
    two.killed_after(2).put_back();
    let swapped = directory.path().join("swapped");
    std::fs::rename(&one.journal, &swapped).unwrap();
    std::fs::rename(&two.journal, &one.journal).unwrap();
    std::fs::rename(&swapped, &two.journal).unwrap();
    for volume in [&one, &two] {
        let told = told(volume.open());
        assert!(told.contains("are in another journal than"), "{told}");
    }
    // An image that was put in the place of the one that was served.
    std::fs::write(&one.image, vec![7; 1 << 20]).unwrap();
    rustix::fs::removexattr(&one.image, "user.diskside.journal").unwrap();
    let text = told(one.open());
    assert!(text.contains("has writes for another file than") && text.contains("setfattr -n"), "{text}");
    assert_eq!(one.pages(), [7; 8]);
}

/// A server that has become another user cannot take the mark away at its end: an image with one and a clean journal is as one without.
#[test]
fn a_mark_that_stayed_after_an_orderly_end_is_no_journal() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| Volume::new(directory.path(), name));
    let marked = one.killed_after(1);
    drop(one.open().unwrap());
    let clean = std::fs::read(&one.journal).unwrap();
    marked.put_back();
    std::fs::write(&one.journal, clean).unwrap();
    drop(one.open_without().expect("its journal has nothing"));
    // The journal of another image is not carried out into it.
    two.killed_after(2).put_back();
    let text = told(Volume { image: one.image.clone(), journal: two.journal.clone() }.open());
    assert!(text.contains("has writes for another file than"), "{text}");
    assert_eq!(one.pages(), [1; 8]);
    drop(one.open().unwrap());
}

#[test]
fn a_journal_that_is_gone_is_missed_until_its_writes_are_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let volume = Volume::new(directory.path(), "a");
    volume.killed_after(1).put_back();
    std::fs::remove_file(&volume.journal).unwrap();
    for told in [told(volume.open()), told(volume.open_without())] {
        assert!(told.contains(". To do without them: setfattr -x user.diskside.journal "), "{told}");
    }
    std::fs::write(&volume.journal, "").unwrap();
    assert!(told(volume.open()).contains("are in another journal than"), "an empty one is another");
    rustix::fs::removexattr(&volume.image, "user.diskside.journal").unwrap();
    drop(volume.open().unwrap());
    drop(volume.open_without().unwrap());
}

/// Image and journal may be moved together.
#[test]
fn an_image_and_its_journal_are_served_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| Volume::new(directory.path(), name));
    here.killed_after(3).put_back();
    std::fs::rename(&here.image, &there.image).unwrap();
    std::fs::rename(&here.journal, &there.journal).unwrap();
    drop(there.open().unwrap());
    assert_eq!(there.pages(), [3; 8]);
}

/// A journal was carried out up to its first damaged group, which was taken for its end: pages that had been acknowledged later, and were
/// in their places, got their old content back.
#[test]
fn a_journal_that_is_damaged_in_the_middle_is_not_carried_out_by_half() {
    let directory = tempfile::tempdir().unwrap();
    let volume = Volume::new(directory.path(), "a");
    let mut killed = volume.killed_after(2);
    // Start, then groups of a header and a page each.
    let group = |index: usize| 4096 + index * (4096 + PAGE);
    for at in [0, 9, group(0), group(5) + 20, group(6) + 4096 + 77] {
        killed.bytes(1)[at] ^= 0x10;
        killed.put_back();
        killed.bytes(1)[at] ^= 0x10;
        let told = told(volume.open());
        // Without its start it is not known to be the image's.
        let wanted = if at < 4096 { "are in another journal than" } else { "and has writes behind that" };
        assert!(told.contains(wanted), "{at}: {told}");
        assert_eq!(volume.pages(), [2; 8], "{at}");
    }
    // The last group was being written.
    let last = (0..).take_while(|index| killed.bytes(1)[group(*index)] == b'D').last().unwrap();
    killed.bytes(1)[group(last) + 4096 + 9000] ^= 1;
    killed.put_back();
    drop(volume.open().unwrap());
}

/// A file that begins with eight zeroes was taken for a journal, and written over: every ext4 file system begins so.
#[test]
fn a_file_with_anything_in_it_is_not_taken_for_a_new_journal() {
    let directory = tempfile::tempdir().unwrap();
    let volume = Volume::new(directory.path(), "a");
    let mut precious = vec![0; 8 << 20];
    *precious.last_mut().unwrap() = 1;
    std::fs::write(&volume.journal, &precious).unwrap();
    let text = told(volume.open());
    assert!(text.ends_with("is not a journal: name a file that is not there, or a device of zeroes"), "{text}");
    assert!(std::fs::read(&volume.journal).unwrap() == precious);
}

/// The journal belonged to root, and the image to the user that the server becomes: it could not be opened a second time.
#[test]
fn a_new_journal_is_of_the_images_owner() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    let volume = Volume::new(directory.path(), "a");
    std::fs::write(&volume.image, vec![0; 1 << 20]).unwrap();
    // Only root can give files away.
    let wanted = std::os::unix::fs::chown(&volume.image, Some(65534), Some(65534))
        .map_or(rustix::process::getuid().as_raw(), |()| 65534);
    drop(volume.open().unwrap());
    assert_eq!(std::fs::metadata(&volume.journal).unwrap().uid(), wanted);
}
