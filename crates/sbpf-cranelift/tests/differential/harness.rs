//! Draws programs and inputs, counts, and makes findings small. Files that include this bring a module `forms` with the
//! compiled forms.

use crate::generate::{self, Source};
use crate::rng::Rng;
use crate::run::{Input, Refused, Subject};
use diskside_sbpf::helpers::{self, HelperSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SMOKE_SECONDS: u64 = 15;
const INPUTS: usize = 6;

/// What the last panic said, and where.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

pub(crate) fn last_panic() -> String {
    LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[derive(Debug, Default)]
struct Tally {
    programs: usize,
    refused: usize,
    hoisted: usize,
    returned: usize,
    trapped: usize,
}

/// The test: until the time is over, or until tiers differ.
pub(crate) fn all_tiers_agree() {
    let seconds = env_number("DISKSIDE_FUZZ_SECONDS").unwrap_or(SMOKE_SECONDS);
    let first = env_number("DISKSIDE_FUZZ_SEED");
    let helpers = Arc::new(helpers::standard());
    let started = Instant::now();
    let mut tally = Tally::default();
    // A panic is a finding; its message is in the report.
    std::panic::set_hook(Box::new(|info| {
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    let mut seed = first.unwrap_or(1);
    let mut finding = None;
    while started.elapsed() < Duration::from_secs(seconds) {
        finding = try_seed(seed, &helpers, &mut tally);
        if finding.is_some() {
            break;
        }
        seed += 1;
    }
    let _ = std::panic::take_hook();
    println!("{tally:?}");
    if let Some(report) = finding {
        panic!("{report}");
    }
    assert!(
        tally.refused * 5 < tally.programs * 4 + 100,
        "most programs have to verify, or little is tested: {tally:?}"
    );
    assert!(tally.programs < 50 || tally.hoisted > tally.programs / 20, "{tally:?}");
    assert!(tally.programs < 50 || tally.returned.min(tally.trapped) > tally.programs / 10, "{tally:?}");
}

/// Runs the program of a seed on a few inputs. Gives a report when tiers differ.
fn try_seed(seed: u64, helpers: &Arc<HelperSet>, tally: &mut Tally) -> Option<String> {
    let note = concat!(env!("CARGO_TARGET_TMPDIR"), "/differential.seed");
    let _ = std::fs::write(note, seed.to_string());
    let mut rng = Rng::new(seed);
    let source = generate::generate(&mut rng, helpers);
    let built = std::panic::catch_unwind(|| Subject::new(&source, helpers));
    let subject = match built {
        Ok(Ok(subject)) => subject,
        Ok(Err(Refused::Text(e))) => return Some(format!("seed {seed}: {e}\n{}", source.lines.join("\n"))),
        Ok(Err(Refused::Verifier(e))) => {
            if std::env::var_os("DISKSIDE_FUZZ_VERBOSE").is_some() {
                println!("seed {seed}: {e}");
            }
            tally.refused += 1;
            return None;
        }
        Err(_) => {
            let panics = |s: &Source| std::panic::catch_unwind(|| Subject::new(s, helpers)).is_err();
            let small = minimise(&source, panics);
            return Some(format!(
                "seed {seed}: while being verified, lowered or compiled ({:?}): {}\n{}",
                small.kind,
                last_panic(),
                small.lines.join("\n")
            ));
        }
    };
    tally.programs += 1;
    tally.hoisted += subject.hoisted_loops();
    for i in 0..INPUTS {
        let large = i == 0 && rng.percent(4);
        let input = Input::random(&mut rng, large);
        let outcome = match subject.run(&input) {
            Ok(outcome) => outcome,
            Err(what) => return Some(report(seed, &source, &input, helpers, &what)),
        };
        match &outcome.result {
            Ok(_) => tally.returned += 1,
            Err(_) => tally.trapped += 1,
        }
        // Once more with a budget that ends somewhere on the way.
        let left = match &outcome.result {
            Ok(r) => r.edges_left,
            Err(s) => s.edges_left,
        };
        let used = input.budget().saturating_sub(left);
        if used > 0 {
            let shorter = input.with_budget(rng.below(used as usize + 1) as u64);
            if let Err(what) = subject.run(&shorter) {
                return Some(report(seed, &source, &shorter, helpers, &what));
            }
        }
    }
    None
}

fn report(seed: u64, source: &Source, input: &Input, helpers: &Arc<HelperSet>, what: &str) -> String {
    let fails = |s: &Source| Subject::new(s, helpers).is_ok_and(|s| s.run(input).is_err());
    let small =
        minimise(source, |s| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fails(s))).unwrap_or(false));
    let now = Subject::new(&small, helpers).map(|s| s.run(input));
    format!(
        "seed {seed}: {what}\nshortened: {:?}\nkind {:?}, input {input:?}\n{}",
        now.ok().and_then(Result::err),
        small.kind,
        small.lines.join("\n")
    )
}

/// Drops lines, in ever smaller pieces, as long as the program still fails.
fn minimise(source: &Source, fails: impl Fn(&Source) -> bool) -> Source {
    let started = Instant::now();
    let mut best = source.clone();
    let mut piece = best.lines.len() / 2;
    while piece > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < best.lines.len() && started.elapsed() < Duration::from_secs(60) {
            let mut tried = best.clone();
            tried.lines.drain(at..(at + piece).min(best.lines.len()));
            if fails(&tried) {
                best = tried;
                shorter = true;
            } else {
                at += piece;
            }
        }
        if piece == 1 && shorter {
            continue;
        }
        piece /= 2;
    }
    best
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
