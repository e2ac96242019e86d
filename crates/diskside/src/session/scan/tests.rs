//! The choices of `auto` for a scan of which something is known, and how it measures: with a server, and measurements that were told.

use super::decide::{Choice, Probe, Work};
use super::rate::Meter;
use super::share::observation;
use super::split::PartDone;
use super::{Among, Scan, ScanOptions, ScanPlace};
use crate::session::place::{Place, Remote};
use crate::session::{File, Session, SessionOptions};
use diskside_dispatch::Side;
use diskside_scan::{Compression, Frame, Part, Plan, Program, ReadOf, ReadsBy, Report, Start};
use diskside_scan::{parse_aggregates, parse_filter, parse_order};
use diskside_server::config::ExportSpec;
use diskside_server::{Running, Target};
use std::time::{Duration, Instant};

const LEN: u64 = 1 << 30;
const WORK: Work = Work { row_groups: 20, needed_bytes: LEN };
/// A scan takes so long on one side.
const ALONE: Duration = Duration::from_secs(2);

struct World {
    directory: tempfile::TempDir,
    session: Session,
    file: File,
    plan: Plan,
    _server: Running,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("table"), "of which only measurements are read").unwrap();
        let builder = Target::builder().listen(["127.0.0.1:0".parse().unwrap()]);
        let server = builder.export(ExportSpec::new("data", directory.path())).build().unwrap().start().unwrap();
        let session = Session::new(SessionOptions::default());
        let file = session.open(&format!("diskside://{}/data/table", server.handle().local_addresses()[0])).unwrap();
        let plan = Plan { aggregates: parse_aggregates("count(*)").unwrap(), ..Plan::default() };
        Self { directory, session, file, plan, _server: server }
    }

    fn options(&self, script: &str) -> ScanOptions {
        let (text, program) = (self.directory.path().join("text"), self.directory.path().join("program"));
        std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        // A file that this process writes may be held open for writing by one that another test starts: then it is not run.
        let installed = std::process::Command::new("install").args(["-m", "700"]).args([&text, &program]).status();
        assert!(installed.unwrap().success());
        ScanOptions { place: ScanPlace::Auto, program: Some(Program::at(program)), ..ScanOptions::default() }
    }

    fn scan<'a>(&'a self, options: &'a ScanOptions) -> Scan<'a> {
        Scan { file: &self.file, plan: &self.plan, options, among: Among::None }
    }

    fn remote(&self) -> &Remote {
        match &self.file.inner.place {
            Place::Export(remote) => remote,
            _ => unreachable!("it is one of an export"),
        }
    }
}

impl Scan<'_> {
    /// One side took so long for all of the file.
    fn tell(&self, side: Side, total: Duration) {
        let of = observation(side, LEN, 100, total);
        self.session().lock_dispatcher().observe_among(self.pair(), &of, 1.0);
    }

    /// Reads of a scan here brought so many bytes in a time.
    fn tell_reads(&self, len: u64, took: Duration) {
        self.note_reads(&Meter::of(len, took));
    }

    /// Both sides took so long, with half of the file each.
    fn tell_both(&self, total: Duration) {
        let report = Report { needed_len: LEN / 2, ..Report::default() };
        let half = (PartDone { report, result_bytes: 100, total }, WORK.row_groups / 2);
        self.note_both([half, half]);
    }
}

#[test]
fn both_sides_are_chosen_where_each_measured_about_the_same_and_left_where_they_turn_out_slower() {
    let (world, options) = (World::new(), ScanOptions::default());
    let options = ScanOptions { program: Some(Program::at("/bin/true")), ..options };
    let scan = world.scan(&options);
    let cut = || scan.cut(world.remote(), &WORK, 0, ALONE.as_secs_f64());
    scan.tell(Side::Device, ALONE);
    assert_eq!(cut(), None, "of the other side nothing is known");
    scan.tell(Side::Host, ALONE);
    let first = cut().expect("half of the row groups take half of the time");
    assert_eq!(first.row_groups(WORK.row_groups), 10);
    let Choice { cut: chosen, .. } = scan.choose().unwrap();
    assert!(chosen.is_some_and(|chosen| chosen.why().starts_with("both sides at once are faster")), "{chosen:?}");
    // They share a processor: together they are slower than one.
    (0..20).for_each(|_| scan.tell_both(ALONE * 2));
    assert_eq!((cut(), scan.choose().unwrap().cut), (None, None));
}

#[test]
fn one_side_is_chosen_for_what_is_not_worth_a_cut() {
    let (mut world, options) = (World::new(), ScanOptions::default());
    let chosen = |world: &World, work: &Work, alone: Duration, among| {
        let scan = Scan { among, ..world.scan(&options) };
        Side::ALL.into_iter().for_each(|side| scan.tell(side, ALONE));
        scan.cut(world.remote(), work, 0, alone.as_secs_f64()).is_some()
    };
    assert!(chosen(&world, &WORK, ALONE, Among::None));
    assert!(!chosen(&world, &WORK, ALONE, Among::Others), "other files are scanned at the same time");
    assert!(!chosen(&world, &WORK, Duration::from_millis(90), Among::None), "it is over soon");
    assert!(!chosen(&world, &Work { row_groups: 7, ..WORK }, ALONE, Among::None), "it has few row groups");
    world.plan = Plan { filter: Some(parse_filter("n > 3").unwrap()), ..Plan::default() };
    assert!(!chosen(&world, &WORK, ALONE, Among::None), "its rows are many");
    world.plan = Plan { order: parse_order("n").unwrap(), limit: Some(10), ..Plan::default() };
    assert!(chosen(&world, &WORK, ALONE, Among::None), "the first rows in an order are few");
}

/// A row group that measured the other side had all the time that it wanted: one query in some took as long as both sides together.
#[test]
fn a_measurement_of_a_side_that_stands_still_is_given_up() {
    let world = World::new();
    let options = world.options("exec sleep 600");
    let scan = world.scan(&options);
    let probe = Probe { part: Part { first: 3, count: 1 }, timeout: Duration::from_millis(50) };
    let choice = Choice { probe: Some(probe), ..Choice::new(Side::Device, "as told") };
    let began = Instant::now();
    scan.measure_other(&choice);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(world.session.lock_dispatcher().learnt(scan.pair()).is_none(), "it measured nothing");
}

/// Results of scans were always compressed: on fast links that took longer than the bytes that it saved.
#[test]
fn results_are_compressed_where_the_link_is_slow() {
    let (mut world, options) = (World::new(), ScanOptions::default());
    world.plan.compression = Compression::Lz4;
    let scan = world.scan(&options);
    let link = &world.remote().link;
    let note = |megabytes: u64, ms| scan.note_result(link, megabytes << 20, Duration::from_millis(ms));
    note(16, 2000);
    assert_eq!(scan.compression(), Compression::None, "the server is on this machine");
    // Reads of 16 MiB at 0.5 Gb/s: behind the address is a tunnel.
    scan.tell_reads(16 << 20, Duration::from_millis(268));
    assert_eq!(scan.compression(), Compression::Lz4);
    // A result has to be made: one that took longer says nothing of the link.
    note(16, 2000);
    assert_eq!(scan.compression(), Compression::Lz4);
    note(16, 20);
    assert_eq!(scan.compression(), Compression::None, "a result came at 6.7 Gb/s");
    let plain = Plan { compression: Compression::None, ..world.plan.clone() };
    assert_eq!(Scan { plan: &plain, ..scan }.compression(), Compression::None);
}

/// A process that makes one scan does not know the link otherwise.
#[test]
fn the_rate_of_a_link_is_known_to_the_next_session() {
    let (mut world, options) = (World::new(), ScanOptions::default());
    world.plan.compression = Compression::Lz4;
    let learnt_directory = Some(world.directory.path().join("learnt"));
    for is_first in [true, false] {
        world.session =
            Session::new(SessionOptions { learnt_directory: learnt_directory.clone(), ..Default::default() });
        world.file = world.session.open(&world.file.inner.name).unwrap();
        let scan = world.scan(&options);
        assert_eq!(scan.compression() == Compression::None, is_first);
        scan.tell_reads(16 << 20, Duration::from_millis(268));
        world.session.save_learnt().unwrap();
    }
}

/// The scans of a process that reads eight bytes of the footer, has them as its result, and counts them.
struct OfFooter {
    world: World,
    options: ScanOptions,
}

impl OfFooter {
    const READ: Frame = Frame::Read { offset: 3, len: 8, of: ReadOf::Metadata };

    fn new() -> Self {
        let world = World::new();
        let report = Report { read_len: 8, file_len: 35, ..Report::default() };
        let plan = Plan { compression: Compression::None, ..world.plan.clone() }.to_bytes();
        let (name, options) = (world.file.inner.name.clone(), ScanOptions::default());
        let start = Start {
            reads_by: ReadsBy::Requests,
            threads: Some(options.threads),
            file_len: 35,
            memory_len: options.memory_len,
            name,
            plan,
        };
        let written = |frame: &Frame| {
            let mut bytes = Vec::new();
            frame.write(&mut bytes).unwrap();
            bytes
        };
        let said = |frame: &Frame| written(frame).iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
        // The bytes that are read are the result: behind the header of their answer, which says their length, too.
        let script = format!(
            "head -c {} > /dev/null; printf '{}'; head -c 8 > /dev/null; printf '{}'; head -c 8; printf '{}'",
            1 + written(&Frame::Start(start)).len(),
            said(&Self::READ),
            said(&Frame::Output(vec![0; 8])).split_at(8 * 4).0,
            said(&Frame::Done(report)),
        );
        let options = ScanOptions { place: ScanPlace::Host, ..world.options(&script) };
        Self { world, options }
    }

    /// The result of a scan of the file that is there now, and how many bytes it read.
    fn scan(&self) -> (Vec<u8>, u64) {
        let (mut out, file) = (Vec::new(), self.world.session.open(&self.world.file.inner.name).unwrap());
        let scanned = file.scan(&self.world.plan, &self.options, &mut out).unwrap();
        assert_eq!(scanned.moved_bytes, (0, scanned.report.read_len));
        (out, scanned.report.read_len)
    }

    /// Puts another file of the same length in its place.
    fn replace(&self, text: &str) {
        let (new, path) = (self.world.directory.path().join("new"), self.world.directory.path().join("table"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
        settle();
    }
}

/// Waits until a change of a file that was written before has another time.
fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}

/// Each scan of a wide table read its footer again: megabytes, for a row.
#[test]
fn the_footer_of_a_version_is_read_once() {
    let of = OfFooter::new();
    settle();
    assert_eq!(of.scan(), (b"which on".to_vec(), 8));
    assert_eq!(of.scan(), (b"which on".to_vec(), 0));
    assert!(of.world.session.cached_bytes() >= 8);
    of.replace("of which nothing that was is there.");
    assert_eq!(of.scan(), (b"which no".to_vec(), 8), "it is another version");
    assert_eq!(of.scan(), (b"which no".to_vec(), 0));
    of.world.session.drop_cache();
    assert_eq!((of.world.session.cached_bytes(), of.scan()), (0, (b"which no".to_vec(), 8)));
}
