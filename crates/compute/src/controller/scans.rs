//! Scans of one controller: calls of the service `scan`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use diskside_wire::function::{FunctionRequest, Outcome};

use super::Association;
use crate::call::context::CallEvents;
use crate::call::control::Control;
use crate::call::scan::{ScanJob, ScanPlan};
use crate::call::tags::{Effect, Waiter};
use crate::call::trailer;
use crate::reactors::Name;
use crate::schedule::quota::Holding;

impl Association {
    /// Starts a scan.
    pub(crate) fn scan(
        self: &Arc<Self>,
        tag: u64,
        waiter: Waiter<Name>,
        send_len: u32,
        (request, holding): (FunctionRequest, Holding),
        control: Arc<Control>,
    ) -> Vec<Effect<Name>> {
        let plan = match ScanPlan::new(&self.context, request) {
            Ok(plan) => plan,
            Err(problem) => return self.effects_of(|tags| tags.refused(tag, waiter, problem)),
        };
        let (class, memory_len) = (plan.request.class, plan.memory_len);
        let effects = self.effects_of(|tags| tags.accepted(tag, waiter, send_len));
        let (context, events) = (Arc::clone(&self.context), Arc::clone(self) as Arc<dyn CallEvents>);
        let cancel = control.cancel.clone();
        let job = ScanJob { tag, plan, context, events, control, queued: Instant::now(), holding };
        self.context.add(|statistics| &statistics.started, 1);
        let me = Arc::clone(self);
        let run = Box::new(move || {
            if catch_unwind(AssertUnwindSafe(|| job.run())).is_err() {
                me.ended(Instant::now(), tag, trailer::bug());
            }
        });
        if !self.context.submit_call(class.into(), memory_len, cancel, run) {
            let told = "this host has too many calls waiting for an engine";
            self.ended(Instant::now(), tag, trailer::simple(Outcome::Refused, told));
        }
        effects
    }
}
