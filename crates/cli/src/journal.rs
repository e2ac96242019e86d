//! Lines for standard error, where that is systemd's journal: each begins with its level, as in sd-daemon(3). Events go
//! to the journal's socket, with their fields by name, as in systemd's *Native Journal Protocol*.

use std::fmt::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::OnceLock;

use tracing::field::{Field, Visit};
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
pub(crate) struct Events {
    format: Format<Full, ()>,
    /// Where the journal takes entries with fields; `None`: it takes lines alone.
    socket: Option<UnixDatagram>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self::to(Path::new("/run/systemd/journal/socket"))
    }

    fn to(journal: &Path) -> Self {
        let format =
            tracing_subscriber::fmt::format().without_time().with_target(false).with_level(false).with_ansi(false);
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(journal)?;
            // Nobody waits for a journal that does not read.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self { format, socket: socket.ok() }
    }

    /// Whether the journal has taken the event.
    fn send(&self, level: u8, text: &str, event: &Event<'_>) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut entry = Entry::default();
        entry.add("MESSAGE", text.trim_end());
        entry.add("PRIORITY", &level.to_string());
        entry.add("SYSLOG_IDENTIFIER", "diskside");
        event.record(&mut entry);
        socket.send(&entry.0).is_ok()
    }
}

/// An entry as it is sent.
#[derive(Default)]
struct Entry(Vec<u8>);

impl Entry {
    fn add(&mut self, name: &str, value: &str) {
        self.0.extend_from_slice(name.as_bytes());
        // With its length, it may have line feeds.
        self.0.push(b'\n');
        self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != "message" {
            let upper = field.name().to_ascii_uppercase();
            self.add(&format!("DISKSIDE_{}", upper.replace(|c: char| !c.is_ascii_alphanumeric(), "_")), value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        if write!(text, "{value:?}").is_ok() {
            self.record_str(field, &text);
        }
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
        self.format.format_event(context, Writer::new(&mut text), event)?;
        if self.send(level, &text, event) {
            return Ok(());
        }
        writer.write_str(&with_level(level, &text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    /// Standard error, as it were.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("nobody panics").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The lines of an event, where the journal has this socket.
    fn lines(journal: &Path) -> String {
        let lines = Lines::default();
        let to = lines.clone();
        let events = tracing_subscriber::fmt().with_writer(move || to.clone()).event_format(Events::to(journal));
        tracing::subscriber::with_default(events.finish(), || {
            tracing::warn!(peer = "10.0.0.7:9", why = "no such\nkey", left_out = 3, "connection refused");
        });
        String::from_utf8(lines.0.lock().expect("nobody panics").clone()).expect("text")
    }

    /// Nobody could ask the journal for the lines of one host: a line had no fields.
    #[test]
    fn an_event_reaches_the_journal_with_its_fields_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let journal = UnixDatagram::bind(&path).expect("bound");
        assert_eq!(lines(&path), "", "and nowhere else");
        let mut bytes = [0; 4096];
        let len = journal.recv(&mut bytes).expect("an entry");
        let mut rest = &bytes[..len];
        let mut fields = BTreeMap::new();
        while !rest.is_empty() {
            let name = rest.iter().position(|byte| *byte == b'\n').expect("the end of a name");
            let (len, value) = rest[name + 1..].split_first_chunk().expect("a length");
            let (value, behind) = value.split_at(u64::from_le_bytes(*len) as usize);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            fields.insert(text(&rest[..name]), text(value));
            rest = behind.strip_prefix(b"\n").expect("the end of a value");
        }
        let message = fields.remove("MESSAGE").expect("a message");
        assert!(message.starts_with("connection refused") && message.contains("10.0.0.7:9"), "{message}");
        let wanted = [
            ("DISKSIDE_LEFT_OUT", "3"),
            ("DISKSIDE_PEER", "10.0.0.7:9"),
            ("DISKSIDE_WHY", "no such\nkey"),
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "diskside"),
        ];
        assert_eq!(fields, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn without_the_journals_socket_lines_have_levels() {
        let dir = tempfile::tempdir().expect("a directory");
        let said = lines(&dir.path().join("none"));
        assert!(said.starts_with("<4>connection refused"), "{said}");
        let path = dir.path().join("gone");
        drop(UnixDatagram::bind(&path).expect("bound"));
        assert!(lines(&path).starts_with("<4>"), "a journal that has gone takes nothing");
    }
}
