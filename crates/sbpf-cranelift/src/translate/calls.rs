//! Ways out of the function: helpers, local calls, the end of a slice.

use super::{Result, Translator, argument_offset, native_signature, trusted};
use crate::liveness::Form;
use crate::runtime::{CALL_CONV, thunk_signature};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self as clif, AbiParam, ExtFuncData, ExternalName, InstBuilder, Signature, UserExternalName, types,
};
use diskside_sbpf::ir::Var;
use diskside_sbpf::machine::Machine;
use diskside_sbpf::region::RegionId;
use diskside_sbpf_native::callouts;
use std::mem::offset_of;

/// Longest frame that is zeroed inline.
const ZERO_INLINE_LEN_MAX: u64 = 256;

impl Translator<'_> {
    pub(super) fn call_helper(&mut self, import: u32, insn: u32) {
        for (i, r) in (1..=5).enumerate() {
            let arg = self.read_full(Var(r));
            self.store_machine(arg, argument_offset(i));
        }
        if self.counts {
            self.store_fuel();
        }
        let mut signature = Signature::new(CALL_CONV);
        signature.params = vec![AbiParam::new(types::I64), AbiParam::new(types::I32), AbiParam::new(types::I32)];
        signature.returns = vec![AbiParam::new(types::I32)];
        let signature = self.b.import_signature(signature);
        let target = callouts::helper as *const () as usize as i64;
        let target = self.b.ins().iconst(types::I64, target);
        let import = self.constant(types::I32, i64::from(import));
        let insn = self.constant(types::I32, i64::from(insn));
        let call = self.b.ins().call_indirect(signature, target, &[self.machine, import, insn]);
        let status = self.b.inst_results(call)[0];
        self.continue_unless(status);
        let result = if self.wanted(Var::R0) == Form::Dead {
            None
        } else {
            Some(self.load_machine(types::I64, offset_of!(Machine, result)))
        };
        self.returned(result);
    }

    pub(super) fn call_local(&mut self, function: u32) {
        if self.counts {
            self.store_fuel();
        }
        let callee = &self.module.functions[function as usize];
        let mut args = vec![self.machine];
        for r in 1..=5 {
            args.push(self.read_full(Var(r)));
        }
        let fp = self.read_full(Var::FP);
        args.push(self.b.ins().iadd_imm_s(fp, callee.frame_len as i64));
        let signature = self.b.import_signature(native_signature());
        let name = UserExternalName::new(0, function);
        let name = self.b.func.declare_imported_user_function(name);
        let target = self.b.import_function(ExtFuncData {
            name: ExternalName::user(name),
            signature,
            colocated: true,
            patchable: false,
        });
        let call = self.b.ins().call(target, &args);
        let (status, value) = match *self.b.inst_results(call) {
            [status, value] => (status, value),
            _ => unreachable!("the signature has two results"),
        };
        self.continue_unless(status);
        self.returned(Some(value));
    }

    /// Asks for fuel. The machine's values afterwards are right whether it trapped or not.
    pub(super) fn refill(&mut self, insn: u32) {
        self.store_fuel();
        let insn = self.constant(types::I64, i64::from(insn));
        self.store_machine(insn, argument_offset(callouts::ACCESS));
        self.call_thunk(self.runtime.thunks.refill);
        let status = self.thunk_status();
        self.continue_unless(status);
        self.load_fuel();
    }

    /// Writes zeros to `[r10 - len, r10)`.
    pub(super) fn zero_frame(&mut self, len: u64) {
        let fp = self.read_full(Var::FP);
        let end = self.host_address(RegionId::STACK, fp);
        if len <= ZERO_INLINE_LEN_MAX {
            let zero = self.b.ins().iconst(types::I64, 0);
            let wide = self.b.ins().splat(types::I64X2, zero);
            let mut at = 0;
            while at < len {
                let (value, step) = if len - at >= 16 { (wide, 16) } else { (zero, 8) };
                let offset = at as i32 - len as i32;
                self.b.ins().store(trusted(), value, end, offset);
                at += step;
            }
            return;
        }
        let mut signature = Signature::new(CALL_CONV);
        signature.params = vec![AbiParam::new(types::I64); 2];
        let signature = self.b.import_signature(signature);
        let start = self.b.ins().iadd_imm_s(end, -(len as i64));
        let len = self.b.ins().iconst(types::I64, len as i64);
        let target = callouts::zero as *const () as usize as i64;
        let target = self.b.ins().iconst(types::I64, target);
        self.b.ins().call_indirect(signature, target, &[start, len]);
    }

    /// Calls code that takes everything from the machine and changes no register.
    pub(super) fn call_thunk(&mut self, address: u64) {
        let signature = *self.thunk.get_or_insert_with(|| self.b.import_signature(thunk_signature()));
        let target = self.b.ins().iconst(types::I64, address as i64);
        self.b.ins().call_indirect(signature, target, &[self.machine]);
    }

    /// How the last thunk ended: zero for well.
    pub(super) fn thunk_status(&mut self) -> clif::Value {
        self.load_machine(types::I64, argument_offset(callouts::STATUS))
    }

    /// Goes on in a new block when the status is zero, else returns it; the machine has the fuel.
    fn continue_unless(&mut self, status: clif::Value) {
        let trap = self.plain_trap();
        let next = self.b.create_block();
        let trapped = self.b.ins().icmp_imm_s(IntCC::NotEqual, status, 0);
        self.b.ins().brif(trapped, trap, &[], next, &[]);
        self.enter_block(next);
    }

    /// After a call: its result, zeroed arguments, its fuel, and regions that it may have grown.
    fn returned(&mut self, value: Option<clif::Value>) {
        if self.counts {
            self.load_fuel();
        }
        self.reload_regions();
        if let Some(value) = value {
            self.define(Var::R0, Result::Full(value));
        }
        self.zero_arguments();
    }

    /// `r1` to `r5` are 0 after a call.
    pub(super) fn zero_arguments(&mut self) {
        for r in 1..=5 {
            if self.wanted(Var(r)) != Form::Dead {
                let zero = self.b.ins().iconst(types::I64, 0);
                self.define(Var(r), Result::Full(zero));
            }
        }
    }
}
