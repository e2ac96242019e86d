//! Load Program and Program Activation Management, admin commands of the compute namespace (Computational Programs
//! Command Set 1.x).

use super::command::Sqe;

/// Admin commands of the Computational Programs command set.
pub mod program_opcode {
    /// Load Program.
    pub const LOAD: u8 = 0x85;
    /// Program Activation Management.
    pub const ACTIVATION: u8 = 0x88;
}

/// The type of an eBPF program in an ELF object (PTYPE). The command set gives eBPF no number that we could confirm, so
/// this is the first of a vendor's own.
pub const PROGRAM_TYPE_EBPF: u8 = 0xc0;

/// The type of a program's identifier (PIT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProgramIdType {
    /// There is none.
    None = 0,
    /// A program unique identifier.
    Puid = 1,
}

impl Sqe {
    /// Load Program: `len` bytes at `offset` of a program of `program_len` bytes.
    pub fn load_program(nsid: u32, pind: u16, program_len: u32, offset: u32, len: u32) -> Self {
        Self::new(program_opcode::LOAD, nsid)
            .with_bits(10, 0, 16, pind.into())
            .with_bits(10, 16, 8, PROGRAM_TYPE_EBPF.into())
            .with_dword(11, program_len)
            .with_dword(14, len)
            .with_dword(15, offset)
    }

    /// Load Program with SEL 1: unloads it.
    pub fn unload_program(nsid: u32, pind: u16) -> Self {
        Self::new(program_opcode::LOAD, nsid).with_bits(10, 0, 16, pind.into()).with_bits(10, 24, 1, 1)
    }

    /// Program Activation Management.
    pub fn activate_program(nsid: u32, pind: u16, activate: bool) -> Self {
        Self::new(program_opcode::ACTIVATION, nsid).with_bits(10, 0, 16, pind.into()).with_bits(
            10,
            16,
            4,
            activate.into(),
        )
    }

    /// Gives the program to load an identifier (PIT 1 and PID, dwords 12 and 13).
    #[must_use]
    pub fn with_puid(self, puid: u64) -> Self {
        self.with_bits(10, 25, 3, ProgramIdType::Puid as u32).with_qword(12, puid)
    }

    /// PIND (dword 10 bits 15:0) of Load Program and Program Activation Management.
    pub const fn program_index(&self) -> u16 {
        self.bits(10, 0, 16) as u16
    }

    /// PTYPE of Load Program (dword 10 bits 23:16).
    pub const fn program_type(&self) -> u8 {
        self.bits(10, 16, 8) as u8
    }

    /// SEL of Load Program (dword 10 bit 24): unload.
    pub const fn unloads_program(&self) -> bool {
        self.bits(10, 24, 1) != 0
    }

    /// PIT of Load Program (dword 10 bits 27:25); `None`: a reserved value.
    pub const fn program_id_type(&self) -> Option<ProgramIdType> {
        match self.bits(10, 25, 3) {
            0 => Some(ProgramIdType::None),
            1 => Some(ProgramIdType::Puid),
            _ => None,
        }
    }

    /// PSIZE of Load Program (dword 11): bytes of the program.
    pub const fn program_len(&self) -> u32 {
        self.dword(11)
    }

    /// PID of Load Program (dwords 12 and 13).
    pub const fn program_puid(&self) -> u64 {
        self.qword(12)
    }

    /// NUMB of Load Program (dword 14): bytes of this transfer.
    pub const fn load_len(&self) -> u32 {
        self.dword(14)
    }

    /// LOFF of Load Program (dword 15).
    pub const fn load_offset(&self) -> u32 {
        self.dword(15)
    }

    /// SEL of Program Activation Management (dword 10 bits 19:16): 0 deactivate, 1 activate.
    pub const fn activation_select(&self) -> u32 {
        self.bits(10, 16, 4)
    }
}
