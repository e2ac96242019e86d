//! The parts that the compiling tiers share: memory for machine code, its entry, and what it calls out to.
//!
//! A native function takes the machine, `r1` to `r5` and the frame pointer, and returns a status and
//! `r0`, by the platform's C convention. A trap returns through the native frames as a status; no
//! signal handler is involved.

pub mod callouts;
mod code_memory;

pub use code_memory::CodeMemory;

use diskside_sbpf::machine::{Machine, Status};

/// The result of native functions: in two registers.
#[repr(C)]
struct Outcome {
    status: u64,
    value: u64,
}

/// The native form of a function: the machine, `r1` to `r5`, the frame pointer.
type NativeFunction = unsafe extern "C" fn(*mut Machine, u64, u64, u64, u64, u64, u64) -> Outcome;

/// Where code is entered. It must not outlive the memory that it lies in.
#[derive(Clone, Copy, Debug)]
pub struct EntryPoint(NativeFunction);

impl CodeMemory {
    /// The native function at this offset.
    ///
    /// # Safety
    /// At `offset` starts a function of the signature that this crate's documentation gives.
    #[must_use]
    pub unsafe fn entry_point(&self, offset: usize) -> EntryPoint {
        let entry = self.at(offset);
        // SAFETY: the caller promises a function of this signature there.
        EntryPoint(unsafe { std::mem::transmute::<*const u8, NativeFunction>(entry) })
    }
}

impl EntryPoint {
    /// Runs the native function.
    ///
    /// # Safety
    /// Its memory is still mapped, it does what the checked IR of its program says, and what `Code::enter` asks
    /// of its caller holds.
    #[must_use]
    #[inline]
    pub unsafe fn enter(self, machine: &mut Machine, args: &[u64; 5], fp: u64) -> (Status, u64) {
        let &[r1, r2, r3, r4, r5] = args;
        // SAFETY: the caller promises that its code and what is mapped in the machine fit together.
        let outcome = unsafe { (self.0)(machine, r1, r2, r3, r4, r5, fp) };
        let status = if outcome.status == Status::Returned as u64 { Status::Returned } else { Status::Trapped };
        (status, outcome.value)
    }
}
