//! The memory of one reactor: what arrives, what is read, and what bounds it.
//!
//! Memory is taken when data arrives or is read, never per queue slot, in classes of powers of two from 4 KiB.
//! These bounds hold, and where one is reached commands wait and the socket is not read:
//!
//! * a reactor holds at most its share of `limits.memory`, in flight and kept for the next command together;
//! * a connection holds at most `limits.connection_memory`, scaled down by the part of the memory that others hold. So
//!   peers that take all they can and never release it leave a share for the next one: with the defaults (16 of 256
//!   MiB) ten of them hold half of it. A connection that holds nothing may always have one buffer, as long as there is
//!   one; while somebody waits for that, peers that do not read, or do not send what they were asked for, are given up
//!   soon;
//! * the connections of one host hold at most three quarters of it together, scaled down in the same way, however many they
//!   are;
//! * data that hosts were asked for and that did not come yet holds at most half of it: reads continue when hosts send
//!   nothing;
//! * a connection that holds nothing and was refused is next: nobody takes the memory that comes free from it.
//!
//! A read of a memory volume is charged like any other, although its bytes are sent from where they are. So is a write
//! whose bytes came in one piece: they stay where they arrived until its turn ends, and a memory volume takes them from
//! there. The rest is copied then, so that no peer can keep the buffers that all receive into.

mod account;
#[cfg(test)]
mod tests;

pub(crate) use account::AccountMemory;

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use diskside_io::buffer::{Arena, Buffer, SharedMemory, SharedSlice};
use diskside_io::ring::Received;
use diskside_nvme::{BufferId, BufferSlice};
use slab::Slab;

use super::local::LocalVolume;
use diskside_compute::Holding;
use diskside_volume::guard::Mode;

/// All buffers that a reactor's connections and their commands use.
pub(crate) struct Memory {
    entries: Slab<Entry>,
    /// Memory that the ring has registered, for as much as fits.
    registered: Option<Arena>,
    /// Buffers without a user, by class.
    spare: [Vec<Buffer>; CLASSES],
    /// Buffers whose bytes are still where they arrived, and others that were among them.
    arrived: Vec<BufferId>,
    bound: u64,
    /// Bytes that commands hold.
    charged: u64,
    /// Bytes of spare buffers.
    spared: u64,
    /// Bytes that data of hosts hold which did not come, or was not taken.
    owed: u64,
    /// A connection that holds nothing and was refused, and what it asked for: nobody takes that from it.
    reserved: Option<(usize, u64)>,
    /// A connection that holds nothing waits: who holds something gets no more.
    hungry: bool,
    /// What the connections of each host hold together.
    hosts: HashMap<String, Rc<HostCharge>>,
    /// Whether something was released since the last look.
    released: bool,
}

/// Bytes that the connections of one host hold, and those of them that are for data which it owes.
#[derive(Debug, Default)]
pub(crate) struct HostCharge {
    all: Cell<u64>,
    owed: Cell<u64>,
}

impl HostCharge {
    fn add(cell: &Cell<u64>, bytes: u64) {
        cell.set(cell.get() + bytes);
    }

    fn take(cell: &Cell<u64>, bytes: u64) {
        cell.set(cell.get() - bytes);
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(crate) struct Account {
    /// The connection's own name, to find its entries.
    pub(crate) owner: usize,
    pub(crate) charged: u64,
    pub(crate) bound: u64,
    /// The part of it for data that the host owes.
    owed: u64,
    /// Its host's, once it is known.
    pub(crate) host: Option<Rc<HostCharge>>,
}

impl Account {
    pub(crate) fn new(owner: usize, bound: u64) -> Self {
        Self { owner, charged: 0, bound, owed: 0, host: None }
    }
}

/// One buffer that a machine knows by its [`BufferId`].
struct Entry {
    owner: usize,
    charge: u64,
    /// Whether it is for data of the host that was not taken yet.
    owed: bool,
    data: Data,
    /// The other account that it is charged to: that of the host for which a function made it.
    holding: Option<Arc<Holding>>,
}

enum Data {
    /// Nothing of it came yet.
    Promised { len: usize },
    /// All of it came at once, and is still there; until the end of the turn.
    Arrived { bytes: Rc<Received>, range: Range<usize> },
    /// Being filled by the peer, or waiting for its command.
    Filling(Buffer),
    /// Lent to the ring, which receives into it.
    Lent { released: bool },
    /// Being sent.
    Sending(Arc<Buffer>),
    /// Being sent from a volume's own memory, whose range is held until then.
    Volume { volume: Rc<LocalVolume>, offset: u64, len: usize },
}

/// A charge of memory with a buffer to match, or without one.
#[derive(Debug, Default)]
pub(crate) struct Charge(u64);

/// What a send needs of a buffer.
pub(crate) enum Piece {
    Buffer(Arc<Buffer>),
    Shared(SharedSlice),
}

impl Memory {
    pub(crate) fn new(bound: u64) -> Self {
        Self {
            entries: Slab::new(),
            registered: None,
            spare: Default::default(),
            arrived: Vec::new(),
            bound,
            charged: 0,
            spared: 0,
            owed: 0,
            reserved: None,
            hungry: false,
            hosts: HashMap::new(),
            released: false,
        }
    }

    /// Cuts buffers from `arena` from now on, as long as there is room in it.
    pub(crate) fn use_registered(&mut self, arena: Arena) {
        self.registered = Some(arena);
    }

    /// Bytes that are registered with the ring, used or not.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.registered.as_ref().map_or(0, |arena| arena.len_bytes() as u64)
    }

    /// Charges what `account` holds and will hold to its host, too.
    pub(crate) fn charge_to_host(&mut self, account: &mut Account, nqn: &str) {
        let host = Rc::clone(self.hosts.entry(nqn.to_owned()).or_default());
        HostCharge::add(&host.all, account.charged);
        HostCharge::add(&host.owed, account.owed);
        account.host = Some(host);
    }

    /// For whom memory is kept free that nobody else gets.
    pub(crate) fn reserved_for(&self) -> Option<usize> {
        self.reserved.map(|(owner, _)| owner)
    }

    /// That connection waits no longer.
    pub(crate) fn unreserve(&mut self) {
        self.reserved = None;
        self.released = true;
    }

    /// Whether who holds something gets no more, because somebody else waits who holds nothing.
    pub(crate) fn is_hungry(&self) -> bool {
        self.hungry
    }

    /// Nobody waits any longer who holds nothing.
    pub(crate) fn sate(&mut self) {
        self.hungry = false;
        self.released = true;
    }

    /// Whether this connection holds nothing, and could have something if others held less.
    pub(crate) fn is_kept_from(&self, account: &Account) -> bool {
        let may = |own: u64, bound: u64, all: u64| own < share(host_bound(bound), bound, all - own);
        let host_may = |host: &Rc<HostCharge>| {
            may(host.all.get(), self.bound, self.charged) && may(host.owed.get(), self.bound / 2, self.owed)
        };
        account.charged == 0 && account.host.as_ref().is_none_or(host_may)
    }

    /// A connection is gone, and perhaps its host with it.
    pub(crate) fn forget(&mut self, account: &Account) {
        if self.reserved_for() == Some(account.owner) {
            self.unreserve();
        }
        // The table has one, the account another.
        if account.host.as_ref().is_some_and(|host| Rc::strong_count(host) <= 2) {
            self.hosts.retain(|_, host| !account.host.as_ref().is_some_and(|own| Rc::ptr_eq(own, host)));
        }
    }

    /// Bytes that are kept for data of hosts which did not come, or was not taken.
    pub(crate) fn owed_bytes(&self) -> u64 {
        self.owed
    }

    /// Bytes that commands hold.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.charged
    }

    /// Bytes of memory, used or spare.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.charged + self.spared
    }

    /// Whether memory was released since the last call: then somebody who waited may get some.
    pub(crate) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    /// Gives spare buffers back to the system.
    pub(crate) fn shrink(&mut self) {
        self.spare.iter_mut().for_each(|class| *class = Vec::new());
        self.spared = 0;
    }

    /// Charges `len` bytes to `account`, or `None` where a bound is reached.
    pub(crate) fn charge(&mut self, account: &mut Account, len: usize) -> Option<Charge> {
        self.charge_up_to(account, len, account.bound)
    }

    /// The same for data that is right behind its command, where the connection's own bound is none: all that it has may be for data
    /// that is behind these bytes. Half of the memory is for data that did come, so that some comes free without them.
    fn charge_arriving(&mut self, account: &mut Account, len: usize) -> Option<Charge> {
        self.charge_up_to(account, len, self.bound)
    }

    fn charge_up_to(&mut self, account: &mut Account, len: usize, connection_bound: u64) -> Option<Charge> {
        let bytes = class_bytes(class_of(len));
        let within = |own: u64, bound: u64| own == 0 || own + bytes <= share(bound, self.bound, self.charged - own);
        let host_has_room = account.host.as_ref().is_none_or(|host| within(host.all.get(), host_bound(self.bound)));
        let is_next = account.charged == 0 || !self.hungry && within(account.charged, connection_bound);
        if !host_has_room || !is_next {
            return None;
        }
        if self.charged + bytes + self.reserved_from(account) > self.bound {
            self.reserve(account, bytes);
            return None;
        }
        if self.reserved_for() == Some(account.owner) {
            self.reserved = None;
        }
        self.charged += bytes;
        account.charged += bytes;
        if let Some(host) = &account.host {
            HostCharge::add(&host.all, bytes);
        }
        while self.charged + self.spared > self.bound {
            self.drop_one_spare();
        }
        Some(Charge(bytes))
    }

    /// Keeps memory free for a connection that holds nothing, until it gets some: else small commands of others would take
    /// every piece that comes free, and a large one would never begin.
    fn reserve(&mut self, account: &Account, bytes: u64) {
        if account.charged == 0 {
            self.hungry = true;
            self.reserved.get_or_insert((account.owner, bytes));
        }
    }

    /// What is kept free for another connection than this.
    fn reserved_from(&self, account: &Account) -> u64 {
        self.reserved.filter(|(owner, _)| *owner != account.owner).map_or(0, |(_, bytes)| bytes)
    }

    /// Gives a charge back.
    pub(crate) fn uncharge(&mut self, account: &mut Account, charge: Charge) {
        self.charged -= charge.0;
        account.charged -= charge.0;
        if let Some(host) = &account.host {
            HostCharge::take(&host.all, charge.0);
        }
        self.released = true;
    }

    /// A buffer of `len` bytes for a charge of as many.
    pub(crate) fn buffer(&mut self, len: usize) -> Buffer {
        let class = class_of(len);
        let mut buffer = match self.spare[class].pop() {
            Some(buffer) => {
                self.spared -= class_bytes(class);
                buffer
            }
            None => {
                let bytes = class_bytes(class) as usize;
                let registered = self.registered.as_ref().and_then(|arena| arena.take(bytes));
                registered.unwrap_or_else(|| Buffer::zeroed(bytes))
            }
        };
        buffer.set_len(len);
        buffer
    }

    /// Keeps a buffer for the next user, or frees it. Only aligned ones are kept: the next user may be a read of a
    /// file without its cache.
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        let bytes = buffer.capacity() as u64;
        let class = class_of(buffer.capacity());
        if bytes == class_bytes(class) && buffer.is_aligned() && self.charged + self.spared + bytes <= self.bound {
            self.spared += bytes;
            self.spare[class].push(buffer);
        }
    }

    /// Names a filled buffer for the machine to send.
    pub(crate) fn insert_filled(&mut self, account: &Account, charge: Charge, buffer: Buffer) -> BufferId {
        self.insert(account, charge, Data::Sending(Arc::new(buffer)))
    }

    /// Names a buffer that others hold too, for the machine to send a part of it.
    pub(crate) fn insert_shared(
        &mut self,
        account: &Account,
        charge: Charge,
        buffer: Arc<Buffer>,
        holding: Option<Arc<Holding>>,
    ) -> BufferId {
        let id = self.insert(account, charge, Data::Sending(buffer));
        self.entries[id.0 as usize].holding = holding;
        id
    }

    /// Names a range of a volume's memory for the machine to send. The range is held, and released with the buffer.
    pub(crate) fn insert_volume(
        &mut self,
        account: &Account,
        charge: Charge,
        volume: Rc<LocalVolume>,
        offset: u64,
        len: usize,
    ) -> BufferId {
        self.insert(account, charge, Data::Volume { volume, offset, len })
    }

    /// The bytes that came from the peer.
    pub(crate) fn filled(&self, slice: BufferSlice) -> &[u8] {
        let part = slice.offset as usize..(slice.offset + slice.len) as usize;
        match &self.entries[slice.buffer.0 as usize].data {
            Data::Arrived { bytes, range } => &bytes[range.clone()][part],
            Data::Filling(buffer) => &buffer[part],
            _ => unreachable!("asked for what a peer has filled"),
        }
    }

    /// Takes out a buffer that the peer filled.
    pub(crate) fn take(&mut self, account: &mut Account, id: BufferId) -> (Buffer, Charge) {
        self.keep(id);
        let entry = self.remove(account, id);
        let Data::Filling(buffer) = entry.data else { unreachable!("only buffers that a peer filled are taken out") };
        (buffer, Charge(entry.charge))
    }

    /// Lends a buffer that the peer fills to the ring, which receives into it.
    pub(crate) fn lend(&mut self, id: BufferId) -> Buffer {
        let index = id.0 as usize;
        match std::mem::replace(&mut self.entries[index].data, Data::Lent { released: false }) {
            Data::Promised { len } => self.buffer(len),
            Data::Filling(buffer) => buffer,
            _ => unreachable!("only what a peer fills is lent, and once"),
        }
    }

    /// Takes a lent buffer back. Its memory stayed charged for as long as the kernel could write to it.
    pub(crate) fn come_home(&mut self, account: &mut Account, id: BufferId, buffer: Buffer) {
        let entry = &mut self.entries[id.0 as usize];
        let Data::Lent { released } = entry.data else { unreachable!("only what was lent comes home") };
        entry.data = Data::Filling(buffer);
        if released {
            self.release(account, id);
        }
    }

    /// Copies what arrived and was not taken, before the memory that it arrived in is used again.
    pub(crate) fn keep_arrived(&mut self) {
        while let Some(id) = self.arrived.pop() {
            // It may have gone meanwhile, and another one have its name.
            if self.entries.contains(id.0 as usize) {
                self.keep(id);
            }
        }
    }

    /// Gives what arrived a buffer of its own.
    fn keep(&mut self, id: BufferId) {
        let index = id.0 as usize;
        if let Data::Arrived { bytes, range } = &self.entries[index].data {
            let (bytes, range) = (Rc::clone(bytes), range.clone());
            let mut buffer = self.buffer(range.len());
            buffer.copy_from_slice(&bytes[range]);
            self.entries[index].data = Data::Filling(buffer);
        }
    }

    /// What to send for `slice`.
    pub(crate) fn piece(&self, slice: BufferSlice) -> Piece {
        let range = slice.offset as usize..(slice.offset + slice.len) as usize;
        match &self.entries[slice.buffer.0 as usize].data {
            Data::Sending(buffer) => Piece::Buffer(Arc::clone(buffer)),
            Data::Volume { volume, offset, .. } => {
                let start = *offset as usize;
                Piece::Shared(bytes_of(volume).slice(start + range.start..start + range.end))
            }
            _ => unreachable!("what a peer still fills is not sent"),
        }
    }

    /// Copies one of the reads that `owner` sends from volumes, and releases the volume's range. Gives its bytes;
    /// `None` where there is none.
    pub(crate) fn detach(&mut self, owner: usize) -> Option<usize> {
        let held = |entry: &Entry| entry.owner == owner && matches!(entry.data, Data::Volume { .. });
        let (index, _) = self.entries.iter().find(|(_, entry)| held(entry))?;
        self.detach_one(index)
    }

    fn detach_one(&mut self, index: usize) -> Option<usize> {
        let Data::Volume { volume, offset, len } = &self.entries[index].data else { return None };
        let (volume, offset, len) = (Rc::clone(volume), *offset, *len);
        let mut buffer = self.buffer(len);
        bytes_of(&volume).read(offset as usize, &mut buffer);
        self.entries[index].data = Data::Sending(Arc::new(buffer));
        volume.volume.guards.release(offset..offset + len as u64, Mode::Shared);
        Some(len)
    }

    fn insert(&mut self, account: &Account, charge: Charge, data: Data) -> BufferId {
        let entry = Entry { owner: account.owner, charge: charge.0, owed: false, data, holding: None };
        BufferId(self.entries.insert(entry) as u64)
    }

    fn remove(&mut self, account: &mut Account, id: BufferId) -> Entry {
        let entry = self.entries.remove(id.0 as usize);
        if entry.owed {
            self.owed -= entry.charge;
            account.owed -= entry.charge;
            if let Some(host) = &account.host {
                HostCharge::take(&host.owed, entry.charge);
            }
        }
        entry
    }

    /// The most of it for reads that wait for one volume's medium.
    pub(crate) fn of_one_volume(&self) -> u64 {
        self.bound / 2
    }

    /// Whether as much memory as this may be kept for data that a host is to send.
    fn may_be_owed(&mut self, account: &Account, bytes: u64) -> bool {
        let bound = self.bound / 2;
        let host_has_room = account.host.as_ref().is_none_or(|host| {
            let own = host.owed.get();
            own == 0 || own + bytes <= share(host_bound(bound), bound, self.owed - own)
        });
        let fits = self.owed == 0 || self.owed + bytes + self.reserved_from(account) <= bound;
        if host_has_room && !fits {
            self.reserve(account, bytes);
        }
        host_has_room && fits
    }

    fn release(&mut self, account: &mut Account, id: BufferId) {
        if let Data::Lent { released } = &mut self.entries[id.0 as usize].data {
            *released = true;
            return;
        }
        let entry = self.remove(account, id);
        self.uncharge(account, Charge(entry.charge));
        drop(entry.holding);
        match entry.data {
            Data::Promised { .. } | Data::Arrived { .. } | Data::Lent { .. } => {}
            Data::Filling(buffer) => self.give_back(buffer),
            Data::Sending(buffer) => {
                if let Ok(buffer) = Arc::try_unwrap(buffer) {
                    self.give_back(buffer);
                }
            }
            Data::Volume { volume, offset, len } => {
                volume.volume.guards.release(offset..offset + len as u64, Mode::Shared);
            }
        }
    }

    fn drop_one_spare(&mut self) {
        let largest = self.spare.iter_mut().enumerate().rev().find_map(|(class, spare)| Some((class, spare.pop()?)));
        match largest {
            Some((class, _)) => self.spared -= class_bytes(class),
            None => unreachable!("what is charged alone is within the bound"),
        }
    }
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Buffer(buffer) => buffer.fmt(f),
            Self::Shared(slice) => slice.fmt(f),
        }
    }
}

fn bytes_of(volume: &LocalVolume) -> &SharedMemory {
    match &volume.memory {
        Some(memory) => memory,
        None => unreachable!("only volumes in memory are sent from where they are"),
    }
}

/// The bytes that one may hold of `all`, of which others hold a part: that part less than its bound.
fn share(bound: u64, all: u64, others: u64) -> u64 {
    // In pages, so that the product fits.
    ((bound >> PAGE) * (all.saturating_sub(others) >> PAGE) / (all >> PAGE).max(1)) << PAGE
}

/// What one host may hold of `all`.
fn host_bound(all: u64) -> u64 {
    all / 4 * 3
}

fn class_of(len: usize) -> usize {
    let log = len.max(CLASS_BYTES_MIN).next_power_of_two().trailing_zeros();
    (log - CLASS_BYTES_MIN.trailing_zeros()) as usize
}

const fn class_bytes(class: usize) -> u64 {
    (CLASS_BYTES_MIN as u64) << class
}

const PAGE: u32 = 12;
const CLASS_BYTES_MIN: usize = 1 << PAGE;
/// 4 KiB to 16 MiB, the largest `limits.transfer`.
const CLASSES: usize = 13;
