//! wasmtime: the same source compiled to WebAssembly by the same clang, with epoch interruption, so
//! that endless loops can be stopped.

use diskside_bench_runner::{Layout, Runner, Task, cpu_time};
use std::time::Duration;
use wasmtime::{Config, Engine, Instance, Memory, MemoryType, Module, Store, TypedFunc};

struct Wasm {
    store: Store<()>,
    memory: Memory,
    entry: TypedFunc<(i32, i32), i64>,
    base: usize,
    layout: Layout,
    out_cap: usize,
}

const PAGE_LEN: usize = 64 << 10;

pub(crate) fn prepare(task: &Task) -> Result<(Box<dyn Runner>, Duration), String> {
    let mut config = Config::new();
    config.epoch_interruption(true);
    let engine = Engine::new(&config).map_err(|e| e.to_string())?;
    let started = cpu_time();
    let module = Module::new(&engine, task.wasm_module).map_err(|e| e.to_string())?;
    let took = cpu_time().saturating_sub(started);

    let mut store = Store::new(&engine, ());
    store.set_epoch_deadline(1);
    // The module imports its memory: its own stack and data at the bottom, ours above.
    let imported = module.imports().next().ok_or("the module imports no memory")?;
    let least = imported.ty().memory().map_or(2, MemoryType::minimum);
    let base = least as usize * PAGE_LEN;
    let layout = Layout::of(task);
    let pages = (base + layout.len).div_ceil(PAGE_LEN) as u32;
    let memory = Memory::new(&mut store, MemoryType::new(pages, None)).map_err(|e| e.to_string())?;
    layout.fill(task, &mut memory.data_mut(&mut store)[base..]);
    let instance = Instance::new(&mut store, &module, &[memory.into()]).map_err(|e| e.to_string())?;
    let entry = instance.get_typed_func(&mut store, "peer").map_err(|e| e.to_string())?;
    let runner = Wasm { store, memory, entry, base, layout, out_cap: task.out_cap };
    Ok((Box::new(runner), took))
}

impl Runner for Wasm {
    fn call(&mut self) -> Result<i64, String> {
        self.entry.call(&mut self.store, (self.base as i32, self.layout.len as i32)).map_err(|e| e.to_string())
    }

    fn output(&mut self) -> &mut [u8] {
        let at = self.base + self.layout.output;
        &mut self.memory.data_mut(&mut self.store)[at..][..self.out_cap]
    }

    fn set_args(&mut self, bytes: &[u8]) {
        let at = self.base + self.layout.args;
        self.memory.data_mut(&mut self.store)[at..][..bytes.len()].copy_from_slice(bytes);
    }
}
