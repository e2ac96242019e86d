//! Loads, stores and atomics, each with the check that the IR asks for.
//!
//! As in the Cranelift tier: the inline test may refuse what the full check allows, never the other
//! way round; what it refuses calls out. In blocks that rarely run, every check calls out.

use super::calls::argument_offset;
use super::{Computed, FunctionEmitter, is_shared};
use diskside_sbpf::insn::{AtomicOp, Size, Width};
use diskside_sbpf::ir::{Check, Op, Value, Var};
use diskside_sbpf::machine::{Machine, RegionEntry};
use diskside_sbpf::region::{REGION_COUNT, REGION_SHIFT, RegionId};
use diskside_sbpf_native::callouts::{self, Access};
use std::mem::offset_of;

/// One access.
#[derive(Clone, Copy)]
struct Place {
    base: Var,
    off: i64,
    size: Size,
}

/// A host address, and the known facts about the memory there.
struct Host {
    address: String,
    region: Option<RegionId>,
}

impl FunctionEmitter<'_> {
    /// Loads the facts about regions once: they stay the same for a call, except for the heap, which helpers may
    /// move. LLVM drops what is not used, and computes bounds outside of the loops that test them.
    pub(super) fn load_regions(&mut self) {
        for &region in self.regions.iter().filter(|r| **r != RegionId::HEAP) {
            let at = self.machine_field(entry_offset(region) + offset_of!(RegionEntry, base));
            let n = region.0;
            self.line(format_args!("%base{n} = load ptr, ptr {at}, align 8"));
            for write in [false, true] {
                let at = self.machine_field(entry_offset(region) + len_offset(write));
                self.line(format_args!("%{} = load i64, ptr {at}, align 8", len_name(region, write)));
            }
        }
    }

    fn base_of(&mut self, region: RegionId) -> String {
        if region != RegionId::HEAP {
            return format!("%base{}", region.0);
        }
        let at = self.machine_field(entry_offset(region) + offset_of!(RegionEntry, base));
        self.value(format_args!("load ptr, ptr {at}, align 8"))
    }

    /// The length of a region.
    pub(super) fn region_len(&mut self, region: RegionId, write: bool) -> String {
        if region != RegionId::HEAP {
            return format!("%{}", len_name(region, write));
        }
        self.load_machine(entry_offset(region) + len_offset(write))
    }

    pub(super) fn access(&mut self, op: &Op) {
        match *op {
            Op::Load { dst, base, off, size, signed, check } => {
                self.load(dst, Place { base, off, size }, signed, check);
            }
            Op::Store { base, off, size, src, check } => self.store(Place { base, off, size }, src, check),
            Op::Atomic { op, fetch, size, base, off, src } => self.atomic(op, fetch, Place { base, off, size }, src),
            _ => unreachable!("only accesses come here"),
        }
    }

    fn load(&mut self, dst: Var, place: Place, signed: bool, check: Check) {
        if let Check::Direct(region) = check {
            let host = self.proved(region, place);
            return self.plain_load(dst, &host, place.size, signed);
        }
        let done = self.fresh_label();
        if !self.block.cold {
            let slow = self.fresh_label();
            let host = self.inline_check(place, false, check, &slow);
            self.plain_load(dst, &host, place.size, signed);
            self.line(format_args!("br label %{done}"));
            self.label(&slow);
        }
        self.call_out("ds_load", place, signed);
        let x = self.load_machine(offset_of!(Machine, result));
        let x = if place.size == Size::DW || signed {
            Computed::Full(x)
        } else {
            Computed::Low(self.value(format_args!("trunc i64 {x} to i32")))
        };
        self.define(dst, x);
        self.line(format_args!("br label %{done}"));
        self.label(&done);
    }

    fn store(&mut self, place: Place, src: Value, check: Check) {
        let width = width_of(place.size);
        let value = self.read_as(width, src);
        if let Check::Direct(region) = check {
            let host = self.proved(region, place);
            return self.plain_store(&host, place.size, value);
        }
        let done = self.fresh_label();
        if !self.block.cold {
            let slow = self.fresh_label();
            let host = self.inline_check(place, true, check, &slow);
            self.plain_store(&host, place.size, value.clone());
            self.line(format_args!("br label %{done}"));
            self.label(&slow);
        }
        let wide = match width {
            Width::W64 => value,
            Width::W32 => self.value(format_args!("zext i32 {value} to i64")),
        };
        self.store_machine(&wide, argument_offset(callouts::VALUE));
        self.call_out("ds_store", place, false);
        self.line(format_args!("br label %{done}"));
        self.label(&done);
    }

    fn atomic(&mut self, op: AtomicOp, fetch: bool, place: Place, src: Var) {
        let width = width_of(place.size);
        let (ty, bytes) = (type_of(place.size), place.size.bytes());
        let value = self.read_as(width, src.into());
        let (slow, found, done) = (self.fresh_label(), self.fresh_label(), self.fresh_label());
        let host = self.lookup(place, true, true, &slow);
        self.line(format_args!("br label %{found}"));
        self.label(&found);
        self.line(format_args!("br label %{done}"));
        self.label(&slow);
        self.call_out("ds_resolve_atomic", place, false);
        let resolved = self.load_machine(offset_of!(Machine, result));
        let resolved = self.value(format_args!("inttoptr i64 {resolved} to ptr"));
        let resolved_in = self.fresh_label();
        self.line(format_args!("br label %{resolved_in}"));
        self.label(&resolved_in);
        self.line(format_args!("br label %{done}"));
        self.label(&done);
        let at = self.value(format_args!("phi ptr [ {}, %{found} ], [ {resolved}, %{resolved_in} ]", host.address));
        let name = match op {
            AtomicOp::Add => "add",
            AtomicOp::Or => "or",
            AtomicOp::And => "and",
            AtomicOp::Xor => "xor",
            AtomicOp::Xchg => "xchg",
            AtomicOp::Cmpxchg => {
                let expected = self.read_as(width, Var::R0.into());
                let pair = self.value(format_args!(
                    "cmpxchg ptr {at}, {ty} {expected}, {ty} {value} seq_cst seq_cst, align {bytes}"
                ));
                let old = self.value(format_args!("extractvalue {{ {ty}, i1 }} {pair}, 0"));
                return self.define_as(width, Var::R0, old);
            }
        };
        let old = self.value(format_args!("atomicrmw {name} ptr {at}, {ty} {value} seq_cst, align {bytes}"));
        if fetch {
            self.define_as(width, src, old);
        }
    }

    /// The host address of an access that is proved to lie in a region.
    fn proved(&mut self, region: RegionId, place: Place) -> Host {
        let base = self.read_full(place.base);
        let first = self.base_of(region);
        // The offset lies in the region, so it is below 2^40 and the addition does not wrap.
        let offset = place.off.wrapping_sub(region.base() as i64);
        let offset = self.value(format_args!("add nsw i64 {base}, {offset}"));
        let address = self.value(format_args!("getelementptr inbounds i8, ptr {first}, i64 {offset}"));
        Host { address, region: Some(region) }
    }

    /// Tests inline and continues where the test has passed; otherwise control goes to `slow`.
    fn inline_check(&mut self, place: Place, write: bool, check: Check, slow: &str) -> Host {
        let Check::Hinted(region) = check else {
            return self.lookup(place, write, false, slow);
        };
        let base = self.read_full(place.base);
        let offset = place.off.wrapping_sub(region.base() as i64);
        let offset = self.value(format_args!("add i64 {base}, {offset}"));
        let len = self.region_len(region, write);
        let size = place.size.bytes();
        let bound = if size == 1 {
            len
        } else {
            // Saturates: a region shorter than the access allows none.
            let less = size - 1;
            let most = self.value(format_args!("call i64 @llvm.umin.i64(i64 {len}, i64 {less})"));
            self.value(format_args!("sub i64 {len}, {most}"))
        };
        let inside = self.value(format_args!("icmp ult i64 {offset}, {bound}"));
        self.continue_if(&inside, slow);
        let first = self.base_of(region);
        let address = self.value(format_args!("getelementptr inbounds i8, ptr {first}, i64 {offset}"));
        Host { address, region: Some(region) }
    }

    /// Looks the address up in the machine's regions; `aligned` tests that as well.
    fn lookup(&mut self, place: Place, write: bool, aligned: bool, slow: &str) -> Host {
        let size = place.size.bytes();
        let base = self.read_full(place.base);
        let address = self.value(format_args!("add i64 {base}, {}", place.off));
        let index = self.value(format_args!("lshr i64 {address}, {REGION_SHIFT}"));
        let known = self.value(format_args!("icmp ult i64 {index}, {REGION_COUNT}"));
        self.continue_if(&known, slow);
        if aligned {
            let odd = self.value(format_args!("and i64 {address}, {}", size - 1));
            let even = self.value(format_args!("icmp eq i64 {odd}, 0"));
            self.continue_if(&even, slow);
        }
        let entry = self.value(format_args!("mul i64 {index}, {}", size_of::<RegionEntry>()));
        let entry = self.value(format_args!("getelementptr i8, ptr %m, i64 {entry}"));
        let field = |o: usize| offset_of!(Machine, regions) + o;
        let at = self.value(format_args!("getelementptr i8, ptr {entry}, i64 {}", field(len_offset(write))));
        let len = self.value(format_args!("load i64, ptr {at}, align 8"));
        let offset = self.value(format_args!("and i64 {address}, {}", (1u64 << REGION_SHIFT) - 1));
        // Neither can overflow: an offset is below 2^40.
        let end = self.value(format_args!("add i64 {offset}, {size}"));
        let inside = self.value(format_args!("icmp ule i64 {end}, {len}"));
        self.continue_if(&inside, slow);
        let at =
            self.value(format_args!("getelementptr i8, ptr {entry}, i64 {}", field(offset_of!(RegionEntry, base))));
        let first = self.value(format_args!("load ptr, ptr {at}, align 8"));
        let address = self.value(format_args!("getelementptr i8, ptr {first}, i64 {offset}"));
        Host { address, region: None }
    }

    /// Has the machine make an access, and continues if it did.
    fn call_out(&mut self, callout: &str, place: Place, signed: bool) {
        let base = self.read_full(place.base);
        let address = self.value(format_args!("add i64 {base}, {}", place.off));
        self.store_machine(&address, argument_offset(callouts::ADDRESS));
        let access = Access { insn: self.insn, size: place.size, signed };
        self.store_machine(&access.pack().to_string(), argument_offset(callouts::ACCESS));
        self.line(format_args!("call void @{callout}(ptr %m) #1"));
        let status = self.load_machine(argument_offset(callouts::STATUS));
        let well = self.value(format_args!("icmp eq i64 {status}, 0"));
        let trap = self.access_trap();
        self.continue_if(&well, &trap);
    }

    fn plain_load(&mut self, dst: Var, host: &Host, size: Size, signed: bool) {
        let ty = type_of(size);
        let (kind, facts) = self.facts(host.region);
        let x = self.value(format_args!("load{kind} {ty}, ptr {}, align 1{facts}", host.address));
        let x = match (size, signed) {
            (Size::DW, _) => Computed::Full(x),
            (_, true) => Computed::Full(self.value(format_args!("sext {ty} {x} to i64"))),
            (Size::W, false) => Computed::Low(x),
            (_, false) => Computed::Low(self.value(format_args!("zext {ty} {x} to i32"))),
        };
        self.define(dst, x);
    }

    fn plain_store(&mut self, host: &Host, size: Size, value: String) {
        let ty = type_of(size);
        let value = match size {
            Size::B | Size::H => self.value(format_args!("trunc i32 {value} to {ty}")),
            Size::W | Size::DW => value,
        };
        let (kind, facts) = self.facts(host.region);
        self.line(format_args!("store{kind} {ty} {value}, ptr {}, align 1{facts}", host.address));
    }

    /// How memory of a region is accessed, and which other regions' memory it is not.
    fn facts(&self, region: Option<RegionId>) -> (&'static str, String) {
        match region {
            // A window that is looked up may be one that others write.
            None => (" volatile", String::new()),
            Some(region) if is_shared(region) => (" volatile", String::new()),
            Some(region) => {
                let (scope, noalias) = self.metadata.scopes[&region];
                ("", format!(", !alias.scope !{scope}, !noalias !{noalias}"))
            }
        }
    }

    /// Writes zeros to `[r10 - len, r10)`.
    pub(super) fn zero_frame(&mut self, len: u64) {
        let place = Place { base: Var::FP, off: -(len as i64), size: Size::DW };
        let host = self.proved(RegionId::STACK, place);
        let (_, facts) = self.facts(host.region);
        self.line(format_args!(
            "call void @llvm.memset.p0.i64(ptr align 8 {}, i8 0, i64 {len}, i1 false){facts}",
            host.address
        ));
    }
}

fn type_of(size: Size) -> &'static str {
    match size {
        Size::B => "i8",
        Size::H => "i16",
        Size::W => "i32",
        Size::DW => "i64",
    }
}

fn width_of(size: Size) -> Width {
    if size == Size::DW { Width::W64 } else { Width::W32 }
}

fn entry_offset(region: RegionId) -> usize {
    offset_of!(Machine, regions) + usize::from(region.0) * size_of::<RegionEntry>()
}

fn len_name(region: RegionId, write: bool) -> String {
    format!("{}{}", if write { "write_len" } else { "len" }, region.0)
}

fn len_offset(write: bool) -> usize {
    if write { offset_of!(RegionEntry, write_len) } else { offset_of!(RegionEntry, len) }
}
