//! The reactors, as far as functions know them.

use std::fmt;
use std::time::Duration;

use diskside_nvme::controller::Tag;

use crate::call::answer::Answer;

/// A command's name: where its answer goes, and what the error records call it.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The reactor of its connection.
    pub reactor: usize,
    /// The connection's place there.
    pub connection: usize,
    /// Tells apart connections that had the same place.
    pub serial: u64,
    /// The machine's name for it.
    pub tag: Tag,
    /// Its queue.
    pub queue_id: u16,
    /// Its command identifier.
    pub cid: u16,
    /// Its opcode.
    pub opcode: u8,
    /// Tag, handle or program index.
    pub id: u64,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        (self.serial, self.tag) == (other.serial, other.tag)
    }
}

/// The reactors that hand commands over.
pub trait Reactors: fmt::Debug + Send + Sync {
    /// Hands an answer to the reactor whose connection it belongs to. One that has ended drops it.
    fn deliver(&self, name: Name, answer: Answer);

    /// Lets reactors go first that wait for this thread's processor, each for at most so long; whether one did.
    fn give_way(&self, at_most: Duration) -> bool;
}
