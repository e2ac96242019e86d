//! When calls compute, and how much each host may hold meanwhile.
//!
//! | Module | What it decides |
//! |---|---|
//! | `pool` | which call gets a thread: hosts in turn, each within its bounds |
//! | `seat` | how long a call waits for its host, and with whose thread |
//! | `permits` | who computes on an engine, for a chunk at a time |
//! | `quota` | what each host makes the target hold, and whether there is room for more |
//! | `turn_share` | what traversals of a host take of a reactor's turn |
//! | `merged` | which work is done once for several who ask for it |
//! | `compilers` | when programs are verified and compiled: behind calls that run, and charged to their hosts |
//! | `yield_to_reactor` | engines let a reactor go first on their processor |
//! | `clock` | ends what has waited long enough |

pub(crate) mod clock;
pub(crate) mod compilers;
pub(crate) mod merged;
pub(crate) mod permits;
pub(crate) mod pool;
pub(crate) mod quota;
pub(crate) mod seat;
pub(crate) mod turn_share;
pub(crate) mod yield_to_reactor;
