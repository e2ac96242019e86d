//! Memory for machine code: written while it is data, executed once it is code, never both.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::io;
use std::ptr::NonNull;

/// Executable pages, unmapped on drop.
#[derive(Debug)]
pub struct CodeMemory {
    base: NonNull<u8>,
    mapped_len_bytes: usize,
    code_len_bytes: usize,
}

// SAFETY: after `new` the pages are never written again, so any thread may read and execute them.
unsafe impl Send for CodeMemory {}
// SAFETY: as above.
unsafe impl Sync for CodeMemory {}

impl CodeMemory {
    /// Copies `code` into pages of its own and makes them executable. `relocate` gets the address
    /// that the code will run at and patches it before that.
    pub fn new(mut code: Vec<u8>, relocate: impl FnOnce(&mut [u8], usize)) -> io::Result<Self> {
        let code_len_bytes = code.len();
        let mapped_len_bytes = code_len_bytes.max(1).next_multiple_of(rustix::param::page_size());
        // SAFETY: a fresh private mapping at an address that the kernel chooses touches nothing else.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped_len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Self { base, mapped_len_bytes, code_len_bytes };
        relocate(&mut code, base.as_ptr().addr());
        // SAFETY: the mapping is writable, at least this long, and does not overlap `code`.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), base.as_ptr(), code_len_bytes) };
        // SAFETY: the range is the whole of our own mapping, and nobody else knows of it yet.
        unsafe { mprotect(base.as_ptr().cast(), mapped_len_bytes, MprotectFlags::READ | MprotectFlags::EXEC) }?;
        memory.synchronise_instruction_cache();
        Ok(memory)
    }

    /// The address of the byte at this offset.
    pub fn at(&self, offset: usize) -> *const u8 {
        assert!(offset < self.code_len_bytes, "offsets are those of functions");
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Bytes of code.
    pub fn code_len_bytes(&self) -> usize {
        self.code_len_bytes
    }

    /// Makes what was written visible to instruction fetch. x86-64 does so by itself.
    #[cfg(not(target_arch = "aarch64"))]
    fn synchronise_instruction_cache(&self) {}

    /// Cleans the data cache to the point of unification and drops stale instruction lines. Other
    /// cores see the code through the change of the page's protection, which the kernel broadcasts.
    #[cfg(target_arch = "aarch64")]
    fn synchronise_instruction_cache(&self) {
        const LINE_LEN_BYTES_MIN: usize = 16;
        let start = self.base.as_ptr().addr();
        let lines = (start..start + self.code_len_bytes).step_by(LINE_LEN_BYTES_MIN);
        // SAFETY: cache maintenance by address on our own readable mapping changes no data.
        unsafe {
            for line in lines.clone() {
                std::arch::asm!("dc cvau, {0}", in(reg) line, options(nostack, preserves_flags));
            }
            std::arch::asm!("dsb ish", options(nostack, preserves_flags));
            for line in lines {
                std::arch::asm!("ic ivau, {0}", in(reg) line, options(nostack, preserves_flags));
            }
            std::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags));
        }
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and code of a dropped module is no longer running: `enter`
        // borrows the module.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped_len_bytes) };
        debug_assert!(unmapped.is_ok(), "our own mapping can be unmapped");
    }
}
