//! Measurements as text: a line for each, to keep and to read again.
//!
//! ```
//! use diskside_dispatch::{Observation, Side, trace};
//!
//! let took = Observation {
//!     side: Side::Device, len_bytes: 8 << 20, input_bytes: 8 << 20, output_bytes: 24, round_trip_s: 1e-4,
//!     queue_s: 0.0, input_s: 0.004, run_s: 0.002, output_s: 0.0, total_s: 0.0045,
//! };
//! let line = trace::line(&took);
//! assert_eq!(line, "device 8388608 8388608 24 0.0001 0 0.004 0.002 0 0.0045\n");
//! assert_eq!(trace::parse(&line).unwrap(), [took]);
//! ```
//!
//! The words are the fields of [`Observation`] in their order. Empty lines and those that begin with `#` say
//! nothing.

use crate::model::Side;
use crate::pair::Observation;

/// Why a text is not a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Which line, from 1.
    pub line: usize,
    /// The problem with it.
    pub problem: &'static str,
}

impl std::fmt::Display for TraceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for TraceError {}

/// One measurement as a line, its end included.
#[must_use]
pub fn line(o: &Observation) -> String {
    format!(
        "{} {} {} {} {} {} {} {} {} {}\n",
        o.side.name(),
        o.len_bytes,
        o.input_bytes,
        o.output_bytes,
        o.round_trip_s,
        o.queue_s,
        o.input_s,
        o.run_s,
        o.output_s,
        o.total_s
    )
}

/// The measurements of a text, in their order.
pub fn parse(text: &str) -> Result<Vec<Observation>, TraceError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| parse_line(line).map_err(|problem| TraceError { line: at + 1, problem })).collect()
}

fn parse_line(line: &str) -> Result<Observation, &'static str> {
    let mut words = line.split_whitespace();
    let side = match words.next() {
        Some("host") => Side::Host,
        Some("device") => Side::Device,
        _ => return Err("it does not begin with host or device"),
    };
    let mut bytes = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or("a number of bytes is missing");
    let (len_bytes, input_bytes, output_bytes) = (bytes()?, bytes()?, bytes()?);
    let mut seconds = || {
        let value = words.next().and_then(|word| word.parse::<f64>().ok());
        value.filter(|s| s.is_finite() && *s >= 0.0).ok_or("a number of seconds is missing")
    };
    let observation = Observation {
        side,
        len_bytes,
        input_bytes,
        output_bytes,
        round_trip_s: seconds()?,
        queue_s: seconds()?,
        input_s: seconds()?,
        run_s: seconds()?,
        output_s: seconds()?,
        total_s: seconds()?,
    };
    if words.next().is_some() { Err("it has more words than a measurement") } else { Ok(observation) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_measurement_is_named_by_its_line() {
        let good = "device 8 8 24 0 0 1e-3 0.5 0 0.5";
        assert_eq!(parse(&format!("# of a run\n\n{good}\n")).unwrap().len(), 1);
        for (bad, problem) in [
            ("both 8 8 24 0 0 0 0 0 0", "it does not begin with host or device"),
            ("host 8 -8 24 0 0 0 0 0 0", "a number of bytes is missing"),
            ("host 8 8 24 0 0 0 0 0", "a number of seconds is missing"),
            ("host 8 8 24 0 0 NaN 0 0 0", "a number of seconds is missing"),
            ("host 8 8 24 0 0 0 0 0 0 0", "it has more words than a measurement"),
        ] {
            assert_eq!(parse(&format!("{good}\n{bad}\n")), Err(TraceError { line: 2, problem }));
        }
    }
}
