//! Reads or writes a volume, or a file of an export, and says how fast that was.
//!
//! `cargo run --release -p diskside-host --example load -- [--inline] [--sequential] [--write] [--digests]
//! [--block=BYTES] [--queues=N] [--seconds=N] [--depths=1,32,128] [--poll-us=N]
//! [--congestion=NAME] [--connects=N] [--file=EXPORT/PATH] [URL]`
//!
//! With `--file` the URL is that of any volume beside the export. With `--connects` it connects so often instead, each time with an admin and an I/O queue.
//!
//! Without a URL it uses a memory volume of 512 MiB of a target of its own, in the same process.

use std::time::{Duration, Instant};

use diskside_host::function::{Files, RemoteFile};
use diskside_host::{ConnectOptions, InlineVolume, Url, Volume};
use diskside_io::buffer::{Buffer, Hugepages};
use diskside_io::request::{AsyncIo as _, Outcome, Request, RequestFuture, block_on, block_on_any, poll};
use diskside_io::socket::SocketOptions;
use diskside_server::config::VolumeSpec;
use diskside_server::{Running, Target};
use diskside_wire::file::FileFlags;

const NQN: &str = "nqn.2026-11.org.example:load";

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let (flags, urls): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    let value = |name: &str| flags.iter().find_map(|flag| flag.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str, default: u64| value(name).map_or(Ok(default), str::parse);
    let own = if urls.is_empty() { Some(own_target()?) } else { None };
    let url: Url = match (&own, urls.first()) {
        (Some(own), _) => format!("nvme-tcp://{}/{NQN}/1", own.handle().local_addresses()[0]).parse()?,
        (None, Some(url)) => url.parse()?,
        (None, None) => unreachable!("without a URL there is a target of our own"),
    };
    let options = ConnectOptions {
        io_queues: number("--queues", 1)? as u16,
        queue_depth: 256,
        header_digest: has("--digests"),
        data_digest: has("--digests"),
        socket: SocketOptions {
            congestion_control: value("--congestion").map(str::to_owned),
            ..SocketOptions::default()
        },
        spin: Duration::from_micros(number("--poll-us", 100)?),
        ..ConnectOptions::default()
    };
    let connects = number("--connects", 0)?;
    if connects > 0 {
        for _ in 0..connects {
            Volume::connect(&url, &options)?;
        }
        return Ok(());
    }
    let mut load = Load {
        path: match value("--file") {
            Some(path) => {
                let volume = Volume::connect(&url, &options)?;
                let file = Files::new(volume.connection())?.open(path.as_bytes(), FileFlags::READ)?;
                Path::File(volume, file)
            }
            None if has("--inline") => Path::Inline(InlineVolume::connect(&url, &options)?),
            None => Path::Threads(Volume::connect(&url, &options)?),
        },
        block: number("--block", 4096)?,
        sequential: has("--sequential"),
        write: has("--write"),
        dice: 0x9e37_79b9_7f4a_7c15,
        next: 0,
    };
    if own.is_some() {
        load.fill()?;
    }
    let seconds = Duration::from_secs(number("--seconds", 2)?);
    for depth in value("--depths").unwrap_or("1,32,128").split(',') {
        load.run(depth.parse()?, seconds)?;
    }
    Ok(())
}

fn own_target() -> Result<Running, Failure> {
    let target = Target::builder()
        .nqn(NQN)
        .listen(["127.0.0.1:0".parse()?])
        .volume(VolumeSpec::new("load", "mem:512MiB").writable())
        .build()?;
    Ok(target.start()?)
}

enum Path {
    Inline(InlineVolume),
    Threads(Volume),
    File(Volume, RemoteFile),
}

struct Load {
    path: Path,
    block: u64,
    sequential: bool,
    write: bool,
    dice: u64,
    next: u64,
}

impl Load {
    /// Writes the whole volume once: untouched memory is all one page of zeroes, and slow to get.
    fn fill(&mut self) -> Result<(), Failure> {
        const STEP: usize = 1 << 20;
        let mut buffer = Buffer::zeroed(STEP);
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = at as u8;
        }
        for offset in (0..self.len_bytes()?).step_by(STEP) {
            let future = self.submit(Request::Write { offset, buffer, durable: false });
            let outcome = self.wait(future);
            outcome.status.to_result()?;
            buffer = outcome.buffer.ok_or("a write returns its buffer")?;
        }
        Ok(())
    }

    fn run(&mut self, depth: usize, time: Duration) -> Result<(), Failure> {
        let len = self.len_bytes()?;
        let buffer = || Buffer::with_hugepages(self.block as usize, Hugepages::No);
        let mut spare: Vec<Buffer> = (0..depth).map(|_| buffer()).collect();
        let (mut flying, mut begun) = (Vec::with_capacity(depth), Vec::with_capacity(depth));
        let mut times_ns = Vec::with_capacity(4 << 20);
        let before = self.volume().connection().stats();
        let (used, started) = (processor_time(), Instant::now());
        loop {
            let now = Instant::now();
            let over = now.duration_since(started) >= time;
            while let Some(buffer) = spare.pop().filter(|_| !over) {
                let offset = self.offset(len);
                let request = match self.write {
                    true => Request::Write { offset, buffer, durable: false },
                    false => Request::Read { offset, buffer },
                };
                flying.push(self.submit(request));
                begun.push(now);
            }
            if flying.is_empty() {
                break;
            }
            // Whichever ends first makes room for the next: media answer in any order.
            self.wait_for_any(&flying);
            let now = Instant::now();
            let mut at = 0;
            while at < flying.len() {
                if !flying[at].is_done() {
                    at += 1;
                    continue;
                }
                let outcome = self.wait(flying.swap_remove(at));
                outcome.status.to_result()?;
                times_ns.push(now.duration_since(begun.swap_remove(at)).as_nanos() as u64);
                spare.extend(outcome.buffer);
            }
        }
        let (used, wall) = (processor_time() - used, started.elapsed());
        times_ns.sort_unstable();
        let count = times_ns.len();
        let at = |part: f64| times_ns[((count - 1) as f64 * part) as usize] as f64 / 1000.0;
        let after = self.volume().connection().stats();
        println!(
            "depth {depth:3}: {:7.1} k/s, {:6.2} GB/s, p50 {:6.1} us, p99 {:6.1} us, {:.2} us of processor time \
             and {:.2} system calls of the host each",
            count as f64 / wall.as_secs_f64() / 1e3,
            count as f64 * self.block as f64 / wall.as_secs_f64() / 1e9,
            at(0.5),
            at(0.99),
            used.as_secs_f64() * 1e6 / count as f64,
            (after.enters - before.enters) as f64 / count as f64,
        );
        Ok(())
    }

    fn volume(&self) -> &Volume {
        match &self.path {
            Path::Inline(inline) => inline.volume(),
            Path::Threads(volume) | Path::File(volume, _) => volume,
        }
    }

    fn len_bytes(&self) -> Result<u64, Failure> {
        Ok(match &self.path {
            Path::File(_, file) => file.info().len_bytes,
            _ => self.volume().len_bytes()?,
        })
    }

    fn submit(&mut self, request: Request) -> RequestFuture {
        match &mut self.path {
            Path::Inline(inline) => inline.submit(request),
            Path::Threads(volume) => volume.submit(request),
            Path::File(_, file) => file.submit(request),
        }
    }

    fn wait_for_any(&mut self, flying: &[RequestFuture]) {
        match &mut self.path {
            Path::Inline(inline) => {
                while poll(flying).is_none() {
                    inline.wait(None);
                }
            }
            Path::Threads(_) | Path::File(..) => drop(block_on_any(flying)),
        }
    }

    fn wait(&mut self, future: RequestFuture) -> Outcome {
        match &mut self.path {
            Path::Inline(inline) => inline.block_on(future),
            Path::Threads(_) | Path::File(..) => block_on(future),
        }
    }

    fn offset(&mut self, len: u64) -> u64 {
        let blocks = len / self.block;
        self.next = if self.sequential {
            (self.next + 1) % blocks
        } else {
            self.dice ^= self.dice << 13;
            self.dice ^= self.dice >> 7;
            self.dice ^= self.dice << 17;
            self.dice % blocks
        };
        self.next * self.block
    }
}

/// Of this process: host, and target if it is our own.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
