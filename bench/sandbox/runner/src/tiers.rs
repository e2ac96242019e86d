//! Our tiers, with every check on.

use crate::{Buffer, CallContext, Engine, Runner, Task, cpu_time};
use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program};
use diskside_sbpf::helpers::standard;
use diskside_sbpf::image::Image;
use diskside_sbpf::region::RegionId;
use diskside_sbpf_llvm::Compiler;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The tiers, slowest first.
pub const ENGINES: [Engine; 3] = [
    Engine {
        name: "diskside interp",
        safe: true,
        prepare: |task| Sandboxed::prepare(task, cpu_time, |program| Ok(Arc::new(program.interpreter()))),
    },
    Engine {
        name: "diskside cranelift",
        safe: true,
        prepare: |task| {
            Sandboxed::prepare(task, cpu_time, |program| {
                diskside_sbpf_cranelift::compile(program.optimised(), &Default::default())
                    .map(|code| Arc::new(code) as Arc<dyn Code>)
                    .map_err(|e| e.to_string())
            })
        },
    },
    Engine {
        name: "diskside llvm",
        safe: true,
        prepare: |task| {
            Sandboxed::prepare(task, wall_time, |program| {
                let compiler = Compiler::find().ok_or("diskside-llvm is not here; the benchmark's `run` builds it")?;
                diskside_sbpf_llvm::compile(program.optimised(), &compiler)
                    .map(|compiled| Arc::new(compiled.code) as Arc<dyn Code>)
                    .map_err(|e| e.to_string())
            })
        },
    },
];

/// Time that passed: for a compiler that is a process of its own.
fn wall_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

struct Sandboxed {
    activation: Activation,
    registers: [u64; 5],
    limits: Limits,
    input: Buffer,
    args: Buffer,
    output: Buffer,
    context: CallContext,
}

impl Sandboxed {
    fn prepare(
        task: &Task,
        clock: fn() -> Duration,
        compile: impl Fn(&Program) -> Result<Arc<dyn Code>, String>,
    ) -> Result<(Box<dyn Runner>, Duration), String> {
        let helpers = Arc::new(standard());
        let started = clock();
        let image = Arc::new(Image::from_elf(task.object, &helpers).map_err(|e| e.to_string())?);
        let index = image.program(task.program).ok_or("the object lacks the program")?;
        let program = Program::new(&image, index, &helpers)
            .map_err(|found| found.first().map_or_else(|| "refused".to_owned(), ToString::to_string))?;
        let code = compile(&program)?;
        let took = clock().saturating_sub(started);

        let program = Arc::new(program);
        let registers = program.entry_registers(&[task.input.len() as u64]);
        let sandboxed = Self {
            activation: Activation::new(&program, code, ActivationOptions::default()),
            registers,
            limits: Limits::for_bytes(task.input.len() as u64, task.out_cap as u64),
            input: Buffer::from_bytes(&task.input),
            args: Buffer::from_bytes(&task.args),
            output: Buffer::zeroed(task.out_cap),
            context: CallContext::of(task),
        };
        Ok((Box::new(sandboxed), took))
    }
}

impl Runner for Sandboxed {
    fn call(&mut self) -> Result<i64, String> {
        // Mapping is part of a call: a real one has other memory each time.
        let mappings = Mappings::new()
            .read_only(RegionId::INPUT, self.input.bytes())
            .read_only(RegionId::ARGS, self.args.bytes())
            .read_only(RegionId::CONTEXT, self.context.bytes())
            .writable(RegionId::OUTPUT, self.output.bytes_mut());
        self.activation
            .call(&mappings, self.registers, &self.limits)
            .map(|returned| returned.value.cast_signed())
            .map_err(|stopped| stopped.to_string())
    }

    fn output(&mut self) -> &mut [u8] {
        self.output.bytes_mut()
    }

    fn set_args(&mut self, bytes: &[u8]) {
        self.args.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    }
}
