//! `diskside bench`: what host, device and link do with one file, and from where on pushing a function pays.

use super::volume::{Connect, session_failure};
use crate::error::Failure;
use crate::output::{self, bytes, duration, rate};
use clap::Args;
use diskside::ExportUrl;
use diskside::session::{File, RunOptions, Session, SessionFunction, SessionOptions, Where};
use serde_json::json;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Arguments of `bench`.
#[derive(Args)]
#[command(after_help = "\
It reads the file, and changes nothing. Each way is measured several times in turns, and the median counts; the first time of each \
does not, so that both sides find the file in memory if it fits there. Other work on either machine shows in the result.")]
pub(crate) struct Bench {
    /// A file at a server
    #[arg(value_name = "diskside://HOST[:PORT]/EXPORT/PATH", value_parser = super::exports::parse_export)]
    url: ExportUrl,
    /// How much of the file at most
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = output::parse_bytes)]
    size: u64,
    /// How often each way is measured
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lines are counted that do not have this: the whole of the file is looked at, and the result is eight bytes.
const FUNCTION: &str = "wc";
/// A request whose answer is as good as its round trip.
const SHORT: u64 = 4096;

impl Bench {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let session = Session::new(SessionOptions { connect: self.connect.options()?, ..SessionOptions::default() });
        let name = self.url.to_string();
        let file = session.open(&name).map_err(session_failure)?;
        let len = file.len_bytes().map_err(session_failure)?.min(self.size);
        if len == 0 {
            return Err(Failure::Usage(format!("{name}: the file is empty; name one with some megabytes")));
        }
        let function = session.function(FUNCTION)?;
        let ways =
            [(Where::Host, len), (Where::Device, len), (Where::Host, SHORT.min(len)), (Where::Device, SHORT.min(len))];
        let mut took: [Vec<Duration>; 4] = Default::default();
        let mut results: [Option<Vec<u8>>; 4] = Default::default();
        for turn in 0..=self.times {
            for (way, (place, len)) in ways.into_iter().enumerate() {
                let (time, result) = once(&session, &file, &function, place, len)?;
                if turn > 0 {
                    took[way].push(time);
                }
                results[way] = Some(result);
            }
        }
        if results[0] != results[1] || results[2] != results[3] {
            return Err(Failure::Environment(format!(
                "{name}: both sides gave different results: it changed meanwhile, or this is a bug"
            )));
        }
        let [here, there, short_here, short_there] = took.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        let pays_from = pays_from(len, here, there, short_there);
        if self.json {
            let us = |time: Duration| time.as_micros() as u64;
            return Ok(output::print_json(json!({
                "url": name, "function": FUNCTION, "bytes": len, "times": self.times, "host_us": us(here), "device_us": us(there),
                "short_bytes": SHORT.min(len), "short_host_us": us(short_here), "short_device_us": us(short_there),
                "device_is_faster": there < here, "pays_from_bytes": pays_from,
            }))?);
        }
        let mut out = output::stdout();
        writeln!(out, "{FUNCTION} over {} of {name}, median of {}:", bytes(len), self.times)?;
        writeln!(out, "  bytes to this host, computed here   {:>10}  {}", duration(here), rate(len, here))?;
        writeln!(out, "  computed at the server              {:>10}  {}", duration(there), rate(len, there))?;
        writeln!(
            out,
            "  the same over {:20}  {:>10} here, {} at the server",
            bytes(SHORT.min(len)),
            duration(short_here),
            duration(short_there)
        )?;
        match pays_from {
            Some(from) if from < len => writeln!(
                out,
                "Pushing pays from about {} on: {:.1} times as fast over {}.",
                bytes(from),
                ratio(here, there),
                bytes(len)
            )?,
            Some(_) => writeln!(
                out,
                "Pushing is {:.1} times as fast over {}; it would pay for longer files.",
                ratio(here, there),
                bytes(len)
            )?,
            None => writeln!(
                out,
                "Fetching the bytes is faster at any length: the link is as fast as the server computes, or it is busy."
            )?,
        }
        writeln!(
            out,
            "`diskside run` decides this by itself for each function, from what it measures; --explain says how."
        )?;
        Ok(())
    }
}

fn once(
    session: &Session,
    file: &File,
    function: &SessionFunction,
    place: Where,
    len: u64,
) -> Result<(Duration, Vec<u8>), Failure> {
    // Bytes that were fetched the turn before would make the link look endless.
    session.drop_cache();
    let options = RunOptions { place, length: Some(len), ..RunOptions::default() };
    let began = Instant::now();
    let ran = session.run(std::slice::from_ref(file), function, &[], &options, None).map_err(session_failure)?;
    Ok((began.elapsed(), ran.result))
}

/// Where two lines cross: both sides take a while for the first byte, and then some for each. `None`: the device's never is below.
fn pays_from(len: u64, here: Duration, there: Duration, short_there: Duration) -> Option<u64> {
    let (here, there) = (here.as_secs_f64() / len as f64, there.saturating_sub(short_there).as_secs_f64() / len as f64);
    // The host's time for a byte counts from the first one on; a request to the device has its round trip before.
    (here > there).then(|| (short_there.as_secs_f64() / (here - there)) as u64)
}

fn ratio(here: Duration, there: Duration) -> f64 {
    here.as_secs_f64() / there.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushing_pays_where_the_lines_cross() {
        let ms = Duration::from_millis;
        // 100 ns a byte here; there 1 ms and then 10 ns a byte.
        assert_eq!(pays_from(1_000_000, ms(100), ms(11), ms(1)), Some(11_111));
        assert_eq!(pays_from(1_000_000, ms(5), ms(11), ms(1)), None);
    }
}
