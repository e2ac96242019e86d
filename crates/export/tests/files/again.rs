//! A directory that is removed while it is served, and made again. The export held the removed one for ever: nothing was found in it,
//! not even after the configuration was read again, and the errors were those of files that are not there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diskside_export::{ExportSpec, Exports, FileSession};
use diskside_wire::file::{FileFlags, FileHandle, FileRequest, OpenedFile};
use rustix::io::Errno;
use zerocopy::FromBytes as _;

use crate::host::{ask, exports};

/// An export of a directory in another one.
struct Place {
    dir: tempfile::TempDir,
    exports: Arc<Exports>,
    session: FileSession,
}

const TOLD: &str = "the directory of export `data` was removed at the server";

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fill(&dir.path().join("data"), "old");
        let exports = exports(&[spec(dir.path())]);
        Self { session: exports.session(), exports, dir }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn make_again(&self) {
        fs::remove_dir_all(self.data()).unwrap();
        fill(&self.data(), "new");
    }

    /// As a reload of the same configuration: which were opened again, and why others were not.
    fn reload(&self) -> (Vec<String>, Vec<String>) {
        let prepared = self.exports.prepare(&[spec(self.dir.path())]).unwrap();
        let told = prepared.kept().iter().map(ToString::to_string).collect();
        let again = prepared.opened_again().to_vec();
        self.exports.withdraw_all_but(&prepared);
        self.exports.replace(prepared);
        (again, told)
    }

    fn try_ask(&self, request: FileRequest<'_>) -> Result<Vec<u8>, (Errno, String)> {
        let reply = ask(&self.session, request, 1 << 20);
        reply.returned.map(|_| reply.result).map_err(|error| (error.errno, error.message))
    }

    fn open(&self) -> Result<FileHandle, (Errno, String)> {
        let opened = self.try_ask(FileRequest::Lookup { dir: None, path: b"data/f", flags: FileFlags::READ })?;
        Ok(OpenedFile::read_from_bytes(&opened).unwrap().handle())
    }

    fn read(&self, file: FileHandle) -> Result<Vec<u8>, (Errno, String)> {
        self.try_ask(FileRequest::Read { file, offset: 0, len: 100 })
    }
}

fn spec(dir: &Path) -> ExportSpec {
    ExportSpec::new("data", dir.join("data")).writable()
}

fn fill(dir: &Path, content: &str) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("f"), content).unwrap();
}

#[test]
fn errors_say_that_the_directory_was_removed_until_a_reload_opens_the_new_one() {
    let place = Place::new();
    let held = place.open().unwrap();
    place.make_again();
    let (flags, path) = (FileFlags::NONE, &b"data/f"[..]);
    let new = b"data/new";
    let whole = FileFlags::UNNAMED | FileFlags::WRITE;
    let requests = [
        FileRequest::Lookup { dir: None, path, flags: FileFlags::READ },
        FileRequest::Stat { base: None, path, flags },
        FileRequest::List { base: None, path: b"data", cursor: 0, len_max: 4096, flags },
        FileRequest::Find { dir: None, pattern: b"data/*", after: b"", len_max: 4096, flags },
        FileRequest::Create { dir: None, path: new, mode: 0o600, flags: FileFlags::WRITE },
        FileRequest::Create { dir: None, path: new, mode: 0o600, flags: whole },
        FileRequest::MakeDirectory { dir: None, path: new, mode: 0o700 },
        FileRequest::Unlink { dir: None, path },
        FileRequest::Rename { dir: None, from: path, to: b"data/g", flags },
    ];
    for request in requests {
        let (errno, told) = place.try_ask(request).unwrap_err();
        assert!(errno == Errno::NOENT && told.contains(TOLD), "{request:?}: {told}");
    }
    for told in [
        place.session.find_file(path, &[]).map(drop).unwrap_err().message,
        place.session.open_source(path).map(drop).unwrap_err().message,
    ] {
        assert!(told.contains(TOLD), "{told}");
    }
    assert_eq!(place.read(held).unwrap(), b"old", "an open file keeps its bytes");

    assert_eq!(place.reload(), (vec!["data".to_owned()], vec![]));
    assert_eq!(place.read(place.open().unwrap()).unwrap(), b"new");
    let (errno, told) = place.read(held).unwrap_err();
    assert!(errno == Errno::STALE && told.contains("look the file up again"), "{told}");
    // Nothing is opened again that is the same.
    let held = place.open().unwrap();
    assert_eq!(place.reload(), (vec![], vec![]));
    assert_eq!(place.read(held).unwrap(), b"new");
}

/// A name that is not there is an error like any other as long as the directory is.
#[test]
fn a_missing_file_is_not_blamed_on_the_directory() {
    let place = Place::new();
    fs::remove_file(place.data().join("f")).unwrap();
    assert_eq!(place.open().unwrap_err().1, "lookup data/f: No such file or directory (os error 2)");
    fs::rename(place.data(), place.dir.path().join("aside")).unwrap();
    assert!(!place.open().unwrap_err().1.contains(TOLD));
}

#[test]
fn a_renamed_directory_stays_until_another_one_has_its_path() {
    let place = Place::new();
    let held = place.open().unwrap();
    fs::rename(place.data(), place.dir.path().join("aside")).unwrap();
    assert_eq!(place.reload(), (vec![], vec![]));
    assert_eq!(place.read(held).unwrap(), b"old");
    fill(&place.data(), "new");
    assert_eq!(place.read(place.open().unwrap()).unwrap(), b"old", "a reload says when");
    assert_eq!(place.reload().0, ["data"]);
    assert_eq!(place.read(place.open().unwrap()).unwrap(), b"new");
}

#[test]
fn a_directory_that_is_not_there_again_keeps_nothing_else_of_a_reload_from_being_taken() {
    let place = Place::new();
    fs::remove_dir_all(place.data()).unwrap();
    let other = ExportSpec::new("other", place.dir.path());
    let prepared = place.exports.prepare(&[spec(place.dir.path()), other]).unwrap();
    let told = prepared.kept()[0].to_string();
    assert!(told.starts_with("export `data`: its directory was removed, and is not there again: "), "{told}");
    assert_eq!((prepared.opened_again().len(), prepared.kept().len()), (0, 1));
    place.exports.replace(prepared);
    assert_eq!(place.exports.names(), ["data", "other"]);
    assert!(place.open().unwrap_err().1.contains(TOLD));
}

#[test]
fn a_directory_that_may_not_be_taken_is_told_of() {
    let place = Place::new();
    place.make_again();
    let prepared =
        place.exports.prepare_unless(&[spec(place.dir.path())], |_| Some("it is elsewhere".to_owned())).unwrap();
    assert_eq!(prepared.kept()[0].to_string(), "export `data`: it is elsewhere");
    assert!(prepared.opened_again().is_empty());
    place.exports.replace(prepared);
    assert!(place.open().unwrap_err().1.contains(TOLD));
}
