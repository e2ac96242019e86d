//! Memory for records that are longer than a chunk: a call asks for it when it meets one, and has it until it ends.

use std::sync::{Arc, Mutex, PoisonError};

use diskside_engine::{Function, Growth};

use crate::call::context::CallContext;
use crate::call::plan::{Plan, PlanLimits};
use crate::environment::Environment;

/// What one call was given.
#[derive(Debug)]
pub(crate) struct CallGrowth {
    environment: Arc<Environment>,
    host: u64,
    function: Function,
    limits: PlanLimits,
    bytes: Mutex<u64>,
}

impl CallGrowth {
    pub(crate) fn new(context: &CallContext, plan: &Plan) -> Self {
        let (environment, function) = (Arc::clone(&context.environment), plan.function.clone());
        Self { environment, host: context.host.id, function, limits: plan.limits, bytes: Mutex::default() }
    }
}

impl Growth for CallGrowth {
    fn grow(&self, chunk_len: usize) -> Result<(), String> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = self.limits.growth_bytes(&self.function, chunk_len);
        let more = wanted.saturating_sub(*bytes);
        if more > 0 && !self.environment.pool.grow(self.host, more) {
            let PlanLimits { memory_bytes, memory_bytes_max, threads, .. } = self.limits;
            let needed = memory_bytes.saturating_add(wanted);
            let remedy = match threads {
                2.. => "run it on fewer threads, or make fewer calls at a time",
                // Alone it would not fit, either.
                _ if needed > memory_bytes_max => {
                    "run it on the host, or have the server's `compute.host_memory`, or the quota `memory` of this host, raised"
                }
                _ => "run it on the host, or make fewer calls at a time",
            };
            return Err(format!(
                "on {threads} thread{} the call would need {needed} bytes for it, and all calls of its host together have \
                 {memory_bytes_max}, three quarters of `compute.host_memory` or of its quota `memory`; {remedy}",
                if threads > 1 { "s" } else { "" }
            ));
        }
        *bytes = wanted.max(*bytes);
        Ok(())
    }
}

impl Drop for CallGrowth {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner);
        if bytes > 0 {
            self.environment.pool.shrink(self.host, bytes);
        }
    }
}
