//! Runs one function over a volume at each order, by function commands or by the standard ones: the load of the figure
//! `standard` of `bench/pushdown`.
//!
//! ```text
//! standard URL FUNCTION functions|standard [--arg name=value]... [--len BYTES] [--request BYTES] [--at-once N]
//! ```
//!
//! `functions` sends a request and receives its result. `standard` copies the range of the volume to memory, executes
//! the program there, and reads the result back: three commands, one after the other. A round is the first `--len` bytes
//! of the volume by requests of `--request` bytes, `--at-once` of them in flight.
//!
//! Standard input says what to do, a word a line, and each is answered by a line: `warm` does nothing; `go` runs a round
//! and answers in JSON, with a hash of all results.

use diskside::args;
use diskside::host::function::{Compute, Endpoint, EndpointKind, FunctionKind, FunctionRequest};
use diskside::host::{Command, CommandData, ConnectOptions, Connection, Url, Volume};
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo as _, block_on};
use diskside::session::{Session, SessionOptions};
use diskside::wire::memory::{Execution, MemoryRange};
use diskside::wire::{CopySourceEntry, Sqe};
use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zerocopy::IntoBytes;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Namespace ID of the target's memory, unless it is configured otherwise.
const MEMORY_NSID: u32 = 1023;
/// Room for a result in memory, behind its input.
const RESULT_LEN: u32 = 64 << 10;

struct Load {
    volume: Volume,
    compute: Compute,
    pind: u16,
    args: Vec<u8>,
    standard: bool,
    len: u64,
    request: u64,
    at_once: u64,
}

fn main() -> Result<(), Failure> {
    let load = Load::parse(std::env::args().skip(1))?;
    for line in std::io::stdin().lock().lines() {
        let answer = match line?.as_str() {
            "warm" => "{}".to_owned(),
            "go" => load.round()?,
            other => return Err(format!("say warm or go, not `{other}`").into()),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

impl Load {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut need = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        let (url, name, mode) = (need("URL")?.parse::<Url>()?, need("FUNCTION")?, need("functions or standard")?);
        let (mut given, mut len, mut request, mut at_once) = (Vec::new(), u64::MAX, 8 << 20, 1);
        while let Ok(option) = need("") {
            let value = need(&option)?;
            match option.as_str() {
                "--arg" => {
                    let (name, value) = value.split_once('=').ok_or("--arg is written name=value")?;
                    given.push((name.to_owned(), value.to_owned()));
                }
                "--len" => len = value.parse()?,
                "--request" => request = value.parse()?,
                "--at-once" => at_once = value.parse()?,
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        let function = Session::new(SessionOptions::default()).function(&name)?;
        let args = function.args().map_or(Ok(Vec::new()), |schema| args::encode(schema, &given))?;
        let connection = Connection::connect(&url, &ConnectOptions::default())?;
        let volume = connection.volume(url.nsid.ok_or("the URL names no volume")?)?;
        let compute = Compute::new(&connection)?;
        let programs = compute.programs()?;
        let program = programs.iter().find(|program| program.name == name).ok_or("the target has no such function")?;
        let (pind, len, standard) = (program.index, volume.len_bytes()?.min(len), mode == "standard");
        Ok(Self { volume, compute, pind, args, standard, len, request, at_once })
    }

    fn round(&self) -> Result<String, Failure> {
        let (next, sum, failed) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
        let started = Instant::now();
        let work = |slot: u64| {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let start = index * self.request;
                if start >= self.len || failed.lock().expect("no panics").is_some() {
                    return;
                }
                let len = self.request.min(self.len - start);
                match if self.standard { self.standard(slot, start, len) } else { self.function(start, len) } {
                    Ok(result) => {
                        let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
                        let hash = result.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
                        // The same in whatever order requests end.
                        sum.fetch_add(hash.wrapping_mul(2 * index + 1), Ordering::Relaxed);
                    }
                    Err(error) => *failed.lock().expect("no panics") = Some(error),
                }
            }
        };
        std::thread::scope(|scope| {
            for slot in 1..self.at_once {
                scope.spawn(move || work(slot));
            }
            work(0);
        });
        let (seconds, bytes, hash) = (started.elapsed().as_secs_f64(), self.len, sum.into_inner());
        failed.into_inner().expect("no panics").map_or(Ok(()), Err)?;
        Ok(format!("{{\"seconds\":{seconds},\"bytes\":{bytes},\"result\":\"{hash:016x}\",\"plans\":{{}}}}"))
    }

    fn function(&self, start: u64, len: u64) -> Result<Vec<u8>, Failure> {
        let request = FunctionRequest {
            // All of the input at once, as an execution has it.
            chunk_len: len as u32,
            threads_max: 1,
            sources: vec![Endpoint::new(EndpointKind::Volume(self.volume.nsid()), start, len)],
            args: self.args.clone(),
            ..FunctionRequest::new(FunctionKind::Read, self.pind)
        };
        Ok(self.compute.call(&request).wait()?.result)
    }

    fn standard(&self, slot: u64, start: u64, len: u64) -> Result<Vec<u8>, Failure> {
        let (block, place) = (u64::from(self.volume.block_len()), slot * (self.request + u64::from(RESULT_LEN)));
        let source = CopySourceEntry::new(self.volume.nsid(), start / block, (len / block) as u32);
        let data = CommandData::Send(Buffer::copy_of(source.as_bytes()));
        self.send(Sqe::memory_copy(MEMORY_NSID, place, len, 1, 2), data)?;
        let range = |start: u64, len: u32| MemoryRange::new(MEMORY_NSID, start, len);
        let ranges = [range(place, len as u32), range(place + self.request, RESULT_LEN)];
        let data = [ranges.as_bytes(), &self.args].concat();
        let execution = Execution { pind: self.pind, ranges: 2, data_len: data.len() as u32, ..Execution::default() };
        let execute = Sqe::execute_program(self.compute.nsid(), &execution);
        let (result_len, _) = self.send(execute, CommandData::Send(Buffer::copy_of(&data)))?;
        let read_len = (result_len as u32).next_multiple_of(4);
        let read = Sqe::memory_read(MEMORY_NSID, place + self.request, read_len);
        let (_, result) = self.send(read, CommandData::Receive(Buffer::zeroed(read_len as usize)))?;
        Ok(result.ok_or("a read has data")?[..result_len as usize].to_vec())
    }

    fn send(&self, sqe: Sqe, data: CommandData) -> Result<(u64, Option<Buffer>), Failure> {
        let outcome = block_on(self.volume.command(Command { sqe, data, timeout: None, repeatable: false }));
        Ok((outcome.result?.result, outcome.buffer))
    }
}
