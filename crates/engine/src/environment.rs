//! The helpers with effects: the clock, and lines of log.

use diskside_sbpf::machine::Environment;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::turns::Turns;

/// Log lines kept of one call; more are counted.
pub const LOG_LINES_MAX: usize = 16;
/// The beginning of a line that is not the program's, but says something of its input.
pub const WARNING: &str = "warning: ";
/// Bytes kept of one line.
const LOG_LINE_LEN_MAX: usize = 256;

/// Log lines of one call, from all its threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    /// Lines about the input, which no program's lines displace.
    warnings: Vec<String>,
    kept: Vec<String>,
    dropped: u64,
}

impl Log {
    /// The lines so far, and how many were dropped.
    pub(crate) fn take(&self) -> (Vec<String>, u64) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Lines { warnings, kept, dropped } = std::mem::take(&mut *lines);
        let mut all = [warnings, kept].concat();
        let beyond = all.len().saturating_sub(LOG_LINES_MAX);
        all.truncate(LOG_LINES_MAX);
        (all, dropped + beyond as u64)
    }

    /// Keeps what is said of the input.
    pub(crate) fn warn(&self, warning: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.warnings.len() == LOG_LINES_MAX {
            lines.dropped += 1;
            return;
        }
        lines.warnings.push(format!("{WARNING}{warning}"));
    }

    fn push(&self, message: &[u8]) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.kept.len() == LOG_LINES_MAX {
            lines.dropped += 1;
            return;
        }
        lines.kept.push(line(message));
    }
}

/// A line of a program, as it may be shown.
fn line(message: &[u8]) -> String {
    let end = message.len().min(LOG_LINE_LEN_MAX);
    let text = String::from_utf8_lossy(&message[..end]);
    text.trim_end_matches(['\n', '\0']).escape_debug().to_string()
}

/// Why a program says that it fails, of the run that it is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Why(Arc<Mutex<Option<String>>>);

impl Why {
    /// What was said last, if something was.
    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The environment of one thread of a call.
#[derive(Debug)]
pub(crate) struct CallEnvironment {
    log: Log,
    why: Why,
    started: Instant,
    turns: Option<Arc<dyn Turns>>,
}

impl CallEnvironment {
    pub(crate) fn new(log: Log, turns: Option<Arc<dyn Turns>>) -> Self {
        Self { log, why: Why::default(), started: Instant::now(), turns }
    }

    /// Where it keeps why the program fails.
    pub(crate) fn why(&self) -> Why {
        self.why.clone()
    }
}

impl Environment for CallEnvironment {
    fn log(&mut self, message: &[u8]) {
        self.log.push(message);
    }

    fn fail(&mut self, why: &[u8]) {
        *self.why.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(line(why));
    }

    fn now_ns(&mut self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn pause(&mut self) {
        if let Some(turns) = &self.turns {
            turns.pause();
        }
    }
}
