//! Registers that are read before they are set: where that began, and the path from there.

use super::Class;
use super::flow::Flow;
use super::report::path_to;
use super::step::Here;
use super::structure::Code;
use super::value::Value;
use crate::insn::{AtomicOp, CallTarget, Insn, Reg};
use std::collections::VecDeque;

/// The place where a register became unset.
enum Origin {
    /// It was so on entry.
    Entry,
    /// This call left it so.
    Call(usize),
}

/// The last effect of a stretch of code on a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    Sets,
    Unsets(usize),
}

impl Flow<'_> {
    /// Says that `r` is read unset.
    pub(super) fn report_unset(&mut self, here: Here, r: Reg) {
        if self.report.as_ref().is_none_or(|r| r.findings.is_full()) {
            return;
        }
        let code = &self.setting.codes[here.f];
        let (origin, path) = self.origin(code, here, r);
        let name = &code.symbol.name;
        let is_exit = matches!(code.insns[here.at], Some(Insn::Exit));
        let (number, reason, suggestion) = match origin {
            Origin::Call(at) if r == Reg::R0 => (
                "V0305",
                format!(
                    "r0 is read after the call of `{}`, which does not set it on every path",
                    self.callee_name(code, at)
                ),
                "return a value on every path of the called function",
            ),
            Origin::Call(at) => (
                "V0301",
                format!("{r} is read after the call at {}, which leaves r1 to r5 unset", code.symbol.start + at),
                "keep what must survive a call in r6 to r9 or on the stack",
            ),
            Origin::Entry if here.f != 0 && (1..=5).contains(&r.0) => (
                "V0302",
                format!("{r} is read, but not every caller of `{name}` sets it"),
                "pass every argument that the function reads",
            ),
            Origin::Entry if (1..=5).contains(&r.0) && !self.is_set_anywhere(code, r) => (
                "V0301",
                format!("{r} is read before it is set; kind `{}` does not pass it", self.setting.kind.name()),
                "declare only the parameters that the kind has",
            ),
            Origin::Entry if r == Reg::R0 && is_exit => {
                ("V0304", "r0 is not set when the program exits".to_owned(), "return a value on every path")
            }
            Origin::Entry => (
                "V0301",
                format!("{r} is read before it is set"),
                "set the register on every path; in C, initialise the variable",
            ),
        };
        let path = path.into_iter().map(|b| code.symbol.start + code.cfg.blocks[b].start).collect();
        let insn = Some(code.symbol.start + here.at);
        if let Some(report) = &mut self.report {
            report.findings.add_with_path(number, Class::Unsafe, insn, reason, suggestion, path);
        }
    }

    /// The place where `r` became unset, and the blocks on a path from the entry through there to `here`.
    fn origin(&self, code: &Code<'_>, here: Here, r: Reg) -> (Origin, Vec<usize>) {
        let blocks = &code.cfg.blocks;
        let direct = |block| path_to(&code.cfg, block);
        let start = blocks[here.block].start;
        if let Event::Unsets(at) = self.event(code, start, here.at, r) {
            return (Origin::Call(at), direct(here.block));
        }
        // Backwards from the read, through blocks that do nothing to the register.
        let mut predecessors = vec![Vec::new(); blocks.len()];
        for (b, block) in blocks.iter().enumerate() {
            for &next in &block.successors {
                predecessors[next].push(b);
            }
        }
        let mut towards: Vec<Option<usize>> = vec![None; blocks.len()];
        let mut queue = VecDeque::from([here.block]);
        let trail = |towards: &[Option<usize>], from: usize| {
            let mut trail = vec![from];
            let mut at = from;
            while let Some(next) = towards[at] {
                trail.push(next);
                at = next;
                if at == here.block {
                    break;
                }
            }
            trail
        };
        while let Some(block) = queue.pop_front() {
            if block == 0 {
                return (Origin::Entry, trail(&towards, 0));
            }
            for &before in &predecessors[block] {
                if towards[before].is_some() {
                    continue;
                }
                match self.event(code, blocks[before].start, blocks[before].end, r) {
                    Event::Nothing if before == here.block => {}
                    Event::Sets => {}
                    Event::Nothing => {
                        towards[before] = Some(block);
                        queue.push_back(before);
                    }
                    Event::Unsets(at) => {
                        let mut path = direct(before);
                        if before == here.block {
                            // Once around the loop.
                            path.extend(trail(&towards, block));
                            return (Origin::Call(at), path);
                        }
                        towards[before] = Some(block);
                        path.pop();
                        path.extend(trail(&towards, before));
                        return (Origin::Call(at), path);
                    }
                }
            }
        }
        (Origin::Entry, direct(here.block))
    }

    fn event(&self, code: &Code<'_>, start: usize, end: usize, r: Reg) -> Event {
        (start..end)
            .rev()
            .find_map(|at| match self.effect(code, at, code.insns[at]?, r) {
                Event::Nothing => None,
                event => Some(event),
            })
            .unwrap_or(Event::Nothing)
    }

    fn effect(&self, code: &Code<'_>, at: usize, insn: Insn, r: Reg) -> Event {
        let sets = match insn {
            Insn::Alu { dst, .. }
            | Insn::Mov { dst, .. }
            | Insn::MovSx { dst, .. }
            | Insn::Neg { dst, .. }
            | Insn::End { dst, .. }
            | Insn::LoadImm64 { dst, .. }
            | Insn::Load { dst, .. } => dst == r,
            Insn::Atomic { op: AtomicOp::Cmpxchg, .. } => r == Reg::R0,
            Insn::Atomic { fetch, src, .. } => fetch && src == r,
            Insn::Call { .. } if (1..=5).contains(&r.0) => return Event::Unsets(at),
            Insn::Call { target: CallTarget::Local(_) } if r == Reg::R0 => {
                let callee = code.callees.get(&at);
                return match callee.and_then(|&c| self.returned(c)) {
                    Some(Value::Uninit) => Event::Unsets(at),
                    _ => Event::Sets,
                };
            }
            Insn::Call { .. } => r == Reg::R0,
            Insn::Store { .. } | Insn::Ja { .. } | Insn::Jmp { .. } | Insn::Exit => false,
        };
        if sets { Event::Sets } else { Event::Nothing }
    }

    fn is_set_anywhere(&self, code: &Code<'_>, r: Reg) -> bool {
        (0..code.insns.len()).any(|at| code.insns[at].is_some_and(|insn| self.effect(code, at, insn, r) == Event::Sets))
    }

    fn callee_name(&self, code: &Code<'_>, at: usize) -> &str {
        code.callees.get(&at).map_or("?", |&c| self.setting.codes[c].symbol.name.as_str())
    }
}
