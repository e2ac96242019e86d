//! solana-sbpf: every access is translated and checked, every instruction metered.

use crate::code_of;
use diskside_bench_runner::{Buffer, Layout, Runner, Task, cpu_time};
use solana_sbpf::aligned_memory::AlignedMemory;
use solana_sbpf::ebpf;
use solana_sbpf::elf::Executable;
use solana_sbpf::memory_region::{MemoryMapping, MemoryRegion};
use solana_sbpf::program::{BuiltinProgram, FunctionRegistry, SBPFVersion};
use solana_sbpf::verifier::RequisiteVerifier;
use solana_sbpf::vm::{CallFrame, Config, ContextObject, EbpfVm, ExecutionMode};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Far more than any call takes: metering is on, and is to cost, not to stop.
const INSTRUCTIONS_MAX: u64 = 1 << 50;

/// The meter, and the mapping of memory that running code finds through it.
struct Context {
    remaining: u64,
    mapping: MemoryMapping,
}

impl ContextObject for Context {
    fn consume(&mut self, amount: u64) {
        self.remaining = self.remaining.saturating_sub(amount);
    }

    fn get_remaining(&self) -> u64 {
        self.remaining
    }

    fn active_mapping_ptr(&mut self) -> NonNull<MemoryMapping> {
        NonNull::from(&mut self.mapping)
    }
}

struct Solana {
    executable: Executable<Context>,
    loader: Arc<BuiltinProgram<Context>>,
    // Points into `memory` and `stack`, so it goes before them.
    context: Context,
    frames: Vec<CallFrame>,
    memory: Buffer,
    stack: AlignedMemory<{ ebpf::HOST_ALIGN }>,
    layout: Layout,
    out_cap: usize,
}

pub(crate) fn prepare(task: &Task) -> Result<(Box<dyn Runner>, Duration), String> {
    let code = code_of(task.peer_object)?;
    let layout = Layout::of(task);
    let mut memory = Buffer::zeroed(layout.len);
    layout.fill(task, memory.bytes_mut());

    let loader = Arc::new(BuiltinProgram::new_loader(Config::default()));
    let started = cpu_time();
    let executable = Executable::<Context>::from_text_bytes(
        &code,
        Arc::clone(&loader),
        SBPFVersion::V3,
        FunctionRegistry::default(),
    )
    .map_err(|e| format!("{e:?}"))?;
    executable.verify::<RequisiteVerifier>().map_err(|e| format!("{e:?}"))?;
    executable.jit_compile().map_err(|e| format!("{e:?}"))?;
    let took = cpu_time().saturating_sub(started);

    let mut stack = AlignedMemory::zero_filled(executable.get_config().stack_size());
    let regions = vec![
        executable.get_ro_region(),
        MemoryRegion::new(&mut stack, ebpf::MM_STACK_START),
        MemoryRegion::new_empty(ebpf::MM_HEAP_START),
        MemoryRegion::new(&raw mut *memory.bytes_mut(), ebpf::MM_INPUT_START),
    ];
    // SAFETY: `memory` and `stack` live in the same struct as the mapping and do not move their
    // bytes; nothing else touches them during a call.
    let mapping = unsafe { MemoryMapping::new(regions, executable.get_config(), executable.get_sbpf_version()) }
        .map_err(|e| format!("{e:?}"))?;
    let frames = vec![CallFrame::default(); executable.get_config().max_call_depth];
    let runner = Solana {
        executable,
        loader,
        context: Context { remaining: INSTRUCTIONS_MAX, mapping },
        frames,
        memory,
        stack,
        layout,
        out_cap: task.out_cap,
    };
    Ok((Box::new(runner), took))
}

impl Runner for Solana {
    fn call(&mut self) -> Result<i64, String> {
        self.context.remaining = INSTRUCTIONS_MAX;
        let mut vm = EbpfVm::new(
            Arc::clone(&self.loader),
            self.executable.get_sbpf_version(),
            &mut self.context,
            self.stack.len(),
        );
        vm.registers[1] = ebpf::MM_INPUT_START;
        vm.registers[2] = self.layout.len as u64;
        let (_, result) = vm.execute_program(&self.executable, &mut ExecutionMode::Jit, &mut self.frames);
        match result {
            solana_sbpf::error::ProgramResult::Ok(value) => Ok(value.cast_signed()),
            solana_sbpf::error::ProgramResult::Err(error) => Err(format!("{error:?}")),
        }
    }

    fn output(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.layout.output..][..self.out_cap]
    }

    fn set_args(&mut self, bytes: &[u8]) {
        self.memory.bytes_mut()[self.layout.args..][..bytes.len()].copy_from_slice(bytes);
    }
}
