//! Engines side by side over one task.

use crate::measure::{Plan, median, ns_per_call};
use crate::{Engine, Runner, Task};

/// What an engine did.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Median nanoseconds of a call.
    Ns(f64),
    /// It does not run this program, for this reason.
    Unable(String),
    /// It gave another result than native code, or failed: a fault of ours or of the engine.
    Wrong(String),
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ns(ns) => write!(f, "{ns:.1}"),
            Self::Unable(_) => f.write_str("unable"),
            Self::Wrong(_) => f.write_str("WRONG"),
        }
    }
}

struct Entrant {
    runner: Box<dyn Runner>,
    samples: Vec<f64>,
    wrong: Option<String>,
}

/// One cell for each engine; the first engine's result is what all others must give.
pub fn run(task: &Task, engines: &[Engine], plan: &Plan) -> Vec<Cell> {
    let mut entrants: Vec<Result<Entrant, String>> = engines
        .iter()
        .map(|engine| {
            let (runner, _) = (engine.prepare)(task)?;
            Ok(Entrant { runner, samples: Vec::new(), wrong: None })
        })
        .collect();
    let expected = match &mut entrants[0] {
        Ok(native) => Outcome::of(&mut *native.runner, task),
        Err(error) => Err(error.clone()),
    };
    for _ in 0..plan.rounds {
        for entrant in entrants.iter_mut().flatten().filter(|e| e.wrong.is_none()) {
            if let Err(error) = entrant.turn(task, plan, &expected) {
                entrant.wrong = Some(error);
            }
        }
    }
    entrants.into_iter().map(Entrant::cell).collect()
}

impl Entrant {
    fn turn(&mut self, task: &Task, plan: &Plan, expected: &Result<Outcome, String>) -> Result<(), String> {
        let runner = &mut *self.runner;
        agree(expected, &Outcome::of(runner, task))?;
        let ns = ns_per_call(plan.slice, |_| call(runner, task).map(drop))?;
        agree(expected, &Outcome::of(runner, task))?;
        self.samples.push(ns);
        Ok(())
    }

    fn cell(this: Result<Self, String>) -> Cell {
        match this {
            Err(why) => Cell::Unable(why),
            Ok(Self { wrong: Some(why), .. }) => Cell::Wrong(why),
            Ok(mut entrant) => match median(&mut entrant.samples) {
                Some(ns) => Cell::Ns(ns),
                None => Cell::Unable("no rounds were asked for".into()),
            },
        }
    }
}

/// One call, over an output of zeroes as far as the function counts on them.
fn call(runner: &mut dyn Runner, task: &Task) -> Result<i64, String> {
    runner.output()[..task.zeroed_len].fill(0);
    runner.call()
}

/// What a call returned and wrote.
#[derive(PartialEq, Eq)]
struct Outcome {
    returned: i64,
    written: Vec<u8>,
}

impl Outcome {
    /// Calls once, over an output buffer that holds nothing of an earlier call.
    fn of(runner: &mut dyn Runner, task: &Task) -> Result<Self, String> {
        runner.output()[task.zeroed_len..].fill(0xa5);
        let returned = call(runner, task)?;
        let len = usize::try_from(returned)
            .ok()
            .filter(|len| *len <= task.out_cap)
            .ok_or_else(|| format!("returned {returned}, which is no output length"))?;
        Ok(Self { returned, written: runner.output()[..len].to_vec() })
    }
}

fn agree(expected: &Result<Outcome, String>, got: &Result<Outcome, String>) -> Result<(), String> {
    let expected = expected.as_ref().map_err(Clone::clone)?;
    let got = got.as_ref().map_err(Clone::clone)?;
    if got.returned != expected.returned {
        return Err(format!("returned {}, native code {}", got.returned, expected.returned));
    }
    match got.written.iter().zip(&expected.written).position(|(a, b)| a != b) {
        Some(at) => Err(format!("output differs from native code's at byte {at}")),
        None => Ok(()),
    }
}
