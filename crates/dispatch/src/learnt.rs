//! The measurements of a dispatcher for a pair, to keep beyond its life: as text, with a version.
//!
//! A process that runs one request and ends would otherwise begin with nothing each time. The text holds
//! the last few measurements of each side ([`trace`] lines) and how far the next probe is, so
//! that probes come as seldom, and as surely, as in one long life.

use crate::pair::Observation;
use crate::trace;

/// First word and version of the text.
const HEAD: &str = "diskside-learnt 2";
/// Measurements of each side that are kept.
pub const KEPT: usize = 9;
/// Longest text that is one: twice what the longest is.
pub const TEXT_LEN_MAX_BYTES: usize = 16 << 10;

/// What is known of a pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learnt {
    /// The last measurements, the oldest first.
    pub observations: Vec<Observation>,
    /// Time that may be spent on probes.
    pub credit_s: f64,
    /// Requests since the last probe.
    pub since: u64,
    /// Requests from one probe to the next.
    pub interval: u64,
    /// First measurements that need no credit.
    pub free: u64,
    /// Requests so far: where lambda-IO's policy is in its period.
    pub requests: u64,
}

impl Learnt {
    /// As text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let lines: String = self.observations.iter().map(trace::line).collect();
        let Self { credit_s, since, interval, free, requests, .. } = self;
        format!("{HEAD} {credit_s} {since} {interval} {free} {requests}\n{lines}")
    }

    /// From text. `None`: it is none of ours, or of another version, and nothing is known.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (head, lines) = text.split_once('\n')?;
        let mut words = head.strip_prefix(HEAD)?.split_whitespace();
        let credit_s = words.next()?.parse().ok().filter(|credit_s: &f64| credit_s.is_finite())?;
        let mut count = || words.next()?.parse().ok();
        let (since, interval, free, requests) = (count()?, count()?, count()?, count()?);
        let observations = trace::parse(lines).ok()?;
        let fits = words.next().is_none() && observations.len() <= 2 * KEPT && text.len() <= TEXT_LEN_MAX_BYTES;
        fits.then_some(Self { observations, credit_s, since, interval, free, requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Side;
    use proptest::prelude::*;

    fn observation(side: Side, s: f64) -> Observation {
        Observation {
            side,
            len_bytes: u64::MAX,
            input_bytes: u64::MAX,
            output_bytes: u64::MAX,
            round_trip_s: s,
            queue_s: s,
            input_s: s,
            run_s: s,
            output_s: s,
            total_s: s,
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_short_enough() {
        let observations = (0..2 * KEPT).map(|_| observation(Side::Device, 1.234_567_890_123_456_7e-5)).collect();
        let (credit_s, most) = (-0.1, u64::MAX);
        let learnt = Learnt { observations, credit_s, since: most, interval: most, free: most, requests: most };
        let text = learnt.to_text();
        assert!(2 * text.len() <= TEXT_LEN_MAX_BYTES, "{}", text.len());
        assert_eq!(Learnt::from_text(&text), Some(learnt));
    }

    #[test]
    fn other_text_is_nothing() {
        let one = observation(Side::Host, 0.5);
        let good = Learnt { observations: vec![one], credit_s: 0.5, since: 1, interval: 2, free: 3, requests: 4 };
        let good = good.to_text();
        let many: String = good.lines().nth(1).unwrap().to_owned() + "\n";
        for bad in [
            "",
            "diskside-learnt 2",
            &good.replace("learnt 2 ", "learnt 1 "),
            &good.replace("0.5 1 2 3 4", "inf 1 2 3 4"),
            &good.replace("0.5 1 2 3 4", "0.5 1 2 3"),
            &good.replace("0.5 1 2 3 4", "0.5 1 2 3 4 5"),
            &good.replace("host", "guest"),
            &(good.clone() + &many.repeat(2 * KEPT)),
            &(good.clone() + &"\n".repeat(TEXT_LEN_MAX_BYTES)),
        ] {
            assert_eq!(Learnt::from_text(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0..200_usize) {
            let _ = Learnt::from_text(&String::from_utf8_lossy(&bytes));
            let text = Learnt { observations: vec![observation(Side::Host, 0.1); 3], ..Learnt::default() }.to_text();
            let mut broken = text.into_bytes();
            broken.truncate(cut);
            broken.extend(bytes);
            let _ = Learnt::from_text(&String::from_utf8_lossy(&broken));
        }
    }
}
