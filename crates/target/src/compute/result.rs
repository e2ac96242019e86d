//! A result on its way to the host: made as far as it is asked for, and a little more.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use diskside_nvme::wire::function::{Outcome, Trailer};

use super::answer::Piece;
use super::job::Job;
use super::ledger::PART_BYTES;
use super::trailer;

/// How much result is made before it is asked for, besides one chunk's.
const RESULT_AHEAD: u64 = 1 << 20;

/// A result is handed over in pieces of this, each with a charge of its own.
const PART_LEN: usize = 1 << 20;

/// Output that goes to the host, as far as it asks for it.
pub(crate) struct ResultWriter<'a> {
    job: &'a Job,
    /// Bytes so far.
    pub(crate) sent: u64,
    /// How long the host was waited for.
    pub(crate) sending: Duration,
    /// Why a write failed, if one did.
    pub(crate) failure: Option<Trailer>,
}

impl<'a> ResultWriter<'a> {
    pub(crate) fn new(job: &'a Job) -> Self {
        Self { job, sent: 0, sending: Duration::ZERO, failure: None }
    }

    fn fail(&mut self, trailer: Trailer) -> io::Error {
        let told = io::Error::other(trailer.message.clone());
        self.failure = Some(trailer);
        told
    }
}

impl Write for ResultWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let job = self.job;
        let most = job.plan.limits.result_len_max;
        if self.sent + bytes.len() as u64 > most {
            let told = format!("the result exceeds the {most} bytes that the request allows");
            return Err(self.fail(trailer::simple(Outcome::OutputFull, &told)));
        }
        let until = job.queued + job.plan.limits.deadline;
        let began = Instant::now();
        loop {
            let seen = job.control.seen();
            if job.control.cancel.is_cancelled() {
                return Err(self.fail(trailer::simple(Outcome::Cancelled, "the call was cancelled")));
            }
            let unclaimed = job.association.unclaimed(job.tag);
            if unclaimed == 0 || unclaimed + bytes.len() as u64 <= RESULT_AHEAD {
                break;
            }
            if !job.control.wait(seen, until) {
                let told = "the deadline passed before the host took the result";
                return Err(self.fail(trailer::simple(Outcome::Deadline, told)));
            }
        }
        for part in bytes.chunks(PART_LEN) {
            let is_unwanted = || job.control.cancel.is_cancelled();
            let account = &job.association.host.account;
            let is_asked_for = || job.association.is_asked_for(job.tag);
            let held = account.hold_until(part.len() + PART_BYTES, until, is_unwanted, is_asked_for);
            let holding = held.map_err(|no_room| self.fail(trailer::without_room(&no_room, is_unwanted())))?;
            self.sent += part.len() as u64;
            job.association.produced(job.tag, Piece::held(part.to_vec(), holding));
        }
        self.sending += began.elapsed();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
