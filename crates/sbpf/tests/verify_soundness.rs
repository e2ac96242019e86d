//! The verifier's proofs hold in every run.
//!
//! Random programs are verified; those that pass are run step by step on a plain model of the
//! machine, which watches each promise: no register is read unset, an access at a proved frame or
//! context offset goes exactly there, and a stack that has no addresses is reached by no other way.

use diskside_sbpf::helpers::{HelperSet, standard};
use diskside_sbpf::image::{Function, Image, Import, Kind};
use diskside_sbpf::insn::{AtomicOp, CallTarget, Insn, Operand, Reg, Slot, decode};
use diskside_sbpf::interp::{binary, compare};
use diskside_sbpf::ir::BinOp;
use diskside_sbpf::region::{REGION_SHIFT, RegionId};
use diskside_sbpf::verify::{Base, Entry, Verified, contract, verify};
use std::collections::BTreeMap;
use std::sync::Arc;

const PROGRAMS: u64 = 6_000;
const STEPS_MAX: usize = 400;
const HELPERS: [&str; 3] = ["ds_alloc", "ds_memset", "ds_memcpy"];

#[test]
fn proofs_hold_in_every_run() {
    let helpers = standard();
    let mut seen = Seen::default();
    for seed in 0..PROGRAMS {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let image = Arc::new(program(&mut random, &helpers));
        let Ok(verified) = verify(&image, 0, &helpers) else { continue };
        seen.accepted += 1;
        seen.addressable += usize::from(verified.stack_addressable);
        for _ in 0..2 {
            Run::new(&verified, seed, &mut random, &mut seen).function(0, &mut [None; 11]);
        }
    }
    // Without these the test would pass by seeing nothing.
    assert!(seen.accepted > 1_500, "{seen:?}");
    assert!(seen.addressable > 500 && seen.accepted - seen.addressable > 500, "{seen:?}");
    assert!(seen.frame > 10_000 && seen.context > 1_000 && seen.dynamic > 1_000, "{seen:?}");
    assert!(seen.calls > 500 && seen.helpers > 500, "{seen:?}");
}

/// Counts events, so that the test knows that it tested something.
#[derive(Default, Debug)]
struct Seen {
    accepted: usize,
    addressable: usize,
    frame: usize,
    context: usize,
    dynamic: usize,
    calls: usize,
    helpers: usize,
}

/// The run ends here: a trap, or enough steps.
struct Stopped;

struct Run<'a> {
    verified: &'a Verified,
    seed: u64,
    memory: BTreeMap<RegionId, Vec<u8>>,
    heap_used: u64,
    steps: usize,
    seen: &'a mut Seen,
}

impl<'a> Run<'a> {
    fn new(verified: &'a Verified, seed: u64, random: &mut Random, seen: &'a mut Seen) -> Self {
        let contract = contract(verified.image.programs[0].kind);
        let mut memory = BTreeMap::new();
        for region in [RegionId::INPUT, RegionId::OUTPUT, RegionId::ARGS, RegionId::SCRATCH, RegionId::HEAP] {
            memory.insert(region, (0..256).map(|_| random.below(4) as u8).collect());
        }
        let mut context = vec![0; contract.context_len as usize];
        for &(at, region) in contract.context_pointers.iter() {
            context[at as usize..at as usize + 8].copy_from_slice(&region.base().to_le_bytes());
        }
        memory.insert(RegionId::CONTEXT, context);
        memory.insert(RegionId::STACK, vec![0xee; verified.stack_len as usize]);
        Self { verified, seed, memory, heap_used: 0, steps: 0, seen }
    }

    /// Runs from the entry point.
    fn function(mut self, entry: usize, regs: &mut [Option<u64>; 11]) {
        let kind = self.verified.image.programs[0].kind;
        for (i, param) in contract(kind).params.iter().enumerate() {
            regs[i + 1] = match param {
                Entry::Uninit => None,
                Entry::Scalar => Some(64),
                Entry::Region(r) => Some(r.base()),
                Entry::Context(at) => Some(RegionId::CONTEXT.base() + u64::from(*at)),
            };
        }
        regs[10] = Some(RegionId::STACK.base());
        let _ = self.call(entry, regs);
    }

    /// Runs a function of the program in a frame above `r10`.
    fn call(&mut self, number: usize, caller: &mut [Option<u64>; 11]) -> Result<(), Stopped> {
        let function = &self.verified.functions[number];
        let mut regs = [None; 11];
        regs[1..=5].copy_from_slice(&caller[1..=5]);
        let bottom = caller[10].expect("the frame pointer is set");
        regs[10] = Some(bottom + function.frame_len);
        let from = (bottom - RegionId::STACK.base()) as usize;
        let stack = self.memory.get_mut(&RegionId::STACK).expect("mapped");
        stack[from..from + function.frame_len as usize].fill(0);

        let start = self.verified.image.functions[function.function].start;
        let mut at = 0;
        loop {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(Stopped);
            }
            let insn = decode(&self.verified.image.code[start + at..]).expect("it was verified");
            let next = at + insn.slots();
            at = match insn {
                Insn::Exit => {
                    caller[0] = regs[0];
                    caller[1..=5].fill(None);
                    assert!(number != 0 || regs[0].is_some(), "seed {}: r0 unset at exit", self.seed);
                    return Ok(());
                }
                Insn::Ja { off } => next.wrapping_add_signed(off as isize),
                Insn::Jmp { width, cond, dst, src, off } => {
                    let (a, b) = (self.get(&regs, dst), self.operand(&regs, src));
                    if compare(width, cond, a, b) { next.wrapping_add_signed(off as isize) } else { next }
                }
                Insn::Call { target: CallTarget::Local(_) } => {
                    self.seen.calls += 1;
                    self.call(function.callees[&at], &mut regs)?;
                    next
                }
                Insn::Call { target } => {
                    let CallTarget::Helper(import) = target else { unreachable!("refused") };
                    self.helper(import, &mut regs)?;
                    next
                }
                _ => {
                    self.plain(insn, function.bases[at], function.frame_len, &mut regs)?;
                    next
                }
            };
        }
    }

    fn plain(&mut self, insn: Insn, base: Base, frame_len: u64, regs: &mut [Option<u64>; 11]) -> Result<(), Stopped> {
        match insn {
            Insn::Alu { width, op, dst, src } => {
                let (a, b) = (self.get(regs, dst), self.operand(regs, src));
                regs[usize::from(dst.0)] = Some(binary(BinOp::Alu(op, width), a, b));
            }
            Insn::Mov { width, dst, src } => {
                let v = self.operand(regs, src);
                let keep = BinOp::Alu(diskside_sbpf::insn::AluOp::Or, width);
                regs[usize::from(dst.0)] = Some(binary(keep, v, 0));
            }
            Insn::LoadImm64 { dst, imm, .. } => regs[usize::from(dst.0)] = Some(imm),
            Insn::Load { dst, base: r, off, size, signed } => {
                let len = size.bytes() as usize;
                let bytes = self.access(regs, r, off, len, base, frame_len)?;
                let mut wide = [0; 8];
                wide[..len].copy_from_slice(bytes);
                let shift = 64 - 8 * len as u32;
                let v = u64::from_le_bytes(wide) << shift;
                let v = if signed { ((v as i64) >> shift) as u64 } else { v >> shift };
                regs[usize::from(dst.0)] = Some(v);
            }
            Insn::Store { base: r, off, size, src } => {
                let v = self.operand(regs, src).to_le_bytes();
                let len = size.bytes() as usize;
                self.access(regs, r, off, len, base, frame_len)?.copy_from_slice(&v[..len]);
            }
            Insn::Atomic { op: AtomicOp::Add, fetch, size, base: r, off, src } => {
                let add = self.get(regs, src);
                let len = size.bytes() as usize;
                let bytes = self.access(regs, r, off, len, base, frame_len)?;
                let mut wide = [0; 8];
                wide[..len].copy_from_slice(bytes);
                let old = u64::from_le_bytes(wide);
                bytes.copy_from_slice(&old.wrapping_add(add).to_le_bytes()[..len]);
                if fetch {
                    regs[usize::from(src.0)] = Some(old);
                }
            }
            other => unreachable!("the generator makes no {other:?}"),
        }
        Ok(())
    }

    /// The bytes of an access, after a look at what was promised of it.
    fn access(
        &mut self,
        regs: &[Option<u64>; 11],
        r: Reg,
        off: i16,
        len: usize,
        base: Base,
        frame_len: u64,
    ) -> Result<&mut [u8], Stopped> {
        let address = self.get(regs, r).wrapping_add_signed(i64::from(off));
        let seed = self.seed;
        match base {
            Base::Frame(o) => {
                self.seen.frame += 1;
                let fp = regs[10].expect("set");
                assert_eq!(address, fp.wrapping_add_signed(i64::from(o)), "seed {seed}: frame {o}");
                assert!(u64::from(o.unsigned_abs()) <= frame_len, "seed {seed}: frame {o} of {frame_len}");
                return Ok(self.bytes(address, len as u64).expect("inside the frame"));
            }
            Base::Context(o) => {
                self.seen.context += 1;
                assert_eq!(address, RegionId::CONTEXT.base() + u64::from(o), "seed {seed}: context {o}");
                return Ok(self.bytes(address, len as u64).expect("inside the context"));
            }
            Base::Region(_) | Base::Unknown => {}
        }
        self.dynamic(address, len as u64)
    }

    /// The bytes of an access that is checked at run time.
    fn dynamic(&mut self, address: u64, len: u64) -> Result<&mut [u8], Stopped> {
        self.seen.dynamic += 1;
        let on_stack = RegionId::of(address) == Some(RegionId::STACK) && self.bytes(address, len).is_some();
        assert!(
            !on_stack || self.verified.stack_addressable,
            "seed {}: {address:#x} is reached, but the stack has no addresses",
            self.seed
        );
        self.bytes(address, len).ok_or(Stopped)
    }

    fn bytes(&mut self, address: u64, len: u64) -> Option<&mut [u8]> {
        let region = self.memory.get_mut(&RegionId::of(address)?)?;
        let from = address & ((1 << REGION_SHIFT) - 1);
        let to = from.checked_add(len).filter(|to| *to <= region.len() as u64)?;
        Some(&mut region[from as usize..to as usize])
    }

    fn helper(&mut self, import: u32, regs: &mut [Option<u64>; 11]) -> Result<(), Stopped> {
        self.seen.helpers += 1;
        let name = self.verified.image.imports[import as usize].name.clone();
        regs[0] = Some(match name.as_str() {
            "ds_alloc" => {
                self.get(regs, Reg(1));
                self.heap_used += 64;
                RegionId::HEAP.base() + self.heap_used - 64
            }
            "ds_memset" => {
                let [to, value, len] = [1, 2, 3].map(|r| self.get(regs, Reg(r)));
                if len > 0 {
                    self.dynamic(to, len)?.fill(value as u8);
                }
                to
            }
            _ => {
                let [to, from, len] = [1, 2, 3].map(|r| self.get(regs, Reg(r)));
                if len > 0 {
                    let copy = self.dynamic(from, len)?.to_vec();
                    self.dynamic(to, len)?.copy_from_slice(&copy);
                }
                to
            }
        });
        regs[1..=5].fill(None);
        Ok(())
    }

    fn get(&self, regs: &[Option<u64>; 11], r: Reg) -> u64 {
        regs[usize::from(r.0)].unwrap_or_else(|| panic!("seed {}: {r} is read unset", self.seed))
    }

    fn operand(&self, regs: &[Option<u64>; 11], operand: Operand) -> u64 {
        match operand {
            Operand::Reg(r) => self.get(regs, r),
            Operand::Imm(n) => i64::from(n) as u64,
        }
    }
}

/// An entry point and a function that it may call, full of stack and context accesses.
fn program(random: &mut Random, helpers: &HelperSet) -> Image {
    let kind = [Kind::Traverse, Kind::Read, Kind::Kernel][random.below(3)];
    let imports = HELPERS.map(|name| Import { name: name.to_owned(), weak: false, helper: helpers.find(name) });
    // In every second program hardly any address of the stack goes where it is not followed.
    let gentle = random.below(2) == 0;
    let mut code = Vec::new();
    let main_len = 14 + random.below(20);
    let callee = main_len + 11;
    prologue(&mut code, random, kind);
    body(&mut code, random, kind, gentle, main_len, Some(callee));
    let start = code.len();
    assert_eq!(start, callee, "the callee starts where the calls go");
    // The callee may write where its second argument points to.
    code.push(if gentle || random.below(2) == 0 { slot(0xb7, 0, 0, 0, 0) } else { slot(0x7a, 2, 0, 0, 3) });
    prologue(&mut code, random, kind);
    body(&mut code, random, kind, gentle, 12, None);
    let mut image = Image::from_code("random", kind, code, imports.to_vec());
    let end = image.code.len();
    image.functions[0].end = start;
    image.functions.push(Function { name: "callee".to_owned(), start, end, params: None });
    image
}

/// The register in which the kind passes its context.
fn context_register(kind: Kind) -> u8 {
    if kind == Kind::Read { 5 } else { 1 }
}

/// Gives each register a value: `r6` the context, `r7` a stack address, the others these or a number.
fn prologue(code: &mut Vec<Slot>, random: &mut Random, kind: Kind) {
    let context = context_register(kind);
    code.push(slot(0xbf, 6, context, 0, 0));
    code.push(slot(0xbf, 7, 10, 0, 0));
    code.push(slot(0x07, 7, 0, 0, -8 * (1 + random.below(8) as i32)));
    for r in [0, 2, 3, 4, 8, 9] {
        code.push(match random.below(4) {
            0 => slot(0xbf, r, 10, 0, 0),
            1 => slot(0xbf, r, context, 0, 0),
            _ => slot(0xb7, r, 0, 0, 8 * random.below(9) as i32 - 32),
        });
    }
    code.push(slot(0xb7, 5, 0, 0, 16));
}

/// `len` slots or a few more, and an exit. Most instructions keep the roles of `r6` and `r7`, so that
/// enough programs are accepted.
fn body(code: &mut Vec<Slot>, random: &mut Random, kind: Kind, gentle: bool, len: usize, callee: Option<usize>) {
    let (loads, stores): (&[i16], &[i16]) = match kind {
        Kind::Traverse => (&[8, 24, 40, 48, 64, 80], &[64, 80, 88]),
        Kind::Kernel => (&[8, 24, 40, 48, 64], &[40]),
        _ => (&[8, 16, 24, 40], &[]),
    };
    let end = code.len() + len;
    while code.len() < end {
        let at = code.len();
        let left = end - at;
        let r = [0, 8, 9, 0, 8, 9, 0, 8, 9, 6, 7][random.below(11)];
        let s = [0, 6, 7, 8, 9, 10][random.below(6)];
        let imm = 8 * random.below(9) as i32 - 32;
        let size = if gentle { 0x18 } else { [0x18, 0x18, 0x18, 0x00, 0x10][random.below(5)] };
        let (base, mut off) = match random.below(if gentle { 7 } else { 8 }) {
            0..=3 => (10, -8 * (1 + random.below(8) as i16)),
            4..=6 => (7, -8 * random.below(4) as i16),
            _ => (s, -8 * (1 + random.below(4) as i16)),
        };
        if !gentle && random.below(8) == 0 {
            off -= 4;
        }
        match random.below(20) {
            0 => code.push(slot(0xb7, r, 0, 0, imm)),
            1 | 2 => code.push(slot(0xbf, r, s, 0, 0)),
            3 => code.push(slot(0x07, r, 0, 0, imm)),
            4 if !gentle => code.push(slot([0x0f, 0x1f][random.below(2)], r, s, 0, 0)),
            5..=7 => code.push(slot(0x61 | size, r, base, off, 0)),
            8..=10 => code.push(slot(0x63 | size, base, s, off, 0)),
            11 => code.push(slot(0x62 | size, base, 0, off, imm)),
            12 => code.push(slot(0x61 | size, r, 6, loads[random.below(loads.len())], 0)),
            13 if !stores.is_empty() => {
                let off = stores[random.below(stores.len())];
                code.push(if gentle { slot(0x62 | size, 6, 0, off, imm) } else { slot(0x63 | size, 6, s, off, 0) });
            }
            14 if left > 3 => {
                let jump = [0x15, 0x55, 0x25, 0x1d][random.below(4)];
                let target = random.below(left.min(6)) as i16;
                code.push(slot(jump, r, if jump == 0x1d { s } else { 0 }, target, if jump == 0x1d { 0 } else { imm }));
            }
            15 if len > 12 && left < 10 => code.push(slot(0x55, r, 0, -3, 1)),
            15 if !gentle => code.push(slot(0xdb, 7, r, -8 * random.below(2) as i16, random.below(2) as i32)),
            16 if left > 6 => match callee {
                Some(callee) => call(code, random, kind, callee),
                None => code.push(slot(0x07, 8, 0, 0, imm)),
            },
            17 if !gentle && left > 6 => {
                let copy = random.below(2) as i32;
                code.push(slot(0xbf, 1, 7, 0, 0));
                code.push(if copy == 1 {
                    slot(0xbf, 2, [6, 7][random.below(2)], 0, 0)
                } else {
                    slot(0xb7, 2, 0, 0, imm)
                });
                code.push(slot(0xb7, 3, 0, 0, random.below(9) as i32));
                code.push(slot(0x85, 0, 0, 0, 1 + copy));
            }
            18 if !gentle && left > 10 => overwrite_a_spill(code, random, kind, callee),
            19 if left > 8 && random.below(if gentle { 8 } else { 2 }) == 0 => hide_an_address(code, random, kind),
            _ if left > 3 => {
                code.push(slot(0xb7, 1, 0, 0, 64));
                code.push(slot(0x85, 0, 0, 0, 0));
            }
            _ => code.push(slot(0xbf, r, 7, 0, 0)),
        }
    }
    code.push(slot(0x95, 0, 0, 0, 0));
}

/// A field of the context that is 0 in every run, which the verifier does not know.
fn zero_field(kind: Kind) -> i16 {
    if kind == Kind::Kernel { 16 } else { 24 }
}

/// Spills an address, has the stack written by other means, fills and uses the address: what comes
/// back may be something else.
fn overwrite_a_spill(code: &mut Vec<Slot>, random: &mut Random, kind: Kind, callee: Option<usize>) {
    let spill = -8 * (1 + random.below(8) as i16);
    let (address, off) = [(6, 24), (7, 0)][random.below(2)];
    code.push(slot(0x7b, 10, address, spill, 0));
    match (random.below(5), callee) {
        (0, Some(callee)) => call(code, random, kind, callee),
        (1, _) => {
            code.push(slot(0x79, 9, 6, zero_field(kind), 0));
            code.push(slot(0x0f, 9, 7, 0, 0));
            code.push(slot(0x7a, 9, 0, 0, 5));
        }
        (2, _) => {
            code.push(slot(0x79, 9, 6, zero_field(kind), 0));
            code.push(slot(0x7b, 10, 9, spill, 0));
        }
        (3, _) => {
            code.push(slot(0x79, 9, 6, zero_field(kind), 0));
            code.push(slot(0x73, 10, 9, spill + random.below(8) as i16, 0));
        }
        _ => {
            code.push(slot(0xbf, 1, 7, 0, 0));
            code.push(slot(0xb7, 2, 0, 0, 1));
            code.push(slot(0xb7, 3, 0, 0, 8));
            code.push(slot(0x85, 0, 0, 0, 1));
        }
    }
    code.push(slot(0x79, 8, 10, spill, 0));
    code.push(slot(0x79, 0, 8, off, 0));
}

/// Takes a stack address out of sight, by a path or by memory, and uses it.
fn hide_an_address(code: &mut Vec<Slot>, random: &mut Random, kind: Kind) {
    code.push(slot(0x79, 0, 6, zero_field(kind), 0));
    code.push(slot(0xbf, 8, 7, 0, 0));
    let result = if kind == Kind::Kernel { 40 } else { 80 };
    if random.below(2) == 0 || kind == Kind::Read {
        code.push(slot(0x15, 0, 0, 1, 0));
        code.push(slot(0xb7, 8, 0, 0, 8));
    } else {
        code.push(slot(0x7b, 6, 8, result, 0));
        code.push(slot(0x79, 8, 6, result, 0));
    }
    code.push(slot(0x79, 0, 8, 0, 0));
}

/// Calls the other function, which gets the context and a stack address.
fn call(code: &mut Vec<Slot>, random: &mut Random, kind: Kind, callee: usize) {
    code.push(slot(0xbf, context_register(kind), 6, 0, 0));
    code.push(slot(0xbf, 2, 7, 0, 0));
    for r in 3..=4 {
        code.push(slot(0xbf, r, [0, 7, 8, 9][random.below(4)], 0, 0));
    }
    code.push(slot(0x85, 0, 1, 0, callee as i32 - code.len() as i32 - 1));
}

fn slot(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> Slot {
    Slot { opcode, dst, src, off, imm }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}
