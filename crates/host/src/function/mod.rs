//! Functions at a target: its compute namespace, behind a connection.
//!
//! A [`Compute`] runs [`FunctionRequest`]s. A call is a Send and
//! the first Receive of its result, handed to one queue together, so that they leave in one segment and
//! a short call costs one round trip. Longer results come by further Receives, a few at a time, which
//! are the credit of the target: a [`ResultStream`] that nobody reads stops it.
//!
//! | File | What it does |
//! |---|---|
//! | `compute` | finds the namespace; capabilities, statistics, errors; programs: list, load, unload |
//! | `stream` | one call: Sends, Receives, the trailer |
//! | `call` | a call whose result is collected; stopping calls |
//! | `prepared` | requests that were sent before, run by one command |
//! | `memory` | device memory, and programs that are executed over it |
//! | `file` | files of exports |
//! | `listing` | lists that come page by page |
//! | `error` | how a call fails |

mod call;
mod compute;
mod error;
mod file;
mod listing;
mod memory;
mod prepared;
mod stream;

pub use call::{CallHandle, RemoteCall};
pub use compute::{Compute, Program};
pub use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, Outcome};
pub use error::FunctionError;
pub use file::{FileInfo, Files, Found, Listed, ListedExport, RemoteFile};
pub use memory::{COPY_LEN_MAX, COPY_SOURCES_MAX, DeviceMemory, MEMORY_GRANULARITY, RANGE_GRANULARITY};
pub use prepared::Prepared;
pub use stream::{CallOutcome, ResultStream};
