//! Two hosts and a volume that one of them has reserved: the other gets at it by no way that there is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, Received, VOLUME, locally, start};
use crate::common::{Answer, builder, pattern};
use crate::standard::{MEMORY, compiled};
use crate::traversals::{end_of, input, words};
use diskside_nvme::Status;
use diskside_nvme::wire::memory::MemoryCopySource;
use diskside_nvme::wire::{
    AcquireAction, CopySourceEntry, PersistChange, RegisterAction, ReleaseAction, ReservationPage, ReservationType,
    Sqe, admin_opcode, log_page,
};
use diskside_server::Running;
use diskside_server::config::VolumeSpec;
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Outcome,
};
use zerocopy::{FromBytes, IntoBytes};

/// Their identifiers differ as the lengths of their names do.
const HOLDER: &str = "nqn.2026-11.org.example:holder";
const OTHER: &str = "nqn.2026-11.org.example:a-host-that-is-kept-off";
const KEY: u64 = 0x1234;
const SPARE: u32 = 2;
const COPIES: u16 = 100;
const WALKS: u16 = 104;
const LAYOUT: u32 = 7;
const LEN: u64 = 64 << 10;
const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();
const NO_READS: &str = "a reservation of another host keeps this one from reading volume data";
const NO_WRITES: &str = "a reservation of another host keeps this one from writing volume data";

fn target() -> Running {
    let volume = |name: &str, nsid| VolumeSpec { nsid: Some(nsid), ..VolumeSpec::new(name, "mem:8MiB").writable() };
    start(builder().reactors(2).volume(volume("data", VOLUME)).volume(volume("spare", SPARE)))
}

impl Client {
    fn register(&mut self, key: u64) {
        let sqe = Sqe::reservation_register(VOLUME, RegisterAction::Register, false, PersistChange::Persist);
        self.queue.command(sqe, Some([0, key].as_bytes()), 0).ok();
    }

    fn acquire(&mut self, kind: ReservationType) {
        let sqe = Sqe::reservation_acquire(VOLUME, AcquireAction::Acquire, kind);
        self.queue.command(sqe, Some([KEY, 0].as_bytes()), 0).ok();
    }

    fn let_go(&mut self, action: ReleaseAction, kind: ReservationType) {
        let sqe = Sqe::reservation_release(VOLUME, action, kind);
        self.queue.command(sqe, Some(KEY.as_bytes()), 0).ok();
    }

    /// With the programs that copy and walk, and a layout of a file on the volume.
    fn with_programs(mut self) -> Self {
        for (pind, name) in [(COPIES, "late"), (WALKS, "walk")] {
            self.load(pind, &compiled(name)).ok();
            self.activate(pind, true).ok();
        }
        let runs = vec![LayoutRun { logical: 0, physical: 0, len: LEN }];
        let request =
            LayoutRequest { action: LayoutAction::Set, id: LAYOUT, nsid: VOLUME, generation: 1, file_len: LEN, runs };
        let bytes = request.encode();
        self.queue.command(Sqe::layout_send(COMPUTE, bytes.len() as u32), Some(&bytes), 0).ok();
        self
    }

    /// Copies from a source to a sink.
    fn copy(&mut self, source: Endpoint, sink: Option<Endpoint>) -> Answer {
        let tag = self.tag();
        self.send(tag, &copies(source, sink))
    }

    fn memory_copy(&mut self) -> Answer {
        let source = CopySourceEntry::new(VOLUME, 0, 1);
        self.queue.command(Sqe::memory_copy(MEMORY, 0, 4096, 1, 2), Some(source.as_bytes()), 0)
    }

    fn copy_from_memory(&mut self) -> Answer {
        let source = MemoryCopySource::new(MEMORY, 0, 4096);
        self.queue.command(Sqe::copy(VOLUME, 100, 1, 4), Some(source.as_bytes()), 0)
    }

    /// The outcome of a call over, or to, the file of the layout.
    fn by_layout(&mut self, writes: bool) -> (Outcome, String) {
        let file = Endpoint { generation: 1, ..Endpoint::new(EndpointKind::Layout(LAYOUT), 0, LEN) };
        let request = if writes { copies(volume(SPARE), Some(file)) } else { copies(file, None) };
        let (_, trailer) = self.run(&request);
        (trailer.outcome, trailer.message)
    }
}

fn volume(nsid: u32) -> Endpoint {
    Endpoint::new(EndpointKind::Volume(nsid), 0, LEN)
}

fn copies(source: Endpoint, sink: Option<Endpoint>) -> FunctionRequest {
    let kind = if sink.is_some() { FunctionKind::Write } else { FunctionKind::Read };
    let (sources, sinks) = (vec![source], sink.into_iter().collect());
    FunctionRequest { args: vec![0; 8], sources, sinks, chunk_len: 64 << 10, ..FunctionRequest::new(kind, COPIES) }
}

fn walks() -> FunctionRequest {
    FunctionRequest {
        function: Some("walk".into()),
        sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, crate::traversals::LEN)],
        args: vec![0; 16],
        result_len_max: 64,
        ..FunctionRequest::new(FunctionKind::Traverse, WALKS)
    }
}

#[test]
fn a_host_that_may_not_write_does_not_by_functions_copies_or_layouts() {
    let running = target();
    let mut holder = Client::connect_as(&running, HOLDER);
    let mut other = Client::connect_as(&running, OTHER).with_programs();
    let bytes = pattern(LEN as usize, 5);
    holder.fill(&bytes);
    holder.register(KEY);
    holder.acquire(ReservationType::WriteExclusive);

    other.queue.write(VOLUME, 0, &[0; 4096]).fails_with(CONFLICT);
    other.queue.flush(VOLUME).fails_with(CONFLICT);
    assert_eq!(running.handle().stats().reservation_conflicts["data"], 2, "an operator sees them");
    other.copy(volume(SPARE), Some(volume(VOLUME))).fails_with(CONFLICT);
    assert_eq!(other.said().1, NO_WRITES);
    other.copy_from_memory().fails_with(CONFLICT);
    assert_eq!(other.by_layout(true), (Outcome::Media, NO_WRITES.to_owned()));

    // It may read.
    assert_eq!(other.queue.read(VOLUME, 0, 16).ok(), bytes);
    assert_eq!(other.result(&copies(volume(VOLUME), None)), bytes);
    other.copy(volume(VOLUME), Some(volume(SPARE))).ok();
    other.memory_copy().ok();
    assert_eq!(other.by_layout(false).0, Outcome::Ok);
    assert_eq!(holder.queue.read(VOLUME, 0, 16).ok(), bytes, "nothing was written");

    // Registered it may write where registrants may.
    holder.let_go(ReleaseAction::Release, ReservationType::WriteExclusive);
    other.register(1);
    holder.acquire(ReservationType::WriteExclusiveRegistrantsOnly);
    other.queue.write(VOLUME, 0, &bytes[..4096]).ok();
    other.copy_from_memory().ok();
    assert_eq!(other.by_layout(true).0, Outcome::Ok);
}

#[test]
fn a_host_that_may_not_read_does_not_by_functions_copies_or_layouts() {
    let running = target();
    let mut holder = Client::connect_as(&running, HOLDER);
    let mut other = Client::connect_as(&running, OTHER).with_programs();
    holder.fill(&pattern(LEN as usize, 5));
    holder.register(KEY);
    holder.acquire(ReservationType::ExclusiveAccess);

    other.queue.read(VOLUME, 0, 1).fails_with(CONFLICT);
    let request = other.over("stats64", &[], 4096);
    other.is_refused(FunctionKind::Read, &request, CONFLICT, NO_READS);
    other.copy(volume(VOLUME), Some(volume(SPARE))).fails_with(CONFLICT);
    other.memory_copy().fails_with(CONFLICT);
    assert_eq!(other.by_layout(false), (Outcome::Errno, NO_READS.to_owned()), "as for a file that cannot be opened");
    other.copy_from_memory().fails_with(CONFLICT);
    other.is_refused(FunctionKind::Traverse, &walks(), CONFLICT, NO_READS);
    let request = holder.over("stats64", &[], 4096);
    assert_eq!(holder.result(&request), locally("stats64", &[], &pattern(LEN as usize, 5)[..4096]), "the holder does");
}

/// A volume that was looked up when a request was prepared is looked at again.
#[test]
fn prepared_requests_are_refused_while_their_volume_is_reserved() {
    let running = target();
    let mut holder = Client::connect_as(&running, HOLDER);
    let mut other = Client::connect_as(&running, OTHER).with_programs();
    holder.fill(&words());
    let walk = other.prepare(&walks());
    let request = other.over("stats64", &[], 4096);
    let reads = other.prepare(&FunctionRequest { result_len_max: 4096, ..request });
    let stats = locally("stats64", &[], &words()[..4096]);
    let works = |other: &mut Client| {
        assert_eq!(other.call(walk, &input(7, 8), 8).ok(), end_of(7, 8));
        assert_eq!(other.call(reads, &[], 4096).ok()[..stats.len()], stats);
    };
    works(&mut other);
    holder.register(KEY);
    holder.acquire(ReservationType::ExclusiveAccessAllRegistrants);
    other.call(walk, &input(7, 8), 8).fails_with(CONFLICT);
    assert_eq!(other.said().1, NO_READS);
    other.call(reads, &[], 4096).fails_with(CONFLICT);
    holder.let_go(ReleaseAction::Release, ReservationType::ExclusiveAccessAllRegistrants);
    works(&mut other);
}

#[test]
fn a_call_that_runs_ends_when_its_volume_is_reserved() {
    let running = target();
    let mut holder = Client::connect_as(&running, HOLDER);
    let mut other = Client::connect_as(&running, OTHER).with_programs();
    holder.fill(&pattern(8 << 20, 3));
    let tag = other.tag();
    let source = Endpoint::whole(EndpointKind::Volume(VOLUME));
    other.send(tag, &copies(source, None)).ok();
    let first = other.receive(tag, 0, 256 << 10, 10_000);
    assert!(!first.answer.end && !first.bytes.is_empty(), "{first:?}");
    holder.register(KEY);
    holder.acquire(ReservationType::ExclusiveAccess);
    let received: Received = other.receive(tag, first.bytes.len() as u64, 256 << 10, 10_000);
    assert!(received.bytes.is_empty(), "{} bytes more", received.bytes.len());
    let trailer = received.trailer.expect("it has ended");
    assert_eq!((trailer.outcome, trailer.returned, &*trailer.message), (Outcome::Media, -13, NO_READS));
}

/// The output of a function is written a megabyte or more at a time, and all of that was, whatever happened meanwhile; later the piece
/// that was being written landed behind the answer.
#[test]
fn a_function_that_writes_stops_between_two_pieces() {
    const SLOW: u32 = 3;
    const LEN: u64 = 16 << 20;
    const PIECE_BLOCKS: u64 = 64;
    const PIECES: u64 = LEN / (PIECE_BLOCKS * 4096);
    let plan = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_millis(200), ..FaultPlan::default() };
    let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(LEN, false).unwrap()), 4096, plan);
    let slow = VolumeSpec { nsid: Some(SLOW), ..VolumeSpec::new("slow", "kept").writable() };
    let data = VolumeSpec { nsid: Some(VOLUME), ..VolumeSpec::new("data", "mem:16MiB").writable() };
    let running = start(builder().reactors(2).volume(data).medium(slow, Arc::new(medium)));
    let mut holder = Client::connect_as(&running, HOLDER);
    let mut other = Client::connect_as(&running, OTHER).with_programs();
    holder.fill(&vec![7; LEN as usize]);
    let mut is_there = |piece: &u64| holder.queue.read(SLOW, piece * PIECE_BLOCKS, 1).ok()[0] == 7;
    let whole = |nsid| Endpoint::whole(EndpointKind::Volume(nsid));
    let tag = other.tag();
    other.send(tag, &FunctionRequest { chunk_len: 4 << 20, ..copies(whole(VOLUME), Some(whole(SLOW))) }).ok();
    let begun = Instant::now();
    while !is_there(&0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
    }
    let mut fencer = Client::connect_as(&running, HOLDER);
    let register = Sqe::reservation_register(SLOW, RegisterAction::Register, false, PersistChange::Keep);
    fencer.queue.command(register, Some([0, KEY].as_bytes()), 0).ok();
    let acquire = Sqe::reservation_acquire(SLOW, AcquireAction::Acquire, ReservationType::WriteExclusive);
    fencer.queue.command(acquire, Some([KEY, 0].as_bytes()), 0).ok();
    let before = (0..PIECES).take_while(&mut is_there).count();
    let (_, trailer) = other.finish(tag);
    assert_eq!((trailer.outcome, trailer.returned), (Outcome::Media, -13), "{}", trailer.message);
    let after = (0..PIECES).take_while(&mut is_there).count();
    assert!(after == before && after < PIECES as usize, "{before} pieces were written, and {after} are");
}

/// A host inside the server's process has all rights that grants give; it is kept off like any other.
#[test]
fn reservations_hold_for_hosts_of_the_process_itself() {
    let running = target();
    let mut holder = Client::connect_as(&running, HOLDER);
    let mut inside = Client::connect_loop(&running).with_programs();
    inside.queue.write(VOLUME, 0, &[1; 4096]).ok();
    holder.register(KEY);
    holder.acquire(ReservationType::ExclusiveAccess);
    inside.queue.write(VOLUME, 0, &[2; 4096]).fails_with(CONFLICT);
    inside.copy(volume(VOLUME), Some(volume(SPARE))).fails_with(CONFLICT);
    assert_eq!(holder.queue.read(VOLUME, 0, 1).ok(), [1; 4096]);
}

#[test]
fn a_host_that_lost_its_registration_is_told_by_an_event() {
    let running = target();
    let (mut holder, mut other) = (Client::connect_as(&running, HOLDER), Client::connect_as(&running, OTHER));
    holder.register(KEY);
    other.register(9);
    let event = other.controller.admin.post(Sqe::new(admin_opcode::ASYNC_EVENT_REQUEST, 0), None, 0).unwrap();
    holder.let_go(ReleaseAction::Clear, ReservationType::WriteExclusive);
    let told = other.controller.admin.wait(event).unwrap();
    assert_eq!((told.status, told.result), (Status::SUCCESS, 0x80_00_06));
    let page = other.controller.admin.command(Sqe::get_log_page(log_page::RESERVATION, 0, 64, 0, false), None, 64);
    let page = ReservationPage::read_from_bytes(&page.ok()).unwrap();
    assert_eq!((page.count.get(), page.kind, page.more, page.nsid.get()), (1, 3, 0, VOLUME));
}
