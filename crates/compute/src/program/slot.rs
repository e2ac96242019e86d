//! A place for a program, from the first part of a load to its unload.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::program::credentials::Credentials;
use crate::program::loaded::LoadedProgram;
use crate::program::usage::Usage;

#[derive(Debug, Default)]
pub(super) enum Slot {
    #[default]
    Empty,
    /// Parts are arriving, all of them on one controller of the host.
    Loading {
        owner: String,
        controller: u64,
        puid: Option<u64>,
        len: usize,
        bytes: Vec<u8>,
    },
    /// It is being verified, under this ticket: meanwhile its host may go, and another load may come here.
    Verifying {
        owner: String,
        len: usize,
        ticket: u64,
    },
    Loaded(Entry),
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) program: Arc<LoadedProgram>,
    /// The host that loaded it; `None`: it came with the target.
    pub(super) owner: Option<String>,
    pub(super) active: bool,
    pub(super) puid: u64,
    pub(super) usage: Arc<Usage>,
}

/// What an unload leaves, or a load that was not ended.
#[derive(Debug)]
pub struct Unloaded {
    pub(super) _slot: Slot,
}

/// A program whose parts are all there.
#[derive(Debug)]
pub struct Unverified {
    pub(super) object: Vec<u8>,
    pub(super) puid: u64,
    pub(super) place: Place,
}

/// Where a program goes when it is verified, if its place is still kept for it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(super) pind: u16,
    pub(super) ticket: u64,
}

impl Unverified {
    pub(crate) fn len_bytes(&self) -> usize {
        self.object.len()
    }

    /// SHA-256 of its object.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.object).into()
    }

    /// The facts that decide whether it may be run.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::of(&self.object)
    }

    /// Where it is loaded.
    pub fn place(&self) -> Place {
        self.place
    }
}

impl Entry {
    /// Whether it is this host's, or everybody's.
    pub(super) fn is_for(&self, host: &str) -> bool {
        self.owner.as_deref().is_none_or(|owner| owner == host)
    }
}

impl Slot {
    /// The owner of what is being verified here under this ticket.
    pub(super) fn owner_of(&mut self, place: Place) -> Option<&mut String> {
        match self {
            Slot::Verifying { owner, ticket, .. } if *ticket == place.ticket => Some(owner),
            _ => None,
        }
    }

    /// Whether it has a program that came with the target.
    pub(super) fn is_shipped(&self) -> bool {
        matches!(self, Slot::Loaded(Entry { owner: None, .. }))
    }

    pub(super) fn owner(&self) -> Option<&str> {
        match self {
            Slot::Empty => None,
            Slot::Loading { owner, .. } | Slot::Verifying { owner, .. } => Some(owner),
            Slot::Loaded(entry) => entry.owner.as_deref(),
        }
    }
}

/// Bytes that came from hosts. Those that a host only said would come count when they do: saying so costs it nothing, and
/// would keep others from loading.
pub(super) fn bytes_downloaded<'a>(slots: impl Iterator<Item = &'a Slot>) -> usize {
    let len = |slot: &Slot| match slot {
        Slot::Loading { bytes, .. } => bytes.len(),
        Slot::Verifying { len, .. } => *len,
        Slot::Loaded(Entry { owner: Some(_), program, .. }) => program.object.len(),
        Slot::Loaded(_) | Slot::Empty => 0,
    };
    slots.map(len).sum()
}
