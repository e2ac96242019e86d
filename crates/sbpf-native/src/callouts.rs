//! The functions that compiled code calls in rare cases: an access that its inline check did not prove,
//! the end of a slice, a helper.
//!
//! All but the helper call take their arguments from [`Machine::args`] and answer through the machine:
//! `result` is the value, `args[STATUS]` the [`Status`]. So they can be called with a convention that
//! saves every register and returns none, which leaves the hot path's registers where they are.

use diskside_sbpf::insn::Size;
use diskside_sbpf::machine::{Machine, Status};

/// Where in [`Machine::args`] a callout leaves its [`Status`].
pub const STATUS: usize = 0;
/// Where in [`Machine::args`] a callout finds the program-visible address.
pub const ADDRESS: usize = 1;
/// Where in [`Machine::args`] a callout finds the packed [`Access`], or the instruction slot.
pub const ACCESS: usize = 2;
/// Where in [`Machine::args`] a callout finds the value to store.
pub const VALUE: usize = 3;
/// Where in [`Machine::args`] [`load_all`] finds the addresses that its loads are relative to.
pub const BASES: [usize; 3] = [1, 3, 4];

/// An access, packed into one argument: instruction slot, signedness and size.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Its instruction slot.
    pub insn: u32,
    /// How wide.
    pub size: Size,
    /// Whether a load extends the sign.
    pub signed: bool,
}

impl Access {
    /// All of it in one number.
    #[must_use]
    pub fn pack(self) -> u64 {
        let size = match self.size {
            Size::B => 0,
            Size::H => 1,
            Size::W => 2,
            Size::DW => 3,
        };
        u64::from(self.insn) << 8 | u64::from(self.signed) << 2 | size
    }

    fn unpack(packed: u64) -> Self {
        let size = match packed & 3 {
            0 => Size::B,
            1 => Size::H,
            2 => Size::W,
            _ => Size::DW,
        };
        Self { insn: (packed >> 8) as u32, signed: packed & 4 != 0, size }
    }
}

/// One of the loads of a [`LoadList`].
#[derive(Clone, Copy, Debug)]
pub struct ListedLoad {
    /// Which of [`BASES`] it is relative to.
    pub base: usize,
    /// Offset from there.
    pub off: i64,
    /// The access.
    pub access: Access,
}

/// Loads with nothing between them that could be seen: all are made by one callout. At most
/// [`LOADED_MAX`](diskside_sbpf::machine::LOADED_MAX).
#[derive(Clone, Debug, Default)]
pub struct LoadList {
    /// In the order in which they are made.
    pub loads: Vec<ListedLoad>,
}

/// Makes the loads of a list one after another, with the full check. The values go to [`Machine::loaded`].
///
/// # Safety
/// As [`load`], and the machine has a pointer to a [`LoadList`] as its [`ACCESS`].
pub unsafe extern "C" fn load_all(machine: *mut Machine) {
    // SAFETY: the caller's promise.
    let machine = unsafe { &mut *machine };
    // SAFETY: the caller's promise.
    let list = unsafe { &*std::ptr::with_exposed_provenance::<LoadList>(machine.args[ACCESS] as usize) };
    for (i, load) in list.loads.iter().enumerate() {
        let address = machine.args[BASES[load.base]].wrapping_add_signed(load.off);
        match checked_load(machine, address, load.access) {
            Some(value) => machine.loaded[i] = value,
            None => return answer(machine, Status::Trapped),
        }
    }
    answer(machine, Status::Returned);
}

/// Loads with the full check.
///
/// # Safety
/// `machine` is the exclusive pointer that compiled code was entered with.
pub unsafe extern "C" fn load(machine: *mut Machine) {
    // SAFETY: the caller's promise.
    let machine = unsafe { &mut *machine };
    let address = machine.args[ADDRESS];
    let access = Access::unpack(machine.args[ACCESS]);
    match checked_load(machine, address, access) {
        Some(value) => {
            machine.result = value;
            answer(machine, Status::Returned);
        }
        None => answer(machine, Status::Trapped),
    }
}

/// The value at an address, extended to 64 bits; `None` when the machine has recorded a trap.
fn checked_load(machine: &mut Machine, address: u64, access: Access) -> Option<u64> {
    machine.at(access.insn);
    let host = machine.resolve(address, access.size.bytes(), false)?;
    // SAFETY: `resolve` proved that so many bytes there are mapped and readable.
    let raw = unsafe {
        match access.size {
            Size::B => u64::from(host.read()),
            Size::H => u64::from(u16::from_le(host.cast::<u16>().read_unaligned())),
            Size::W => u64::from(u32::from_le(host.cast::<u32>().read_unaligned())),
            Size::DW => u64::from_le(host.cast::<u64>().read_unaligned()),
        }
    };
    Some(if access.signed {
        let shift = 64 - 8 * access.size.bytes();
        (((raw << shift) as i64) >> shift) as u64
    } else {
        raw
    })
}

/// Stores with the full check.
///
/// # Safety
/// As [`load`].
pub unsafe extern "C" fn store(machine: *mut Machine) {
    // SAFETY: the caller's promise.
    let machine = unsafe { &mut *machine };
    let address = machine.args[ADDRESS];
    let access = Access::unpack(machine.args[ACCESS]);
    machine.at(access.insn);
    let value = machine.args[VALUE];
    let Some(host) = machine.resolve(address, access.size.bytes(), true) else {
        return answer(machine, Status::Trapped);
    };
    // SAFETY: `resolve` proved that so many bytes there are mapped and writable.
    unsafe {
        match access.size {
            Size::B => host.write(value as u8),
            Size::H => host.cast::<u16>().write_unaligned((value as u16).to_le()),
            Size::W => host.cast::<u32>().write_unaligned((value as u32).to_le()),
            Size::DW => host.cast::<u64>().write_unaligned(value.to_le()),
        }
    }
    answer(machine, Status::Returned);
}

/// Finds the host address of an atomic operand, with the full check.
///
/// # Safety
/// As [`load`].
pub unsafe extern "C" fn resolve_atomic(machine: *mut Machine) {
    // SAFETY: the caller's promise.
    let machine = unsafe { &mut *machine };
    let address = machine.args[ADDRESS];
    let access = Access::unpack(machine.args[ACCESS]);
    machine.at(access.insn);
    match machine.resolve_atomic(address, access.size.bytes()) {
        Some(host) => {
            machine.result = host.expose_provenance() as u64;
            answer(machine, Status::Returned);
        }
        None => answer(machine, Status::Trapped),
    }
}

/// Ends a slice: `slice` holds the fuel before and after.
///
/// # Safety
/// As [`load`].
pub unsafe extern "C" fn refill(machine: *mut Machine) {
    // SAFETY: the caller's promise.
    let machine = unsafe { &mut *machine };
    machine.at(machine.args[ACCESS] as u32);
    let status = machine.refill();
    answer(machine, status);
}

/// Calls a helper: arguments in `args`, result in `result`.
///
/// # Safety
/// As [`load`].
pub unsafe extern "C" fn helper(machine: *mut Machine, import: u32, insn: u32) -> u32 {
    // SAFETY: the caller's promise.
    let machine = unsafe { &mut *machine };
    machine.call_helper(import, insn) as u32
}

/// Zeroes a part of the stack that is too long to zero inline.
///
/// # Safety
/// `len` bytes at `host` are the stack's.
pub unsafe extern "C" fn zero(host: *mut u8, len: u64) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::write_bytes(host, 0, len as usize) };
}

/// Roundings, for processors that have no instruction for them.
pub mod rounding {
    /// Up.
    #[must_use]
    pub extern "C" fn ceil_f32(x: f32) -> f32 {
        x.ceil()
    }
    /// Up.
    #[must_use]
    pub extern "C" fn ceil_f64(x: f64) -> f64 {
        x.ceil()
    }
    /// Down.
    #[must_use]
    pub extern "C" fn floor_f32(x: f32) -> f32 {
        x.floor()
    }
    /// Down.
    #[must_use]
    pub extern "C" fn floor_f64(x: f64) -> f64 {
        x.floor()
    }
    /// Towards zero.
    #[must_use]
    pub extern "C" fn trunc_f32(x: f32) -> f32 {
        x.trunc()
    }
    /// Towards zero.
    #[must_use]
    pub extern "C" fn trunc_f64(x: f64) -> f64 {
        x.trunc()
    }
    /// To the nearest, ties to even.
    #[must_use]
    pub extern "C" fn nearest_f32(x: f32) -> f32 {
        x.round_ties_even()
    }
    /// To the nearest, ties to even.
    #[must_use]
    pub extern "C" fn nearest_f64(x: f64) -> f64 {
        x.round_ties_even()
    }
}

fn answer(machine: &mut Machine, status: Status) {
    machine.args[STATUS] = status as u64;
}
