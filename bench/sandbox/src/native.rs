//! The same functions as machine code: what a user would run who trusts them.

use crate::workload::CallContext;
use diskside_bench_runner::{Buffer, Engine, Runner, Task};
use std::time::Duration;

/// The baselines. Ratios are to the first.
pub const ENGINES: [Engine; 2] = [
    Engine { name: "native scalar", safe: false, prepare: |task| Native::prepare(task, scalar(task.name)) },
    Engine { name: "native vector", safe: false, prepare: |task| Native::prepare(task, vector(task.name)) },
];

type Function = unsafe extern "C" fn(*mut u8, *const u8, u64, *const u8, *const CallContext) -> i64;

/// Declares both builds of every program, and finds one by its name.
macro_rules! natives {
    ($($name:literal $scalar:ident $vector:ident),* $(,)?) => {
        unsafe extern "C" {
            $(
                fn $scalar(out: *mut u8, input: *const u8, in_len: u64, args: *const u8, call: *const CallContext) -> i64;
                fn $vector(out: *mut u8, input: *const u8, in_len: u64, args: *const u8, call: *const CallContext) -> i64;
            )*
        }
        fn scalar(name: &str) -> Function {
            match name { $($name => $scalar,)* _ => unreachable!("build.rs compiles every workload") }
        }
        fn vector(name: &str) -> Function {
            match name { $($name => $vector,)* _ => unreachable!("build.rs compiles every workload") }
        }
    };
}

natives! {
    "stats64" native_stats64_scalar native_stats64_vector,
    "stats32" native_stats32_scalar native_stats32_vector,
    "knn" native_knn_scalar native_knn_vector,
    "grep" native_grep_scalar native_grep_vector,
    "bitmap" native_bitmap_scalar native_bitmap_vector,
    "grep_find" native_grep_find_scalar native_grep_find_vector,
    "filter" native_filter_scalar native_filter_vector,
    "aggregate" native_aggregate_scalar native_aggregate_vector,
    "empty" native_empty_scalar native_empty_vector,
    "node_search" native_node_search_scalar native_node_search_vector,
}

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
