//! Which tables may have a key.

/// A table of a version of a column family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableFile {
    /// By which RocksDB knows it. It is never used again.
    pub number: u64,
    /// Its name in the directory of the database.
    pub name: String,
    /// Its length.
    pub len_bytes: u64,
    /// Its first key.
    pub smallest: Vec<u8>,
    /// Its last key.
    pub largest: Vec<u8>,
}

/// The tables of one version, with its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Number of the super version (`rocksdb.current-super-version-number`) whose tables these are.
    pub super_version: u64,
    /// By level. In level 0 the newest comes first, in each other one that with the smallest keys.
    pub levels: Vec<Vec<TableFile>>,
}

impl Plan {
    /// The tables that may have versions of the key, in the order in which they are asked: a version in one is newer than all in
    /// those behind it.
    pub fn candidates<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a TableFile> {
        self.levels.iter().enumerate().flat_map(move |(level, tables)| {
            // Tables of a level other than 0 do not overlap, but the last key of one may be the first of the next.
            let first = if level == 0 { 0 } else { tables.partition_point(|table| table.largest.as_slice() < key) };
            let behind = move |table: &&TableFile| level == 0 || table.smallest.as_slice() <= key;
            let holds = move |table: &&TableFile| table.smallest.as_slice() <= key && key <= table.largest.as_slice();
            tables[first..].iter().take_while(behind).filter(holds)
        })
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &TableFile> {
        self.levels.iter().flatten()
    }
}

/// The number in a table's name, as `000123.sst`.
#[must_use]
pub fn number_of(name: &str) -> Option<u64> {
    name.trim_start_matches('/').strip_suffix(".sst")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(number: u64, smallest: &str, largest: &str) -> TableFile {
        let name = format!("{number:06}.sst");
        let [smallest, largest] = [smallest, largest].map(|key| key.as_bytes().to_vec());
        TableFile { number, name, len_bytes: 1, smallest, largest }
    }

    #[test]
    fn candidates_come_newest_first_and_none_is_left_out() {
        let levels = vec![
            vec![table(9, "c", "x"), table(8, "a", "b"), table(7, "a", "z")],
            // Versions of one key may be in two neighbours.
            vec![table(1, "a", "f"), table(2, "f", "f"), table(3, "f", "k"), table(4, "m", "p")],
            Vec::new(),
            vec![table(5, "g", "h")],
        ];
        let plan = Plan { super_version: 1, levels };
        let numbers = |key: &str| plan.candidates(key.as_bytes()).map(|table| table.number).collect::<Vec<_>>();
        assert_eq!(numbers("f"), [9, 7, 1, 2, 3]);
        assert_eq!(numbers("g"), [9, 7, 3, 5]);
        assert_eq!(numbers("a"), [8, 7, 1]);
        assert_eq!(numbers("l"), [9, 7]);
        assert_eq!(numbers("zz"), [0; 0]);
        assert_eq!(numbers(""), [0; 0]);
    }

    #[test]
    fn numbers_of_names() {
        assert_eq!(number_of("/000123.sst"), Some(123));
        assert_eq!(number_of("1234567.sst"), Some(1_234_567));
        assert_eq!(number_of("000123.blob"), None);
        assert_eq!(number_of("x.sst"), None);
    }
}
