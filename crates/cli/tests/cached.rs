//! `diskside clear --cache`: what the page cache held of a file or a volume is gone, by the kernel's own word.

mod common;

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use common::{Server, diskside, good};
use diskside_sys::cache::residency_by_mincore;

const LEN: u64 = 1 << 20;
const PAGES: u64 = LEN / 4096;

/// A directory on a disk: what a file system in memory holds cannot leave it.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Makes a file whose pages are in memory.
fn cached_file(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, vec![b'x'; LEN as usize]).expect("written");
    assert_eq!(cached_pages(&path), PAGES);
    path
}

fn cached_pages(path: &Path) -> u64 {
    let file = std::fs::File::open(path).expect("it is there");
    residency_by_mincore(file.as_fd(), &(0..LEN)).expect("it is ours").cached
}

/// A host could measure a cold read of a volume with O_DIRECT alone: pages of exported files and of buffered volumes stayed,
/// whatever it cleared.
#[test]
fn what_the_page_cache_holds_is_dropped_of_files_and_volumes() {
    let dir = directory();
    let [one, two, other] = ["one.log", "two.log", "other"].map(|name| cached_file(dir.path(), name));
    let [disk, backup] = ["disk.img", "backup.img"].map(|name| cached_file(dir.path(), name));
    let volumes = [format!("disk={},buffered", disk.display()), format!("backup={},buffered,ro", backup.display())];
    let server = Server::of(dir.path(), ",ro", &["--volume", &volumes[0], "--volume", &volumes[1]]);

    good(&["clear", "--cache", &server.at("one.log")]);
    assert_eq!([&one, &two, &other].map(|path| cached_pages(path)), [0, PAGES, PAGES]);
    // It is read from the disk again, and is what it was.
    assert_eq!(
        good(&["run", "wc", &server.at("one.log"), "--where", "device"]),
        good(&["run", "wc", &two.display().to_string()])
    );
    assert!(cached_pages(&one) > 0);
    good(&["clear", "--cache", &server.at("*.log")]);
    assert_eq!([&one, &two, &other].map(|path| cached_pages(path)), [0, 0, PAGES]);

    good(&["clear", server.target(), "--cache=2"]);
    assert_eq!([&disk, &backup].map(|path| cached_pages(path)), [PAGES, 0]);
    good(&["clear", server.target(), "--cache"]);
    assert_eq!(cached_pages(&disk), 0);

    let (code, _, said) = diskside(&["clear", "--cache", &server.at("none")]);
    assert!(code == 4 && said.contains("No such file or directory"), "{code}: {said}");
    let (code, _, said) = diskside(&["clear", "--cache", &server.at("*.none")]);
    assert!(code == 2 && said.contains("No such file or directory"), "{code}: {said}");
    for wrong in [&["--cache=1"][..], &["--cache", "--state", "runs"], &["--state", "runs"]] {
        let (code, _, said) = diskside(&[&["clear", &server.at("one.log")], wrong].concat());
        assert!(
            code == 2 && said.contains("a path goes with --cache alone: states and volumes are those of a target"),
            "{said}"
        );
    }
}
