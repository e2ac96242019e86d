//! A bare exchange of the bytes that 4 KiB reads of a volume exchange, over the same kind of sockets: the limit of this machine.
//!
//! `cargo run --release -p diskside-host --example ping_pong -- serve [--megabytes=512]`
//! `cargo run --release -p diskside-host --example ping_pong -- ask ADDRESS [--depth=32] [--seconds=1]`
//!
//! A question has 72 bytes, as a command capsule without data. Its answer has 24 bytes, as the header of a data PDU that also says
//! success, and 4096 from a random block of the server's memory. Nothing is parsed, checked or copied besides. All that is there
//! is answered with one send, as a target does; the other side asks as many times at once as answers came with one receive. Both
//! poll for a while before they sleep, as rings do.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

type Failure = Box<dyn std::error::Error>;

const QUESTION: usize = 72;
const HEADER: usize = 24;
const BLOCK: usize = 4096;
const ANSWER: usize = HEADER + BLOCK;
/// Questions that can be on their way: two pieces of an answer each, and the kernel takes 1024 pieces at once.
const DEPTH_MAX: usize = 512;
/// As rings do.
const SPIN: Duration = Duration::from_micros(100);

fn main() -> Result<(), Failure> {
    let (flags, words): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let value = |name: &str| flags.iter().find_map(|flag| flag.strip_prefix(name)?.strip_prefix('='));
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve(value("--megabytes").map_or(Ok(512), str::parse)?),
        ["ask", address] => {
            let depth: usize = value("--depth").map_or(Ok(32), str::parse)?;
            if !(1..=DEPTH_MAX).contains(&depth) {
                return Err(format!("--depth={depth}: it can be 1 to {DEPTH_MAX}").into());
            }
            let time = Duration::try_from_secs_f64(value("--seconds").map_or(Ok(1.0), str::parse)?)?;
            ask(connected(TcpStream::connect(address)?)?, depth, time)
        }
        _ => Err("usage: ping_pong serve, or ping_pong ask ADDRESS".into()),
    }
}

/// Serves one connection after the other, for good.
fn serve(megabytes: usize) -> Result<(), Failure> {
    // Of pages of its own: all untouched ones are a single page of zeroes, which is always in the cache.
    let memory = vec![1; megabytes.max(1) << 20];
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("serving at {}", listener.local_addr()?);
    loop {
        // A peer that goes ends its connection alone.
        if let Err(error) = answer(&connected(listener.accept()?.0)?, &memory) {
            eprintln!("ping_pong: {error}");
        }
    }
}

fn answer(stream: &TcpStream, memory: &[u8]) -> io::Result<()> {
    let header = [7; HEADER];
    let mut input = vec![0; DEPTH_MAX * QUESTION];
    let mut filled = 0;
    loop {
        match receive(stream, &mut input[filled..])? {
            0 => return Ok(()),
            more => filled += more,
        }
        let whole = filled - filled % QUESTION;
        let mut pieces = Vec::with_capacity(2 * whole / QUESTION);
        for question in input[..whole].chunks_exact(QUESTION) {
            let number = u64::from_le_bytes(question[..8].try_into().expect("eight bytes"));
            let at = (number as usize % (memory.len() / BLOCK)) * BLOCK;
            pieces.push(IoSlice::new(&header));
            pieces.push(IoSlice::new(&memory[at..at + BLOCK]));
        }
        send(stream, &mut pieces)?;
        input.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

fn ask(stream: TcpStream, depth: usize, time: Duration) -> Result<(), Failure> {
    let mut input = vec![0; DEPTH_MAX * ANSWER];
    let mut questions = vec![0; DEPTH_MAX * QUESTION];
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut begun, mut times_ns) = (VecDeque::with_capacity(depth), Vec::with_capacity(4 << 20));
    // Bytes of an answer that has not come as a whole.
    let mut part = 0;
    let (used, started) = (processor_time(), Instant::now());
    let mut free = depth;
    loop {
        let now = Instant::now();
        if now.duration_since(started) < time && free > 0 {
            for question in questions.chunks_exact_mut(QUESTION).take(free) {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                question[..8].copy_from_slice(&dice.to_le_bytes());
                begun.push_back(now);
            }
            send(&stream, &mut [IoSlice::new(&questions[..free * QUESTION])])?;
            free = 0;
        }
        if begun.is_empty() {
            break;
        }
        let came = receive(&stream, &mut input)?;
        if came == 0 {
            return Err("the other side closed the connection".into());
        }
        let now = Instant::now();
        let answers = (part + came) / ANSWER;
        part = (part + came) % ANSWER;
        for begun in begun.drain(..answers) {
            times_ns.push(now.duration_since(begun).as_nanos() as u64);
        }
        free += answers;
    }
    let (used, wall) = (processor_time() - used, started.elapsed());
    times_ns.sort_unstable();
    let count = times_ns.len();
    let at = |part: f64| times_ns[((count - 1) as f64 * part) as usize] as f64 / 1000.0;
    println!(
        "depth {depth:3}: {:7.1} k/s, {:6.2} GB/s, p50 {:6.1} us, p99 {:6.1} us, {:.2} us of processor time of the host each",
        count as f64 / wall.as_secs_f64() / 1e3,
        (count * BLOCK) as f64 / wall.as_secs_f64() / 1e9,
        at(0.5),
        at(0.99),
        used.as_secs_f64() * 1e6 / count as f64,
    );
    Ok(())
}

fn connected(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Bytes that are there, at least one; 0 at the end.
fn receive(mut stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    until_possible(stream, PollFlags::IN, || stream.read(into))
}

fn send(mut stream: &TcpStream, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !pieces.is_empty() {
        let sent = until_possible(stream, PollFlags::OUT, || stream.write_vectored(pieces))?;
        IoSlice::advance_slices(&mut pieces, sent);
    }
    Ok(())
}

/// Tries for a while, then sleeps until it can be done.
fn until_possible<T>(stream: &TcpStream, when: PollFlags, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => return other,
        }
        if began.elapsed() >= SPIN {
            match poll(&mut [PollFd::new(stream, when)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
