//! Values that the server gave, for the next reads of the same keys.
//!
//! A table never changes. So what is known of a key stays true: which tables do not have it, and which one decided. A read asks only
//! those tables that are new since, which after a flush are few; after a compaction the table that decided is gone, and the key is
//! asked for again. Nothing has to be told of writes: memtables come first.

use crate::plan::TableFile;
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};
use std::sync::Arc;

/// What is known of a key.
#[derive(Debug)]
pub(crate) struct Known {
    /// Tables that are newer than the one that decided, and do not have it.
    absent: Vec<u64>,
    /// The table that decided, and its value if it has one; `None`: all tables are in `absent`.
    decided: Option<(u64, Option<Vec<u8>>)>,
}

/// A cache of them, bounded in bytes.
#[derive(Debug)]
pub(crate) struct Values(Option<Cache<Key, Arc<Known>, ByBytes>>);

#[derive(PartialEq, Eq, Hash, Debug)]
struct Key(u32, Box<[u8]>);

#[derive(Hash)]
struct Sought<'a>(u32, &'a [u8]);

impl Equivalent<Key> for Sought<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.0 == key.0 && *self.1 == *key.1
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Key, Arc<Known>> for ByBytes {
    fn weight(&self, key: &Key, known: &Arc<Known>) -> u64 {
        let value = known.decided.as_ref().and_then(|(_, value)| value.as_ref()).map_or(0, Vec::len);
        weight(key.1.len(), value + 8 * known.absent.len())
    }
}

/// Bytes that a value takes in memory: beside key and value the cache's own, allocations rounded up.
pub(crate) fn weight(key_len: usize, value_len: usize) -> u64 {
    (key_len + value_len + 160) as u64
}

/// The longest value that is kept.
const VALUE_LEN_MAX: usize = 64 << 10;

impl Known {
    /// The table that decided, and its value if it has one.
    pub(crate) fn decided(&self) -> Option<(u64, Option<Vec<u8>>)> {
        self.decided.clone()
    }

    /// Its value; `None`: it has none.
    pub(crate) fn value(&self) -> Option<Vec<u8>> {
        self.decided.as_ref().and_then(|(_, value)| value.clone())
    }
}

impl Values {
    /// Of so many bytes; 0: none are kept.
    pub(crate) fn new(bytes: u64) -> Self {
        // An estimate, of what is as long as records often are.
        Self((bytes > 0).then(|| Cache::with_weighter((bytes / 512) as usize + 16, bytes, ByBytes)))
    }

    /// Takes those tables away that need not be asked, and gives what is known behind the others.
    pub(crate) fn take_known(&self, family: u32, key: &[u8], tables: &mut Vec<&TableFile>) -> Option<Arc<Known>> {
        let known = self.0.as_ref()?.get(&Sought(family, key))?;
        let decided = known.decided.as_ref().map(|(table, _)| *table);
        let behind = tables.iter().position(|table| Some(table.number) == decided);
        tables.truncate(behind.unwrap_or(tables.len()));
        tables.retain(|table| !known.absent.contains(&table.number));
        behind.map(|_| known)
    }

    /// Keeps what is known now: these are all tables that may have the key, the newest first, and one of them decided.
    pub(crate) fn keep(&self, family: u32, key: &[u8], tables: &[u64], decided: Option<(u64, Option<Vec<u8>>)>) {
        let Some(cache) = &self.0 else { return };
        if decided.as_ref().and_then(|(_, value)| value.as_ref()).is_some_and(|value| value.len() > VALUE_LEN_MAX) {
            return;
        }
        let table = decided.as_ref().map(|(table, _)| *table);
        let absent = tables.iter().copied().take_while(|number| Some(*number) != table).collect();
        cache.insert(Key(family, key.into()), Arc::new(Known { absent, decided }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(numbers: &[u64]) -> Vec<TableFile> {
        let table = |number: &u64| TableFile {
            number: *number,
            name: String::new(),
            len_bytes: 1,
            smallest: Vec::new(),
            largest: Vec::new(),
        };
        numbers.iter().map(table).collect()
    }

    /// The numbers of those that are still asked, and the value behind them.
    fn asked(values: &Values, numbers: &[u64]) -> (Vec<u64>, Option<Option<Vec<u8>>>) {
        let all = tables(numbers);
        let mut left = all.iter().collect();
        let known = values.take_known(0, b"key", &mut left);
        (left.iter().map(|table| table.number).collect(), known.map(|known| known.value()))
    }

    #[test]
    fn only_new_tables_are_asked() {
        let values = Values::new(1 << 20);
        assert_eq!(asked(&values, &[9, 5, 2]), (vec![9, 5, 2], None));
        values.keep(0, b"key", &[9, 5, 2], Some((5, Some(b"value".to_vec()))));
        assert_eq!(asked(&values, &[9, 5, 2]), (vec![], Some(Some(b"value".to_vec()))));
        // A flush, and a compaction of what does not have the key.
        assert_eq!(asked(&values, &[11, 9, 5, 2]), (vec![11], Some(Some(b"value".to_vec()))));
        assert_eq!(asked(&values, &[12, 5]), (vec![12], Some(Some(b"value".to_vec()))));
        // A compaction of the one that decided: those in front of it still do not have the key.
        assert_eq!(asked(&values, &[11, 9, 13]), (vec![11, 13], None));
        // It was deleted; it never was there.
        values.keep(0, b"key", &[11, 5], Some((11, None)));
        assert_eq!(asked(&values, &[11, 5]), (vec![], Some(None)));
        values.keep(0, b"key", &[11, 5], None);
        assert_eq!(asked(&values, &[11, 5]), (vec![], None));
        assert_eq!(asked(&values, &[14, 11, 5]), (vec![14], None));
        // Of another family nothing is known; without room, of nothing.
        let all = tables(&[11]);
        let mut left = all.iter().collect::<Vec<_>>();
        assert!(values.take_known(1, b"key", &mut left).is_none() && left.len() == 1);
        let none = Values::new(0);
        none.keep(0, b"key", &[1], Some((1, None)));
        assert_eq!(asked(&none, &[1]), (vec![1], None));
    }
}
