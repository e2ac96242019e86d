//! Connections whose hosts were not let in yet: they cost a peer nothing but a connection, so anybody can make many.
//! They are bounded, for each address and in all, and a new one always finds a place: the oldest of the address that
//! has most goes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Connections of one address: more than one host may be behind it, and each has queues.
const PER_ADDRESS_MAX: usize = 256;

/// A connection, as its reactor knows it.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSlot {
    pub(crate) reactor: usize,
    pub(crate) connection: usize,
    /// Tells it from others that had its place.
    pub(crate) alive: Weak<()>,
}

/// All such connections.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Those of each address, by when they came.
    by_address: HashMap<IpAddr, BTreeMap<u64, ConnectionSlot>>,
    /// How many each address has, and its oldest, newest first: the last is the one that gives way.
    by_count: BTreeSet<(usize, std::cmp::Reverse<u64>, IpAddr)>,
    count: usize,
    last: u64,
}

/// One such connection. Dropped when its host was let in, or with the connection.
#[derive(Debug)]
pub(crate) struct Entrant {
    table: Arc<Mutex<Table>>,
    address: IpAddr,
    number: u64,
}

impl HalfOpen {
    /// One more from this address. Gives the one that is to be closed for it, if there are too many of the address, or more than
    /// `total_max` of all. Without that there are no bounds.
    pub(crate) fn enter(
        &self,
        address: IpAddr,
        total_max: Option<usize>,
        place: ConnectionSlot,
    ) -> (Entrant, Option<ConnectionSlot>) {
        let address = of_one_machine(address);
        let mut table = lock(&self.table);
        let here = table.by_address.get(&address).map_or(0, BTreeMap::len);
        let gone = match total_max {
            Some(_) if here >= PER_ADDRESS_MAX => table.take_oldest(address),
            Some(total_max) if table.count >= total_max.max(1) => table.take_oldest_of_most(),
            _ => None,
        };
        table.last += 1;
        let number = table.last;
        table.change(address, |connections| drop(connections.insert(number, place)));
        (Entrant { table: Arc::clone(&self.table), address, number }, gone)
    }

    /// Takes out the one that gives way to a new one; none if there is none.
    pub(crate) fn give_way(&self) -> Option<ConnectionSlot> {
        lock(&self.table).take_oldest_of_most()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        lock(&self.table).count
    }
}

impl Entrant {
    /// Where the connection came from: of IPv6 its network.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }
}

impl Table {
    fn take_oldest_of_most(&mut self) -> Option<ConnectionSlot> {
        let &(.., address) = self.by_count.last()?;
        self.take_oldest(address)
    }

    fn take_oldest(&mut self, address: IpAddr) -> Option<ConnectionSlot> {
        self.change(address, |connections| connections.pop_first()).map(|(_, place)| place)
    }

    /// Changes the connections of an address, and what is known of their number.
    fn change<T>(&mut self, address: IpAddr, change: impl FnOnce(&mut BTreeMap<u64, ConnectionSlot>) -> T) -> T {
        let rank = |connections: &BTreeMap<u64, ConnectionSlot>| {
            connections.keys().next().map(|oldest| (connections.len(), std::cmp::Reverse(*oldest), address))
        };
        let connections = self.by_address.entry(address).or_default();
        let (before, count_before) = (rank(connections), connections.len());
        let changed = change(connections);
        let (after, count) = (rank(connections), connections.len());
        if count == 0 {
            self.by_address.remove(&address);
        }
        if let Some(before) = before {
            self.by_count.remove(&before);
        }
        self.by_count.extend(after);
        self.count = self.count + count - count_before;
        changed
    }
}

impl Drop for Entrant {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        if table.by_address.get(&self.address).is_some_and(|connections| connections.contains_key(&self.number)) {
            table.change(self.address, |connections| drop(connections.remove(&self.number)));
        }
    }
}

/// The addresses that belong to one machine at least: of IPv6 a network of 64 bits.
fn of_one_machine(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
        address => address,
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(connection: usize) -> ConnectionSlot {
        ConnectionSlot { reactor: 0, connection, alive: Weak::new() }
    }

    fn four(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// An address that filled its share, or all addresses together that filled theirs, kept everybody out who came after.
    #[test]
    fn the_oldest_of_the_address_that_has_most_goes_for_a_new_one() {
        let half_open = HalfOpen::default();
        let mut entrants = Vec::new();
        for connection in 0..PER_ADDRESS_MAX {
            let (entrant, gone) = half_open.enter(four(1), Some(1000), place(connection));
            assert!(gone.is_none());
            entrants.push(entrant);
        }
        let (new, gone) = half_open.enter(four(1), Some(1000), place(1000));
        assert_eq!(gone.unwrap().connection, 0, "of the same address, whose share is full");
        let (few, gone) = half_open.enter(four(2), Some(257), place(2000));
        assert!(gone.is_none());
        let (other, gone) = half_open.enter(four(3), Some(257), place(3000));
        assert_eq!(gone.unwrap().connection, 1, "of the address that has most, and not of the one that has few");
        assert_eq!((half_open.count(), half_open.give_way().unwrap().connection), (257, 2));
        drop((entrants, new, few, other));
        let table = lock(&half_open.table);
        assert_eq!((table.count, table.by_address.len(), table.by_count.len()), (0, 0, 0));
    }

    #[test]
    fn where_all_have_as_many_the_oldest_goes_and_a_network_of_ipv6_is_one_machine() {
        let half_open = HalfOpen::default();
        let _entrants: Vec<_> =
            [3, 1, 2].map(|last| half_open.enter(four(last), Some(3), place(last.into())).0).into_iter().collect();
        let (_fourth, gone) = half_open.enter(four(4), Some(3), place(4));
        assert_eq!(gone.unwrap().connection, 3);
        let six = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        let half_open = HalfOpen::default();
        let _entrants: Vec<_> =
            (0..PER_ADDRESS_MAX).map(|i| half_open.enter(six(i as u16), Some(4096), place(i)).0).collect();
        assert_eq!(half_open.enter(six(9999), Some(4096), place(9999)).1.unwrap().connection, 0);
    }
}
