//! Making a store: every node and every value once, in the order of the file.

use crate::error::KvError;
use crate::format::{FAN_OUT, LEVELS_MAX, NO_KEY, NODE_LEN, Node, VALUE_LEN, Value, counting_value};
use std::io::{self, BufWriter, Write};
use zerocopy::IntoBytes;

/// What a store is made of.
#[derive(Clone, Debug)]
pub enum Keys {
    /// The keys 0 up to this; the value of each is its number.
    Counting(u64),
    /// These pairs, by ascending keys.
    Pairs(Vec<(u64, Value)>),
}

/// A store to be made.
#[derive(Clone, Debug)]
pub struct Creation {
    keys: Keys,
    fill: u64,
    older: bool,
}

/// Where things lie in a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Nodes of each level, the root's first.
    pub nodes: Vec<u64>,
    /// Offset of the first value.
    pub log: u64,
    /// Bytes in all.
    pub len: u64,
}

impl Creation {
    /// A store with full nodes.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self { keys, fill: FAN_OUT as u64, older: false }
    }

    /// Puts fewer than 31 keys into a node, at least 2: a small store with many levels.
    #[must_use]
    pub fn fill(mut self, fill: u64) -> Self {
        self.fill = fill;
        self
    }

    /// Writes nodes as older files have them: the number of keys instead of the next node. Only for
    /// full nodes.
    #[must_use]
    pub fn older(mut self) -> Self {
        self.older = true;
        self
    }

    /// Where everything will be.
    ///
    /// # Errors
    /// When there can be no such store.
    pub fn geometry(&self) -> Result<Geometry, KvError> {
        let usage = |what: &str| Err(KvError::Usage(what.to_owned()));
        let count = self.count();
        if !(2..=FAN_OUT as u64).contains(&self.fill) {
            return usage("a node is filled with 2 to 31 keys");
        }
        if count == 0 {
            return usage("a store has at least one key");
        }
        if let Keys::Pairs(pairs) = &self.keys {
            if pairs.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
                return usage("keys must ascend, each once");
            }
            if pairs.last().is_some_and(|pair| pair.0 == NO_KEY) {
                return usage("18446744073709551615 cannot be a key");
            }
        }
        let mut nodes = vec![count.div_ceil(self.fill)];
        while nodes[0] > 1 {
            nodes.insert(0, nodes[0].div_ceil(self.fill));
        }
        if nodes.len() > LEVELS_MAX as usize {
            return usage("a store has at most 16 levels; fill nodes with more keys");
        }
        let is_full = self.fill == FAN_OUT as u64 && self.fill.checked_pow(nodes.len() as u32) == Some(count);
        if self.older && !is_full {
            return usage("older stores have full nodes: 31 to the power of levels keys");
        }
        let log = nodes.iter().sum::<u64>().checked_mul(NODE_LEN as u64);
        let end = log.and_then(|log| count.checked_mul(VALUE_LEN as u64)?.checked_add(log));
        match (log, end.and_then(|end| end.checked_next_multiple_of(NODE_LEN as u64))) {
            (Some(log), Some(len)) => Ok(Geometry { nodes, log, len }),
            _ => usage("the store would have more than 2^64 bytes; it can have fewer keys or levels"),
        }
    }

    /// Writes the store.
    ///
    /// # Errors
    /// When there can be no such store, or it cannot be written.
    pub fn write(&self, to: impl Write) -> Result<Geometry, KvError> {
        let geometry = self.geometry()?;
        let mut to = BufWriter::with_capacity(1 << 20, to);
        let result = self.write_nodes(&geometry, &mut to).and_then(|()| self.write_values(&geometry, &mut to));
        result.and_then(|()| to.flush()).map_err(|source| KvError::Io { what: "writing", offset: 0, source })?;
        drop(to);
        Ok(geometry)
    }

    fn count(&self) -> u64 {
        match &self.keys {
            Keys::Counting(count) => *count,
            Keys::Pairs(pairs) => pairs.len() as u64,
        }
    }

    fn key(&self, index: u64) -> u64 {
        match &self.keys {
            Keys::Counting(_) => index,
            Keys::Pairs(pairs) => pairs[index as usize].0,
        }
    }

    fn write_nodes(&self, geometry: &Geometry, to: &mut impl Write) -> io::Result<()> {
        let mut start = 0;
        for (level, &nodes) in geometry.nodes.iter().enumerate() {
            let is_leaf = level + 1 == geometry.nodes.len();
            let below = start + nodes * NODE_LEN as u64;
            // The targets of a node's entries, how many there are, and how many keys are below each.
            let (entries, entry_len) =
                if is_leaf { (self.count(), VALUE_LEN) } else { (geometry.nodes[level + 1], NODE_LEN) };
            let keys_each = self.fill.saturating_pow((geometry.nodes.len() - 1 - level) as u32);
            for n in 0..nodes {
                let own = n * self.fill..((n + 1) * self.fill).min(entries);
                let next = match (self.older, n + 1 == nodes) {
                    (true, _) => FAN_OUT as u64,
                    (false, true) => 0,
                    (false, false) => start + (n + 1) * NODE_LEN as u64,
                };
                let to_entry =
                    own.map(|e| (self.key(e * keys_each), below_of(below, geometry, is_leaf) + e * entry_len as u64));
                to.write_all(Node::new(next, is_leaf, to_entry).as_bytes())?;
            }
            start = below;
        }
        Ok(())
    }

    fn write_values(&self, geometry: &Geometry, to: &mut impl Write) -> io::Result<()> {
        match &self.keys {
            Keys::Counting(count) => (0..*count).try_for_each(|key| to.write_all(&counting_value(key)))?,
            Keys::Pairs(pairs) => pairs.iter().try_for_each(|pair| to.write_all(&pair.1))?,
        }
        let rest = geometry.len - geometry.log - self.count() * VALUE_LEN as u64;
        to.write_all(&vec![0; rest as usize])
    }
}

/// Where the entries of a level begin.
fn below_of(below: u64, geometry: &Geometry, is_leaf: bool) -> u64 {
    if is_leaf { geometry.log } else { below }
}
