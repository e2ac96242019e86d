//! An assembler for the syntax of the public eBPF conformance suite.
//!
//! One instruction a line; `#`, `//` and `;` start a comment. Registers are `%r0` to `%r10` (the
//! percent sign may be left out; `%r11` to `%r15` exist to write malformed code). Numbers are decimal
//! or hexadecimal (`0x`), negative after a minus sign. A jump goes to a label (`name:`) or a
//! distance (`+3`, `-2`) in slots from the next instruction; the label `exit` is the first
//! `exit`.
//!
//! | form | meaning |
//! |---|---|
//! | `add %r1, %r2`, `add32 %r1, 5` | `add sub mul div sdiv mod smod or and xor lsh rsh arsh mov`; 64 bits, 32 with suffix |
//! | `neg %r1`, `neg32 %r1` | negation |
//! | `movsx864 %r1, %r2` | move with sign extension: `movsx832 movsx1632 movsx864 movsx1664 movsx3264` |
//! | `be16 %r1` | byte order: `le be swap` with `16 32 64` |
//! | `lddw %r1, 0x1122334455667788` | 64-bit immediate; a third operand is the sub-code in `src` |
//! | `ldxw %r1, [%r2+4]`, `ldxsw …` | load: `b h w dw`; `s` extends the sign |
//! | `stw [%r1-8], 5`, `stxw [%r1-8], %r2` | store an immediate or a register |
//! | `lock add [%r1], %r2`, `lock fetch add32 …` | atomic: `add or and xor xchg cmpxchg`, 64 bits, or 32 with the suffix |
//! | `lock fetch_add …` | the same: `fetch_add` is one word, too |
//! | `jeq %r1, %r2, label`, `jeq32 …` | `jeq jne jgt jge jlt jle jset jsgt jsge jslt jsle` |
//! | `ja label`, `ja32 label` | jump with a 16-bit or a 32-bit distance |
//! | `call helper ds_find`, `call helper 5` | helper by name or number; `helper` may be left out |
//! | `call local label`, `callx %r1`, `exit` | function of the program, call through a register, return |
//! | `.raw 0x0000000000000095` | any slot, as the little-endian word that it is |

use crate::helpers::HelperSet;
use crate::image::{Image, ImageError, Kind};
use crate::insn::Slot;
use std::collections::HashMap;

/// Assembled code.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assembly {
    /// The slots; calls by name have `imm` 0.
    pub code: Vec<Slot>,
    /// Calls of helpers by name: slot and name.
    pub calls: Vec<(usize, String)>,
}

/// A line that the assembler does not understand.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct AsmError {
    /// Line of the text, from 1.
    pub line: usize,
    /// The reason.
    pub what: String,
}

impl Assembly {
    /// The code in its layout on disk.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.code.iter().flat_map(|s| s.to_bytes()).collect()
    }

    /// An image of this code with one program.
    ///
    /// # Errors
    /// If a helper is missing, a helper is called by a number that the kind does not know, or a local
    /// call leaves the code.
    pub fn into_image(self, kind: Kind, helpers: &HelperSet) -> Result<Image, ImageError> {
        Image::from_slots(self.code, &self.calls, kind, helpers)
    }
}

/// Assembles a text.
///
/// # Errors
/// The first line that is not understood.
pub fn assemble(text: &str) -> Result<Assembly, AsmError> {
    let mut assembler = Assembler::default();
    for (index, line) in text.lines().enumerate() {
        assembler.line(line, index + 1).map_err(|what| AsmError { line: index + 1, what })?;
    }
    assembler.resolve()?;
    Ok(assembler.out)
}

#[derive(Default)]
struct Assembler {
    out: Assembly,
    labels: HashMap<String, usize>,
    /// Slot, label and line of jumps that wait for their target.
    jumps: Vec<(usize, String, usize)>,
}

impl Assembler {
    fn line(&mut self, line: &str, number: usize) -> Result<(), String> {
        let mut text = line;
        for comment in ["#", "//", ";"] {
            text = text.split(comment).next().unwrap_or_default();
        }
        text = text.trim();
        while let Some((label, rest)) = text.split_once(':') {
            self.label(label.trim())?;
            text = rest.trim();
        }
        if text.is_empty() {
            return Ok(());
        }
        let (mnemonic, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if mnemonic == "lock" {
            return self.atomic(rest.trim());
        }
        let operands: Vec<&str> = match rest.trim() {
            "" => Vec::new(),
            some => some.split(',').map(str::trim).collect(),
        };
        match mnemonic {
            "exit" => {
                let here = self.out.code.len();
                self.labels.entry("exit".to_owned()).or_insert(here);
                self.push(expect::<0>(&operands).map(|[]| slot(0x95, 0, 0, 0, 0)))
            }
            ".raw" => {
                let [word] = expect(&operands)?;
                let word = number_u64(word)?;
                self.push(Ok(Slot::from_bytes(word.to_le_bytes())))
            }
            "lddw" => self.load_imm64(&operands),
            "call" | "callx" => self.call(mnemonic, rest.trim(), number),
            "ja" | "ja32" => {
                let [target] = expect(&operands)?;
                let opcode = if mnemonic == "ja" { 0x05 } else { 0x06 };
                self.jump(slot(opcode, 0, 0, 0, 0), target, number)
            }
            _ => {
                if let Some(jump) = conditional(mnemonic) {
                    let [dst, src, target] = expect(&operands)?;
                    let base = with_operand(jump, register(dst)?, src)?;
                    return self.jump(base, target, number);
                }
                self.push(plain(mnemonic, &operands))
            }
        }
    }

    fn label(&mut self, label: &str) -> Result<(), String> {
        if label.is_empty() || label.contains(char::is_whitespace) {
            return Err(format!("`{label}` is no label"));
        }
        let here = self.out.code.len();
        match self.labels.insert(label.to_owned(), here) {
            None => Ok(()),
            Some(_) => Err(format!("label `{label}` is defined twice")),
        }
    }

    fn push(&mut self, slot: Result<Slot, String>) -> Result<(), String> {
        self.out.code.push(slot?);
        Ok(())
    }

    /// A jump or local call, to a distance or to a label that is resolved at the end.
    fn jump(&mut self, mut slot: Slot, target: &str, line: usize) -> Result<(), String> {
        if target.starts_with(['+', '-']) {
            let distance = number_i64(target.trim_start_matches('+'))?;
            set_distance(&mut slot, distance)?;
        } else {
            let here = self.out.code.len();
            self.jumps.push((here, target.to_owned(), line));
        }
        self.push(Ok(slot))
    }

    fn resolve(&mut self) -> Result<(), AsmError> {
        for (at, label, line) in std::mem::take(&mut self.jumps) {
            let error = |what| AsmError { line, what };
            let target = *self.labels.get(&label).ok_or_else(|| error(format!("label `{label}` is not defined")))?;
            let distance = target as i64 - at as i64 - 1;
            set_distance(&mut self.out.code[at], distance).map_err(error)?;
        }
        Ok(())
    }

    fn load_imm64(&mut self, operands: &[&str]) -> Result<(), String> {
        let (dst, imm, src) = match operands {
            [dst, imm] => (dst, imm, 0),
            [dst, imm, src] => (dst, imm, number_i64(src)?),
            _ => return Err("lddw takes a register and a number".to_owned()),
        };
        let src = u8::try_from(src).ok().filter(|s| *s < 16).ok_or("the sub-code has 4 bits")?;
        let imm = number_u64(imm)?;
        let (low, high) = (imm as u32 as i32, (imm >> 32) as u32 as i32);
        self.push(Ok(slot(0x18, register(dst)?, src, 0, low)))?;
        self.push(Ok(slot(0, 0, 0, 0, high)))
    }

    fn call(&mut self, mnemonic: &str, rest: &str, line: usize) -> Result<(), String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let call = |src, imm| slot(0x85, 0, src, 0, imm);
        match (mnemonic, words.as_slice()) {
            ("call", ["local", target]) => self.jump(call(1, 0), target, line),
            ("call", ["runtime", id]) => self.push(number_i32(id).map(|id| call(2, id))),
            ("call", ["helper", helper]) => self.helper(helper),
            (_, [target]) if register(target).is_ok() => self.push(register(target).map(|r| slot(0x8d, r, 0, 0, 0))),
            ("call", [helper]) => self.helper(helper),
            _ => Err(format!("`{mnemonic} {rest}` is no call")),
        }
    }

    fn helper(&mut self, helper: &str) -> Result<(), String> {
        let number = match helper.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            true => number_i32(helper)?,
            false => {
                self.out.calls.push((self.out.code.len(), helper.to_owned()));
                0
            }
        };
        self.push(Ok(slot(0x85, 0, 0, 0, number)))
    }

    fn atomic(&mut self, rest: &str) -> Result<(), String> {
        let (fetch, rest) = match rest.strip_prefix("fetch_").or_else(|| rest.strip_prefix("fetch ")) {
            Some(rest) => (1, rest.trim()),
            None => (0, rest),
        };
        let (op, operands) =
            rest.split_once(char::is_whitespace).ok_or("an atomic operation takes an address and a register")?;
        let (op, opcode) = match op.strip_suffix("32") {
            Some(op) => (op, 0xc3),
            None => (op, 0xdb),
        };
        let code = match op {
            "add" => fetch,
            "or" => 0x40 | fetch,
            "and" => 0x50 | fetch,
            "xor" => 0xa0 | fetch,
            "xchg" => 0xe1,
            "cmpxchg" => 0xf1,
            _ => return Err(format!("there is no atomic operation `{op}`")),
        };
        let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
        let [address, src] = expect(&operands)?;
        let (base, off) = memory(address)?;
        self.push(register(src).map(|src| slot(opcode, base, src, off, code)))
    }
}

/// Instructions without jumps and calls.
fn plain(mnemonic: &str, operands: &[&str]) -> Result<Slot, String> {
    if let Some(opcode) = arithmetic(mnemonic) {
        let (opcode, off) = opcode;
        let [dst, src] = expect(operands)?;
        let mut s = with_operand(opcode, register(dst)?, src)?;
        s.off = off;
        return Ok(s);
    }
    if let Some((opcode, bits)) = byte_order(mnemonic) {
        let [dst] = expect(operands)?;
        return Ok(slot(opcode, register(dst)?, 0, 0, bits));
    }
    if let Some((opcode, bits)) = sign_extension(mnemonic) {
        let [dst, src] = expect(operands)?;
        return Ok(slot(opcode, register(dst)?, register(src)?, bits, 0));
    }
    if let "neg" | "neg64" | "neg32" = mnemonic {
        let [dst] = expect(operands)?;
        let opcode = if mnemonic == "neg32" { 0x84 } else { 0x87 };
        return Ok(slot(opcode, register(dst)?, 0, 0, 0));
    }
    // Stores of registers first: `stxw` is also `st` with the size `xw`.
    for (prefix, class) in [("ldxs", 0x81), ("ldx", 0x61), ("stx", 0x63), ("st", 0x62)] {
        let Some(size) = mnemonic.strip_prefix(prefix).and_then(size_bits) else {
            continue;
        };
        let opcode = class | size;
        let [a, b] = expect(operands)?;
        return Ok(match class {
            0x81 | 0x61 => {
                let (base, off) = memory(b)?;
                slot(opcode, register(a)?, base, off, 0)
            }
            0x63 => {
                let (base, off) = memory(a)?;
                slot(opcode, base, register(b)?, off, 0)
            }
            _ => {
                let (base, off) = memory(a)?;
                slot(opcode, base, 0, off, number_i32(b)?)
            }
        });
    }
    Err(format!("there is no instruction `{mnemonic}`"))
}

/// Operation code with an immediate operand, and the offset field.
fn arithmetic(mnemonic: &str) -> Option<(u8, i16)> {
    let (op, class) = match mnemonic.strip_suffix("32") {
        Some(op) => (op, 0x04),
        None => (mnemonic.strip_suffix("64").unwrap_or(mnemonic), 0x07),
    };
    let (code, off) = match op {
        "add" => (0x00, 0),
        "sub" => (0x10, 0),
        "mul" => (0x20, 0),
        "div" => (0x30, 0),
        "sdiv" => (0x30, 1),
        "or" => (0x40, 0),
        "and" => (0x50, 0),
        "lsh" => (0x60, 0),
        "rsh" => (0x70, 0),
        "mod" => (0x90, 0),
        "smod" => (0x90, 1),
        "xor" => (0xa0, 0),
        "mov" => (0xb0, 0),
        "arsh" => (0xc0, 0),
        _ => return None,
    };
    Some((code | class, off))
}

fn byte_order(mnemonic: &str) -> Option<(u8, i32)> {
    let digits = mnemonic.find(|c: char| c.is_ascii_digit())?;
    let (op, bits) = mnemonic.split_at(digits);
    let bits = match bits {
        "16" => 16,
        "32" => 32,
        "64" => 64,
        _ => return None,
    };
    let opcode = match op {
        "le" => 0xd4,
        "be" => 0xdc,
        "swap" | "bswap" => 0xd7,
        _ => return None,
    };
    Some((opcode, bits))
}

/// Operation code and width of the source.
fn sign_extension(mnemonic: &str) -> Option<(u8, i16)> {
    Some(match mnemonic {
        "movsx832" => (0xbc, 8),
        "movsx1632" => (0xbc, 16),
        "movsx864" => (0xbf, 8),
        "movsx1664" => (0xbf, 16),
        "movsx3264" => (0xbf, 32),
        _ => return None,
    })
}

/// Operation code of a conditional jump with an immediate operand.
fn conditional(mnemonic: &str) -> Option<u8> {
    let (op, class) = match mnemonic.strip_suffix("32") {
        Some(op) => (op, 0x06),
        None => (mnemonic, 0x05),
    };
    let code = match op {
        "jeq" => 0x10,
        "jgt" => 0x20,
        "jge" => 0x30,
        "jset" => 0x40,
        "jne" => 0x50,
        "jsgt" => 0x60,
        "jsge" => 0x70,
        "jlt" => 0xa0,
        "jle" => 0xb0,
        "jslt" => 0xc0,
        "jsle" => 0xd0,
        _ => return None,
    };
    Some(code | class)
}

fn size_bits(size: &str) -> Option<u8> {
    Some(match size {
        "w" => 0x00,
        "h" => 0x08,
        "b" => 0x10,
        "dw" => 0x18,
        _ => return None,
    })
}

/// A slot with a second operand: a register or an immediate.
fn with_operand(opcode: u8, dst: u8, src: &str) -> Result<Slot, String> {
    match register(src) {
        Ok(src) => Ok(slot(opcode | 0x08, dst, src, 0, 0)),
        Err(_) => Ok(slot(opcode, dst, 0, 0, number_i32(src)?)),
    }
}

fn set_distance(slot: &mut Slot, distance: i64) -> Result<(), String> {
    // Local calls and `ja32` keep the distance in the immediate.
    if matches!(slot.opcode, 0x85 | 0x06) {
        slot.imm = i32::try_from(distance).map_err(|_| too_far(distance))?;
    } else {
        slot.off = i16::try_from(distance).map_err(|_| too_far(distance))?;
    }
    Ok(())
}

fn too_far(distance: i64) -> String {
    format!("the jump of {distance} slots does not fit its field")
}

fn slot(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> Slot {
    Slot { opcode, dst, src, off, imm }
}

fn expect<'a, const N: usize>(operands: &[&'a str]) -> Result<[&'a str; N], String> {
    operands.try_into().map_err(|_| format!("{} operands instead of {N}", operands.len()))
}

fn register(text: &str) -> Result<u8, String> {
    let name = text.strip_prefix('%').unwrap_or(text);
    name.strip_prefix('r')
        .filter(|digits| !digits.starts_with('+'))
        .and_then(|digits| digits.parse().ok())
        .filter(|n| *n < 16)
        .ok_or_else(|| format!("`{text}` is no register"))
}

/// `[%r1+4]`: base and offset.
fn memory(text: &str) -> Result<(u8, i16), String> {
    let bad = || format!("`{text}` is no address such as [%r1+4]");
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or_else(bad)?;
    let Some(sign) = inner.find(['+', '-']) else {
        return Ok((register(inner.trim())?, 0));
    };
    let (base, off) = inner.split_at(sign);
    let off: String = off.chars().filter(|c| !c.is_whitespace()).collect();
    let off = number_i64(off.trim_start_matches('+'))?;
    let off = i16::try_from(off).map_err(|_| format!("the offset {off} has more than 16 bits"))?;
    Ok((register(base.trim())?, off))
}

/// An immediate: signed or unsigned 32 bits, or 64 bits that are the sign extension of 32.
fn number_i32(text: &str) -> Result<i32, String> {
    let value = parse(text)?;
    let extended = u64::try_from(value).ok().and_then(|v| i32::try_from(v as i64).ok());
    i32::try_from(value)
        .or_else(|_| u32::try_from(value).map(|v| v as i32))
        .ok()
        .or(extended)
        .ok_or_else(|| format!("{text} has more than 32 bits"))
}

/// Signed or unsigned 64 bits, as bits.
fn number_u64(text: &str) -> Result<u64, String> {
    let value = parse(text)?;
    u64::try_from(value)
        .or_else(|_| i64::try_from(value).map(|v| v as u64))
        .map_err(|_| format!("{text} has more than 64 bits"))
}

fn number_i64(text: &str) -> Result<i64, String> {
    i64::try_from(parse(text)?).map_err(|_| format!("{text} has more than 64 bits"))
}

fn parse(text: &str) -> Result<i128, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let value = i128::from(value.map_err(|_| format!("`{text}` is no number"))?);
    Ok(if negative { -value } else { value })
}
