//! Instructions as text, in the syntax of [`crate::asm`]: what is printed can be assembled again.

use crate::image::Image;
use crate::insn::{AluOp, AtomicOp, ByteOrder, CallTarget, Cond, Insn, Operand, Reg, Size, Slot, Width, decode};
use std::fmt::Write;

/// One instruction of a disassembly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Index of its first slot.
    pub slot: usize,
    /// How many slots it takes.
    pub slots: usize,
    /// Its text.
    pub text: String,
}

/// Disassembles code. Slots that are not instructions become `.raw` words.
#[must_use]
pub fn disassemble(code: &[Slot]) -> Vec<Line> {
    lines(code, |_| None)
}

/// Disassembles one function of an image: addresses, instructions, helpers by name, targets of jumps,
/// and the source lines that they come from, as comments.
#[must_use]
pub fn listing(image: &Image, function: usize) -> String {
    let f = &image.functions[function];
    let import = |index: u32| image.imports.get(index as usize).map(|i| i.name.as_str().to_owned());
    let mut out = format!("{}:\n", f.name);
    let mut source = None;
    for line in lines(&image.code[f.start..f.end], import) {
        let slot = f.start + line.slot;
        let position = image.line_of(slot);
        if position.is_some() && position != source {
            source = position;
            if let Some(p) = position {
                let _ = writeln!(out, "; {}:{}: {}", p.file, p.line, p.text);
            }
        }
        let _ = write!(out, "{slot:6}  {}", line.text);
        if let Some(target) = target_of(image.code[slot]) {
            let target = (slot + 1).wrapping_add_signed(target as isize);
            let _ = write!(out, "  # to {target}");
            if let Ok(callee) = image.functions.binary_search_by_key(&target, |g| g.start) {
                let _ = write!(out, " {}", image.functions[callee].name);
            }
        }
        out.push('\n');
    }
    out
}

fn lines(code: &[Slot], import: impl Fn(u32) -> Option<String>) -> Vec<Line> {
    let mut out = Vec::new();
    let mut slot = 0;
    while slot < code.len() {
        let (slots, text) = match decode(&code[slot..]) {
            Ok(insn) => (insn.slots(), text_of(code[slot], insn, &import)),
            Err(_) => (1, format!(".raw {:#018x}", u64::from_le_bytes(code[slot].to_bytes()))),
        };
        out.push(Line { slot, slots, text });
        slot += slots;
    }
    out
}

/// The distance of a jump or local call.
fn target_of(slot: Slot) -> Option<i64> {
    match decode(&[slot]).ok()? {
        Insn::Ja { off } => Some(i64::from(off)),
        Insn::Jmp { off, .. } => Some(i64::from(off)),
        Insn::Call { target: CallTarget::Local(off) } => Some(i64::from(off)),
        _ => None,
    }
}

fn text_of(slot: Slot, insn: Insn, import: &impl Fn(u32) -> Option<String>) -> String {
    match insn {
        Insn::Alu { width, op, dst, src } => format!("{}{} %{dst}, {}", alu(op), suffix(width), operand(src)),
        Insn::Mov { width, dst, src } => format!("mov{} %{dst}, {}", suffix(width), operand(src)),
        Insn::MovSx { width, dst, src, bits } => {
            let to = if width == Width::W32 { 32 } else { 64 };
            format!("movsx{bits}{to} %{dst}, %{src}")
        }
        Insn::Neg { width, dst } => format!("neg{} %{dst}", suffix(width)),
        Insn::End { order, dst, bits } => {
            let order = match order {
                ByteOrder::ToLe => "le",
                ByteOrder::ToBe => "be",
                ByteOrder::Swap => "swap",
            };
            format!("{order}{bits} %{dst}")
        }
        Insn::LoadImm64 { dst, imm, src: 0 } => format!("lddw %{dst}, {imm:#x}"),
        Insn::LoadImm64 { dst, imm, src } => format!("lddw %{dst}, {imm:#x}, {src}"),
        Insn::Load { dst, base, off, size, signed } => {
            let s = if signed { "s" } else { "" };
            format!("ldx{s}{} %{dst}, {}", letter(size), memory(base, off))
        }
        Insn::Store { base, off, size, src } => {
            let x = match src {
                Operand::Reg(_) => "x",
                Operand::Imm(_) => "",
            };
            let (size, at) = (letter(size), memory(base, off));
            format!("st{x}{size} {at}, {}", operand(src))
        }
        Insn::Atomic { op, fetch, size, base, off, src } => atomic(op, fetch, size, &memory(base, off), src),
        Insn::Ja { off } => {
            // Both encodings mean the same; the text keeps them apart.
            let wide = if slot.opcode & 7 == 6 { "32" } else { "" };
            format!("ja{wide} {off:+}")
        }
        Insn::Jmp { width, cond, dst, src, off } => {
            let (name, wide) = (condition(cond), suffix(width));
            format!("{name}{wide} %{dst}, {}, {off:+}", operand(src))
        }
        Insn::Call { target } => match target {
            CallTarget::Helper(n) => match import(n) {
                Some(name) => format!("call helper {name}"),
                None => format!("call helper {}", n as i32),
            },
            CallTarget::Local(off) => format!("call local {off:+}"),
            CallTarget::Btf(id) => format!("call runtime {id}"),
        },
        Insn::Exit => "exit".to_owned(),
    }
}

fn atomic(op: AtomicOp, fetch: bool, size: Size, at: &str, src: Reg) -> String {
    let (name, always_fetches) = match op {
        AtomicOp::Add => ("add", false),
        AtomicOp::Or => ("or", false),
        AtomicOp::And => ("and", false),
        AtomicOp::Xor => ("xor", false),
        AtomicOp::Xchg => ("xchg", true),
        AtomicOp::Cmpxchg => ("cmpxchg", true),
    };
    let fetch = if fetch && !always_fetches { "fetch " } else { "" };
    let wide = if size == Size::W { "32" } else { "" };
    format!("lock {fetch}{name}{wide} {at}, %{src}")
}

const fn alu(op: AluOp) -> &'static str {
    match op {
        AluOp::Add => "add",
        AluOp::Sub => "sub",
        AluOp::Mul => "mul",
        AluOp::Div => "div",
        AluOp::SDiv => "sdiv",
        AluOp::Mod => "mod",
        AluOp::SMod => "smod",
        AluOp::Or => "or",
        AluOp::And => "and",
        AluOp::Xor => "xor",
        AluOp::Lsh => "lsh",
        AluOp::Rsh => "rsh",
        AluOp::Arsh => "arsh",
    }
}

const fn condition(cond: Cond) -> &'static str {
    match cond {
        Cond::Eq => "jeq",
        Cond::Ne => "jne",
        Cond::Gt => "jgt",
        Cond::Ge => "jge",
        Cond::Lt => "jlt",
        Cond::Le => "jle",
        Cond::Set => "jset",
        Cond::SGt => "jsgt",
        Cond::SGe => "jsge",
        Cond::SLt => "jslt",
        Cond::SLe => "jsle",
    }
}

const fn suffix(width: Width) -> &'static str {
    match width {
        Width::W32 => "32",
        Width::W64 => "",
    }
}

const fn letter(size: Size) -> &'static str {
    match size {
        Size::B => "b",
        Size::H => "h",
        Size::W => "w",
        Size::DW => "dw",
    }
}

fn memory(base: Reg, off: i16) -> String {
    match off {
        0 => format!("[%{base}]"),
        _ => format!("[%{base}{off:+}]"),
    }
}

fn operand(src: Operand) -> String {
    match src {
        Operand::Reg(r) => format!("%{r}"),
        Operand::Imm(i) => i.to_string(),
    }
}
