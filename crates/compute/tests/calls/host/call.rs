//! A call of the host: its parts, its result as it comes, and the check of both in the end.

use std::collections::BTreeMap;

use diskside_wire::function::{Outcome, Trailer};

/// A call, until its trailer has come and all of its commands have ended.
#[derive(Debug)]
pub(super) struct Call {
    /// Its output goes to a medium.
    pub(super) writes: bool,
    /// The request, then its input.
    pub(super) bytes: Vec<u8>,
    /// Where the parts begin in which it is sent; one more at the end.
    pub(super) cuts: Vec<usize>,
    pub(super) expected: Vec<u8>,
    pub(super) got: BTreeMap<u64, Vec<u8>>,
    pub(super) receives: u32,
    pub(super) outstanding: u32,
    pub(super) trailer: Option<Trailer>,
    /// It names a program that is not there.
    pub(super) bad: bool,
    pub(super) refused: bool,
    /// A cancel was sent; it has ended.
    pub(super) cancelling: bool,
    pub(super) stopped: bool,
    /// Bytes of the result came damaged, and come once.
    pub(super) spoilt: bool,
    /// Receives may ask for bytes that another had.
    pub(super) overlaps: bool,
}

impl Call {
    pub(super) fn is_over(&self) -> bool {
        self.refused || self.trailer.is_some() || self.spoilt && self.stopped
    }

    /// Bytes that came without a gap.
    pub(super) fn whole(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        for (offset, bytes) in &self.got {
            assert!(*offset >= whole.len() as u64, "bytes are handed out once");
            if *offset > whole.len() as u64 {
                break;
            }
            whole.extend_from_slice(bytes);
        }
        whole
    }

    /// Checks what came in the end, and what was written.
    pub(super) fn check(&self, written: &[u8]) {
        assert!(self.writes || written.is_empty());
        assert!(self.expected.starts_with(written), "it wrote something else");
        let Some(trailer) = self.trailer.as_ref().filter(|_| !self.spoilt) else {
            return assert!(self.spoilt || self.bad || self.cancelling, "refused for no reason");
        };
        let whole = self.whole();
        assert!(!self.bad && self.expected.starts_with(&whole), "these are not its bytes");
        match trailer.outcome {
            Outcome::Ok if self.writes => {
                assert_eq!((whole.len(), written.len()), (0, self.expected.len()), "all of it was written");
                assert_eq!(trailer.media_written, written.len() as u64);
            }
            Outcome::Ok => assert_eq!(whole.len(), self.expected.len(), "all of the result came"),
            Outcome::Cancelled => assert!(self.cancelling, "cancelled for no reason"),
            other => panic!("{other:?}: {}", trailer.message),
        }
    }
}
