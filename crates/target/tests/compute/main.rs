//! Functions at the target, over TCP and in memory: what hosts get, and what bad hosts get.

#[path = "../common/mod.rs"]
mod common;

mod bad;
mod cache;
mod client;
mod combine;
mod executions;
mod files;
mod hostile;
mod late;
mod layouts;
mod life;
mod limits;
mod memory;
mod programs;
mod reads;
mod removed;
mod standard;
mod state;
mod traversals;
mod writes;
