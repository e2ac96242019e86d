//! Time, and how it is taken.

use crate::cpu_time;
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds in which every engine has its turn.
    pub rounds: usize,
    /// CPU time of one turn, at least.
    pub slice: Duration,
}

/// Nanoseconds of one call, over as many as fill the slice.
///
/// # Errors
/// What the call said.
pub fn ns_per_call(slice: Duration, mut call: impl FnMut(u64) -> Result<(), String>) -> Result<f64, String> {
    // Reading the clock is a system call, so short calls are counted out beforehand.
    let mut count = 1;
    loop {
        let started = cpu_time();
        for turn in 0..count {
            call(turn)?;
        }
        let took = cpu_time().saturating_sub(started);
        if took >= slice {
            return Ok(took.as_nanos() as f64 / count as f64);
        }
        let grow = slice.as_nanos() as f64 / took.as_nanos().max(200) as f64;
        count = (count as f64 * (grow * 1.1).clamp(2.0, 100.0)) as u64;
    }
}

/// The middle value.
#[must_use]
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// The geometric mean; none of nothing.
#[must_use]
pub fn geomean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut [9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn a_geometric_mean_is_blind_to_units() {
        let mean = geomean([2.0, 8.0]).expect("there are values");
        assert!((mean - 4.0).abs() < 1e-12);
        assert_eq!(geomean([]), None);
    }
}
