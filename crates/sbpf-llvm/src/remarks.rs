//! The messages of LLVM's optimiser about loops, in words that help the author of the function.

use std::collections::BTreeMap;

/// The outcome for a loop's fast form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Several trips are taken at once.
    Vectorised {
        /// Elements in a vector.
        width: u32,
        /// Vectors in flight.
        interleaved: u32,
    },
    /// It runs trip by trip, for these reasons in LLVM's words.
    Scalar {
        /// Each once.
        reasons: Vec<String>,
    },
}

/// The column of a location in code that rarely runs: slow forms of loops.
pub(crate) const RARE_COLUMN: u32 = 2;
/// The column of any other location.
pub(crate) const USUAL_COLUMN: u32 = 1;

/// By the instruction slot at which a loop starts: what became of it. Slow forms are left out; a loop
/// about which LLVM says nothing is not an innermost one, or is gone.
#[must_use]
pub fn outcomes(remarks: &str) -> BTreeMap<u32, Outcome> {
    let mut all: BTreeMap<u32, Outcome> = BTreeMap::new();
    for (insn, message) in remarks.lines().filter_map(usual) {
        let vectorised = vectorised(message);
        let reason = message.strip_prefix("loop not vectorized: ").or_else(|| message.strip_prefix("the cost-model "));
        if vectorised.is_none() && reason.is_none() {
            continue;
        }
        let outcome = all.entry(insn).or_insert_with(|| Outcome::Scalar { reasons: Vec::new() });
        if let Some(better) = vectorised {
            *outcome = better;
        } else if let (Outcome::Scalar { reasons }, Some(reason)) = (outcome, reason)
            && !reasons.iter().any(|r| r == reason)
        {
            reasons.push(reason.to_owned());
        }
    }
    all
}

/// The code to write instead, for a reason in LLVM's words.
#[must_use]
pub fn advice(reason: &str) -> Option<&'static str> {
    const ADVICE: [(&str, &str); 9] = [
        (
            "could not determine number of loop iterations",
            "the number of trips depends on what is read; work on blocks of a fixed number of elements, and look for the \
             end after each block",
        ),
        (
            "control flow cannot be substituted for a select",
            "a branch in the loop stores or reads in one way only; compute the value by a condition (c ? a : b) and store \
             it in every trip",
        ),
        (
            "value that could not be identified as reduction",
            "a variable is carried from trip to trip otherwise than by one of + & | ^ min max; keep one accumulator for \
             each kind",
        ),
        ("call instruction cannot be vectorized", "the loop calls a helper; call it before or after the loop"),
        ("instruction return type cannot be vectorized", "the loop calls a helper; call it before or after the loop"),
        ("instruction cannot be vectorized", "an access is still checked one by one, or is atomic; see why above"),
        (
            "unsafe dependent memory operations",
            "a trip may read what one before it wrote; write to other memory than is read",
        ),
        ("cannot identify array bounds", "an address depends on what was read; take elements one after another"),
        (
            "indicates that vectorization is not beneficial",
            "the elements lie apart; put the fields that are read into columns, one array for each",
        ),
    ];
    ADVICE.iter().find(|(part, _)| reason.contains(part)).map(|(_, advice)| *advice)
}

/// Slot and message of a line about code that usually runs: `program:LINE:COLUMN: message`.
fn usual(line: &str) -> Option<(u32, &str)> {
    let rest = line.strip_prefix("program:")?;
    let (number, rest) = rest.split_once(':')?;
    let (column, message) = rest.split_once(": ")?;
    let line = number.parse::<u32>().ok()?.checked_sub(1)?;
    (column.parse() == Ok(USUAL_COLUMN)).then_some((line, message))
}

/// `vectorized loop (vectorization width: 4, interleaved count: 4)`
fn vectorised(message: &str) -> Option<Outcome> {
    let inside = message.strip_prefix("vectorized loop (vectorization width: ")?.strip_suffix(')')?;
    let (width, interleaved) = inside.split_once(", interleaved count: ")?;
    Some(Outcome::Vectorised { width: width.parse().ok()?, interleaved: interleaved.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_outcomes_of_loops() {
        let said = outcomes(
            "program:31:1: loop not vectorized: could not determine number of loop iterations\n\
             program:31:1: vectorized loop (vectorization width: 4, interleaved count: 2)\n\
             program:31:2: loop not vectorized: call instruction cannot be vectorized\n\
             program:8:1: loop not vectorized\n\
             program:9:1: loop not vectorized: call instruction cannot be vectorized\n\
             program:9:1: loop not vectorized: call instruction cannot be vectorized\n\
             <unknown>:0:0: List vectorization was possible but not beneficial with cost 0 >= 0\n\
             program:0:0: loop not vectorized: what\nprogram:x:1: y\nnonsense\n",
        );
        let reasons = vec!["call instruction cannot be vectorized".to_owned()];
        let expected = [(8, Outcome::Scalar { reasons }), (30, Outcome::Vectorised { width: 4, interleaved: 2 })];
        assert_eq!(said, BTreeMap::from(expected));
    }

    #[test]
    fn reasons_come_with_advice() {
        assert!(advice("call instruction cannot be vectorized").is_some_and(|a| a.contains("helper")));
        assert_eq!(advice("something new"), None);
    }
}
