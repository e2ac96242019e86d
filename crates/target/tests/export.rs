//! Exports: what hosts may reach, as whom, and what they are told.

#[path = "export/host.rs"]
mod host;

#[path = "export/beneath.rs"]
mod beneath;
#[path = "export/credentials.rs"]
mod credentials;
#[path = "export/functions.rs"]
mod functions;
#[path = "export/operations.rs"]
mod operations;
#[path = "export/unnamed.rs"]
mod unnamed;
