//! Functions at the target, over TCP and in memory: what hosts get, and what bad hosts get.

#[path = "../common/mod.rs"]
mod common;

mod astray;
mod bad;
mod cache;
mod clears;
mod client;
mod combine;
mod copies;
mod delilah;
mod executions;
mod files;
mod full;
mod handles;
mod hostile;
mod late;
mod launches;
mod layouts;
mod life;
mod limits;
mod loads;
mod memory;
mod paced;
mod paths;
mod places;
mod programs;
mod queued;
mod quotas;
mod ranges;
mod reading;
mod reads;
mod refused;
mod removed;
mod reserved;
mod rights;
mod scans;
mod standard;
mod state;
mod traversals;
mod unread;
mod vanish;
mod waiting;
mod withdrawn;
mod writes;
mod wrong;
