//! Spans: what a request did, when and for how long, for traces that cross from a host to a server.
//!
//! Hosts and servers begin spans here. They go to the tracer that the process has installed, and cost an atomic load where there is
//! none. `otlp`, with the feature of this name, is a tracer that exports them to OpenTelemetry.

#![forbid(unsafe_code)]

#[cfg(feature = "otlp")]
pub mod otlp;

use std::fmt;
use std::sync::OnceLock;
use std::time::SystemTime;

pub use diskside_wire::function::TraceContext;

/// Makes spans, and sends them somewhere.
pub trait Tracer: Send + Sync {
    /// Begins a span.
    fn start(&self, start: Start) -> Box<dyn Recorded>;
}

/// How a span begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// What it is a span of, such as `run` or `queue`.
    pub name: &'static str,
    /// Which end of a call it is of.
    pub side: Side,
    /// The span that it is a part of, here or elsewhere.
    pub parent: Option<TraceContext>,
    /// When.
    pub at: SystemTime,
}

/// Which end of a call a span is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The caller.
    Client,
    /// The one who is called.
    Server,
    /// None: work of this process.
    Internal,
}

/// A span that a tracer has begun.
pub trait Recorded: Send {
    /// What others name it by.
    fn context(&self) -> Option<TraceContext>;

    /// Notes a text.
    fn text(&mut self, key: &'static str, value: String);

    /// Notes a number.
    fn number(&mut self, key: &'static str, value: i64);

    /// Notes that it failed, and why.
    fn fail(&mut self, why: String);

    /// Ends it.
    fn end(&mut self, at: SystemTime);
}

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// Has all spans of this process go to a tracer. False: there is one already, which stays.
pub fn install(tracer: Box<dyn Tracer>) -> bool {
    TRACER.set(tracer).is_ok()
}

/// Whether spans of this process go anywhere.
#[must_use]
pub fn is_recording() -> bool {
    TRACER.get().is_some()
}

/// A span, if this process has a tracer. It ends when it is dropped.
#[derive(Default)]
pub struct Span(Option<Box<dyn Recorded>>);

impl Span {
    /// Begins a span now.
    #[must_use]
    pub fn begin(name: &'static str, side: Side, parent: Option<TraceContext>) -> Self {
        match TRACER.get() {
            None => Self(None),
            Some(tracer) => Self(Some(tracer.start(Start { name, side, parent, at: SystemTime::now() }))),
        }
    }

    /// Records a span that is over.
    pub fn record(name: &'static str, parent: Option<TraceContext>, from: SystemTime, to: SystemTime) {
        if let Some(tracer) = TRACER.get() {
            tracer.start(Start { name, side: Side::Internal, parent, at: from }).end(to);
        }
    }

    /// The span that began at a time in the past, and goes until it is dropped.
    #[must_use]
    pub fn since(name: &'static str, side: Side, parent: Option<TraceContext>, at: SystemTime) -> Self {
        Self(TRACER.get().map(|tracer| tracer.start(Start { name, side, parent, at })))
    }

    /// Whether anybody hears of it: else there is nothing to be noted.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Its name for others; `parent` where this process has no tracer, so that a caller's trace is not cut off.
    #[must_use]
    pub fn context_or(&self, parent: Option<TraceContext>) -> Option<TraceContext> {
        match &self.0 {
            None => parent,
            Some(recorded) => recorded.context(),
        }
    }

    /// Notes a text.
    pub fn text(&mut self, key: &'static str, value: impl fmt::Display) {
        if let Some(recorded) = &mut self.0 {
            recorded.text(key, value.to_string());
        }
    }

    /// Notes a number.
    pub fn number(&mut self, key: &'static str, value: u64) {
        if let Some(recorded) = &mut self.0 {
            recorded.number(key, i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    /// Notes that it failed, and why.
    pub fn fail(&mut self, why: impl fmt::Display) {
        if let Some(recorded) = &mut self.0 {
            recorded.fail(why.to_string());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(recorded) = &mut self.0 {
            recorded.end(SystemTime::now());
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = self.0.as_ref().and_then(|recorded| recorded.context());
        f.debug_tuple("Span").field(&context).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    type Told = Arc<Mutex<Vec<String>>>;

    struct Test(Told);

    struct One(Told, Start, String);

    impl Tracer for Test {
        fn start(&self, start: Start) -> Box<dyn Recorded> {
            Box::new(One(Arc::clone(&self.0), start, String::new()))
        }
    }

    impl Recorded for One {
        fn context(&self) -> Option<TraceContext> {
            Some(TraceContext { trace_id: [1; 16], span_id: [self.1.name.len() as u8; 8], flags: 1 })
        }

        fn text(&mut self, key: &'static str, value: String) {
            self.2 += &format!(" {key}={value}");
        }

        fn number(&mut self, key: &'static str, value: i64) {
            self.2 += &format!(" {key}={value}");
        }

        fn fail(&mut self, why: String) {
            self.2 += &format!(" failed: {why}");
        }

        fn end(&mut self, _: SystemTime) {
            let Start { name, side, parent, .. } = &self.1;
            let parent = parent.map(|parent| parent.span_id[0]);
            self.0.lock().unwrap().push(format!("{name} {side:?} {parent:?}{}", self.2));
        }
    }

    /// The tracer is the process's, so one test does all.
    #[test]
    fn spans_go_to_the_tracer_that_there_is() {
        let given = Some(TraceContext { trace_id: [9; 16], span_id: [9; 8], flags: 0 });
        let mut nobody = Span::begin("early", Side::Client, given);
        nobody.text("key", "value");
        assert_eq!((nobody.is_recorded(), nobody.context_or(given)), (false, given));
        let told = Told::default();
        assert!(install(Box::new(Test(Arc::clone(&told)))));
        assert!(!install(Box::new(Test(Told::default()))), "there is one");
        let mut outer = Span::begin("outer", Side::Client, None);
        outer.number("bytes", 7);
        let context = outer.context_or(None);
        let mut inner = Span::since("inner span", Side::Server, context, SystemTime::UNIX_EPOCH);
        inner.fail("it was late");
        drop(inner);
        Span::record("part", context, SystemTime::UNIX_EPOCH, SystemTime::now());
        drop((outer, nobody));
        let wanted =
            ["inner span Server Some(5) failed: it was late", "part Internal Some(5)", "outer Client None bytes=7"];
        assert_eq!(*told.lock().unwrap(), wanted);
    }
}
