//! Exports: what hosts may reach, as whom, and what they are told.

mod host;

mod beneath;
mod credentials;
mod find;
mod functions;
mod kept;
mod operations;
mod rights;
mod space;
mod unnamed;
