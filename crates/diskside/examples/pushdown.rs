//! Runs one function over one file again and again, and says what each run took: the load of
//! `bench/pushdown`.
//!
//! ```text
//! pushdown URL FUNCTION WHERE [--arg name=value]... [--rounds N] [--chunk BYTES] [--threads N]
//!          [--cache BYTES] [--warm SHARE] [--write INPUT]
//! ```
//!
//! WHERE is host, device, auto or read (plain reads of the whole file, without a function). `--warm`
//! reads that share of the file through the session's cache first. With `--write` the function runs
//! over the bytes of INPUT and its output is written to the file, durably. Each round waits for a line
//! on standard input, so that whoever measures can set the stage, and answers with a JSON line.

use diskside::session::{File, OpenMode, Pending, Ran, RunOptions, Session, SessionOptions, Where};
use diskside::{CallLimits, args};
use std::io::{BufRead, Write};
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

/// Bytes of a plain read.
const READ_LEN: usize = 8 << 20;

fn main() -> Result<(), Failure> {
    let load = Load::parse(std::env::args().skip(1))?;
    let session = Session::new(SessionOptions { cache_len_bytes: load.cache, ..SessionOptions::default() });
    let function = session.function(&load.function)?;
    let args = function.args().map_or(Ok(Vec::new()), |schema| args::encode(schema, &load.args))?;
    let mode = if load.write.is_some() { OpenMode::Write } else { OpenMode::Read };
    let file = session.open_as(&load.url.parse()?, mode)?;
    let len = file.len_bytes()?;
    let warm = (len as f64 * load.warm) as u64;
    read(&file, warm)?;
    println!("ready");
    for line in std::io::stdin().lock().lines().take(load.rounds) {
        line?;
        let started = Instant::now();
        let line = match (load.place, &load.write) {
            (Some(place), Some(input)) => {
                let options = RunOptions { place, durable: true, ..load.options() };
                let ran = file.pwrite_fn(0, input.clone(), &function, &args, &options).wait()?;
                report(started, ran.written_bytes, &ran)
            }
            (Some(place), None) => {
                let ran = file.fold_fn(&function, &args, &RunOptions { place, ..load.options() }).wait()?;
                report(started, ran.input_bytes, &ran)
            }
            (None, _) => {
                read(&file, len)?;
                format!("{{\"seconds\":{},\"bytes\":{len},\"result\":\"\",\"plan\":\"read\"}}", seconds(started))
            }
        };
        println!("{line}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

struct Load {
    url: String,
    function: String,
    place: Option<Where>,
    args: Vec<(String, String)>,
    rounds: usize,
    chunk: usize,
    threads: usize,
    cache: u64,
    warm: f64,
    write: Option<Vec<u8>>,
}

impl Load {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut need = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        let mut load = Self {
            url: need("URL")?,
            function: need("FUNCTION")?,
            place: match need("WHERE")?.as_str() {
                "host" => Some(Where::Host),
                "device" => Some(Where::Device),
                "auto" => Some(Where::Auto),
                "read" => None,
                other => return Err(format!("WHERE is host, device, auto or read, not `{other}`").into()),
            },
            args: Vec::new(),
            rounds: 1,
            chunk: RunOptions::default().chunk_len,
            threads: 1,
            cache: 0,
            warm: 0.0,
            write: None,
        };
        while let Ok(option) = need("") {
            let value = need(&option)?;
            match option.as_str() {
                "--arg" => {
                    let (name, value) = value.split_once('=').ok_or("--arg is written name=value")?;
                    load.args.push((name.to_owned(), value.to_owned()));
                }
                "--rounds" => load.rounds = value.parse()?,
                "--chunk" => load.chunk = value.parse()?,
                "--threads" => load.threads = value.parse()?,
                "--cache" => load.cache = value.parse()?,
                "--warm" => load.warm = value.parse()?,
                "--write" => load.write = Some(std::fs::read(value)?),
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        Ok(load)
    }

    fn options(&self) -> RunOptions {
        // A write on the host keeps its whole output.
        let limits = CallLimits { result_len_max: 4 << 30, ..CallLimits::default() };
        RunOptions { chunk_len: self.chunk, threads: self.threads, limits, ..RunOptions::default() }
    }
}

/// Reads the first bytes of a file, two requests at a time.
fn read(file: &File, len: u64) -> Result<(), Failure> {
    let mut before = None;
    for offset in (0..len).step_by(READ_LEN) {
        let next = file.pread(offset, READ_LEN.min((len - offset) as usize));
        if let Some(before) = before.replace(next) {
            drop(Pending::wait(before)?);
        }
    }
    before.map(Pending::wait).transpose()?;
    Ok(())
}

fn report(started: Instant, bytes: u64, ran: &Ran) -> String {
    let plan = ran
        .decisions
        .first()
        .map_or_else(|| "told".to_owned(), |(_, decision)| format!("{:?}", decision.plan).to_lowercase());
    let result = ran
        .result
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let seconds = seconds(started);
    format!("{{\"seconds\":{seconds},\"bytes\":{bytes},\"result\":\"{result:016x}\",\"plan\":\"{plan}\"}}")
}

fn seconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64()
}
