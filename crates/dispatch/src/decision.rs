//! The decision and its reason.

use crate::model::{Estimate, Side};
use std::fmt;

/// Where a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// On the host: what it does not hold is fetched.
    Host,
    /// At the device.
    Device,
    /// The bytes that the host holds on the host, the rest at the device, at the same time.
    Split,
    /// All of it on both sides, to measure them. Either result is the result.
    Both,
}

impl Plan {
    /// All, in the order in which they are counted.
    pub const ALL: [Self; 4] = [Self::Host, Self::Device, Self::Split, Self::Both];

    /// `host`, `device`, `split` or `both`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
            Self::Split => "split",
            Self::Both => "both",
        }
    }

    /// The side that runs all of it, if one does.
    #[must_use]
    pub fn side(self) -> Option<Side> {
        match self {
            Self::Host => Some(Side::Host),
            Self::Device => Some(Side::Device),
            Self::Split | Self::Both => None,
        }
    }
}

impl From<Side> for Plan {
    fn from(side: Side) -> Self {
        match side {
            Side::Host => Self::Host,
            Side::Device => Self::Device,
        }
    }
}

/// A small run on the other side, to measure it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Where.
    pub side: Side,
    /// Of how many bytes: of those that the host does not hold, as long as there are any.
    pub len_bytes: u64,
    /// Whether the request runs there instead of by the plan, as a write does, all of it; otherwise a part runs there
    /// in addition, and its result is dropped. A write then writes nothing, and
    /// [`rehearse`](crate::Dispatcher::rehearse) gets the function's time.
    pub instead: bool,
}

/// Why a plan was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The caller says so.
    Told,
    /// The program has effects besides its result: it runs once, at the data.
    Effects,
    /// The device cannot be reached, and the host has the data, or another way to it.
    LinkLost,
    /// The device does not run this function.
    NoCompute,
    /// Both the input and the output are at the device.
    InPlace,
    /// There are many files at the device: one request for all of them, where the host would open and read each.
    ManyFiles,
    /// One side was never measured: it is tried by a part.
    Unmeasured,
    /// Nothing is measured yet, and the program's author knows what it costs.
    Hinted,
    /// The first requests of a period run on both sides.
    Profiling,
    /// This side is faster.
    Faster,
    /// Both are equally fast: it stays where it was.
    Tie,
    /// Both sides at once are faster than either.
    FasterTogether,
    /// The other side may be faster: a request runs there already, and shows whether it is.
    Tried,
}

impl Reason {
    /// All, in the order in which they are counted.
    pub const ALL: [Self; 13] = [
        Self::Told,
        Self::Effects,
        Self::LinkLost,
        Self::NoCompute,
        Self::InPlace,
        Self::ManyFiles,
        Self::Unmeasured,
        Self::Hinted,
        Self::Profiling,
        Self::Faster,
        Self::Tie,
        Self::FasterTogether,
        Self::Tried,
    ];

    /// A word for tables and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Told => "told",
            Self::Effects => "effects",
            Self::LinkLost => "link_lost",
            Self::NoCompute => "no_compute",
            Self::InPlace => "in_place",
            Self::ManyFiles => "many_files",
            Self::Unmeasured => "unmeasured",
            Self::Hinted => "hinted",
            Self::Profiling => "profiling",
            Self::Faster => "faster",
            Self::Tie => "tie",
            Self::FasterTogether => "faster_together",
            Self::Tried => "tried",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Told => "the caller says so",
            Self::Effects => "the program has effects, so it runs once, at the data",
            Self::LinkLost => "the device cannot be reached, and the host has the data without it",
            Self::NoCompute => "the device does not run this function",
            Self::InPlace => "the input is there, and the output stays there",
            Self::ManyFiles => "there are many files, and one request is over all of them",
            Self::Unmeasured => "one side is not measured yet",
            Self::Hinted => "nothing is measured yet, and the function's hints speak for it",
            Self::Profiling => "the first requests of a period are measured on both sides",
            Self::Faster => "it is faster there",
            Self::Tie => "both sides are equally fast, so it stays",
            Self::FasterTogether => "the host runs what it holds, the device the rest, at the same time",
            Self::Tried => "the other side may be faster, and is tried by one request first",
        })
    }
}

/// Where a request runs, why, and what was expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Where.
    pub plan: Plan,
    /// The probe that is run on the other side to measure it.
    pub probe: Option<Probe>,
    /// Why.
    pub reason: Reason,
    /// How long it would take on each side, once both are measured.
    pub estimate: Option<Estimate>,
    /// Whether a side was not measured since it was [recalled](crate::Dispatcher::recall).
    pub recalled: bool,
}

impl Decision {
    /// One that needed no measurement.
    #[must_use]
    pub fn made(plan: Plan, reason: Reason) -> Self {
        Self::new(plan, reason)
    }

    pub(crate) fn new(plan: Plan, reason: Reason) -> Self {
        Self { plan, probe: None, reason, estimate: None, recalled: false }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |s: f64| format!("{:.2} ms", s * 1e3);
        write!(f, "{}: {}", self.plan.name(), self.reason)?;
        if let Some(e) = &self.estimate {
            write!(f, " (expected: host {}, device {}", ms(e.host_s), ms(e.device_s))?;
            if let Some(split) = e.split_s {
                write!(f, ", split {}", ms(split))?;
            }
            f.write_str(if self.recalled { "; as earlier runs measured it)" } else { ")" })?;
        }
        if let Some(probe) = &self.probe {
            let how = if probe.instead { "" } else { " besides" };
            write!(f, "; {} bytes on the {}{how}, to measure it", probe.len_bytes, probe.side.name())?;
        }
        Ok(())
    }
}

/// Decisions by reason and by plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    reasons: [u64; Reason::ALL.len()],
    plans: [u64; 4],
    probes: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, decision: &Decision) {
        self.reasons[decision.reason as usize] += 1;
        self.plans[decision.plan as usize] += 1;
        self.probes += u64::from(decision.probe.is_some());
    }

    /// Decisions for this reason.
    #[must_use]
    pub fn of(&self, reason: Reason) -> u64 {
        self.reasons[reason as usize]
    }

    /// Decisions for this plan.
    #[must_use]
    pub fn planned(&self, plan: Plan) -> u64 {
        self.plans[plan as usize]
    }

    /// Decisions with a probe.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Plans with a decision, and how many each has.
    pub fn plans(&self) -> impl Iterator<Item = (Plan, u64)> {
        Plan::ALL.into_iter().map(|plan| (plan, self.planned(plan))).filter(|(_, count)| *count > 0)
    }

    /// Reasons with a decision, and how many each has.
    pub fn reasons(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, count)| *count > 0)
    }

    /// All decisions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reasons.iter().sum()
    }
}

/// `12 decisions: host 3, device 9; faster 11, told 1; 2 with a probe`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |names: Vec<String>| names.join(", ");
        write!(f, "{} decision{}", self.total(), if self.total() == 1 { "" } else { "s" })?;
        if self.total() == 0 {
            return Ok(());
        }
        let plans = self.plans().map(|(plan, count)| format!("{} {count}", plan.name())).collect();
        let reasons = self.reasons().map(|(reason, count)| format!("{} {count}", reason.name())).collect();
        write!(f, ": {}; {}", listed(plans), listed(reasons))?;
        if self.probes > 0 { write!(f, "; {} with a probe", self.probes) } else { Ok(()) }
    }
}
