//! The thread that writes lines, and says in the log when it cannot.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::file::AuditFile;
use super::line_file::LineFile;
use super::queues::{Lines, Waiting};
use super::record::Record;

/// A line as it is written.
#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    /// Milliseconds since 1970.
    t_ms: u64,
    #[serde(flatten)]
    record: &'a Record,
    /// Lines of the host that were left out since its last one, because the disk was behind or it had its share.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
}

pub(super) fn write_all(lines: &Lines) {
    let mut file: Option<LineFile> = None;
    let mut queues = lines.lock();
    loop {
        if let Some((told_before, AuditFile(next))) = queues.changes.pop_front() {
            drop(queues);
            for (host, line) in told_before {
                write(lines, file.as_mut(), &host, line);
            }
            file = next.map(|(path, file)| LineFile::new(path, file));
            queues = lines.lock();
        } else if let Some((host, line)) = queues.pop() {
            drop(queues);
            write(lines, file.as_mut(), &host, line);
            queues = lines.lock();
        } else if queues.ended {
            return;
        } else {
            queues = lines.more.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn write(lines: &Lines, file: Option<&mut LineFile>, host: &str, line: Waiting) {
    let Waiting { t_ms, record, left_out } = line;
    let Some(told) = file else { return };
    let line = serde_json::to_string(&Line { v: 1, t_ms, record: &record, left_out });
    let written = line.map_err(io::Error::from).and_then(|line| told.add(&line));
    match written {
        Err(error) => {
            lines.lost.fetch_add(1, Ordering::Relaxed);
            lines.lock().lost(host, left_out);
            if !std::mem::replace(&mut told.has_warned, true) {
                tracing::error!(path = %told.path.display(), %error, "the audit file cannot be written");
            }
        }
        Ok(()) if std::mem::take(&mut told.has_warned) => {
            tracing::warn!(path = %told.path.display(), "the audit file is written again");
        }
        Ok(()) => {}
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
