//! The interface that every engine in a comparison implements, how engines are compared, and the engines that every
//! comparison has: native code and our tiers.

pub mod compare;
pub mod measure;
pub mod native;
pub mod tiers;

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CPU time that this thread has used. Unlike the wall clock it does not count other tenants.
#[must_use]
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// One workload at one size.
#[derive(Clone, Debug)]
pub struct Task {
    /// The workload's name.
    pub name: &'static str,
    /// The eBPF object for our tiers.
    pub object: &'static [u8],
    /// The program in `object`.
    pub program: &'static str,
    /// The same source as scalar and as vectorised native code.
    pub native: [native::Function; 2],
    /// The eBPF object, with the entry for engines whose programs see one memory.
    pub peer_object: &'static [u8],
    /// The WebAssembly module, with the same entry.
    pub wasm_module: &'static [u8],
    /// What the function reads.
    pub input: Vec<u8>,
    /// The function's arguments.
    pub args: Vec<u8>,
    /// Most bytes that the function may write.
    pub out_cap: usize,
    /// Bytes of the output that the function reads before it writes them: zeroes at the start of each call.
    pub zeroed_len: usize,
}

/// `struct ds_call`: a function's information about its call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallContext {
    size: u32,
    flags: u32,
    args_len: u64,
    out_cap: u64,
    in_offset: u64,
    record_index: u64,
    source_len: u64,
    source_index: u32,
    chunk_index: u32,
}

impl CallContext {
    /// The first and last call over a task's input.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        Self {
            size: size_of::<Self>() as u32,
            flags: 3,
            args_len: task.args.len() as u64,
            out_cap: task.out_cap as u64,
            in_offset: 0,
            record_index: u64::MAX,
            source_len: task.input.len() as u64,
            source_index: 0,
            chunk_index: 0,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the struct is integers without padding.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// A compiled workload, ready to be called again and again.
pub trait Runner {
    /// One call; what the function returned.
    ///
    /// # Errors
    /// The engine's words.
    fn call(&mut self) -> Result<i64, String>;

    /// The output buffer.
    fn output(&mut self) -> &mut [u8];

    /// Overwrites the arguments' first bytes, for calls that differ.
    fn set_args(&mut self, bytes: &[u8]);
}

/// An engine: compiles a task, and says how long that took.
pub struct Engine {
    /// Its name in the table.
    pub name: &'static str,
    /// Whether it is safe to give it programs of others.
    pub safe: bool,
    /// Compiles.
    #[allow(clippy::type_complexity, reason = "spelled out once, here")]
    pub prepare: fn(&Task) -> Result<(Box<dyn Runner>, Duration), String>,
}

/// Memory of engines whose programs see one flat memory: a header, the arguments, the input and the
/// output, as `programs/peer.h` has it.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Where the arguments begin.
    pub args: usize,
    /// Where the input begins.
    pub input: usize,
    /// Where the output begins.
    pub output: usize,
    /// The whole length.
    pub len: usize,
}

impl Layout {
    const HEADER_LEN: usize = 128;
    const ALIGN: usize = 64;

    /// The layout for a task, starting at a multiple of [`Self::ALIGN`].
    #[must_use]
    pub fn of(task: &Task) -> Self {
        let args = Self::HEADER_LEN;
        let input = (args + task.args.len()).next_multiple_of(Self::ALIGN);
        let output = (input + task.input.len()).next_multiple_of(Self::ALIGN);
        let len = (output + task.out_cap).next_multiple_of(Self::ALIGN);
        Self { args, input, output, len }
    }

    /// Fills a memory of [`Self::len`] bytes.
    pub fn fill(&self, task: &Task, memory: &mut [u8]) {
        let header = [self.args, task.args.len(), self.input, task.input.len(), self.output, task.out_cap];
        for (field, value) in memory.chunks_exact_mut(8).zip(header) {
            field.copy_from_slice(&(value as u64).to_le_bytes());
        }
        memory[self.args..][..task.args.len()].copy_from_slice(&task.args);
        memory[self.input..][..task.input.len()].copy_from_slice(&task.input);
    }
}

/// Bytes at a page boundary, in huge pages where the kernel gives them: the same for every engine.
#[derive(Debug)]
pub struct Buffer {
    pages: Vec<Page>,
    len: usize,
}

#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug)]
struct Page([u8; 4096]);

impl Buffer {
    /// Zeroed bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self { pages: vec![Page([0; 4096]); len.div_ceil(4096).max(1)], len }
    }

    /// A copy of bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut this = Self::zeroed(bytes.len());
        this.bytes_mut().copy_from_slice(bytes);
        this
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: pages are plain bytes without padding, and there are at least `len` of them.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}
