//! What a completion of the ring belongs to.

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Accept(usize),
    Receive(usize),
    Send(usize),
    Task(usize),
}

impl Token {
    pub(super) fn bits(self) -> u64 {
        let (kind, index) = match self {
            Self::Accept(index) => (0_u64, index),
            Self::Receive(index) => (1, index),
            Self::Send(index) => (2, index),
            Self::Task(index) => (3, index),
        };
        kind << 62 | index as u64
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        let index = (bits & !(3 << 62)) as usize;
        match bits >> 62 {
            0 => Self::Accept(index),
            1 => Self::Receive(index),
            2 => Self::Send(index),
            _ => Self::Task(index),
        }
    }
}
