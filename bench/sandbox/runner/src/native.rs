//! The same functions as machine code: what a user would run who trusts them.

use crate::{Buffer, CallContext, Engine, Runner, Task};
use std::time::Duration;

/// The baselines. Ratios are to the first.
pub const ENGINES: [Engine; 2] = [
    Engine { name: "native scalar", safe: false, prepare: |task| Native::prepare(task, task.native[0]) },
    Engine { name: "native vector", safe: false, prepare: |task| Native::prepare(task, task.native[1]) },
];

/// A function as machine code.
pub type Function = unsafe extern "C" fn(*mut u8, *const u8, u64, *const u8, *const CallContext) -> i64;

struct Native {
    function: Function,
    input: Buffer,
    args: Buffer,
    output: Buffer,
    context: CallContext,
}

impl Native {
    #[allow(clippy::unnecessary_wraps, reason = "the shape that every engine has")]
    fn prepare(task: &Task, function: Function) -> Result<(Box<dyn Runner>, Duration), String> {
        let native = Self {
            function,
            input: Buffer::from_bytes(&task.input),
            args: Buffer::from_bytes(&task.args),
            output: Buffer::zeroed(task.out_cap),
            context: CallContext::of(task),
        };
        Ok((Box::new(native), Duration::ZERO))
    }
}

impl Runner for Native {
    fn call(&mut self) -> Result<i64, String> {
        // SAFETY: the lengths in the call are those of the buffers, and the function, compiled from
        // our own source, keeps within them.
        Ok(unsafe {
            (self.function)(
                self.output.bytes_mut().as_mut_ptr(),
                self.input.bytes().as_ptr(),
                self.input.bytes().len() as u64,
                self.args.bytes().as_ptr(),
                &raw const self.context,
            )
        })
    }

    fn output(&mut self) -> &mut [u8] {
        self.output.bytes_mut()
    }

    fn set_args(&mut self, bytes: &[u8]) {
        self.args.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    }
}
