//! The parts that the simulations in `tests/` drive one by one. Nothing else uses it.

pub use crate::call::answer::{Answer, Piece, Problem};
pub use crate::call::control::Control;
pub use crate::call::input::InputQueue;
pub use crate::call::prepared::answer as call_answer;
pub use crate::call::tags::{Effect, Limits, Start, Tags, Waiter};
pub use crate::host::Host;
pub use crate::hosts::Peers;
pub use crate::program::loaded::LoadedProgram;
pub use crate::program::programs::{ActiveProgram, ProgramLimits, Programs};
pub use crate::program::slot::Unverified;
pub use crate::program::usage::InUse;
pub use crate::schedule::pool::{PoolLimits, Queues, Work};
pub use crate::schedule::quota::{Bounds, Ledger};
