//! Where `auto` scans: at first by a simple rule, and then by what the same scan took on either side.
//!
//! Every scan measures its side. Before it, one row group is scanned on the other side now and then, and its result dropped
//! ([`diskside_dispatch::adaptive`] says how often): a link, or a server that others keep busy, may be faster or slower than before.
//! Not beside it: where both have the same processors, or fill a link, a row group takes many times as long as it would.

use super::super::crowd::Present;
use super::super::learnt::Subject;
use super::super::place::{Place, Remote};
use super::super::{Session, error::SessionError};
use super::share::Cut;
use super::{Counted, Done, Scan, ScanPlace, counting, is_missing, is_refused, why_missing, why_refused};
use diskside_dispatch::{Conditions, Observation, PairId, Request, Side};
use diskside_io::request::run_here;
use diskside_sbpf::machine::CancelToken;
use diskside_scan::{Compression, Format, Part, Plan, Report};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Rows of which one in so many is wanted, or fewer, are cheaper to send than the columns, however well these are compressed.
const SELECTIVE: u64 = 32;
/// Rows that are so many times shorter than their columns, as both travel, are cheaper to send: a server has to pack them besides, and
/// this machine decodes as fast.
const SHORTER: u128 = 2;
/// Files of so many bytes are scanned as fast as they are sampled.
const SMALL_LEN: u64 = 256 << 10;
/// Rows that show how long rows are as they travel.
const SAMPLE_ROWS: u64 = 4096;
/// Rows that a server decodes in a turn.
pub(super) const TURN_ROWS: u64 = 32 << 10;
/// Row groups of a file that was scanned by another process, whose measurements are known.
const ROW_GROUPS_GUESS: u64 = 16;
/// Sizes of scans that a session remembers.
const SIZES_MAX: usize = 4096;
/// A row group that measures the other side may take so much of what the scan takes.
const PROBE_SHARE_MAX: f64 = 0.3;
/// It takes more of what a scan of fewer row groups takes.
const PROBED_ROW_GROUPS_MIN: u64 = 4;
/// In less time a process would hardly begin.
const PROBE_TIMEOUT_MIN: Duration = Duration::from_millis(20);
/// The name under which measurements of scans are kept.
const LEARNT_NAME: &str = "scan";

/// The side of a scan, and why.
#[derive(Clone, Debug)]
pub(in crate::session) struct Choice {
    pub(super) side: Side,
    pub(super) why: String,
    /// Both sides scan a part each.
    pub(super) cut: Option<Cut>,
    /// The part that is scanned on the other side before, to measure it.
    pub(super) probe: Option<Probe>,
    /// How a server is asked to compress the result.
    pub(super) compression: Compression,
}

/// A measurement of the side on which a scan does not run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) part: Part,
    /// It is given up after this.
    pub(super) timeout: Duration,
}

/// How much a scan has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) row_groups: u64,
    pub(super) needed_bytes: u64,
}

/// How much a scan has to do, by the last one that was alike: of a file, or of a part of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct Size {
    /// All that the file has.
    row_groups: u64,
    /// The mean of a row group.
    needed_bytes: u64,
    rows: u64,
}

/// What a session remembers of scans.
#[derive(Debug, Default)]
pub(in crate::session) struct Sizes {
    of: HashMap<PairId, Size>,
    /// Those that cannot be cut.
    whole: HashSet<PairId>,
}

impl Sizes {
    fn insert(&mut self, pair: PairId, size: Size) {
        if self.of.len() >= SIZES_MAX {
            self.of.clear();
        }
        self.of.insert(pair, size);
    }

    pub(super) fn is_whole(&self, pair: PairId) -> bool {
        self.whole.contains(&pair)
    }

    pub(super) fn keep_whole(&mut self, pair: PairId) {
        if self.whole.len() >= SIZES_MAX {
            self.whole.clear();
        }
        self.whole.insert(pair);
    }
}

impl Choice {
    pub(super) fn new(side: Side, why: impl Into<String>) -> Self {
        Self { side, why: why.into(), cut: None, probe: None, compression: Compression::Lz4 }
    }
}

impl Scan<'_> {
    pub(super) fn choose(&self) -> Result<Choice, SessionError> {
        let remote = match &self.file.inner.place {
            Place::Export(remote) => Some(remote),
            _ => None,
        };
        match (self.options.place, remote) {
            (ScanPlace::Host, _) => Ok(Choice::new(Side::Host, "as asked")),
            (ScanPlace::Device, Some(_)) => Ok(Choice::new(Side::Device, "as asked")),
            (ScanPlace::Both, Some(remote)) => self.by_both(remote),
            (ScanPlace::Device | ScanPlace::Both, None) => {
                let why =
                    "only files of exports are scanned at a server: name one as diskside://HOST/EXPORT/PATH".into();
                Err(SessionError::NoDevice { name: self.name().to_owned(), why })
            }
            (ScanPlace::Auto, None) => Ok(Choice::new(Side::Host, "the file is not one of an export")),
            (ScanPlace::Auto, Some(_)) if self.program().is_none() => {
                Ok(Choice::new(Side::Device, "this machine has no program diskside-scan"))
            }
            (ScanPlace::Auto, Some(remote)) => match self.measured(remote) {
                Some(choice) => Ok(choice),
                None => self.by_rule(remote),
            },
        }
    }

    fn by_both(&self, remote: &Remote) -> Result<Choice, SessionError> {
        if let Some(why) = self.why_whole() {
            return Err(SessionError::Input { name: self.name().to_owned(), why: why.into() });
        }
        let cut = Some(self.cut_as_asked(remote));
        Ok(Choice { cut, ..Choice::new(Side::Device, "as asked") })
    }

    fn by_rule(&self, remote: &Remote) -> Result<Choice, SessionError> {
        if self.plan.gives_result() {
            Ok(Choice::new(Side::Device, "what the function gives is little"))
        } else if self.plan.aggregates() || self.plan.limit.is_some() {
            Ok(Choice::new(Side::Device, "sums, counts and first rows are few"))
        } else if self.plan.filter.is_none() && self.plan.function.is_none() && !self.is_text() {
            Ok(Choice::new(Side::Host, "all rows are wanted"))
        } else if self.is_small(remote) {
            Ok(Choice::new(Side::Device, "the file is small"))
        } else {
            self.sampled()
        }
    }

    /// By the bytes of a row group that would travel: the server counts the rows that are wanted, and sends some of them. It is the
    /// first one, or one of others if statistics rule that out: files are often in the order of what is asked for.
    fn sampled(&self) -> Result<Choice, SessionError> {
        let (mut part, mut left) = (Part { first: self.plan.part.first, count: 1 }, None);
        let report = loop {
            let report = match self.sample(&Plan { part, ..counting(self.plan) }) {
                Err(error) if is_missing(&error) => return Ok(Choice::new(Side::Host, why_missing(&error))),
                Err(error) if is_refused(&error) => return Ok(Choice::new(Side::Host, why_refused(&error))),
                counted => counted?.report,
            };
            if report.pruned == 0 {
                break report;
            }
            let left = left.get_or_insert_with(|| self.other_samples(report.row_groups).into_iter());
            match left.next() {
                Some(next) => part.first = next,
                None => return Ok(Choice::new(Side::Device, "statistics rule the sampled row groups out")),
            }
        };
        let (rows, of) = (report.rows_selected, report.rows_read);
        let which = match part.first - self.plan.part.first {
            0 => "the first row group".to_owned(),
            _ => format!("row group {}", part.first),
        };
        let told = format!("{rows} of {of} rows of {which} are wanted");
        if rows.saturating_mul(SELECTIVE) <= of {
            return Ok(Choice::new(Side::Device, told));
        }
        let some = match self.sample(&Plan { part, limit: Some(SAMPLE_ROWS), order: Vec::new(), ..self.plan.clone() }) {
            // The rows have more columns than the condition.
            Err(error) if is_refused(&error) => return Ok(Choice::new(Side::Host, why_refused(&error))),
            some => some?,
        };
        let sent_bytes = u128::from(some.result_bytes) * u128::from(rows) / u128::from(rows.clamp(1, SAMPLE_ROWS));
        let read_bytes = some.report.needed_len;
        let side = if sent_bytes * SHORTER <= read_bytes.into() { Side::Device } else { Side::Host };
        Ok(Choice::new(side, format!("{told}, about {sent_bytes} bytes; {read_bytes} would be read for them")))
    }

    /// Row groups that are sampled if the first one is ruled out: the last one, and some between them.
    fn other_samples(&self, of_file: u64) -> Vec<u32> {
        let (first, count) = (self.plan.part.first, u32::try_from(self.row_groups(of_file)).unwrap_or(u32::MAX));
        let mut found: Vec<u32> =
            [count - 1, count / 2, count / 4, count / 4 * 3].into_iter().filter(|at| *at > 0).collect();
        found.sort_unstable();
        found.dedup();
        found.reverse();
        found.into_iter().map(|at| first + at).collect()
    }

    /// Whether all of the file is read for any of its columns.
    pub(super) fn is_text(&self) -> bool {
        let format =
            if self.plan.format == Format::Auto { Format::of_text(self.name()) } else { Some(self.plan.format) };
        matches!(format, Some(Format::Csv { .. } | Format::JsonLines))
    }

    /// Whether samples of it take as long as the scan. One that cannot be opened has the scan say why.
    fn is_small(&self, remote: &Remote) -> bool {
        remote.file().is_ok_and(|file| file.info().len_bytes <= SMALL_LEN)
    }

    fn sample(&self, plan: &Plan) -> Result<Done, SessionError> {
        self.at_server(plan, &mut Counted { out: &mut std::io::sink(), count: 0 })
    }

    /// By what is known of such scans; `None`: nothing is, or the rows that come first are enough.
    fn measured(&self, remote: &Remote) -> Option<Choice> {
        if !self.is_measured() {
            return None;
        }
        let (session, link, pair) = (self.session(), &remote.link, self.pair());
        self.recall(pair, &link.name);
        let known = session.lock_dispatcher().learnt(pair)?;
        let longest = known.observations.iter().map(|seen| seen.len_bytes).max()?;
        let of_session = session.lock_sizes().of.get(&pair).copied();
        let guessed = || ROW_GROUPS_GUESS.min(self.plan.part.count.into()).max(1);
        let row_groups = of_session.map_or_else(guessed, |size| self.row_groups(size.row_groups));
        let guess = Size { row_groups, needed_bytes: longest / row_groups, rows: TURN_ROWS };
        let size = of_session.unwrap_or(guess);
        let (needed_bytes, rows) = (size.needed_bytes * row_groups, size.rows * row_groups);
        let request = Request { part_len_bytes: size.needed_bytes, ..Request::read(needed_bytes) };
        let conditions = Conditions {
            round_trip_s: link.round_trip_s(),
            device_waiting: link.waiting(),
            device_running: link.at_once(Side::Device),
            host_running: link.at_once(Side::Host),
            device_turn_s: run_here(link.turn_s()),
            turn_len_bytes: needed_bytes * TURN_ROWS / rows.max(TURN_ROWS),
            ..Conditions::default()
        };
        let decision = session.lock_dispatcher().decide(pair, &request, &conditions);
        let side = decision.plan.side()?;
        let alone_s = decision.estimate.map(|estimate| estimate.on(side));
        // Several of the caller's scans at once have both sides already.
        let is_alone = conditions.device_running + conditions.host_running == 0;
        let work = Work { row_groups, needed_bytes };
        let cut = alone_s.filter(|_| is_alone).and_then(|alone_s| self.cut(remote, &work, known.requests, alone_s));
        let longest_s = known.observations.iter().map(|seen| seen.total_s).fold(0.0, f64::max);
        let timeout = Duration::try_from_secs_f64(alone_s.unwrap_or(longest_s) * PROBE_SHARE_MAX).unwrap_or_default();
        let timeout = timeout.max(PROBE_TIMEOUT_MIN);
        let probe = decision.probe.filter(|_| row_groups >= PROBED_ROW_GROUPS_MIN).map(|_| {
            // All that is before it would be read of a text.
            let at = if self.is_text() { 0 } else { sampled_at(known.requests, row_groups) };
            let first = self.plan.part.first.saturating_add(u32::try_from(at).unwrap_or(0));
            Probe { part: Part { first, count: 1 }, timeout }
        });
        Some(Choice { cut, probe, ..Choice::new(side, decision.to_string()) })
    }

    /// How many of a file's row groups the scan is of.
    fn row_groups(&self, of_file: u64) -> u64 {
        let part = self.plan.part;
        of_file.saturating_sub(part.first.into()).min(part.count.into()).max(1)
    }

    /// The first rows of a file, or a part of it, take a time that says nothing of the rest.
    fn is_measured(&self) -> bool {
        let is_whole = self.plan.part == Part::default();
        is_whole && (self.plan.limit.is_none() || !self.plan.order.is_empty() || self.plan.aggregates())
    }

    /// Takes note of what a scan took, or a part of one: `part` is its share of the whole.
    fn note(&self, remote: &Remote, side: Side, done: &Done, took: &Took<'_>) {
        let (report, pair) = (&done.report, self.pair());
        if !self.is_measured() || report.needed_len == 0 {
            return;
        }
        self.recall(pair, &remote.link.name);
        let observation = observation(side, done, took);
        let at_once = took.present.at_once();
        let mut dispatcher = self.session().lock_dispatcher();
        if took.is_probe {
            dispatcher.observe_probe(pair, &observation, at_once);
            return;
        }
        dispatcher.observe_among(pair, &observation, at_once);
        drop(dispatcher);
        let scanned = self.row_groups(report.row_groups);
        let (row_groups, needed_bytes, rows) =
            (report.row_groups, report.needed_len / scanned, report.rows_read / scanned);
        self.session().lock_sizes().insert(pair, Size { needed_bytes, row_groups, rows });
    }

    /// Measures the other side, if that is due.
    pub(super) fn measure_other(&self, choice: &Choice) {
        if let (Some(probe), Place::Export(remote)) = (choice.probe, &self.file.inner.place) {
            self.probe(remote, choice.side.other(), probe);
        }
    }

    /// Runs `whole` on a side, and takes note of what it took.
    pub(super) fn measuring(
        &self,
        choice: &Choice,
        whole: impl FnOnce() -> Result<Done, SessionError>,
    ) -> Result<Done, SessionError> {
        let Place::Export(remote) = &self.file.inner.place else { return whole() };
        let (present, began) = (remote.link.enter(choice.side), Instant::now());
        let done = whole()?;
        self.note(remote, choice.side, &done, &Took { total: began.elapsed(), present: &present, is_probe: false });
        Ok(done)
    }

    /// One that fails, or takes too long, has measured nothing.
    fn probe(&self, remote: &Remote, side: Side, Probe { part, timeout }: Probe) {
        let cancel = CancelToken::new();
        let stop = cancel.clone();
        let _watch = self.options.cancel.as_ref().map(|wanted| wanted.when_cancelled(move || stop.cancel()));
        let plan = Plan { part, ..self.plan.clone() };
        let options = super::ScanOptions { cancel: Some(cancel.clone()), ..self.options.clone() };
        std::thread::scope(|threads| {
            let (ended, is_over) = std::sync::mpsc::channel::<()>();
            let timer = move || {
                // Nothing is sent: it ends when the other end is gone.
                if is_over.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                    cancel.cancel();
                }
            };
            // Without a timer nothing is measured.
            if std::thread::Builder::new().name("timer of a probe".into()).spawn_scoped(threads, timer).is_err() {
                return;
            }
            let scan = Scan { file: self.file, plan: &plan, options: &options, among: self.among };
            let (present, began) = (remote.link.enter(side), Instant::now());
            let out = &mut Counted { out: &mut std::io::sink(), count: 0 };
            let done = match side {
                Side::Device => scan.at_server(&plan, out),
                Side::Host => scan.here(out),
            };
            if let Ok(done) = done {
                self.note(remote, side, &done, &Took { total: began.elapsed(), present: &present, is_probe: true });
            }
            drop(ended);
        });
    }

    pub(super) fn session(&self) -> &Session {
        &self.file.inner.session
    }

    /// Scans of one file that do the same, wherever it is opened.
    pub(super) fn pair(&self) -> PairId {
        PairId { file: hash(self.name()), function: self.shape() }
    }

    fn shape(&self) -> u64 {
        // However its result travels.
        let compression = Compression::Lz4;
        hash(&Plan { part: Part::default(), limit: None, compression, ..self.plan.clone() }.to_bytes())
    }

    /// Begins with what earlier sessions learnt of such scans at this server.
    fn recall(&self, pair: PairId, target: &str) {
        self.recall_as(pair, target, LEARNT_NAME);
    }

    pub(super) fn recall_as(&self, pair: PairId, target: &str, kind: &str) {
        let function = format!("{kind} {}", self.name());
        self.recall_subject(pair, Subject { target: target.to_owned(), program: self.shape(), function });
    }

    pub(super) fn recall_subject(&self, pair: PairId, subject: Subject) {
        let session = self.session();
        let Some(files) = session.learnt() else { return };
        if session.lock_dispatcher().view(pair).is_none()
            && let Some(learnt) = files.load(&subject)
        {
            session.lock_dispatcher().recall(pair, &learnt);
        }
        files.note(subject, pair);
    }
}

/// The row group that measures a side: another one each time, far from the last one, since statistics often rule out neighbours.
fn sampled_at(number: u64, row_groups: u64) -> u64 {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let part = ((number % (1 << 20)) as f64 * GOLDEN + 0.5).fract();
    ((part * row_groups as f64) as u64).min(row_groups.saturating_sub(1))
}

/// How long a scan took, and among what.
struct Took<'a> {
    total: Duration,
    present: &'a Present,
    is_probe: bool,
}

fn observation(side: Side, done: &Done, took: &Took<'_>) -> Observation {
    let Report { needed_len, needed_len_of_all, .. } = done.report;
    let total_s = took.total.as_secs_f64();
    let mut of = Observation {
        side,
        len_bytes: needed_len,
        input_bytes: needed_len,
        output_bytes: done.result_bytes,
        round_trip_s: 0.0,
        queue_s: 0.0,
        input_s: 0.0,
        run_s: 0.0,
        output_s: 0.0,
        total_s,
    };
    match (side, done.times) {
        (Side::Device, Some(times)) => {
            of.queue_s = f64::from(times.queue_us) * 1e-6;
            of.run_s = f64::from(times.run_us) * 1e-6;
            of.output_s = (total_s - of.queue_s - of.run_s).max(0.0);
        }
        // Bytes come while others are decoded. A process is started once, however much of the file is scanned.
        _ => {
            let share = if took.is_probe { needed_len as f64 / needed_len_of_all.max(1) as f64 } else { 1.0 };
            let begin_s = done.begin.as_secs_f64().min(total_s);
            of.input_s = total_s - begin_s * (1.0 - share);
        }
    }
    of
}

pub(super) fn hash(of: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first row groups of a sorted file were ruled out, one after another, and the other side was never measured.
    #[test]
    fn samples_are_spread_over_the_file() {
        assert_eq!((0..5).map(|number| sampled_at(number, 20)).collect::<Vec<_>>(), [10, 2, 14, 7, 19]);
        let seen: HashSet<u64> = (0..60).map(|number| sampled_at(number, 20)).collect();
        assert_eq!(seen.len(), 20);
        assert!((0..1000).all(|number| sampled_at(number, 1) == 0 && sampled_at(u64::MAX - number, 7) < 7));
    }
}
