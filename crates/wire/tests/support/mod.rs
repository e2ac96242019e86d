//! The common part of the tests and the fuzzers: commands, taken apart and through a connection.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod commands;
pub mod seeds;
