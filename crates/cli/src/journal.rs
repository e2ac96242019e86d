//! What goes to standard error, where that is systemd's journal: each line begins with its level, as sd-daemon(3) has it.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// What ends the program.
pub(crate) const ERROR: u8 = 3;
pub(crate) const WARNING: u8 = 4;
/// What is worth a look, and no fault.
pub(crate) const NOTICE: u8 = 5;
const INFO: u8 = 6;
const DEBUG: u8 = 7;

/// Whether standard error is the journal: a service may have sent it to a file, and still has the variable.
pub(crate) fn is_stderr() -> bool {
    static IS_STDERR: OnceLock<bool> = OnceLock::new();
    *IS_STDERR.get_or_init(|| {
        let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
        std::fs::metadata("/proc/self/fd/2").is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
    })
}

/// These lines with their level before each.
pub(crate) fn with_level(level: u8, lines: &str) -> String {
    lines.lines().map(|line| format!("<{level}>{line}\n")).collect()
}

/// Events without the time, which the journal has.
pub(crate) struct Events(Format<Full, ()>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(tracing_subscriber::fmt::format().without_time().with_target(false).with_level(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for Events
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => ERROR,
            Level::WARN => WARNING,
            Level::INFO => INFO,
            _ => DEBUG,
        };
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        writer.write_str(&with_level(level, &text))
    }
}
