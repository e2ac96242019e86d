//! Exports: the files that hosts may reach, with which credentials, and the errors that they get.

mod host;

mod again;
mod beneath;
mod credentials;
mod faults;
mod find;
mod functions;
mod kept;
mod operations;
mod plain;
mod rights;
mod space;
mod unnamed;
