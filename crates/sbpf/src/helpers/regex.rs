//! `ds_regex_find`: search by a regular expression, in time linear in the length of the text.
//!
//! The automaton is made as it is needed, state by state (a lazy DFA), and kept for the next call: programs look for one
//! expression in many rows. Expressions are over bytes: `.` is any byte but a newline, `\w`, `\d`, `\s` and `(?i)` know ASCII.

use super::access::cost;
use crate::machine::{Fault, Machine};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::ast::ErrorKind as Syntax;

/// Longest expression.
const PATTERN_BYTES_MAX: u64 = 4096;
/// Deepest nesting in one.
const NEST_MAX: u32 = 64;
/// The most memory of an expression's automaton before it is run; so few states.
const NFA_BYTES_MAX: usize = 256 << 10;
/// The most memory of the states that are made while it runs.
const CACHE_BYTES_MAX: usize = 1 << 20;
/// This many states cost one more edge for each 64 bytes: each byte may need a new state, which is made from all of them.
const STATES_PER_EDGE: usize = 128;
/// Bytes between two looks at deadline and cancellation.
const STEP_BYTES: u64 = 4096;

/// Whether a text is an expression that `ds_regex_find` takes.
///
/// # Errors
/// The problem and its place.
pub fn check_regex(pattern: &str) -> Result<(), String> {
    let checked = check_len(pattern.len() as u64).and_then(|()| compile(pattern.as_bytes().to_vec()));
    checked.map(|_| ()).map_err(|fault| match fault {
        Fault::Refused(why) => why.to_owned(),
        Fault::RefusedAt(why, byte) => format!("{why}, at byte {byte}"),
        Fault::Trapped => unreachable!("no program runs"),
    })
}

/// The last expression, with its compiled form.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegexCache(Option<Box<Compiled>>);

#[derive(Clone, Debug)]
struct Compiled {
    pattern: Vec<u8>,
    dfa: DFA,
    cache: Cache,
    /// Edges for each 64 bytes.
    weight: u64,
}

/// `ds_regex_find(hay, hay_len, pattern, pattern_len)`.
pub(super) fn ds_regex_find(machine: &mut Machine, args: [u64; 5]) -> Result<u64, Fault> {
    let [hay, hay_len, pattern, pattern_len, _] = args;
    machine.check_read(hay, hay_len)?;
    machine.check_read(pattern, pattern_len)?;
    check_len(pattern_len)?;
    let mut cache = std::mem::take(&mut machine.regex);
    let found = prepare(machine, &mut cache, (pattern, pattern_len))
        .and_then(|compiled| search(machine, compiled, (hay, hay_len)));
    machine.regex = cache;
    found
}

fn prepare<'a>(
    machine: &mut Machine,
    cache: &'a mut RegexCache,
    (pattern, pattern_len): (u64, u64),
) -> Result<&'a mut Compiled, Fault> {
    let bytes = machine.bytes(pattern, pattern_len)?;
    if cache.0.as_ref().is_none_or(|compiled| compiled.pattern != bytes) {
        let compiled = compile(bytes.to_vec())?;
        cache.0 = Some(Box::new(compiled));
    }
    let compiled = cache.0.as_mut().expect("it was just made");
    // The same whether it was known or not: what a call costs does not depend on those before it.
    machine.charge(cost(pattern_len) + compiled.weight)?;
    Ok(compiled)
}

fn check_len(len: u64) -> Result<(), Fault> {
    if len > PATTERN_BYTES_MAX { Err(Fault::Refused("the expression is longer than 4096 bytes")) } else { Ok(()) }
}

fn compile(pattern: Vec<u8>) -> Result<Compiled, Fault> {
    const TOO_LARGE: Fault = Fault::Refused("the expression needs too much memory; repeat less in it");
    let text = std::str::from_utf8(&pattern)
        .map_err(|error| Fault::RefusedAt("the expression is not UTF-8", error.valid_up_to() as u64))?;
    let syntax = syntax::Config::new().unicode(false).utf8(false).nest_limit(NEST_MAX);
    let hir = syntax::parse_with(text, &syntax).map_err(|error| match error {
        regex_syntax::Error::Parse(error) => Fault::RefusedAt(words_of(error.kind()), error.span().start.offset as u64),
        regex_syntax::Error::Translate(error) => {
            Fault::RefusedAt("the expression is over bytes, and this is none", error.span().start.offset as u64)
        }
        _ => Fault::Refused("this is no expression"),
    })?;
    let config =
        thompson::Config::new().utf8(false).which_captures(WhichCaptures::None).nfa_size_limit(Some(NFA_BYTES_MAX));
    let nfa = NFA::compiler().configure(config).build_from_hir(&hir).map_err(|_| TOO_LARGE)?;
    let weight = 1 + (nfa.states().len() / STATES_PER_EDGE) as u64;
    let config = DFA::config()
        .match_kind(MatchKind::All)
        .cache_capacity(CACHE_BYTES_MAX)
        // More is taken where the fewest states need it, which the limit above bounds.
        .skip_cache_capacity_check(true);
    let dfa = DFA::builder().configure(config).build_from_nfa(nfa).map_err(|_| TOO_LARGE)?;
    let cache = dfa.create_cache();
    Ok(Compiled { pattern, dfa, cache, weight })
}

/// The end of the match that ends first.
fn search(machine: &mut Machine, compiled: &mut Compiled, (hay, hay_len): (u64, u64)) -> Result<u64, Fault> {
    const ABSENT: u64 = -1i64 as u64;
    const FULL: Fault = Fault::Refused("the expression's states do not fit in the memory for them");
    let Compiled { dfa, cache, weight, .. } = compiled;
    let start = Input::new(&[][..]).anchored(Anchored::No);
    let mut state = dfa.start_state_forward(cache, &start).map_err(|_| FULL)?;
    let mut at = 0;
    while at < hay_len {
        let len = STEP_BYTES.min(hay_len - at);
        machine.charge(cost(len) * *weight)?;
        let bytes = machine.bytes(hay + at, len)?;
        for (offset, byte) in bytes.iter().enumerate() {
            state = dfa.next_state(cache, state, *byte).map_err(|_| FULL)?;
            if state.is_tagged() {
                // A match is known one byte late: it may depend on what comes next.
                if state.is_match() {
                    return Ok(at + offset as u64);
                }
                if state.is_dead() {
                    return Ok(ABSENT);
                }
            }
        }
        at += len;
    }
    state = dfa.next_eoi_state(cache, state).map_err(|_| FULL)?;
    Ok(if state.is_match() { hay_len } else { ABSENT })
}

fn words_of(kind: &Syntax) -> &'static str {
    match kind {
        Syntax::ClassUnclosed => "a `[` is not closed",
        Syntax::GroupUnclosed => "a `(` is not closed",
        Syntax::GroupUnopened => "this `)` closes nothing",
        Syntax::RepetitionMissing => "there is nothing to repeat",
        Syntax::RepetitionCountUnclosed => "a `{` is not closed",
        Syntax::RepetitionCountInvalid | Syntax::RepetitionCountDecimalEmpty | Syntax::DecimalInvalid => {
            "a repetition is {N}, {N,} or {N,M}, with M no less than N"
        }
        Syntax::ClassRangeInvalid => "a range in a class ends before it begins",
        Syntax::EscapeUnrecognized => "no such escape is known",
        Syntax::EscapeUnexpectedEof => "the expression ends within an escape",
        Syntax::UnsupportedBackreference => "references back are not regular, and not supported",
        Syntax::UnsupportedLookAround => "looking around is not regular, and not supported",
        Syntax::NestLimitExceeded(_) => "the expression is nested too deep",
        _ => "this is no expression",
    }
}
