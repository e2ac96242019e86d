//! A server of a volume with atomic writes that is killed again and again while a host writes pages, as they are or as deltas.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::Process;
use diskside::host::{CommandFailure, CommandOutcome, ConnectOptions, Volume};
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo, Request, RequestFuture, Status, block_on};
use diskside_nvme::Status as NvmeStatus;
use diskside_nvme::host::CommandError;
use diskside_wire::delta::{Delta, encode_delta};
use rustix::process::{Pid, Signal, kill_process};

const PAGE: usize = 16 << 10;
const PAGES: u64 = 64;
const NQN: &str = "nqn.2026-11.test:killed";
const SECTOR: usize = 512;

/// A page of a version: each of its sectors says which, in few bytes.
fn page(number: u64, version: u64) -> Buffer {
    let mut bytes = Buffer::zeroed(PAGE);
    if version > 0 {
        for sector in bytes.chunks_exact_mut(SECTOR) {
            sector[..16].copy_from_slice(&[number.to_le_bytes(), version.to_le_bytes()].concat());
            sector[16..].fill(number as u8);
        }
    }
    bytes
}

struct Pages {
    deltas: bool,
    chance: u64,
    next: u64,
    /// Of each page: what was acknowledged last, and what was sent last.
    known: Vec<u64>,
    sent: Vec<u64>,
}

impl Pages {
    fn next(&mut self) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.chance >> 33
    }

    /// Writes pages, eight at a time, until the server is gone; counts how often all eight were acknowledged.
    fn write(&mut self, volume: &Volume, acknowledged: &AtomicU64) {
        loop {
            let first = self.next() % PAGES;
            let numbers: Vec<u64> = (0..8).map(|at| (first + at * 5) % PAGES).collect();
            let writes: Vec<_> = numbers.iter().map(|&number| self.begin(volume, number)).collect();
            let mut is_gone = false;
            for (number, write) in numbers.into_iter().zip(writes) {
                if write.ends_well() {
                    self.known[number as usize] = self.sent[number as usize];
                } else {
                    is_gone = true;
                }
            }
            if is_gone {
                return;
            }
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn begin(&mut self, volume: &Volume, number: u64) -> Begun {
        self.next += 1;
        self.sent[number as usize] = self.next;
        let (offset, buffer) = (number * PAGE as u64, page(number, self.next));
        if self.deltas && !self.next.is_multiple_of(5) {
            // Now and then the base is the page before.
            let from = if self.next.is_multiple_of(7) && number > 0 { number - 1 } else { number };
            let base = page(from, self.known[from as usize]);
            if let Some(record) = encode_delta(offset, &buffer, from * PAGE as u64, &base, PAGE) {
                return Begun::Delta(volume.write_delta(&Delta::parse(&record).expect("a record")));
            }
        }
        Begun::Write(volume.submit(Request::Write { offset, buffer, durable: false }))
    }

    fn check(&mut self, volume: &Volume, kills: u64) {
        for number in 0..PAGES {
            let request = Request::Read { offset: number * PAGE as u64, buffer: Buffer::zeroed(PAGE) };
            let found = block_on(volume.submit(request)).into_read().expect("read");
            let version = u64::from_le_bytes(found[8..16].try_into().expect("eight bytes"));
            assert!(found[..] == page(number, version)[..], "page {number} is torn after {kills} kills");
            let (known, sent) = (self.known[number as usize], self.sent[number as usize]);
            assert!(
                version == known || version == sent,
                "page {number} is {version}, not {known} or {sent}; {kills} kills"
            );
            self.known[number as usize] = version;
        }
    }
}

enum Begun {
    Write(RequestFuture),
    Delta(RequestFuture<CommandOutcome>),
}

impl Begun {
    /// Waits for its end; false: the server is gone.
    fn ends_well(self) -> bool {
        match self {
            Self::Write(write) => block_on(write).status == Status::Success,
            Self::Delta(delta) => match block_on(delta).result {
                Ok(_) => true,
                Err(CommandFailure::Command(CommandError::Status { status, .. })) => {
                    // A server that ends answers with none of these.
                    let is_refused =
                        [NvmeStatus::DELTA_BASE_MISMATCH, NvmeStatus::INVALID_FIELD].iter().any(|it| status.is(*it));
                    assert!(!is_refused, "{status}: its base was acknowledged");
                    false
                }
                Err(_) => false,
            },
        }
    }
}

#[test]
fn pages_are_whole_and_none_is_older_than_acknowledged_however_often_the_server_is_killed() {
    run(false);
}

/// The same, and most pages are made of what is there: the server is killed while deltas arrive, and while their pages are
/// written to their places.
#[test]
fn pages_that_deltas_make_are_whole_however_often_the_server_is_killed() {
    run(true);
}

/// `DISKSIDE_KILLS` says how often, `DISKSIDE_KILLS_SECONDS` for how long at most.
fn run(deltas: bool) {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (kills_max, seconds) = (number("DISKSIDE_KILLS", 25), number("DISKSIDE_KILLS_SECONDS", 15));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let volume = format!("data={},rw,size={}KiB,atomic=16KiB", dir.path().join("data.img").display(), PAGES * 16);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--nqn", NQN, "--volume", &volume];
    let mut pages =
        Pages { deltas, chance: 11, next: 0, known: vec![0; PAGES as usize], sent: vec![0; PAGES as usize] };
    let (started, mut kills) = (Instant::now(), 0);
    let options = ConnectOptions { loss_timeout: Duration::ZERO, ..ConnectOptions::default() };
    loop {
        let (process, line) = Process::start_until(&serve, "127.0.0.1:");
        let port = line.split("127.0.0.1:").nth(1).expect("it says where");
        let port: String = port.chars().take_while(char::is_ascii_digit).collect();
        let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}/1").parse().expect("a URL");
        let host = Volume::connect(&url, &options).expect("it answers");
        assert_eq!(host.atomic_len(), PAGE as u32);
        pages.check(&host, kills);
        if kills >= kills_max || started.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        let pid = Pid::from_child(&process.0);
        // Not after a time alone: on a busy machine nothing would be written by then.
        let (rounds, after) = (1 + pages.next() % 20, Duration::from_micros(pages.next() % 3_000));
        let acknowledged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (acknowledged, began) = (&acknowledged, Instant::now());
            scope.spawn(move || {
                while acknowledged.load(Ordering::SeqCst) < rounds && began.elapsed() < Duration::from_secs(10) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                std::thread::sleep(after);
                kill_process(pid, Signal::KILL).expect("it runs");
            });
            pages.write(&host, acknowledged);
        });
        kills += 1;
    }
    assert!(kills > 3 && pages.next > 8 * kills, "{} writes and {kills} kills in {:?}", pages.next, started.elapsed());
    println!("{} writes, {kills} kills", pages.next);
}
