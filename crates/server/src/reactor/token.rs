//! What a completion of the ring belongs to.

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Accept(usize),
    Receive(usize),
    Send(usize),
    Task(usize),
    File(usize),
}

/// The kind is above the index.
const KIND_SHIFT: u32 = 61;

impl Token {
    pub(super) fn bits(self) -> u64 {
        let (kind, index) = match self {
            Self::Accept(index) => (0_u64, index),
            Self::Receive(index) => (1, index),
            Self::Send(index) => (2, index),
            Self::Task(index) => (3, index),
            Self::File(index) => (4, index),
        };
        kind << KIND_SHIFT | index as u64
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        let index = (bits & ((1 << KIND_SHIFT) - 1)) as usize;
        match bits >> KIND_SHIFT {
            0 => Self::Accept(index),
            1 => Self::Receive(index),
            2 => Self::Send(index),
            3 => Self::Task(index),
            _ => Self::File(index),
        }
    }
}
