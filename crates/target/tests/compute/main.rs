//! Functions at the target, over TCP and in memory: what hosts get, and what bad hosts get.

#[path = "../common/mod.rs"]
mod common;

mod cache;
mod client;
mod files;
mod hostile;
mod layouts;
mod life;
mod programs;
mod reads;
mod standard;
mod writes;
