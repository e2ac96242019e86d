//! What `diskside inspect` prints of loops.
//!
//! Clang copies functions of headers into the loops that call them, so a short function can have dozens of loops with one
//! reason. Equal ones are told once, with their number, and each advice once.

use super::Outcomes;
use diskside::llvm::remarks::{self, Outcome};
use diskside::sandbox::activation::Program;
use diskside::sandbox::image::{Image, SourceLine};
use diskside::sandbox::ir::LoopReport;
use diskside::sandbox::opt::instead;
use std::collections::HashSet;

/// Loops at one place of which the same is said.
struct Entry {
    /// The first instruction of the first of them.
    insn: u32,
    count: usize,
    /// ` (FILE:LINE)`, or nothing.
    place: String,
    is_of_header: bool,
    accesses: String,
    reasons: Vec<Reason>,
}

/// Why accesses or a loop are not as fast as others, and the code to write instead.
struct Reason {
    text: String,
    advice: Option<&'static str>,
}

/// Loop by loop: whether checks were hoisted, and if not, why. Loops of headers follow those of the source.
pub(super) fn report(image: &Image, program: &Program, said: Option<&Outcomes>) -> String {
    let all: Vec<&LoopReport> = program.optimised().functions.iter().flat_map(|f| &f.loops).collect();
    if all.is_empty() {
        return "  no loops\n".into();
    }
    let mut entries: Vec<Entry> = Vec::new();
    for entry in all.into_iter().map(|l| Entry::of(image, l, said)) {
        match entries.iter_mut().find(|known| known.is_like(&entry)) {
            Some(known) => known.count += 1,
            None => entries.push(entry),
        }
    }
    let (of_headers, own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.is_of_header);
    let mut advised = HashSet::new();
    let mut text: String = own.iter().map(|entry| entry.text(&mut advised)).collect();
    if !of_headers.is_empty() {
        text += "  in headers:\n";
        text.extend(of_headers.iter().map(|entry| entry.text(&mut advised)));
    }
    text
}

/// Copies of a loop differ in the numbers of their instructions, which are before the place.
impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        fn at_place(text: &str) -> &str {
            text.strip_prefix("insn ").and_then(|rest| rest.split_once(' ')).map_or(text, |(_, rest)| rest)
        }
        at_place(&self.text) == at_place(&other.text)
    }
}

impl Entry {
    fn of(image: &Image, l: &LoopReport, said: Option<&Outcomes>) -> Self {
        let line = line(image, l);
        let accesses = match (l.accesses, l.hoisted) {
            (0, _) => "no accesses of its own".to_owned(),
            (n, true) => format!("{} of {n} accesses run unchecked under a guard", l.unchecked),
            (n, false) => format!("all {n} accesses are checked one by one"),
        };
        let mut reasons = reasons(image, &l.why);
        reasons.extend(said.map(|said| vectors(l, said.get(&l.insn))).unwrap_or_default());
        Self {
            insn: l.insn,
            count: 1,
            place: line.map_or_else(String::new, |line| format!(" ({}:{})", line.file, line.line)),
            is_of_header: line.is_some_and(is_of_header),
            accesses,
            reasons,
        }
    }

    /// Whether the other says the same of a loop at the same place; loops without a place are never the same.
    fn is_like(&self, other: &Self) -> bool {
        let same_place = !self.place.is_empty() && self.place == other.place;
        same_place && self.accesses == other.accesses && self.reasons == other.reasons
    }

    /// Advice that was given before is left out.
    fn text(&self, advised: &mut HashSet<&'static str>) -> String {
        let more = if self.count > 1 { format!(", and {} more like it", self.count - 1) } else { String::new() };
        let mut text = format!("  loop at instruction {}{}: {}{more}\n", self.insn, self.place, self.accesses);
        for reason in &self.reasons {
            text += &format!("    {}\n", reason.text);
            if let Some(advice) = reason.advice.filter(|advice| advised.insert(advice)) {
                text += &format!("      instead: {advice}\n");
            }
        }
        text
    }
}

/// Where a loop is for its author: where it begins, or, if it begins with inlined code of a header, the first line in it
/// that is of the source.
fn line<'i>(image: &'i Image, l: &LoopReport) -> Option<&'i SourceLine> {
    let line = image.line_of(l.insn as usize)?;
    if !is_of_header(line) {
        return Some(line);
    }
    let lines = l.insns.iter().filter_map(|insn| image.line_of(*insn as usize));
    Some(lines.filter(|line| !is_of_header(line)).min_by_key(|line| line.line).unwrap_or(line))
}

fn is_of_header(line: &SourceLine) -> bool {
    line.file.ends_with(".h")
}

/// Places that are listed of a reason that several accesses have.
const PLACES_MAX: usize = 4;

/// Why accesses keep their checks, or a loop does: each reason once, with the places in the source.
fn reasons(image: &Image, why: &[String]) -> Vec<Reason> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for why in why {
        let (insn, what) = match why.strip_prefix("insn ").and_then(|rest| rest.split_once(": ")) {
            Some((insn, what)) => (Some(insn), what),
            None => (None, why.as_str()),
        };
        match found.iter_mut().find(|(known, _)| *known == what) {
            Some((_, insns)) => insns.extend(insn),
            None => found.push((what, insn.into_iter().collect())),
        }
    }
    let line_of = |insn: &str| image.line_of(insn.parse().ok()?);
    let reason = |(what, insns): (&str, Vec<&str>)| {
        let text = match insns[..] {
            [] => what.to_owned(),
            [insn] => match line_of(insn) {
                Some(line) => format!("insn {insn} ({}:{}): {what}", line.file, line.line),
                None => format!("insn {insn}: {what}"),
            },
            _ => {
                let place = |insn: &&str| match line_of(insn) {
                    Some(line) => format!("{}:{}", line.file.rsplit('/').next().unwrap_or(&line.file), line.line),
                    None => format!("insn {insn}"),
                };
                let mut places: Vec<String> = Vec::new();
                insns.iter().map(place).for_each(|place| {
                    if !places.contains(&place) {
                        places.push(place);
                    }
                });
                let more = places.len().saturating_sub(PLACES_MAX);
                places.truncate(PLACES_MAX);
                let more = if more > 0 { format!(" and {more} more places") } else { String::new() };
                format!("{} accesses ({}{more}): {what}", insns.len(), places.join(", "))
            }
        };
        Reason { text, advice: instead(what) }
    };
    found.into_iter().map(reason).collect()
}

/// Whether a loop takes several trips at once; if not, why.
fn vectors(l: &LoopReport, outcome: Option<&Outcome>) -> Vec<Reason> {
    let only = |text: String| vec![Reason { text, advice: None }];
    match outcome {
        Some(Outcome::Vectorised { width, interleaved }) => {
            only(format!("vectorised: {width} elements at once, {interleaved} times in flight"))
        }
        _ if l.unchecked < l.accesses => only("not vectorised: a check of an access is a branch in the loop".into()),
        Some(Outcome::Scalar { reasons }) => {
            let scalar = |reason: &String| {
                let text = format!("not vectorised: {reason}");
                Reason { text, advice: remarks::advice(reason) }
            };
            reasons.iter().map(scalar).collect()
        }
        None => only("around another loop, or unrolled".into()),
    }
}
