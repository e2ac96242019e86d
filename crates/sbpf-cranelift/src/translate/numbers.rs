//! Variables as numbers.

use cranelift_codegen::ir::types;
use cranelift_frontend::{FunctionBuilder, Variable};
use diskside_sbpf::ir::{Func, Op};

/// The variables as numbers, in functions with floating point.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) double: Vec<Variable>,
    pub(super) single: Vec<Variable>,
}

impl Numbers {
    pub(super) fn new(func: &Func, b: &mut FunctionBuilder<'_>) -> Self {
        if !func.blocks.iter().flat_map(|b| &b.ops).any(|(op, _)| matches!(op, Op::Float { .. })) {
            return Self::default();
        }
        Self {
            double: (0..func.vars).map(|_| b.declare_var(types::F64)).collect(),
            single: (0..func.vars).map(|_| b.declare_var(types::F32)).collect(),
        }
    }
}
