//! The common part of the tests: memory that notices mistakes, a medium, and a target and a host joined without a
//! network.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod fuzz;
pub mod medium;
pub mod memory;
pub mod mutation;
pub mod pair;
pub mod rng;
