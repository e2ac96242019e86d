//! Quotas of space and files: what hosts hold is what a model of them says, and nobody ever holds more than it may.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use diskside_export::{ExportSpec, Exports, FileError, FileReply, FileSession, SinkMode, Space};
use diskside_rights::{HostLimits, HostQuota, HostRights, QuotaRule, QuotaTable, Quotas};
use diskside_wire::file::{FileFlags, FileHandle, FileRequest, OpenedFile};
use rustix::io::Errno;
use zerocopy::FromBytes as _;

pub(crate) const ANN: &str = "nqn.2026-11.org.example:ann";
pub(crate) const BOB: &str = "nqn.2026-11.org.example:bob";
const PATIENCE: Duration = Duration::from_secs(60);
const WRITE: FileFlags = FileFlags::READ_WRITE;

/// An export with quotas.
pub(crate) struct Place {
    pub(crate) exports: Arc<Exports>,
    quotas: Arc<QuotaTable>,
}

impl Place {
    pub(crate) fn new(dir: &Path, rules: &[(&str, Option<u64>, Option<u64>)]) -> Self {
        let exports = Exports::open(&[ExportSpec::new("data", dir).writable()]).unwrap();
        let place = Self { exports, quotas: QuotaTable::unwatched() };
        place.set(rules);
        place.exports.check_accounts().unwrap();
        place.exports.keep_accounts();
        place
    }

    fn set(&self, rules: &[(&str, Option<u64>, Option<u64>)]) {
        let rule = |(of, space_bytes, files): &(&str, Option<u64>, Option<u64>)| QuotaRule {
            of: vec![(*of).to_owned()],
            limits: HostLimits { space_bytes: *space_bytes, files: *files, ..HostLimits::default() },
        };
        let rules: Vec<_> = rules.iter().map(rule).collect();
        self.quotas.set(Quotas::new(&rules, []).unwrap());
    }

    pub(crate) fn quota(&self, nqn: &str) -> Arc<HostQuota> {
        self.quotas.of(nqn)
    }

    pub(crate) fn host(&self, nqn: &str) -> Host {
        Host(self.exports.session_with(HostRights::everything(), self.quotas.of(nqn)))
    }

    pub(crate) fn held(&self, nqn: &str) -> (u64, u64) {
        let held = self.exports.held().into_iter().find(|(_, owner, _)| owner == nqn);
        let Space { bytes, files } = held.map(|(.., space)| space).unwrap_or_default();
        (bytes, files)
    }

    /// Waits until a host holds that: what nobody reaches any more may be given back in a moment.
    fn comes_to(&self, nqn: &str, want: (u64, u64)) {
        let began = Instant::now();
        while self.held(nqn) != want {
            assert!(began.elapsed() < PATIENCE, "{nqn} holds {:?}, not {want:?}", self.held(nqn));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn count(&self) {
        assert!(self.exports.count(PATIENCE));
    }
}

#[derive(Clone)]
pub(crate) struct Host(pub(crate) FileSession);

impl Host {
    pub(crate) fn ask(&self, request: FileRequest<'_>) -> FileReply {
        let (sender, receiver) = mpsc::channel();
        self.0.submit(request.to_bytes(), 1 << 20, move |reply| sender.send(reply).unwrap()).unwrap();
        receiver.recv().unwrap()
    }

    pub(crate) fn open(&self, request: FileRequest<'_>) -> Result<FileHandle, FileError> {
        let reply = self.ask(request);
        reply.returned.map(|_| OpenedFile::read_from_bytes(&reply.result).unwrap().handle())
    }

    pub(crate) fn create(&self, path: &str, flags: FileFlags) -> Result<FileHandle, FileError> {
        let path = format!("data/{path}");
        self.open(FileRequest::Create { dir: None, path: path.as_bytes(), mode: 0o444, flags: flags | WRITE })
    }

    fn lookup(&self, path: &str, flags: FileFlags) -> Result<FileHandle, FileError> {
        self.open(FileRequest::Lookup { dir: None, path: format!("data/{path}").as_bytes(), flags })
    }

    pub(crate) fn write(&self, file: FileHandle, offset: u64, len: usize) -> Result<u64, FileError> {
        self.ask(FileRequest::Write { file, offset, data: &vec![b'x'; len], flags: FileFlags::NONE }).returned
    }

    fn append(&self, file: FileHandle, len: usize) -> Result<u64, FileError> {
        self.ask(FileRequest::Write { file, offset: 0, data: &vec![b'x'; len], flags: FileFlags::APPEND }).returned
    }

    pub(crate) fn truncate(&self, file: FileHandle, len: u64) -> Result<u64, FileError> {
        self.ask(FileRequest::Truncate { file, len }).returned
    }

    pub(crate) fn close(&self, file: FileHandle) {
        self.ask(FileRequest::Close { file }).returned.unwrap();
    }

    pub(crate) fn unlink(&self, path: &str) -> Result<u64, FileError> {
        self.ask(FileRequest::Unlink { dir: None, path: format!("data/{path}").as_bytes() }).returned
    }

    fn rename(&self, from: &str, to: &str) -> Result<u64, FileError> {
        let (from, to) = (format!("data/{from}"), format!("data/{to}"));
        let (from, to, flags) = (from.as_bytes(), to.as_bytes(), FileFlags::NONE);
        self.ask(FileRequest::Rename { dir: None, from, to, flags }).returned
    }

    fn mkdir(&self, path: &str) -> Result<u64, FileError> {
        self.ask(FileRequest::MakeDirectory { dir: None, path: format!("data/{path}").as_bytes(), mode: 0o500 })
            .returned
    }

    fn rmdir(&self, path: &str) -> Result<u64, FileError> {
        self.ask(FileRequest::RemoveDirectory { dir: None, path: format!("data/{path}").as_bytes() }).returned
    }

    fn publish(&self, file: FileHandle) -> Result<u64, FileError> {
        self.ask(FileRequest::Publish { file }).returned
    }

    fn made(&self, path: &str, len: usize) {
        let file = self.create(path, FileFlags::NONE).unwrap();
        self.write(file, 0, len).unwrap();
        self.close(file);
    }
}

fn refusal(result: Result<impl std::fmt::Debug, FileError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.errno, Errno::DQUOT, "{error}");
    error.message
}

#[test]
fn what_a_host_writes_is_refused_before_it_is_more_than_its_quota_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::new(dir.path(), &[(ANN, Some(1000), Some(2))]);
    let (ann, bob) = (place.host(ANN), place.host(BOB));
    let file = ann.create("a", FileFlags::NONE).unwrap();
    ann.write(file, 0, 600).unwrap();
    let told = refusal(ann.write(file, 600, 401));
    let want = format!(
        "write data/a at byte 600: {ANN} may hold 1000 in export `data` (quota `space`) and holds 600 bytes, so 401 more are too \
         much; remove some of its files there, or have the quota raised"
    );
    assert_eq!(told, want);
    assert_eq!(fs::metadata(dir.path().join("a")).unwrap().len(), 600, "not one byte of it");
    ann.write(file, 100, 500).unwrap();
    ann.write(file, 600, 400).unwrap();
    refusal(ann.append(file, 1));
    refusal(ann.truncate(file, 1001));
    refusal(ann.truncate(file, u64::MAX >> 1));
    ann.mkdir("d").unwrap();
    let want = format!(
        "create data/b: {ANN} may have 2 files and directories in export `data` (quota `files`) and has 2; remove some of its files \
         there, or have the quota raised"
    );
    assert_eq!(refusal(ann.create("b", FileFlags::NONE)), want);
    assert!(!dir.path().join("b").exists());
    refusal(ann.mkdir("e"));
    refusal(ann.create("b", FileFlags::UNNAMED));
    // Empty files without a name, which got theirs later, did not count: a host had as many of them as it liked.
    ann.rmdir("d").unwrap();
    let new = ann.create("d", FileFlags::UNNAMED).unwrap();
    assert_eq!(place.held(ANN), (1000, 2));
    refusal(ann.create("b", FileFlags::UNNAMED));
    ann.publish(new).unwrap();
    ann.close(new);
    assert_eq!(place.held(ANN), (1000, 2));
    refusal(ann.create("b", FileFlags::UNNAMED));
    ann.unlink("d").unwrap();
    place.comes_to(ANN, (1000, 1));
    let new = ann.create("d", FileFlags::UNNAMED).unwrap();
    ann.close(new);
    place.comes_to(ANN, (1000, 1));
    ann.mkdir("d").unwrap();
    // Existing files can still be opened, read, overwritten, shortened and removed.
    let again = ann.create("a", FileFlags::NONE).unwrap();
    ann.truncate(again, 10).unwrap();
    assert_eq!(place.held(ANN), (10, 2));
    ann.rmdir("d").unwrap();
    ann.unlink("a").unwrap();
    assert_eq!(place.held(ANN), (10, 1), "it is still open");
    ann.close(file);
    ann.close(again);
    place.comes_to(ANN, (0, 0));
    bob.made("b", 100_000);
    assert_eq!((place.held(BOB), place.quota(ANN).counters().refusals), ((100_000, 1), 9));
    place.set(&[(BOB, Some(10), None)]);
    let file = bob.lookup("b", WRITE).unwrap();
    bob.write(file, 0, 100_000).unwrap();
    refusal(bob.write(file, 100_000, 1));
    bob.truncate(file, 5).unwrap();
    bob.write(file, 5, 5).unwrap();
}

#[test]
fn a_file_counts_for_who_makes_it_longer_whosever_it_was() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), [1; 500]).unwrap();
    let place = Place::new(dir.path(), &[(ANN, Some(1000), None)]);
    let (ann, bob) = (place.host(ANN), place.host(BOB));
    bob.made("b", 900);
    let file = ann.lookup("b", WRITE).unwrap();
    ann.write(file, 0, 900).unwrap();
    assert_eq!((place.held(ANN), place.held(BOB)), ((0, 0), (900, 1)), "it became no longer");
    ann.append(file, 1).unwrap();
    assert_eq!((place.held(ANN), place.held(BOB)), ((901, 1), (0, 0)));
    let old = ann.lookup("old", WRITE).unwrap();
    let told = refusal(ann.append(old, 1));
    assert!(
        told.contains("so 501 more are too much, since the whole file counts for who makes it longer; remove"),
        "{told}"
    );
    let old = bob.lookup("old", WRITE).unwrap();
    bob.append(old, 1).unwrap();
    assert_eq!((place.held(ANN), place.held(BOB)), ((901, 1), (501, 1)));
    // The server's own process has no name: what it makes longer is nobody's.
    let nobody = Host(place.exports.session());
    let file = nobody.lookup("b", WRITE).unwrap();
    nobody.append(file, 9).unwrap();
    assert_eq!(place.held(ANN), (0, 0));
}

#[test]
fn what_hosts_hold_is_known_after_a_restart_and_corrected_when_others_change_files() {
    let dir = tempfile::tempdir().unwrap();
    let rules = [("*", Some(10_000), Some(400))];
    {
        let place = Place::new(dir.path(), &rules);
        let (ann, bob) = (place.host(ANN), place.host(BOB));
        ann.mkdir("deep").unwrap();
        // Paths longer than a system call takes.
        let mut path = "deep".to_owned();
        for _ in 0..30 {
            path += &format!("/{}", "d".repeat(100));
            ann.mkdir(&path).unwrap();
        }
        for at in 0..200 {
            ann.made(&format!("deep/{at}"), at % 7);
        }
        bob.made("bob", 70);
        fs::hard_link(dir.path().join("bob"), dir.path().join("deep/bob")).unwrap();
        // Sparse: the hole counts.
        let file = bob.create("hole", FileFlags::NONE).unwrap();
        bob.write(file, 5000, 1).unwrap();
        assert_eq!((place.held(ANN), place.held(BOB)), ((594, 231), (5071, 2)));
    }
    fs::write(dir.path().join("unowned"), [0; 100_000]).unwrap();
    let place = Place::new(dir.path(), &rules);
    assert_eq!((place.held(ANN), place.held(BOB)), ((594, 231), (5071, 2)));
    let bob = place.host(BOB);
    let open = bob.lookup("bob", FileFlags::READ).unwrap();
    fs::remove_file(dir.path().join("hole")).unwrap();
    fs::OpenOptions::new().append(true).open(dir.path().join("bob")).unwrap().write_all(&[0; 30]).unwrap();
    place.count();
    // An open file of a host counts as it was when it was opened, until the host changes it.
    assert_eq!(place.held(BOB), (70, 1));
    bob.close(open);
    place.count();
    assert_eq!(place.held(BOB), (100, 1));
    bob.unlink("bob").unwrap();
    assert_eq!(place.held(BOB), (100, 1), "it has another name");
    bob.unlink("deep/bob").unwrap();
    assert_eq!((place.held(ANN), place.held(BOB)), ((594, 231), (0, 0)));
}

/// Each directory was opened from the root again: 16,000 of them in each other kept a server from all writers for a minute.
#[test]
fn directories_far_below_are_counted_from_those_above_them() {
    const DEPTH: u64 = 150;
    let dir = tempfile::tempdir().unwrap();
    let limits = [(ANN, Some(1 << 20), None)];
    let (place, mut path) = (Place::new(dir.path(), &limits), String::new());
    place.count();
    let ann = place.host(ANN);
    for _ in 0..DEPTH {
        // Whichever of them is walked first, the walk comes back for the others.
        for aside in ["a", "z"] {
            ann.mkdir(&format!("{path}{aside}")).unwrap();
            ann.made(&format!("{path}{aside}/file"), 10);
        }
        path += "d/";
        ann.mkdir(path.trim_end_matches('/')).unwrap();
    }
    let wanted = (2 * 10 * DEPTH, 5 * DEPTH);
    place.comes_to(ANN, wanted);
    place.count();
    assert_eq!(place.held(ANN), wanted);
    drop((ann, place));
    let place = Place::new(dir.path(), &limits);
    place.count();
    assert_eq!(place.held(ANN), wanted);
}

#[test]
fn a_replaced_file_counts_until_the_new_one_has_its_name_and_what_fails_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::new(dir.path(), &[(ANN, Some(1000), Some(3))]);
    let (ann, bob) = (place.host(ANN), place.host(BOB));
    bob.made("f", 400);
    let new = ann.create("f", FileFlags::UNNAMED).unwrap();
    ann.write(new, 0, 1000).unwrap();
    assert_eq!((place.held(ANN), place.held(BOB)), ((1000, 1), (400, 1)));
    refusal(ann.write(new, 1000, 1));
    ann.publish(new).unwrap();
    assert_eq!((place.held(ANN), place.held(BOB)), ((1000, 1), (0, 0)));
    // The old one and the new one at once are too much.
    let new = ann.create("f", FileFlags::UNNAMED).unwrap();
    refusal(ann.write(new, 0, 1));
    ann.close(new);
    place.comes_to(ANN, (1000, 1));
    assert_eq!(fs::metadata(dir.path().join("f")).unwrap().len(), 1000);

    // One that cannot take the place of the old one gets its content there: with two names, as here.
    bob.made("g", 100);
    fs::hard_link(dir.path().join("g"), dir.path().join("h")).unwrap();
    let file = ann.lookup("f", WRITE).unwrap();
    ann.truncate(file, 0).unwrap();
    ann.close(file);
    let new = ann.create("g", FileFlags::UNNAMED).unwrap();
    ann.write(new, 0, 600).unwrap();
    let told = refusal(ann.publish(new));
    assert!(told.contains("quota `space`"), "{told}");
    assert_eq!(fs::metadata(dir.path().join("h")).unwrap().len(), 100);
    ann.truncate(new, 500).unwrap();
    ann.publish(new).unwrap();
    assert_eq!((place.held(BOB), fs::metadata(dir.path().join("h")).unwrap().len()), ((0, 0), 500));
    place.comes_to(ANN, (500, 2));

    // A function's output.
    let file = ann.lookup("f", WRITE).unwrap();
    for mode in [SinkMode::Replace, SinkMode::Append, SinkMode::InPlace { offset: 0 }] {
        let mut sink = ann.0.sink(file, mode).unwrap();
        sink.append(&[1; 300]).unwrap();
        sink.settle().unwrap();
        let full = sink.append(&[1; 300]).and_then(|()| sink.finish()).unwrap_err();
        assert_eq!(full.errno, Errno::DQUOT, "{mode:?}: {full}");
        assert!(full.message.starts_with("writing data/f, byte 300 of the output: "), "{full}");
        drop(sink);
        // In place what was written stays.
        let want = if matches!(mode, SinkMode::InPlace { .. }) { 800 } else { 500 };
        place.comes_to(ANN, (want, 2));
    }
}

#[test]
fn sixteen_writers_at_once_never_hold_more_than_their_host_may() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::new(dir.path(), &[(ANN, Some(100_000), Some(20))]);
    let barrier = Barrier::new(16);
    std::thread::scope(|scope| {
        for writer in 0..16u64 {
            let (host, barrier, dir) = (place.host(ANN), &barrier, dir.path());
            scope.spawn(move || {
                barrier.wait();
                for round in 0..40u64 {
                    let (name, len) = (format!("f{}", (writer + round) % 24), (writer * 977 + round * 131) % 9000);
                    // Nobody waits for anybody, so each may be refused.
                    let Ok(file) = host.create(&name, FileFlags::NONE) else { continue };
                    let _ = match round % 4 {
                        0 => host.write(file, len, 3000),
                        1 => host.append(file, 2000),
                        2 => host.truncate(file, len),
                        _ => host.rename(&name, &format!("f{}", (writer * 7 + round) % 24)),
                    };
                    if round % 5 == 0 {
                        let _ = host.unlink(&name);
                    }
                    let there: u64 = fs::read_dir(dir)
                        .unwrap()
                        .filter_map(|it| it.unwrap().metadata().ok())
                        .map(|it| it.len())
                        .sum();
                    // Files that get other names may be met twice.
                    assert!(there <= 200_000, "{there}");
                    host.close(file);
                }
            });
        }
    });
    let there = || fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().metadata().unwrap().len());
    let want = (there().sum(), there().count() as u64);
    assert!(want.0 <= 100_000 && want.1 <= 20, "{want:?}");
    let held = place.held(ANN);
    assert!(held.0 >= want.0 && held.1 >= want.1, "{held:?} is less than what is there, {want:?}");
    place.count();
    assert_eq!(place.held(ANN), want);
}

#[test]
fn tiny_files_without_end_are_bounded_by_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::new(dir.path(), &[(ANN, None, Some(3000))]);
    let ann = place.host(ANN);
    let mut made = 0;
    for at in 0..4000 {
        match ann.create(&format!("{at}"), FileFlags::NONE) {
            Ok(file) => {
                made += 1;
                ann.close(file);
            }
            Err(error) => assert_eq!(error.errno, Errno::DQUOT),
        }
    }
    assert_eq!((made, fs::read_dir(dir.path()).unwrap().count(), place.held(ANN)), (3000, 3000, (0, 3000)));
    place.count();
    assert_eq!(place.held(ANN), (0, 3000));
}

#[test]
fn files_without_a_name_count_as_long_as_they_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::new(dir.path(), &[(ANN, Some(1000), None)]);
    let (ann, other) = (place.host(ANN), place.host(ANN));
    ann.made("a", 1000);
    let reader = other.lookup("a", FileFlags::READ).unwrap();
    ann.unlink("a").unwrap();
    place.count();
    assert_eq!(place.held(ANN), (1000, 1), "a reader keeps its bytes on the disk");
    let file = ann.create("b", FileFlags::NONE).unwrap();
    refusal(ann.write(file, 0, 1));
    other.close(reader);
    place.comes_to(ANN, (0, 1));
    ann.write(file, 0, 1000).unwrap();
    // An association that ends gives back what it had open.
    ann.unlink("b").unwrap();
    drop((ann, other));
    place.comes_to(ANN, (0, 0));
}

#[test]
fn exports_that_have_files_in_common_cannot_be_counted() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("x")).unwrap();
    let specs = [ExportSpec::new("data", dir.path()).writable(), ExportSpec::new("part", dir.path().join("x/../x"))];
    let error = Exports::check_accounts_of(&specs).unwrap_err().to_string();
    assert!(error.starts_with("export `part`: it has files in common with export `data`, so quotas"), "{error}");
    assert_eq!(Exports::open(&specs).unwrap().check_accounts().unwrap_err().to_string(), error);
    let [_, part] = specs;
    Exports::check_accounts_of(&[ExportSpec::new("data", dir.path()), part]).unwrap();
    let error = Exports::check_accounts_of(&[ExportSpec::new("kernel", "/proc").writable()]).unwrap_err().to_string();
    assert!(error.contains("/proc keeps no attributes of files"), "{error}");
}

/// Files by name, as hosts think of them.
#[derive(Default)]
struct Model {
    names: BTreeMap<String, usize>,
    files: Vec<(&'static str, u64)>,
}

impl Model {
    fn held(&self, nqn: &str) -> (u64, u64) {
        let of = |file: &&usize| self.files[**file].0 == nqn;
        let files = || self.names.values().filter(of);
        (files().map(|file| self.files[*file].1).sum(), files().count() as u64)
    }
}

#[test]
fn what_hosts_hold_is_what_a_model_says_after_each_of_many_operations() {
    const SPACE: u64 = 40_000;
    const FILES: u64 = 12;
    for seed in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(dir.path(), &[("*", Some(SPACE), Some(FILES))]);
        let (hosts, mut model, mut dice) = ([ANN, BOB].map(|nqn| (nqn, place.host(nqn))), Model::default(), seed + 1);
        for step in 0..300 {
            let mut roll = |sides: u64| {
                dice = (dice ^ dice << 13) ^ ((dice ^ dice << 13) >> 7);
                dice ^= dice << 17;
                dice % sides
            };
            let (nqn, host) = &hosts[roll(2) as usize];
            let (name, other) = (format!("f{}", roll(16)), format!("f{}", roll(16)));
            let (bytes, files) = model.held(nqn);
            let known = model.names.get(&name).copied();
            // The bytes and files that the host would have if the file had this length, and was its.
            let fits = |end: u64, old: Option<usize>| match old.map(|old| model.files[old]) {
                Some((owner, len)) if owner == *nqn => end <= len || bytes - len + end <= SPACE,
                Some((_, len)) => end <= len || bytes + end <= SPACE && files < FILES,
                None => files < FILES && bytes + end <= SPACE,
            };
            let (offset, more) = (roll(8000), roll(3000));
            let what = roll(8);
            let (is_fine, done) = match what {
                0 | 1 => {
                    let end = if more == 0 { 0 } else { offset + more };
                    let made = known.is_some() || files < FILES;
                    let file = host.create(&name, FileFlags::NONE);
                    assert_eq!(file.is_ok(), made, "{file:?}");
                    let Ok(file) = file else { continue };
                    let at = *model.names.entry(name.clone()).or_insert_with(|| {
                        model.files.push((nqn, 0));
                        model.files.len() - 1
                    });
                    let (owner, len) = model.files[at];
                    let (bytes, files) = model.held(nqn);
                    let is_own = owner == *nqn;
                    let left = if is_own { bytes - len } else { bytes };
                    let fits = end <= len || left + end <= SPACE && (is_own || files < FILES);
                    let done = host.write(file, offset, more as usize);
                    host.close(file);
                    if fits && end > len {
                        model.files[at] = (nqn, end);
                    }
                    (fits, done.map(drop))
                }
                2 => {
                    let Some(at) = known else { continue };
                    let fits = fits(offset, known);
                    let file = host.lookup(&name, WRITE).unwrap();
                    let done = host.truncate(file, offset);
                    host.close(file);
                    if fits {
                        let (owner, len) = model.files[at];
                        model.files[at] = (if offset > len { nqn } else { owner }, offset);
                    }
                    (fits, done.map(drop))
                }
                3 => (model.names.remove(&name).is_some(), host.unlink(&name).map(drop)),
                4 => {
                    if name == other {
                        continue;
                    }
                    if let Some(at) = known {
                        model.names.remove(&name);
                        model.names.insert(other.clone(), at);
                    }
                    (known.is_some(), host.rename(&name, &other).map(drop))
                }
                5 | 6 => {
                    let room = files < FILES;
                    let new = host.create(&name, FileFlags::UNNAMED);
                    assert_eq!(new.is_ok(), room, "{new:?}");
                    let Ok(new) = new else { continue };
                    let fits = bytes + more <= SPACE;
                    let done = host.write(new, 0, more as usize);
                    if fits && what == 5 {
                        host.publish(new).unwrap();
                        model.files.push((nqn, more));
                        model.names.insert(name, model.files.len() - 1);
                    }
                    host.close(new);
                    (fits, done.map(drop))
                }
                _ => {
                    if roll(4) == 0 {
                        place.count();
                    }
                    continue;
                }
            };
            assert_eq!(done.is_ok(), is_fine, "seed {seed}, step {step}, operation {what}: {done:?}");
            for (nqn, _) in &hosts {
                place.comes_to(nqn, model.held(nqn));
            }
        }
        let place = Place::new(dir.path(), &[]);
        for (nqn, _) in &hosts {
            assert_eq!(place.held(nqn), model.held(nqn), "after a restart");
        }
    }
}
