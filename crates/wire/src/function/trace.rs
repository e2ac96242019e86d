//! Which span of a trace a request is a part of: W3C Trace Context, whose `traceparent` has the same fields as text.

/// A span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span in it.
    pub span_id: [u8; 8],
    /// The trace's flags: bit 0, it is recorded.
    pub flags: u8,
}

impl TraceContext {
    /// Bytes of it.
    pub(super) const LEN: usize = 25;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.trace_id);
        bytes[16..24].copy_from_slice(&self.span_id);
        bytes[24] = self.flags;
        bytes
    }

    /// `None`: it names no span, as one of another length or all zeroes. A call needs none.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (trace_id, rest) = bytes.split_first_chunk()?;
        let (span_id, rest) = rest.split_first_chunk()?;
        let &[flags] = rest else { return None };
        let this = Self { trace_id: *trace_id, span_id: *span_id, flags };
        (this.trace_id != [0; 16] && this.span_id != [0; 8]).then_some(this)
    }
}
