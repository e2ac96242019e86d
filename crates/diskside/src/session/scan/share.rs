//! Which share of a file's row groups each side scans when both scan at once, and whether that is faster than one alone.
//!
//! At first it is a guess by what each side takes alone; then it is what both took, since they share processors or a link. Now and
//! then the way that looks slower is taken, where it is not slower by much: things change.

use super::super::error::SessionError;
use super::super::place::Remote;
use super::decide::Work;
use super::split::PartDone;
use super::{Among, Scan};
use diskside_dispatch::{Costs, Observation, PairId, PairView, Side};
use diskside_scan::{Part, Plan};
use std::time::Duration;

/// Both sides are taken when that looks so much faster than one: by measurements, and by a guess.
const GAIN: f64 = 0.9;
const GAIN_GUESSED: f64 = 0.75;
/// Of so many scans one goes the other way.
const REVIEW: u64 = 64;
/// Unless that would take so many times as long.
const REVIEW_LOSS_MAX: f64 = 2.0;
/// Fewer row groups cannot be divided well.
const ROW_GROUPS_MIN: u64 = 8;
/// A shorter scan is over before two more processes could begin.
const ALONE_MIN: Duration = Duration::from_millis(100);
/// The result of a part that is longer waits for the one before it, and so does its scan.
const RESULT_LEN_MAX: u64 = 1 << 20;
/// How long a scan is said to take that cannot be cut.
const NEVER: Duration = Duration::from_hours(1);
/// A file of which nothing is known yet.
const CUT_UNKNOWN: Work = Work { row_groups: 64, needed_bytes: 64 << 20 };
/// A cut is not found more finely.
const CUTS_MAX: u64 = 1024;

/// How a file is cut in two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// The part of its row groups that the server scans.
    of_server: f64,
    /// The bytes that the whole scan needs, as far as that is known.
    needed_bytes: u64,
    /// The time that both sides, and one alone, are expected to take; `None`: the caller wants it.
    expected_s: Option<(f64, f64)>,
}

impl Cut {
    /// The row groups that the server scans.
    pub(super) fn row_groups(&self, of_file: u64) -> u64 {
        ((of_file as f64 * self.of_server).round() as u64).clamp(1, of_file.saturating_sub(1).max(1))
    }

    pub(super) fn why(&self) -> String {
        self.expected_s.map_or("as asked".into(), |(both_s, alone_s)| {
            let ms = |s: f64| s * 1e3;
            format!("both sides at once are faster (expected {:.1} ms; {:.1} on one)", ms(both_s), ms(alone_s))
        })
    }
}

impl Scan<'_> {
    /// How the file is cut for a scan that takes so long on one side; `None`: it is not.
    pub(super) fn cut(&self, remote: &Remote, work: &Work, requests: u64, alone_s: f64) -> Option<Cut> {
        if self.why_whole().is_some() || work.row_groups < ROW_GROUPS_MIN || alone_s < ALONE_MIN.as_secs_f64() {
            return None;
        }
        let (alone, both) = (self.pair(), self.recalled_both(remote));
        if self.session().lock_sizes().is_whole(both) {
            return None;
        }
        let dispatcher = self.session().lock_dispatcher();
        let guessed = best(&dispatcher.view(alone)?, work)?;
        let measured = dispatcher.view(both).and_then(|view| best(&view, work));
        drop(dispatcher);
        let (of_server, both_s) = measured.unwrap_or(guessed);
        let is_review = requests % REVIEW == REVIEW - 1;
        let is_taken = is_taken(both_s, alone_s, measured.is_some(), is_review);
        is_taken.then_some(Cut { of_server, needed_bytes: work.needed_bytes, expected_s: Some((both_s, alone_s)) })
    }

    /// How the file is cut for a scan that is to be on both sides, whatever that takes.
    pub(super) fn cut_as_asked(&self, remote: &Remote) -> Cut {
        let both = self.recalled_both(remote);
        let view = self.session().lock_dispatcher().view(both);
        let known = view.and_then(|view| best(&view, &CUT_UNKNOWN));
        let of_server = known.map_or(0.5, |(of_server, _)| of_server);
        Cut { of_server, needed_bytes: CUT_UNKNOWN.needed_bytes, expected_s: None }
    }

    /// Scans that do the same on both sides, with what earlier sessions learnt of them.
    fn recalled_both(&self, remote: &Remote) -> PairId {
        let both = self.pair_of_both();
        self.recall_as(both, &remote.link.name, "on both sides");
        both
    }

    /// Why only one side can scan it; `None`: both can.
    pub(super) fn why_whole(&self) -> Option<&'static str> {
        let Plan { order, limit, part, .. } = self.plan;
        let is_short = self.plan.aggregates() || (limit.is_some_and(|limit| limit > 0) && !order.is_empty());
        if self.among == Among::Others {
            Some("others are scanned at the same time")
        } else if self.plan.gives_result() {
            Some("a function with a result is called on one side: what it gives is put together in order")
        } else if self.is_text() {
            Some("a text is read from its beginning, and only row groups are divided among both sides")
        } else if *part != Part::default() {
            Some("row groups that are named are not divided among both sides")
        } else if !is_short {
            Some("rows are not divided among both sides, only sums and first rows in an order")
        } else {
            None
        }
    }

    /// Takes note of what both sides took for so many row groups each, by [`Side`].
    ///
    /// Row groups count alike, whatever statistics leave of them: where the wanted rows are at one end of a file, the side that has that
    /// end looks slower, and has fewer the next time.
    pub(super) fn note_both(&self, done: [(PartDone, u64); 2]) {
        let both = self.pair_of_both();
        if done.iter().any(|(done, _)| done.result_bytes > RESULT_LEN_MAX) {
            self.session().lock_sizes().keep_whole(both);
            return;
        }
        let needed_bytes: u64 = done.iter().map(|(done, _)| done.report.needed_len).sum();
        let of_all: u64 = done.iter().map(|(_, row_groups)| row_groups).sum();
        for (side, (done, row_groups)) in Side::ALL.into_iter().zip(done) {
            let len_bytes = (needed_bytes as f64 * row_groups as f64 / of_all.max(1) as f64) as u64;
            let of = observation(side, len_bytes, done.result_bytes, done.total);
            self.session().lock_dispatcher().observe_probe(both, &of, 1.0);
        }
    }

    /// Takes note that a scan cannot be cut, if that is why it failed on both sides.
    pub(super) fn keep_whole(&self, error: &SessionError, cut: Cut) {
        let both = self.pair_of_both();
        match error {
            // It was replaced, or its server is gone: one side may do better, and so may both another time.
            SessionError::Changed(_) | SessionError::Device { .. } | SessionError::Lost(_) => return,
            // The plan says so: it will the next time, in another process, too.
            SessionError::Input { .. } => {
                for side in Side::ALL {
                    let of = observation(side, cut.needed_bytes, 0, NEVER);
                    self.session().lock_dispatcher().observe_probe(both, &of, 1.0);
                }
            }
            _ => {}
        }
        self.session().lock_sizes().keep_whole(both);
    }

    /// Scans that do the same on both sides.
    fn pair_of_both(&self) -> PairId {
        let PairId { file, function } = self.pair();
        PairId { file, function: !function }
    }
}

/// Whether both sides are taken for a scan, by what they and one are expected to take.
fn is_taken(both_s: f64, alone_s: f64, is_measured: bool, is_review: bool) -> bool {
    let gain = if is_measured { GAIN } else { GAIN_GUESSED };
    let is_faster = both_s < gain * alone_s;
    if is_review && is_measured && both_s < REVIEW_LOSS_MAX * alone_s { !is_faster } else { is_faster }
}

pub(super) fn observation(side: Side, len_bytes: u64, output_bytes: u64, total: Duration) -> Observation {
    let total_s = total.as_secs_f64();
    Observation {
        side,
        len_bytes,
        input_bytes: len_bytes,
        output_bytes,
        round_trip_s: 0.0,
        queue_s: 0.0,
        input_s: total_s,
        run_s: 0.0,
        output_s: 0.0,
        total_s,
    }
}

/// The cut with which both sides end at the same time, as nearly as row groups allow, and how long they take.
fn best(view: &PairView, work: &Work) -> Option<(f64, f64)> {
    let (host, device) = (view.host?, view.device?);
    let len = work.needed_bytes as f64;
    let takes_s = |costs: &Costs, share: f64| {
        let len = len * share;
        costs.time_s(len, len, view.alpha.unwrap_or(0.0) * len)
    };
    let cuts = work.row_groups.min(CUTS_MAX);
    let both_s = |of_server: f64| takes_s(&device, of_server).max(takes_s(&host, 1.0 - of_server));
    let shares = (1..cuts).map(|cut| cut as f64 / cuts as f64);
    shares.map(|share| (share, both_s(share))).min_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(s_per_byte: f64) -> Option<Costs> {
        Some(Costs {
            input_latency_s: 0.0,
            input_s_per_byte: s_per_byte,
            run_s_per_byte: 0.0,
            output_s_per_byte: 0.0,
            overlap: 0.0,
        })
    }

    #[test]
    fn sides_end_at_the_same_time() {
        let view = |host_s, device_s| PairView {
            host: costs(host_s),
            device: costs(device_s),
            alpha: None,
            beta: None,
            measured: [1, 1],
            requests: 1,
        };
        let work = Work { row_groups: 10, needed_bytes: 1000 };
        // A server that is four times as fast has four times as many.
        assert_eq!(best(&view(0.4, 0.1), &work), Some((0.8, 80.0)));
        assert_eq!(best(&view(0.1, 0.1), &work), Some((0.5, 50.0)));
        // None is without any.
        assert_eq!(best(&view(9.0, 0.001), &work).map(|(share, _)| share), Some(0.9));
        assert_eq!(best(&PairView { host: None, ..view(1.0, 1.0) }, &work), None);
    }

    #[test]
    fn both_are_taken_where_they_are_faster_and_reviewed_where_that_costs_little() {
        // By a guess it has to look better.
        assert!(
            !is_taken(0.8, 1.0, false, false) && is_taken(0.8, 1.0, true, false) && is_taken(0.7, 1.0, false, false)
        );
        assert!(!is_taken(0.95, 1.0, true, false));
        // A review goes the other way, where it is measured and not much slower.
        assert!(!is_taken(0.8, 1.0, true, true) && is_taken(1.5, 1.0, true, true) && !is_taken(2.5, 1.0, true, true));
        assert!(!is_taken(0.8, 1.0, false, true) && is_taken(0.7, 1.0, false, true));
    }

    #[test]
    fn each_side_has_a_row_group() {
        let cut = |of_server| Cut { of_server, needed_bytes: 1, expected_s: None };
        assert_eq!([0.0, 0.24, 0.26, 1.0].map(|share| cut(share).row_groups(10)), [1, 2, 3, 9]);
    }
}
