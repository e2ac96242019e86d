//! The events that the audit records, and what a line says of one.

use serde::Serialize;

/// What happened.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Record {
    pub(crate) event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// How the host is called here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authenticated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<Program>,
}

/// The events of a connection that the audit has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing yet.
    #[default]
    Nothing,
    /// That its host came; only of admin queues.
    Arrival,
    /// There is nothing more to tell.
    All,
}

/// A program, and what it did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Program {
    /// Not known of what was refused before all of it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) function: Option<String>,
    /// The number of calls of a prepared request that share this line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) calls: Option<u64>,
    pub(super) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run_us: Option<u64>,
}
