//! Data flow over the graphs of all functions, to a fixpoint.
//!
//! A function is followed with the join of what its call sites pass; a call continues with the join
//! of what the callee returns. Every join goes up a lattice of small height, so this ends; a limit
//! on the steps keeps hostile programs short.

use super::report::{Findings, path_to};
use super::step::Here;
use super::structure::Code;
use super::value::{State, Value};
use super::{Base, Class, Contract, Diagnostic, Effects, Entry, STEPS_MIN, STEPS_PER_BLOCK, STEPS_PER_SLOT};
use crate::helpers::HelperSet;
use crate::image::{Image, Kind};
use crate::insn::{Insn, Operand};
use crate::interp::compare;
use crate::region::RegionId;
use std::collections::BTreeSet;

/// The inputs that the data flow does not change.
pub(super) struct Setting<'a> {
    pub(super) image: &'a Image,
    pub(super) kind: Kind,
    pub(super) contract: &'a Contract,
    pub(super) helpers: &'a HelperSet,
    pub(super) codes: &'a [Code<'a>],
    /// Declared bytes of a frame.
    pub(super) frame: i32,
    /// Whether stack addresses are assumed to be around.
    pub(super) addressable: bool,
}

/// The facts learnt about a function.
#[derive(Default)]
pub(super) struct Learnt {
    pub(super) bases: Vec<Base>,
    /// Bytes of the frame that constant offsets reach.
    pub(super) frame_used: u32,
    /// Any byte of the frame may be reached, not only those.
    pub(super) frame_escapes: bool,
}

/// The result of a run.
pub(super) struct Outcome {
    /// Problems, in order of the instructions.
    pub(super) found: Vec<Diagnostic>,
    /// By function.
    pub(super) learnt: Vec<Learnt>,
    pub(super) effects: Effects,
}

/// Why a run ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// A stack address is used as a value: start again assuming that.
    StackEscapes,
    /// Too many steps.
    TooComplex,
}

/// The data flow of one program.
pub(super) struct Flow<'a> {
    pub(super) setting: Setting<'a>,
    summaries: Vec<Summary>,
    steps: usize,
    steps_max: usize,
    returns_changed: bool,
    /// Facts of the last pass, which goes once over every reached instruction.
    pub(super) report: Option<Report<'a>>,
}

/// The findings that the last pass collects.
pub(super) struct Report<'a> {
    pub(super) findings: Findings<'a>,
    pub(super) learnt: Vec<Learnt>,
    pub(super) effects: Effects,
    /// The address of a global is taken somewhere; constants may hold the addresses of others.
    pub(super) names_globals: bool,
    /// Something is stored through a pointer of unknown origin.
    pub(super) wild_store: bool,
    /// Something is accessed through a pointer of unknown origin.
    pub(super) wild_access: bool,
}

#[derive(Default)]
struct Summary {
    /// Join of what the call sites pass.
    entry: Option<[Value; 5]>,
    /// The entry that `states` belongs to.
    followed: Option<[Value; 5]>,
    /// The round in which it was followed.
    round: usize,
    /// State at the head of each block that is reached.
    states: Vec<Option<State>>,
    /// Join over the exits; `None` when none is reached.
    returned: Option<Value>,
    /// An address of its frame goes where its offset is no longer known.
    frame_escapes: bool,
}

impl<'a> Flow<'a> {
    pub(super) fn new(setting: Setting<'a>) -> Self {
        let slots: usize = setting.codes.iter().map(|c| c.insns.len()).sum();
        let mut summaries: Vec<Summary> = Vec::new();
        summaries.resize_with(setting.codes.len(), Summary::default);
        summaries[0].entry = Some(setting.contract.params.map(|p| match p {
            Entry::Uninit => Value::Uninit,
            Entry::Scalar => Value::NUMBER,
            Entry::Region(RegionId::CONTEXT) => Value::Context(0),
            Entry::Context(at) => Value::Context(at as i32),
            Entry::Region(r) => Value::Region(r),
        }));
        Self {
            setting,
            summaries,
            steps: 0,
            steps_max: STEPS_MIN + slots * STEPS_PER_SLOT,
            returns_changed: false,
            report: None,
        }
    }

    /// Follows everything to the fixpoint, then goes over it once more to report.
    pub(super) fn run(mut self, findings: Findings<'a>) -> Result<Outcome, Stop> {
        let mut round = 1;
        loop {
            self.returns_changed = false;
            self.follow(0, round)?;
            if !self.returns_changed {
                break;
            }
            round += 1;
        }
        let learnt = self
            .setting
            .codes
            .iter()
            .map(|c| Learnt { bases: vec![Base::Unknown; c.insns.len()], ..Learnt::default() })
            .collect();
        self.report = Some(Report {
            findings,
            learnt,
            effects: Effects::default(),
            names_globals: false,
            wild_store: false,
            wild_access: false,
        });
        for f in 0..self.setting.codes.len() {
            for block in 0..self.summaries[f].states.len() {
                let Some(mut state) = self.summaries[f].states[block].clone() else {
                    continue;
                };
                self.block(f, block, &mut state, round)?;
            }
        }
        let mut report = self.report.expect("set above");
        for (learnt, summary) in report.learnt.iter_mut().zip(&self.summaries) {
            learnt.frame_escapes = summary.frame_escapes;
        }
        let mut effects = report.effects;
        let has_globals = !self.setting.image.data.is_empty();
        // A pointer of unknown origin may be any that the program ever had.
        effects.writes_globals |= has_globals && report.names_globals && report.wild_store;
        let state = Entry::Region(RegionId::STATE);
        effects.uses_state |= self.setting.contract.params.contains(&state) && report.wild_access;
        Ok(Outcome { found: report.findings.into_vec(), learnt: report.learnt, effects })
    }

    /// Brings a function up to date with its entry.
    fn follow(&mut self, f: usize, round: usize) -> Result<(), Stop> {
        let entry = self.summaries[f].entry.expect("followed when called");
        let summary = &mut self.summaries[f];
        if summary.followed == Some(entry) && summary.round == round {
            return Ok(());
        }
        summary.followed = Some(entry);
        summary.round = round;
        let blocks = self.setting.codes[f].cfg.blocks.len();
        // The lower states stay below the new fixpoint, so the work done is kept.
        let mut states = std::mem::take(&mut summary.states);
        let mut pending = BTreeSet::new();
        if states.is_empty() {
            states = vec![None; blocks];
        } else {
            // A callee may return more than it did.
            pending.extend((0..blocks).filter(|&b| states[b].is_some()));
        }
        match &mut states[0] {
            Some(head) => {
                head.join(&State::entry(entry));
            }
            head => *head = Some(State::entry(entry)),
        }
        pending.insert(0);
        while let Some(block) = pending.pop_first() {
            let Some(mut state) = states[block].clone() else {
                continue;
            };
            if !self.block(f, block, &mut state, round)? {
                continue;
            }
            let code = &self.setting.codes[f];
            let only = decided(code, block, &state);
            let successors = &code.cfg.blocks[block].successors;
            for (edge, &next) in successors.iter().enumerate() {
                if only.is_some_and(|only| only != edge) {
                    continue;
                }
                let changed = match &mut states[next] {
                    Some(head) => {
                        let joined = head.join(&state);
                        self.summaries[f].frame_escapes |= joined.blurred;
                        if joined.lost {
                            self.lose(f)?;
                        }
                        joined.changed
                    }
                    head => {
                        *head = Some(state.clone());
                        true
                    }
                };
                if changed {
                    pending.insert(next);
                }
            }
        }
        self.summaries[f].states = states;
        Ok(())
    }

    /// Follows a block. False when control does not reach its end as far as is known now.
    fn block(&mut self, f: usize, block: usize, state: &mut State, round: usize) -> Result<bool, Stop> {
        let code = &self.setting.codes[f];
        let (start, end) = (code.cfg.blocks[block].start, code.cfg.blocks[block].end);
        if self.report.is_none() {
            self.steps += STEPS_PER_BLOCK + end - start;
            if self.steps > self.steps_max {
                return Err(Stop::TooComplex);
            }
        }
        for at in start..end {
            let Some(insn) = self.setting.codes[f].insns[at] else {
                continue;
            };
            let here = Here { f, block, at };
            if !self.step(here, insn, state, round)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Calls a function of the program: what it returns, `None` if it does not as far as is known.
    pub(super) fn call(&mut self, callee: usize, params: [Value; 5], round: usize) -> Result<Option<Value>, Stop> {
        if self.report.is_none() {
            let summary = &mut self.summaries[callee];
            let entry = match summary.entry {
                None => params,
                Some(known) => std::array::from_fn(|i| known[i].join(params[i])),
            };
            summary.entry = Some(entry);
            self.follow(callee, round)?;
        }
        Ok(self.summaries[callee].returned)
    }

    /// Notes what a function returns.
    pub(super) fn exit(&mut self, f: usize, value: Value) {
        let returned = &mut self.summaries[f].returned;
        let joined = returned.map_or(value, |r| r.join(value));
        if *returned != Some(joined) {
            *returned = Some(joined);
            self.returns_changed = true;
        }
    }

    /// A value is used otherwise than as a base with a constant offset: if it may be the address of a
    /// stack slot, the stack has to have addresses.
    pub(super) fn escape(&mut self, f: usize, value: Value) -> Result<(), Stop> {
        if value.may_be_stack() {
            self.need_addresses()?;
            self.leak(f, value);
        }
        Ok(())
    }

    /// As [`Flow::escape`], of an address of the function's own frame that is no longer followed.
    pub(super) fn lose(&mut self, f: usize) -> Result<(), Stop> {
        self.escape(f, Value::Frame(0))
    }

    /// The stack has to have addresses.
    pub(super) fn need_addresses(&self) -> Result<(), Stop> {
        if self.setting.addressable { Ok(()) } else { Err(Stop::StackEscapes) }
    }

    /// Where this value goes its offset is no longer known: if it is an address of the function's own
    /// frame, all of the frame may be reached.
    pub(super) fn leak(&mut self, f: usize, value: Value) {
        self.summaries[f].frame_escapes |= matches!(value, Value::Frame(_));
    }

    /// Somebody may have written anywhere on the stack.
    pub(super) fn distrust_slots(&mut self, f: usize, state: &mut State) {
        if self.setting.addressable {
            self.summaries[f].frame_escapes |= state.distrust_slots();
        }
    }

    /// The value that a function is known to return.
    pub(super) fn returned(&self, f: usize) -> Option<Value> {
        self.summaries[f].returned
    }

    /// Adds a finding, in the last pass.
    pub(super) fn find(&mut self, here: Here, code: &'static str, reason: impl FnOnce() -> String, suggestion: &str) {
        self.find_of_class(here, code, Class::Unsafe, reason, suggestion);
    }

    /// Adds a finding of another class.
    pub(super) fn find_of_class(
        &mut self,
        here: Here,
        code: &'static str,
        class: Class,
        reason: impl FnOnce() -> String,
        suggestion: &str,
    ) {
        let function = &self.setting.codes[here.f];
        let Some(report) = &mut self.report else {
            return;
        };
        if report.findings.is_full() {
            return;
        }
        let start = function.symbol.start;
        let path =
            path_to(&function.cfg, here.block).into_iter().map(|b| start + function.cfg.blocks[b].start).collect();
        let insn = Some(start + here.at);
        report.findings.add_with_path(code, class, insn, reason(), suggestion, path);
    }
}

/// The only edge that a branch on constants takes.
fn decided(code: &Code<'_>, block: usize, state: &State) -> Option<usize> {
    let last = code.cfg.blocks[block].end.checked_sub(1)?;
    let Some(Insn::Jmp { width, cond, dst, src, .. }) = code.insns[last] else {
        return None;
    };
    let constant = |value| match value {
        Value::Scalar(n) => n,
        _ => None,
    };
    let a = constant(state.reg(dst.0))?;
    let b = match src {
        Operand::Reg(r) => constant(state.reg(r.0))?,
        Operand::Imm(n) => i64::from(n),
    };
    // Fall-through first.
    Some(usize::from(compare(width, cond, a as u64, b as u64)))
}
