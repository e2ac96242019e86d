//! Loads of blocks that rarely run, made together.
//!
//! There every checked load calls out, which takes ten instructions, and most functions have such a copy of each
//! loop. Loads with nothing between them that could be seen from outside are listed, and the machine makes them
//! in one go, in their order: the first that is refused is the trap, as it would be one by one.

use super::{Result, Translator, argument_offset};
use crate::liveness::Form;
use cranelift_codegen::ir::{InstBuilder, types};
use diskside_sbpf::ir::{Block, Check, Op, Var};
use diskside_sbpf::machine::{LOADED_MAX, Machine};
use diskside_sbpf_native::callouts::{self, Access, BASES, ListedLoad, LoadList};
use std::mem::offset_of;

/// Lists that compiled code refers to. They stay where they are as long as the code.
#[allow(clippy::vec_box, reason = "the code has their addresses")]
pub(crate) type Lists = Vec<Box<LoadList>>;

/// The role of a checked load of a cold block.
#[derive(Clone, Debug)]
pub(super) enum Listed {
    /// It is the first of a list, for which it calls out.
    First { list: LoadList, bases: Vec<Var> },
    /// It takes its value from the list.
    Later { index: usize },
}

/// For each operation of a block, what it does if it is in a list.
pub(super) fn listed(block: &Block) -> Vec<Option<Listed>> {
    let mut found = vec![None; block.ops.len()];
    let mut open: Option<Open> = None;
    for (i, (op, insn)) in block.ops.iter().enumerate() {
        match *op {
            Op::Load { dst, base, off, size, signed, check } if !matches!(check, Check::Direct(_)) => {
                let access = Access { insn: *insn, size, signed };
                let mut list = match open.take() {
                    Some(open) if open.takes(base) => open,
                    other => {
                        close(other, &mut found);
                        Open::default()
                    }
                };
                list.add(i, base, off, access);
                list.written.push(dst);
                open = Some(list);
            }
            _ if is_unseen(op) => {
                if let (Some(open), Some(dst)) = (&mut open, op.dst()) {
                    open.written.push(dst);
                }
            }
            _ => close(open.take(), &mut found),
        }
        if let Some(full) = open.take_if(|o| o.at.len() == LOADED_MAX) {
            close(Some(full), &mut found);
        }
    }
    close(open, &mut found);
    found
}

/// A list that may get longer.
#[derive(Default)]
struct Open {
    list: LoadList,
    /// Which operations.
    at: Vec<usize>,
    bases: Vec<Var>,
    /// Variables that are not any more what they were at the first load.
    written: Vec<Var>,
}

impl Open {
    fn takes(&self, base: Var) -> bool {
        !self.written.contains(&base) && (self.bases.contains(&base) || self.bases.len() < BASES.len())
    }

    fn add(&mut self, at: usize, base: Var, off: i64, access: Access) {
        let index = self.bases.iter().position(|b| *b == base).unwrap_or_else(|| {
            self.bases.push(base);
            self.bases.len() - 1
        });
        self.list.loads.push(ListedLoad { base: index, off, access });
        self.at.push(at);
    }
}

/// A list of one would only be longer.
fn close(open: Option<Open>, found: &mut [Option<Listed>]) {
    let Some(Open { list, at, bases, .. }) = open.filter(|o| o.at.len() > 1) else {
        return;
    };
    for (index, &op) in at.iter().enumerate().skip(1) {
        found[op] = Some(Listed::Later { index });
    }
    found[at[0]] = Some(Listed::First { list, bases });
}

/// Whether a load may be made before the operation instead of after it.
fn is_unseen(op: &Op) -> bool {
    let pure = match op {
        Op::Load { check, .. } => matches!(check, Check::Direct(_)),
        Op::Mov { .. } | Op::MovSx { .. } | Op::MovZx { .. } | Op::Bin { .. } | Op::Neg { .. } | Op::End { .. } => true,
        Op::RegionLen { .. } | Op::Opaque { .. } => true,
        _ => false,
    };
    // When a load traps, it says what fuel there is.
    pure && op.dst() != Some(Var::FUEL)
}

impl Translator<'_> {
    /// A load that is in a list.
    pub(super) fn listed_load(&mut self, dst: Var, listed: Listed) {
        let index = match listed {
            Listed::First { list, bases } => {
                for (base, to) in bases.into_iter().zip(BASES) {
                    let address = self.read_full(base);
                    self.store_machine(address, argument_offset(to));
                }
                let list = Box::new(list);
                let at = (&raw const *list).expose_provenance();
                self.lists.push(list);
                let at = self.b.ins().iconst(types::I64, at as i64);
                self.store_machine(at, argument_offset(callouts::ACCESS));
                self.call_thunk(self.runtime.thunks.load_all);
                let done = self.b.create_block();
                self.return_to(done, &[]);
                self.enter_block(done);
                0
            }
            Listed::Later { index } => index,
        };
        if self.wanted(dst) != Form::Dead {
            let x = self.load_machine(types::I64, offset_of!(Machine, loaded) + index * size_of::<u64>());
            self.define(dst, Result::Full(x));
        }
    }
}
