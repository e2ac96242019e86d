//! rbpf: its JIT checks no bounds and no loop, so it is fast and for trusted programs only.

use crate::code_of;
use diskside_bench_runner::{Buffer, Layout, Runner, Task, cpu_time};
use std::time::Duration;

struct Rbpf {
    vm: rbpf::EbpfVmRaw<'static>,
    memory: Buffer,
    layout: Layout,
    out_cap: usize,
}

pub(crate) fn prepare(task: &Task) -> Result<(Box<dyn Runner>, Duration), String> {
    // The VM borrows its program; the process is short, so the program may stay.
    let code: &'static [u8] = code_of(task.peer_object)?.leak();
    let layout = Layout::of(task);
    let mut memory = Buffer::zeroed(layout.len);
    layout.fill(task, memory.bytes_mut());
    let started = cpu_time();
    let mut vm = rbpf::EbpfVmRaw::new(Some(code)).map_err(|e| e.to_string())?;
    vm.jit_compile().map_err(|e| e.to_string())?;
    let took = cpu_time().saturating_sub(started);
    let out_cap = task.out_cap;
    Ok((Box::new(Rbpf { vm, memory, layout, out_cap }), took))
}

impl Runner for Rbpf {
    fn call(&mut self) -> Result<i64, String> {
        let memory: *mut [u8] = self.memory.bytes_mut();
        // SAFETY: the VM's type wants memory as long-lived as its program and keeps no reference
        // after the call. Nothing checks what the code does with it; the programs here are ours.
        let value = unsafe { self.vm.execute_program_jit(&mut *memory) };
        value.map(u64::cast_signed).map_err(|e| e.to_string())
    }

    fn output(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.layout.output..][..self.out_cap]
    }

    fn set_args(&mut self, bytes: &[u8]) {
        self.memory.bytes_mut()[self.layout.args..][..bytes.len()].copy_from_slice(bytes);
    }
}
