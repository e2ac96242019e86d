//! The spans of a call, in the trace of its host.

use std::time::{Duration, SystemTime};

use diskside_trace::{Side, Span};
use diskside_wire::function::{Outcome, TraceContext, Trailer};

/// Records a call that has ended now: a span of its own, and in it what it waited for an engine, ran, and waited for its host. A call
/// waits and runs in turns: each of these spans is as long as all turns together, and they are laid one behind the other. A host
/// that sent no trace wants none.
pub(super) fn record(trace: Option<TraceContext>, function: &str, trailer: &Trailer) {
    let Some(trace) = trace else { return };
    let (times, end) = (&trailer.times, SystemTime::now());
    let us = |us: u32| Duration::from_micros(us.into());
    let began = end.checked_sub(us(times.total_us)).unwrap_or(end);
    let mut call = Span::since("serve", Side::Server, Some(trace), began);
    if !call.is_recorded() {
        return;
    }
    call.text("diskside.function", function);
    call.number("diskside.read_bytes", trailer.media_read);
    call.number("diskside.result_bytes", trailer.result_len);
    if trailer.outcome != Outcome::Ok {
        call.fail(&trailer.message);
    }
    if times.total_us == 0 {
        // A traversal, whose steps are not timed.
        return;
    }
    let within = call.context_or(None);
    let queued = (began + us(times.queue_us)).min(end);
    let sending = end.checked_sub(us(times.send_us)).unwrap_or(began).max(queued);
    Span::record("queue", within, began, queued);
    Span::record("run", within, queued, sending);
    Span::record("send", within, sending, end);
}
