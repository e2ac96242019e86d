//! One eBPF instruction, decoded (RFC 9669).
//!
//! [`Slot`] is the 8-byte wire form; [`Insn`] is its meaning. Decoding is total: every slot is an
//! [`Insn`] or a [`DecodeError`] that names the field that is wrong.

use std::fmt;

/// A register, `r0` to `r10`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg(pub u8);

impl Reg {
    /// The return value.
    pub const R0: Self = Self(0);
    /// The frame pointer, read-only to programs.
    pub const FP: Self = Self(10);
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// One 8-byte instruction slot (RFC 9669 section 3.1). `LDDW` takes two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Slot {
    /// Operation code: class, size or operation, mode or source.
    pub opcode: u8,
    /// Destination register number, 4 bits.
    pub dst: u8,
    /// Source register number, 4 bits; a sub-code in calls and `LDDW`.
    pub src: u8,
    /// Signed offset.
    pub off: i16,
    /// Signed immediate.
    pub imm: i32,
}

impl Slot {
    /// The length of a slot.
    pub const LEN_BYTES: usize = 8;

    /// Reads a slot in little-endian layout.
    #[must_use]
    pub fn from_bytes(b: [u8; 8]) -> Self {
        Self {
            opcode: b[0],
            dst: b[1] & 0x0f,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// Writes the slot in little-endian layout.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        let off = self.off.to_le_bytes();
        let imm = self.imm.to_le_bytes();
        [self.opcode, (self.src << 4) | (self.dst & 0x0f), off[0], off[1], imm[0], imm[1], imm[2], imm[3]]
    }
}

/// Operand width of arithmetic and jumps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// The low 32 bits; an arithmetic result is zero-extended.
    W32,
    /// All 64 bits.
    W64,
}

/// Size of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Size {
    /// 1 byte.
    B,
    /// 2 bytes.
    H,
    /// 4 bytes.
    W,
    /// 8 bytes.
    DW,
}

impl Size {
    /// The size in bytes: 1, 2, 4 or 8.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::B => 1,
            Self::H => 2,
            Self::W => 4,
            Self::DW => 8,
        }
    }
}

/// The second operand of arithmetic and jumps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A 32-bit immediate, sign-extended where 64 bits are used.
    Imm(i32),
}

/// Binary arithmetic (RFC 9669 section 4.1). Division by zero gives 0, modulo by zero the dividend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub enum AluOp {
    Add,
    Sub,
    Mul,
    Div,
    SDiv,
    Mod,
    SMod,
    Or,
    And,
    Xor,
    Lsh,
    Rsh,
    Arsh,
}

/// Byte order conversion (RFC 9669 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteOrder {
    /// To little endian: truncates on this product's little-endian hosts.
    ToLe,
    /// To big endian.
    ToBe,
    /// Unconditional swap.
    Swap,
}

/// Condition of a jump (RFC 9669 section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are those of the RFC; S is signed")]
pub enum Cond {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
    Set,
    SGt,
    SGe,
    SLt,
    SLe,
}

impl Cond {
    /// The condition that holds when this does not; `Set` has no such condition.
    #[must_use]
    pub const fn negated(self) -> Option<Self> {
        Some(match self {
            Self::Eq => Self::Ne,
            Self::Ne => Self::Eq,
            Self::Gt => Self::Le,
            Self::Ge => Self::Lt,
            Self::Lt => Self::Ge,
            Self::Le => Self::Gt,
            Self::SGt => Self::SLe,
            Self::SGe => Self::SLt,
            Self::SLt => Self::SGe,
            Self::SLe => Self::SGt,
            Self::Set => return None,
        })
    }
}

/// Atomic operation (RFC 9669 section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOp {
    /// `*p += v`.
    Add,
    /// `*p |= v`.
    Or,
    /// `*p &= v`.
    And,
    /// `*p ^= v`.
    Xor,
    /// Exchange; always fetches.
    Xchg,
    /// Compare with `r0` and exchange; `r0` gets the old value.
    Cmpxchg,
}

/// The target of a call. In a linked image helper numbers are indices into its import table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallTarget {
    /// A helper: its number, or in a linked image an import index.
    Helper(u32),
    /// A function of the program: distance in slots from the next instruction.
    Local(i32),
    /// A helper by BTF id (kernel function); never supported.
    Btf(i32),
}

/// A decoded instruction. `off` of jumps counts slots from the next instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are the operands that the variant's doc shows")]
pub enum Insn {
    /// `dst = dst op src`.
    Alu { width: Width, op: AluOp, dst: Reg, src: Operand },
    /// `dst = src`.
    Mov { width: Width, dst: Reg, src: Operand },
    /// `dst = sign-extend(src, bits)`, bits 8, 16 or 32.
    MovSx { width: Width, dst: Reg, src: Reg, bits: u8 },
    /// `dst = -dst`.
    Neg { width: Width, dst: Reg },
    /// Byte order of the low `bits` (16, 32, 64) of `dst`; higher bits become 0.
    End { order: ByteOrder, dst: Reg, bits: u8 },
    /// `dst = imm`, two slots.
    LoadImm64 { dst: Reg, imm: u64, src: u8 },
    /// `dst = *(size *)(base + off)`, zero- or sign-extended.
    Load { dst: Reg, base: Reg, off: i16, size: Size, signed: bool },
    /// `*(size *)(base + off) = src`.
    Store { base: Reg, off: i16, size: Size, src: Operand },
    /// Atomic on `*(size *)(base + off)`; `fetch` puts the old value into `src` (`r0` for cmpxchg).
    Atomic { op: AtomicOp, fetch: bool, size: Size, base: Reg, off: i16, src: Reg },
    /// Unconditional jump.
    Ja { off: i32 },
    /// Conditional jump.
    Jmp { width: Width, cond: Cond, dst: Reg, src: Operand, off: i16 },
    /// Call.
    Call { target: CallTarget },
    /// Return `r0`.
    Exit,
}

impl Insn {
    /// How many slots the instruction takes.
    #[must_use]
    pub const fn slots(&self) -> usize {
        match self {
            Self::LoadImm64 { .. } => 2,
            _ => 1,
        }
    }
}

/// Why a slot is not an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// No instruction has this operation code.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// The legacy packet access instructions (`ABS`, `IND`) are deprecated by the RFC.
    #[error("legacy packet access (opcode {0:#04x}) is not supported")]
    LegacyPacket(u8),
    /// `callx`: a call through a register.
    #[error("indirect call (callx) is not supported")]
    IndirectCall,
    /// A register number above 10.
    #[error("register r{0} does not exist")]
    BadRegister(u8),
    /// A field that must be zero is not.
    #[error("reserved field `{0}` must be zero")]
    ReservedField(&'static str),
    /// An offset, immediate or source that this opcode does not define.
    #[error("undefined {field} {value} for opcode {opcode:#04x}")]
    BadField {
        /// The operation code.
        opcode: u8,
        /// `off`, `imm` or `src`.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// `LDDW` is the last slot, or its second slot is not all-zero apart from `imm`.
    #[error("the second half of a 64-bit immediate is missing or malformed")]
    TruncatedImm64,
}

impl DecodeError {
    /// True for a well-formed instruction that this product leaves out, false for a malformed one.
    #[must_use]
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::LegacyPacket(_) | Self::IndirectCall)
    }
}

const CLASS_LD: u8 = 0;
const CLASS_LDX: u8 = 1;
const CLASS_ST: u8 = 2;
const CLASS_STX: u8 = 3;
const CLASS_ALU: u8 = 4;
const CLASS_JMP: u8 = 5;
const CLASS_JMP32: u8 = 6;
const CLASS_ALU64: u8 = 7;

/// Decodes the instruction at the front of `slots`.
///
/// # Errors
/// A [`DecodeError`] for anything that RFC 9669 does not define.
pub fn decode(slots: &[Slot]) -> Result<Insn, DecodeError> {
    let Some(&s) = slots.first() else {
        return Err(DecodeError::TruncatedImm64);
    };
    match s.opcode & 7 {
        CLASS_LD => decode_ld(s, slots.get(1)),
        CLASS_LDX => decode_ldx(s),
        CLASS_ST | CLASS_STX => decode_store(s),
        CLASS_ALU => decode_alu(s, Width::W32),
        CLASS_ALU64 => decode_alu(s, Width::W64),
        CLASS_JMP => decode_jmp(s, Width::W64),
        _ => {
            debug_assert_eq!(s.opcode & 7, CLASS_JMP32);
            decode_jmp(s, Width::W32)
        }
    }
}

fn decode_ld(s: Slot, second: Option<&Slot>) -> Result<Insn, DecodeError> {
    match s.opcode {
        0x18 => {
            let hi = second.ok_or(DecodeError::TruncatedImm64)?;
            if hi.opcode != 0 || hi.dst != 0 || hi.src != 0 || hi.off != 0 {
                return Err(DecodeError::TruncatedImm64);
            }
            zero(s.off == 0, "off")?;
            if s.src > 6 {
                return Err(bad(s, "src", i64::from(s.src)));
            }
            let imm = u64::from(s.imm as u32) | (u64::from(hi.imm as u32) << 32);
            Ok(Insn::LoadImm64 { dst: dst_reg(s)?, imm, src: s.src })
        }
        0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 => Err(DecodeError::LegacyPacket(s.opcode)),
        op => Err(DecodeError::UnknownOpcode(op)),
    }
}

fn decode_ldx(s: Slot) -> Result<Insn, DecodeError> {
    let signed = match s.opcode & 0xe0 {
        0x60 => false,
        0x80 if s.opcode & 0x18 != 0x18 => true,
        _ => return Err(DecodeError::UnknownOpcode(s.opcode)),
    };
    zero(s.imm == 0, "imm")?;
    Ok(Insn::Load { dst: dst_reg(s)?, base: src_reg(s)?, off: s.off, size: size_of(s.opcode), signed })
}

fn decode_store(s: Slot) -> Result<Insn, DecodeError> {
    let is_reg = s.opcode & 7 == CLASS_STX;
    let base = reg(s.dst)?;
    let size = size_of(s.opcode);
    match s.opcode & 0xe0 {
        0x60 if is_reg => {
            zero(s.imm == 0, "imm")?;
            Ok(Insn::Store { base, off: s.off, size, src: Operand::Reg(src_reg(s)?) })
        }
        0x60 => {
            zero(s.src == 0, "src")?;
            Ok(Insn::Store { base, off: s.off, size, src: Operand::Imm(s.imm) })
        }
        0xc0 if is_reg => {
            if size != Size::W && size != Size::DW {
                return Err(DecodeError::UnknownOpcode(s.opcode));
            }
            let (op, fetch) = match s.imm {
                0x00 => (AtomicOp::Add, false),
                0x01 => (AtomicOp::Add, true),
                0x40 => (AtomicOp::Or, false),
                0x41 => (AtomicOp::Or, true),
                0x50 => (AtomicOp::And, false),
                0x51 => (AtomicOp::And, true),
                0xa0 => (AtomicOp::Xor, false),
                0xa1 => (AtomicOp::Xor, true),
                0xe1 => (AtomicOp::Xchg, true),
                0xf1 => (AtomicOp::Cmpxchg, true),
                v => return Err(bad(s, "imm", i64::from(v))),
            };
            let src = src_reg(s)?;
            if fetch && src == Reg::FP && op != AtomicOp::Cmpxchg {
                return Err(bad(s, "src", i64::from(s.src)));
            }
            Ok(Insn::Atomic { op, fetch, size, base, off: s.off, src })
        }
        _ => Err(DecodeError::UnknownOpcode(s.opcode)),
    }
}

fn decode_alu(s: Slot, width: Width) -> Result<Insn, DecodeError> {
    let src_is_reg = s.opcode & 0x08 != 0;
    let code = s.opcode & 0xf0;
    let dst = dst_reg(s)?;
    match code {
        0xd0 => return decode_end(s, width, dst),
        0x80 => {
            if src_is_reg {
                return Err(DecodeError::UnknownOpcode(s.opcode));
            }
            zero(s.src == 0, "src")?;
            zero(s.off == 0, "off")?;
            zero(s.imm == 0, "imm")?;
            return Ok(Insn::Neg { width, dst });
        }
        0xe0 | 0xf0 => return Err(DecodeError::UnknownOpcode(s.opcode)),
        _ => {}
    }
    let src = operand(s, src_is_reg)?;
    if code == 0xb0 {
        return match (s.off, src) {
            (0, _) => Ok(Insn::Mov { width, dst, src }),
            (8 | 16, Operand::Reg(r)) => Ok(Insn::MovSx { width, dst, src: r, bits: s.off as u8 }),
            (32, Operand::Reg(r)) if width == Width::W64 => Ok(Insn::MovSx { width, dst, src: r, bits: 32 }),
            (v, _) => Err(bad(s, "off", i64::from(v))),
        };
    }
    let op = match (code, s.off) {
        (0x00, 0) => AluOp::Add,
        (0x10, 0) => AluOp::Sub,
        (0x20, 0) => AluOp::Mul,
        (0x30, 0) => AluOp::Div,
        (0x30, 1) => AluOp::SDiv,
        (0x40, 0) => AluOp::Or,
        (0x50, 0) => AluOp::And,
        (0x60, 0) => AluOp::Lsh,
        (0x70, 0) => AluOp::Rsh,
        (0x90, 0) => AluOp::Mod,
        (0x90, 1) => AluOp::SMod,
        (0xa0, 0) => AluOp::Xor,
        (0xc0, 0) => AluOp::Arsh,
        (_, v) => return Err(bad(s, "off", i64::from(v))),
    };
    Ok(Insn::Alu { width, op, dst, src })
}

fn decode_end(s: Slot, width: Width, dst: Reg) -> Result<Insn, DecodeError> {
    let order = match (width, s.opcode & 0x08 != 0) {
        (Width::W32, false) => ByteOrder::ToLe,
        (Width::W32, true) => ByteOrder::ToBe,
        (Width::W64, false) => ByteOrder::Swap,
        (Width::W64, true) => return Err(DecodeError::UnknownOpcode(s.opcode)),
    };
    zero(s.src == 0, "src")?;
    zero(s.off == 0, "off")?;
    match s.imm {
        16 | 32 | 64 => Ok(Insn::End { order, dst, bits: s.imm as u8 }),
        v => Err(bad(s, "imm", i64::from(v))),
    }
}

fn decode_jmp(s: Slot, width: Width) -> Result<Insn, DecodeError> {
    let src_is_reg = s.opcode & 0x08 != 0;
    let cond = match s.opcode & 0xf0 {
        0x00 => {
            if src_is_reg {
                return Err(DecodeError::UnknownOpcode(s.opcode));
            }
            zero(s.dst == 0, "dst")?;
            zero(s.src == 0, "src")?;
            return match width {
                Width::W64 => {
                    zero(s.imm == 0, "imm")?;
                    Ok(Insn::Ja { off: i32::from(s.off) })
                }
                Width::W32 => {
                    zero(s.off == 0, "off")?;
                    Ok(Insn::Ja { off: s.imm })
                }
            };
        }
        0x80 => return decode_call(s, width, src_is_reg),
        0x90 => {
            if src_is_reg || width == Width::W32 {
                return Err(DecodeError::UnknownOpcode(s.opcode));
            }
            zero(s.dst == 0, "dst")?;
            zero(s.src == 0, "src")?;
            zero(s.off == 0, "off")?;
            zero(s.imm == 0, "imm")?;
            return Ok(Insn::Exit);
        }
        0x10 => Cond::Eq,
        0x20 => Cond::Gt,
        0x30 => Cond::Ge,
        0x40 => Cond::Set,
        0x50 => Cond::Ne,
        0x60 => Cond::SGt,
        0x70 => Cond::SGe,
        0xa0 => Cond::Lt,
        0xb0 => Cond::Le,
        0xc0 => Cond::SLt,
        0xd0 => Cond::SLe,
        _ => return Err(DecodeError::UnknownOpcode(s.opcode)),
    };
    Ok(Insn::Jmp { width, cond, dst: reg(s.dst)?, src: operand(s, src_is_reg)?, off: s.off })
}

fn decode_call(s: Slot, width: Width, indirect: bool) -> Result<Insn, DecodeError> {
    if width == Width::W32 {
        return Err(DecodeError::UnknownOpcode(s.opcode));
    }
    if indirect {
        return Err(DecodeError::IndirectCall);
    }
    zero(s.dst == 0, "dst")?;
    zero(s.off == 0, "off")?;
    let target = match s.src {
        0 => CallTarget::Helper(s.imm as u32),
        1 => CallTarget::Local(s.imm),
        2 => CallTarget::Btf(s.imm),
        v => return Err(bad(s, "src", i64::from(v))),
    };
    Ok(Insn::Call { target })
}

fn operand(s: Slot, is_reg: bool) -> Result<Operand, DecodeError> {
    if is_reg {
        zero(s.imm == 0, "imm")?;
        Ok(Operand::Reg(src_reg(s)?))
    } else {
        zero(s.src == 0, "src")?;
        Ok(Operand::Imm(s.imm))
    }
}

fn reg(n: u8) -> Result<Reg, DecodeError> {
    if n <= 10 { Ok(Reg(n)) } else { Err(DecodeError::BadRegister(n)) }
}

fn dst_reg(s: Slot) -> Result<Reg, DecodeError> {
    reg(s.dst)
}

fn src_reg(s: Slot) -> Result<Reg, DecodeError> {
    reg(s.src)
}

fn size_of(opcode: u8) -> Size {
    match opcode & 0x18 {
        0x00 => Size::W,
        0x08 => Size::H,
        0x10 => Size::B,
        _ => Size::DW,
    }
}

fn zero(ok: bool, field: &'static str) -> Result<(), DecodeError> {
    if ok { Ok(()) } else { Err(DecodeError::ReservedField(field)) }
}

fn bad(s: Slot, field: &'static str, value: i64) -> DecodeError {
    DecodeError::BadField { opcode: s.opcode, field, value }
}
