//! Ways out of the function: helpers, local calls, the end of a slice.

use super::{Computed, FunctionEmitter, symbol};
use diskside_sbpf::ir::Var;
use diskside_sbpf::machine::Machine;
use diskside_sbpf_native::callouts;
use std::mem::offset_of;

impl FunctionEmitter<'_> {
    pub(super) fn call_helper(&mut self, import: u32) {
        for (i, r) in (1..=5).enumerate() {
            let arg = self.read_full(Var(r));
            self.store_machine(&arg, argument_offset(i));
        }
        self.store_fuel();
        let insn = self.insn;
        let status = self.value(format_args!("call i32 @ds_helper(ptr %m, i32 {import}, i32 {insn}) #2"));
        let well = self.value(format_args!("icmp eq i32 {status}, 0"));
        self.continue_or_trap(&well);
        let result = self.load_machine(offset_of!(Machine, result));
        self.returned(result);
    }

    pub(super) fn call_local(&mut self, function: u32) {
        self.store_fuel();
        let callee = &self.module.functions[function as usize];
        let mut args = String::from("ptr %m");
        for r in 1..=5 {
            let arg = self.read_full(Var(r));
            args.push_str(&format!(", i64 {arg}"));
        }
        let fp = self.read_full(Var::FP);
        let fp = self.value(format_args!("add i64 {fp}, {}", callee.frame_len));
        let name = symbol(function as usize);
        let outcome = self.value(format_args!("call {{ i64, i64 }} @{name}({args}, i64 {fp}) #2"));
        let status = self.value(format_args!("extractvalue {{ i64, i64 }} {outcome}, 0"));
        let well = self.value(format_args!("icmp eq i64 {status}, 0"));
        self.continue_or_trap(&well);
        let result = self.value(format_args!("extractvalue {{ i64, i64 }} {outcome}, 1"));
        self.returned(result);
    }

    /// Asks for fuel. The machine's values afterwards are right whether it trapped or not.
    pub(super) fn refill(&mut self) {
        self.store_fuel();
        let insn = self.insn.to_string();
        self.store_machine(&insn, argument_offset(callouts::ACCESS));
        self.line(format_args!("call void @ds_refill(ptr %m) #1"));
        let status = self.load_machine(argument_offset(callouts::STATUS));
        let well = self.value(format_args!("icmp eq i64 {status}, 0"));
        self.continue_or_trap(&well);
        self.load_fuel();
    }

    /// Goes on when all is well, else returns the trap; the machine has the fuel.
    fn continue_or_trap(&mut self, well: &str) {
        let (trap, next) = (self.fresh_label(), self.fresh_label());
        let often = self.metadata.often;
        self.line(format_args!("br i1 {well}, label %{next}, label %{trap}, !prof !{often}"));
        self.label(&trap);
        self.return_trapped();
        self.label(&next);
    }

    /// After a call: its fuel, its result, zeroed arguments.
    fn returned(&mut self, result: String) {
        self.load_fuel();
        self.define(Var::R0, Computed::Full(result));
        self.zero_arguments();
    }

    /// `r1` to `r5` are 0 after a call.
    pub(super) fn zero_arguments(&mut self) {
        for r in 1..=5 {
            self.define(Var(r), Computed::Low("0".into()));
        }
    }
}

/// Where an element of [`Machine::args`] is.
pub(super) fn argument_offset(i: usize) -> usize {
    offset_of!(Machine, args) + i * size_of::<u64>()
}
