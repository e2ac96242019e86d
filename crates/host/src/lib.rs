//! The host side: connections, volumes and files.

#![forbid(unsafe_code)]
