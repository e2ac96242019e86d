//! `diskside ping`.

use super::volume::{Connect, host_failure, parse_url};
use crate::error::Failure;
use crate::output;
use clap::Args;
use diskside::host::{Url, Volume};
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo, Request, block_on};
use serde_json::json;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Arguments of `ping`.
#[derive(Args)]
pub(crate) struct Ping {
    /// A volume: nvme-tcp://HOST[:PORT]/NQN/NSID
    #[arg(value_parser = parse_url)]
    url: Url,
    /// How many reads of one block
    #[arg(long, short = 'c', default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Milliseconds between two
    #[arg(long, default_value_t = 100)]
    interval_ms: u64,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ping {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let started = Instant::now();
        let volume = Volume::connect(&self.url, &self.connect.options()?).map_err(host_failure)?;
        let connected = started.elapsed();
        let mut times = Vec::new();
        for i in 0..self.count {
            if i > 0 {
                std::thread::sleep(Duration::from_millis(self.interval_ms));
            }
            let buffer = Buffer::zeroed(volume.block_len() as usize);
            let sent = Instant::now();
            block_on(volume.submit(Request::Read { offset: 0, buffer }))
                .into_read()
                .map_err(|e| Failure::Environment(format!("{}: {e}", self.url)))?;
            times.push(sent.elapsed());
            if !self.json {
                writeln!(
                    output::stdout(),
                    "read of {} bytes from {}: {} us",
                    volume.block_len(),
                    self.url,
                    micros(sent.elapsed())
                )?;
            }
        }
        times.sort_unstable();
        let (min, median, max) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        if self.json {
            return Ok(output::print_json(json!({
                "url": self.url.to_string(), "count": times.len(), "connect_us": connected.as_micros() as u64,
                "min_us": min.as_micros() as u64, "median_us": median.as_micros() as u64,
                "max_us": max.as_micros() as u64,
            }))?);
        }
        writeln!(
            output::stdout(),
            "connected in {} us; {} reads: min {} us, median {} us, max {} us",
            micros(connected),
            times.len(),
            micros(min),
            micros(median),
            micros(max)
        )?;
        Ok(())
    }
}

fn micros(d: Duration) -> String {
    format!("{:.1}", d.as_secs_f64() * 1e6)
}
