//! One call, from the parts of its request to its trailer.
//!
//! | Module | What it decides |
//! |---|---|
//! | `tags` | which Send and Receive belong together, what waits, who gets which bytes (no I/O) |
//! | `job` | what a request names (the plan), and running it on a thread of the pool |
//! | `prepared` | Function Calls; small ones run on the reactor itself |
//! | `traverse` | chains of dependent reads; those in memory run on the reactor itself |
//! | `input`, `result`, `trailer`, `answer` | bytes of the host's stream, of the result, its end, and what a command is answered |
//! | `scan` | a call of the service `scan`: the process that does it, its turns and its result |
//! | `context` | what a call works with, and who hears of it |
//! | `command`, `control` | a Function Call as it came; how a call is cancelled |
//! | `used`, `rights` | what a call uses, and whether its host still may |
//! | `spans` | the work of a call, as a part of its host's trace |
//! | `runs` | reports calls of a prepared request to the audit |

pub(crate) mod answer;
pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod input;
pub(crate) mod job;
pub(crate) mod plan;
pub(crate) mod prepared;
pub(crate) mod result;
pub(crate) mod rights;
pub(crate) mod runs;
pub(crate) mod scan;
mod spans;
pub(crate) mod tags;
pub(crate) mod trailer;
pub(crate) mod traverse;
pub(crate) mod used;
