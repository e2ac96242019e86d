//! From the checked IR to LLVM's, as text.
//!
//! A native function has the signature that [`diskside_sbpf_native`] gives. Variables live in stack
//! slots that LLVM turns into values at once. Loops vectorise for these reasons:
//!
//! - A proved access is an element address from its region's base, in bounds; regions are disjoint
//!   memory, which the accesses say by alias scopes.
//! - 32-bit values stay 32-bit: see `narrow`.
//! - Fuel is counted down without wrapping, and says so. Fast loops end when a variable that they step
//!   equals a limit, which LLVM counts by itself.
//!
//! Every fact that LLVM gets is one that the checked IR proves; each is stated where it is emitted. Regions that others
//! may write at the same time are accessed by volatile operations, which LLVM may neither repeat nor invent.

mod alu;
mod calls;
mod float;
mod memory;
mod narrow;

use crate::remarks::{RARE_COLUMN, USUAL_COLUMN};
use diskside_sbpf::insn::{Cond, Width};
use diskside_sbpf::ir::{Block, BlockId, Check, Func, Module, Op, Term, Value, Var};
use diskside_sbpf::machine::{Machine, SLICE_EDGES, Status};
use diskside_sbpf::region::RegionId;
use float::Numbers;
use narrow::{Narrow, narrow_at_entry};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::mem::offset_of;

/// The symbol of the entry function.
pub(crate) const ENTRY: &str = "ds_entry";

/// The text of a module. The line of a location is the instruction slot plus one.
pub(crate) fn emit(module: &Module) -> String {
    let regions = regions(module);
    let mut out = String::with_capacity(64 << 10);
    out.push_str(PRELUDE);
    let mut metadata = Metadata::new(&regions);
    for index in 0..module.functions.len() {
        FunctionEmitter::new(module, index, &regions, &mut out, &mut metadata).emit();
    }
    metadata.write(&mut out);
    out
}

/// The names that the text refers to outside of itself; [`crate::link`] knows the addresses.
const PRELUDE: &str = "\
declare void @ds_load(ptr) #1
declare void @ds_store(ptr) #1
declare void @ds_resolve_atomic(ptr) #1
declare void @ds_refill(ptr) #1
declare i32 @ds_helper(ptr, i32, i32) #2
declare i64 @llvm.umin.i64(i64, i64)
declare i16 @llvm.bswap.i16(i16)
declare i32 @llvm.bswap.i32(i32)
declare i64 @llvm.bswap.i64(i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
attributes #0 = { nounwind \"probe-stack\"=\"inline-asm\" }
attributes #1 = { nounwind cold }
attributes #2 = { nounwind }
";

/// Regions that the text names.
fn regions(module: &Module) -> BTreeSet<RegionId> {
    let mut all = BTreeSet::new();
    for (op, _) in module.functions.iter().flat_map(|f| &f.blocks).flat_map(|b| &b.ops) {
        match *op {
            Op::Load { check: Check::Direct(r) | Check::Hinted(r), .. }
            | Op::Store { check: Check::Direct(r) | Check::Hinted(r), .. } => {
                all.insert(r);
            }
            Op::RegionLen { region, .. } => {
                all.insert(region);
            }
            Op::ZeroFrame { .. } => {
                all.insert(RegionId::STACK);
            }
            _ => {}
        }
    }
    all
}

/// Whether another thread, process or host may write the region during a call.
pub(super) fn is_shared(region: RegionId) -> bool {
    region == RegionId::STATE || region.0 >= RegionId::RANGE_FIRST.0
}

/// Numbered metadata of the module: alias scopes and locations.
struct Metadata {
    text: String,
    next: u32,
    /// `alias.scope` and `noalias` of each region's accesses.
    scopes: BTreeMap<RegionId, (u32, u32)>,
    fuel_range: u32,
    rarely: u32,
    often: u32,
    file: u32,
    unit: u32,
    subroutine_type: u32,
}

impl Metadata {
    fn new(regions: &BTreeSet<RegionId>) -> Self {
        let mut m = Self {
            text: String::new(),
            next: 0,
            scopes: BTreeMap::new(),
            fuel_range: 0,
            rarely: 0,
            often: 0,
            file: 0,
            unit: 0,
            subroutine_type: 0,
        };
        let domain = m.next;
        m.node(format_args!("distinct !{{!{domain}, !\"regions\"}}"));
        let private: Vec<RegionId> = regions.iter().copied().filter(|r| !is_shared(*r)).collect();
        let scopes: BTreeMap<RegionId, u32> = private
            .iter()
            .map(|&r| {
                let own = m.next;
                (r, m.node(format_args!("distinct !{{!{own}, !{domain}, !\"{r}\"}}")))
            })
            .collect();
        for &r in &private {
            let scope = m.node(format_args!("!{{!{}}}", scopes[&r]));
            let others: Vec<String> =
                scopes.iter().filter(|(other, _)| **other != r).map(|(_, s)| format!("!{s}")).collect();
            let noalias = m.node(format_args!("!{{{}}}", others.join(", ")));
            m.scopes.insert(r, (scope, noalias));
        }
        m.fuel_range = m.node(format_args!("!{{i64 0, i64 {}}}", SLICE_EDGES + 1));
        m.rarely = m.node(format_args!("!{{!\"branch_weights\", i32 1, i32 2000}}"));
        m.often = m.node(format_args!("!{{!\"branch_weights\", i32 2000, i32 1}}"));
        m.file = m.node(format_args!("!DIFile(filename: \"program\", directory: \"\")"));
        let file = m.file;
        m.unit =
            m.node(format_args!("distinct !DICompileUnit(language: DW_LANG_C, file: !{file}, emissionKind: NoDebug)"));
        m.subroutine_type = m.node(format_args!("!DISubroutineType(types: !{{}})"));
        m
    }

    fn node(&mut self, body: fmt::Arguments<'_>) -> u32 {
        let id = self.next;
        self.next += 1;
        let _ = writeln!(self.text, "!{id} = {body}");
        id
    }

    fn write(&mut self, out: &mut String) {
        let version = self.node(format_args!("!{{i32 2, !\"Debug Info Version\", i32 3}}"));
        let _ = writeln!(out, "!llvm.dbg.cu = !{{!{}}}\n!llvm.module.flags = !{{!{version}}}", self.unit);
        out.push_str(&self.text);
    }
}

struct FunctionEmitter<'a> {
    module: &'a Module,
    func: &'a Func,
    index: usize,
    regions: &'a BTreeSet<RegionId>,
    out: &'a mut String,
    metadata: &'a mut Metadata,
    subprogram: u32,
    /// Locations by instruction slot and column.
    locations: BTreeMap<(u32, u32), u32>,
    next: u32,
    insn: u32,
    /// Which variables hold 32 bits at most, here.
    narrow: Narrow,
    numbers: Numbers,
    /// Block whose operations are emitted.
    block: &'a Block,
    /// Where a refused access of this block goes.
    access_trap: Option<String>,
}

/// A computed value: 64 bits, or the low half of something whose high half is zero.
enum Computed {
    Full(String),
    Low(String),
}

impl<'a> FunctionEmitter<'a> {
    fn new(
        module: &'a Module,
        index: usize,
        regions: &'a BTreeSet<RegionId>,
        out: &'a mut String,
        metadata: &'a mut Metadata,
    ) -> Self {
        let func = &module.functions[index];
        let Metadata { file, unit, subroutine_type, .. } = *metadata;
        let subprogram = metadata.node(format_args!(
            "distinct !DISubprogram(name: \"f{index}\", file: !{file}, line: 1, type: !{subroutine_type}, \
             spFlags: DISPFlagDefinition, unit: !{unit})"
        ));
        Self {
            module,
            func,
            index,
            regions,
            out,
            metadata,
            subprogram,
            locations: BTreeMap::new(),
            next: 0,
            insn: 0,
            narrow: Narrow::new(),
            numbers: Numbers::of(func),
            block: &func.blocks[0],
            access_trap: None,
        }
    }

    fn emit(mut self) {
        let linkage = if self.index == 0 { "" } else { "internal " };
        // The machine is reached by no other pointer: regions are memory of their own.
        let _ = writeln!(
            self.out,
            "define {linkage}{{ i64, i64 }} @{}(ptr noalias noundef nonnull align 8 %m, i64 %r1, i64 %r2, i64 %r3, \
             i64 %r4, i64 %r5, i64 %r10) #0 !dbg !{} {{",
            symbol(self.index),
            self.subprogram
        );
        self.prologue();
        let at_entry = narrow_at_entry(self.func);
        for (i, narrow) in at_entry.into_iter().enumerate() {
            self.narrow = narrow;
            self.emit_block(i);
        }
        self.out.push_str("}\n");
    }

    fn prologue(&mut self) {
        self.insn = self.func.blocks[0].term_insn;
        for v in 0..self.func.vars {
            let _ = writeln!(self.out, "  %v{v} = alloca i64\n  %w{v} = alloca i32");
            self.declare_numbers(v);
        }
        for v in 0..self.func.vars {
            match v {
                1..=5 | 10 => self.define(Var(v), Computed::Full(format!("%r{v}"))),
                _ if Var(v) == Var::FUEL => {}
                _ => self.define(Var(v), Computed::Low("0".into())),
            }
        }
        self.load_fuel();
        self.load_regions();
        self.line(format_args!("br label %b0"));
    }

    fn emit_block(&mut self, index: usize) {
        let func = self.func;
        self.block = &func.blocks[index];
        let _ = writeln!(self.out, "b{index}:");
        for (op, insn) in &self.block.ops {
            self.insn = *insn;
            self.op(op);
            narrow::step(op, &mut self.narrow);
        }
        self.insn = self.block.term_insn;
        self.term(self.block.term);
        if let Some(trap) = self.access_trap.take() {
            self.label(&trap);
            self.store_fuel();
            self.return_trapped();
        }
    }

    fn op(&mut self, op: &Op) {
        match *op {
            Op::Mov { width, dst, src } => {
                self.mov(width, dst, src);
                if let Value::Var(src) = src {
                    self.copy_numbers(width, dst, src);
                }
            }
            Op::Opaque { dst, src, bits } => self.opaque(dst, src, bits),
            Op::MovSx { width, dst, src, bits } => self.mov_sx(width, dst, src, bits),
            Op::MovZx { dst, src, bits } => {
                self.mov_zx(dst, src, bits);
                if let (Value::Var(src), 32) = (src, bits) {
                    self.copy_numbers(Width::W32, dst, src);
                }
            }
            Op::Bin { op, dst, lhs, rhs } => self.bin(op, dst, lhs, rhs),
            Op::Neg { width, dst, src } => self.neg(width, dst, src),
            Op::End { order, dst, src, bits } => self.byte_order(order, dst, src, bits),
            Op::Load { .. } | Op::Store { .. } | Op::Atomic { .. } => self.access(op),
            Op::CallHelper { import } => self.call_helper(import),
            Op::CallLocal { function } => self.call_local(function),
            Op::Float { op } => self.float(op),
            Op::ZeroFrame { len } => self.zero_frame(len),
            Op::RegionLen { dst, region, write } => {
                let len = self.region_len(region, write);
                self.define(dst, Computed::Full(len));
            }
            Op::Refill => self.refill(),
        }
    }

    fn term(&mut self, term: Term) {
        match term {
            Term::Jump(to) => self.line(format_args!("br label %b{}", to.0)),
            Term::Branch { width, cond, lhs, rhs, then, otherwise } => {
                let condition = self.condition(width, cond, lhs, rhs);
                let weights = self.weights(then, otherwise);
                self.line(format_args!("br i1 {condition}, label %b{}, label %b{}{weights}", then.0, otherwise.0));
            }
            Term::Return => {
                self.store_fuel();
                let value = self.read_full(Var::R0);
                let returned = Status::Returned as u64;
                let pair =
                    self.value(format_args!("insertvalue {{ i64, i64 }} {{ i64 {returned}, i64 0 }}, i64 {value}, 1"));
                self.line(format_args!("ret {{ i64, i64 }} {pair}"));
            }
        }
    }

    fn weights(&self, then: BlockId, otherwise: BlockId) -> String {
        let cold = |b: BlockId| self.func.blocks[b.0 as usize].cold;
        match (cold(then), cold(otherwise)) {
            (true, false) => format!(", !prof !{}", self.metadata.rarely),
            (false, true) => format!(", !prof !{}", self.metadata.often),
            _ => String::new(),
        }
    }

    fn condition(&mut self, width: Width, cond: Cond, lhs: Var, rhs: Value) -> String {
        let ty = type_of(width);
        let l = self.read_as(width, lhs.into());
        let r = self.read_as(width, rhs);
        let predicate = match cond {
            Cond::Eq => "eq",
            Cond::Ne => "ne",
            Cond::Gt => "ugt",
            Cond::Ge => "uge",
            Cond::Lt => "ult",
            Cond::Le => "ule",
            Cond::SGt => "sgt",
            Cond::SGe => "sge",
            Cond::SLt => "slt",
            Cond::SLe => "sle",
            Cond::Set => {
                let common = self.value(format_args!("and {ty} {l}, {r}"));
                return self.value(format_args!("icmp ne {ty} {common}, 0"));
            }
        };
        self.value(format_args!("icmp {predicate} {ty} {l}, {r}"))
    }

    /// Gives a variable a value, in both shadows.
    fn define(&mut self, v: Var, x: Computed) {
        let v = v.0;
        let (full, low) = match x {
            Computed::Full(full) => {
                let low = self.value(format_args!("trunc i64 {full} to i32"));
                (full, low)
            }
            Computed::Low(low) => {
                let full = self.value(format_args!("zext i32 {low} to i64"));
                (full, low)
            }
        };
        self.line(format_args!("store i64 {full}, ptr %v{v}"));
        self.line(format_args!("store i32 {low}, ptr %w{v}"));
        self.define_numbers(v, &full, &low);
    }

    /// Defines from a result of this width; one of 32 bits is zero-extended.
    fn define_as(&mut self, width: Width, v: Var, x: String) {
        self.define(v, if width == Width::W64 { Computed::Full(x) } else { Computed::Low(x) });
    }

    fn read_full(&mut self, v: Var) -> String {
        if self.narrow[usize::from(v.0)] {
            let low = self.value(format_args!("load i32, ptr %w{}", v.0));
            return self.value(format_args!("zext i32 {low} to i64"));
        }
        self.value(format_args!("load i64, ptr %v{}", v.0))
    }

    fn read_low(&mut self, v: Var) -> String {
        if self.narrow[usize::from(v.0)] {
            return self.value(format_args!("load i32, ptr %w{}", v.0));
        }
        let full = self.value(format_args!("load i64, ptr %v{}", v.0));
        self.value(format_args!("trunc i64 {full} to i32"))
    }

    fn read_as(&mut self, width: Width, value: Value) -> String {
        match (value, width) {
            (Value::Var(v), Width::W64) => self.read_full(v),
            (Value::Var(v), Width::W32) => self.read_low(v),
            (Value::Imm(i), Width::W64) => i.to_string(),
            (Value::Imm(i), Width::W32) => (i as i32).to_string(),
        }
    }

    fn load_fuel(&mut self) {
        // Code that leaves fuel in the machine leaves between nothing and a slice.
        let slice = self.machine_field(offset_of!(Machine, slice));
        let range = self.metadata.fuel_range;
        let fuel = self.value(format_args!("load i64, ptr {slice}, align 8, !range !{range}"));
        self.define(Var::FUEL, Computed::Full(fuel));
    }

    fn store_fuel(&mut self) {
        let fuel = self.read_full(Var::FUEL);
        self.store_machine(&fuel, offset_of!(Machine, slice));
    }

    fn return_trapped(&mut self) {
        self.line(format_args!("ret {{ i64, i64 }} {{ i64 {}, i64 0 }}", Status::Trapped as u64));
    }

    fn machine_field(&mut self, offset: usize) -> String {
        self.value(format_args!("getelementptr inbounds i8, ptr %m, i64 {offset}"))
    }

    fn load_machine(&mut self, offset: usize) -> String {
        let at = self.machine_field(offset);
        self.value(format_args!("load i64, ptr {at}, align 8"))
    }

    fn store_machine(&mut self, value: &str, offset: usize) {
        let at = self.machine_field(offset);
        self.line(format_args!("store i64 {value}, ptr {at}, align 8"));
    }

    /// Continues when the condition holds, which is usual; otherwise goes to `otherwise`.
    fn continue_if(&mut self, condition: &str, otherwise: &str) {
        let next = self.fresh_label();
        let often = self.metadata.often;
        self.line(format_args!("br i1 {condition}, label %{next}, label %{otherwise}, !prof !{often}"));
        self.label(&next);
    }

    /// Where a refused access of this block goes.
    fn access_trap(&mut self) -> String {
        if self.access_trap.is_none() {
            self.access_trap = Some(self.fresh_label());
        }
        self.access_trap.clone().unwrap_or_default()
    }

    fn fresh_label(&mut self) -> String {
        self.next += 1;
        format!("x{}", self.next)
    }

    fn label(&mut self, label: &str) {
        let _ = writeln!(self.out, "{label}:");
    }

    /// An instruction with a result.
    fn value(&mut self, body: fmt::Arguments<'_>) -> String {
        self.next += 1;
        let name = format!("%t{}", self.next);
        self.line(format_args!("{name} = {body}"));
        name
    }

    /// An instruction.
    fn line(&mut self, body: fmt::Arguments<'_>) {
        let location = self.location();
        let _ = writeln!(self.out, "  {body}, !dbg !{location}");
    }

    /// Slot and column tell loops apart in the optimiser's messages: see [`crate::remarks`].
    fn location(&mut self) -> u32 {
        let (insn, scope) = (self.insn, self.subprogram);
        let column = if self.block.cold { RARE_COLUMN } else { USUAL_COLUMN };
        let metadata = &mut *self.metadata;
        *self.locations.entry((insn, column)).or_insert_with(|| {
            metadata.node(format_args!("!DILocation(line: {}, column: {column}, scope: !{scope})", insn + 1))
        })
    }
}

/// The symbol of a function.
fn symbol(index: usize) -> String {
    if index == 0 { ENTRY.to_owned() } else { format!("f{index}") }
}

fn type_of(width: Width) -> &'static str {
    match width {
        Width::W32 => "i32",
        Width::W64 => "i64",
    }
}
