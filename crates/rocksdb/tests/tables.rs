//! Lookups in tables that RocksDB 7.8.3 wrote, and 10.4.2 those of version 6 (`tests/files`), whole and damaged.
//!
//! Each has the keys `key00000`, `key00002`, … `key00238`, every third of them written twice, and every seventh deleted after
//! that; the first 120 sequence numbers are the first version of each. Blocks are of 512 bytes.

use diskside::traverse::{MemoryList, Traversal, TraverseLimits, TraverseRequest};
use diskside::{Engine, TierChoice, helpers, library};
use diskside_rocksdb::table::{
    Answer, LATEST, TableFacts, Unsupported, answer, facts, facts_request, get_request, scratch_len,
};

const FIRST_VERSIONS: u64 = 120;
const VALUE_ROOM: usize = 1024;
/// Each with what is special about it.
const TABLES: [(&str, &[u8]); 13] = [
    ("version 2: an index of internal keys", include_bytes!("files/v2.sst")),
    ("version 3: an index of user keys; XXH3", include_bytes!("files/v3-xxh3.sst")),
    ("version 4: an index of differences", include_bytes!("files/v4-deltas.sst")),
    ("an index of two levels, a partitioned filter", include_bytes!("files/v5-partitions.sst")),
    ("an index with first keys, data blocks with hashes; XXH3", include_bytes!("files/v5-first-keys.sst")),
    ("version 6: checksums that know their place; XXH3", include_bytes!("files/v6.sst")),
    ("version 6, an index of two levels, a partitioned filter", include_bytes!("files/v6-partitions.sst")),
    ("Snappy, an index of two levels", include_bytes!("files/snappy.sst")),
    ("LZ4", include_bytes!("files/lz4.sst")),
    ("Zstandard", include_bytes!("files/zstd.sst")),
    (LZ4_DICTIONARY, include_bytes!("files/lz4-dictionary.sst")),
    (ZSTD_DICTIONARY, include_bytes!("files/zstd-dictionary.sst")),
    (RANGES, include_bytes!("files/ranges.sst")),
];
/// Both come from a compaction, after which the first versions have sequence number 0.
const LZ4_DICTIONARY: &str = "LZ4 with a dictionary, an index of two levels";
const ZSTD_DICTIONARY: &str = "Zstandard with a dictionary";
/// Between the first versions and the second ones, the keys from `key00040` to before `key00061` were deleted, and `key00200`.
const RANGES: &str = "range deletions";

/// Both functions, over memory.
struct Functions {
    get: Traversal,
    facts: Traversal,
}

impl Functions {
    fn new() -> Self {
        let engine = Engine::new(helpers());
        let [get, facts] = ["sst_get", "sst_facts"].map(|name| {
            let object = library::object(name).expect("shipped");
            let function = engine.load_traversal(&object.bytes, Some(name)).expect("it loads");
            engine.traversal(&function, TierChoice::Best, TraverseLimits::default()).expect("it compiles")
        });
        Self { get, facts }
    }

    fn facts(&mut self, tables: &[&[u8]]) -> Option<Vec<TableFacts>> {
        let unknown: Vec<TableFacts> = tables.iter().map(|table| TableFacts::unknown(table.len() as u64)).collect();
        let input = facts_request(&unknown);
        facts(run(&mut self.facts, tables, &input, scratch_len(&input, 0))?, tables.len())
    }

    /// `None`: the function failed.
    fn get(&mut self, tables: &[(&[u8], TableFacts)], snapshot: u64, key: &[u8]) -> Option<Answer> {
        let known: Vec<TableFacts> = tables.iter().map(|(_, facts)| *facts).collect();
        let bytes: Vec<&[u8]> = tables.iter().map(|(bytes, _)| *bytes).collect();
        let input = get_request(snapshot, &known, key);
        let result = run(&mut self.get, &bytes, &input, scratch_len(&input, VALUE_ROOM))?;
        Some(answer(result).expect("the result is an answer"))
    }
}

fn run<'a>(traversal: &'a mut Traversal, tables: &[&[u8]], input: &[u8], scratch_cap: usize) -> Option<&'a [u8]> {
    let lens: Vec<u64> = tables.iter().map(|table| table.len() as u64).collect();
    let request = TraverseRequest { first: &[], files: &lens, input, scratch_cap, deadline: None };
    traversal.run(&request, &mut MemoryList(tables)).ok()
}

fn unknown(table: &[u8]) -> TableFacts {
    TableFacts::unknown(table.len() as u64)
}

/// The value of the key with this number, which the table may not have; `None`: it has none.
fn value(what: &str, number: u64, snapshot: u64) -> Option<Vec<u8>> {
    let i = number / 2;
    if !number.is_multiple_of(2) || i >= 120 || (snapshot == LATEST && i.is_multiple_of(7)) {
        return None;
    }
    let version = if snapshot == LATEST && i.is_multiple_of(3) { 2 } else { 1 };
    if what == RANGES && snapshot == LATEST && version == 1 && matches!(number, 40..61 | 200) {
        return None;
    }
    Some(format!("value {version} of {}", key(number)).into_bytes())
}

fn key(number: u64) -> String {
    format!("key{number:05}")
}

/// What is in a table, as the outside sees it.
fn seen(answer: &Answer) -> Option<Vec<u8>> {
    match answer {
        Answer::Found { value, .. } => Some(value.clone()),
        Answer::Absent | Answer::Deleted { .. } => None,
        Answer::Unsupported(reason) => panic!("not decided: {reason:?}"),
    }
}

#[test]
fn every_key_and_every_gap_is_found_in_tables_of_all_kinds() {
    let mut functions = Functions::new();
    for (what, table) in TABLES {
        let facts = functions.facts(&[table]).expect("facts")[0];
        assert_eq!(facts.unsupported(), None, "{what}");
        for number in 0..245 {
            for snapshot in [LATEST, FIRST_VERSIONS] {
                for known in [facts, unknown(table)] {
                    let found = functions.get(&[(table, known)], snapshot, key(number).as_bytes()).expect("an answer");
                    assert_eq!(
                        seen(&found),
                        value(what, number, snapshot),
                        "{what}: key {number}, snapshot {snapshot}"
                    );
                    if let Answer::Found { sequence, .. } | Answer::Deleted { sequence, .. } = found {
                        assert!(sequence <= snapshot, "{what}: key {number} has sequence number {sequence}");
                    }
                }
            }
        }
        for odd in ["", "a", "key", "key00000x", "z"] {
            assert_eq!(
                functions.get(&[(table, facts)], LATEST, odd.as_bytes()),
                Some(Answer::Absent),
                "{what}: {odd:?}"
            );
        }
        if [LZ4_DICTIONARY, ZSTD_DICTIONARY].contains(&what) {
            continue;
        }
        // Before anything was written.
        assert_eq!(functions.get(&[(table, facts)], 0, b"key00002"), Some(Answer::Absent), "{what}");
    }
}

/// A range deletion may end before the last key of its table, and nothing in the table tells.
#[test]
fn what_a_range_deletes_at_the_end_of_a_table_is_not_decided() {
    let mut functions = Functions::new();
    let (_, table) = *TABLES.iter().find(|(what, _)| *what == RANGES).expect("one with range deletions");
    let facts = functions.facts(&[table]).expect("facts")[0];
    for number in 0..245 {
        let mut get = |facts: TableFacts| functions.get(&[(table, facts)], LATEST, key(number).as_bytes());
        for known in [facts, unknown(table)] {
            let found = get(known.of_last_key(true));
            let is_covered = matches!(number, 40..61 | 200);
            let expected = if is_covered { Some(Answer::Unsupported(Unsupported::RangeEdge)) } else { get(known) };
            assert_eq!(found, expected, "key {number}");
        }
        assert_eq!(get(facts.of_last_key(false)), get(facts));
    }
}

#[test]
fn the_first_table_that_has_a_version_decides() {
    let mut functions = Functions::new();
    let bytes: Vec<&[u8]> = TABLES.iter().map(|(_, bytes)| *bytes).collect();
    let known = functions.facts(&bytes).expect("facts");
    let all: Vec<_> = bytes.iter().copied().zip(known).collect();
    let found = functions.get(&all, LATEST, b"key00002").expect("an answer");
    assert_eq!(seen(&found), value(TABLES[0].0, 2, LATEST));
    // A range that one deletes is deleted in those behind it, and in none before it.
    let ranges = all[TABLES.iter().position(|(what, _)| *what == RANGES).expect("it is there")];
    let behind = functions.get(&[ranges, all[0]], LATEST, b"key00200").expect("an answer");
    assert!(matches!(behind, Answer::Deleted { sequence: 122, table: 0 }), "{behind:?}");
    let before = functions.get(&[all[0], ranges], LATEST, b"key00200").expect("an answer");
    assert_eq!(seen(&before), value(TABLES[0].0, 200, LATEST));
    // Also keys that the table itself does not have; but not before the deletion.
    let gap = functions.get(&[ranges, all[0]], LATEST, b"key00041").expect("an answer");
    assert!(matches!(gap, Answer::Deleted { sequence: 121, table: 0 }), "{gap:?}");
    assert_eq!(functions.get(&[ranges, all[0]], FIRST_VERSIONS, b"key00041"), Some(Answer::Absent));
    // One that cannot be searched matters only if it is asked.
    let zlib: &[u8] = include_bytes!("files/zlib.sst");
    let zlib = (zlib, functions.facts(&[zlib]).expect("facts")[0]);
    let found = functions.get(&[all[0], zlib], LATEST, b"key00002").expect("an answer");
    assert_eq!(seen(&found), value(TABLES[0].0, 2, LATEST));
    let absent = functions.get(&[all[0], zlib], LATEST, b"key00001");
    assert_eq!(absent, Some(Answer::Unsupported(Unsupported::Compression)));
    let first = functions.get(&[(zlib.0, unknown(zlib.0)), all[0]], LATEST, b"key00002");
    assert_eq!(first, Some(Answer::Unsupported(Unsupported::Compression)));
    assert_eq!(functions.get(&[], LATEST, b"key00002"), Some(Answer::Absent));
}

#[test]
fn what_cannot_be_decided_is_said_with_its_reason() {
    let mut functions = Functions::new();
    let zlib: &[u8] = include_bytes!("files/zlib.sst");
    let xxhash64: &[u8] = include_bytes!("files/xxhash64.sst");
    let of = |reason| Some(Answer::Unsupported(reason));
    for known in [unknown(zlib), functions.facts(&[zlib]).expect("facts")[0]] {
        assert_eq!(functions.get(&[(zlib, known)], LATEST, b"key00002"), of(Unsupported::Compression));
    }
    assert_eq!(functions.get(&[(xxhash64, unknown(xxhash64))], LATEST, b"a"), of(Unsupported::ChecksumKind));
    let table = TABLES[0].1;
    for no_table in [&b""[..], b"short", &[0; 100], &table[..table.len() - 1], &TABLES.concat_text()] {
        let found = functions.get(&[(no_table, unknown(no_table))], LATEST, b"key00002");
        assert_eq!(found, of(Unsupported::NotATable));
    }
    let long = vec![b'k'; 1025];
    assert_eq!(functions.get(&[(table, unknown(table))], LATEST, &long), of(Unsupported::LongKey));
    let longest = vec![b'k'; 1024];
    assert_eq!(functions.get(&[(table, unknown(table))], LATEST, &longest), Some(Answer::Absent));
    // The error of a value for which there is no room has its length.
    let (input, lens) = (get_request(LATEST, &[unknown(table)], b"key00002"), [table.len() as u64]);
    let request = TraverseRequest {
        first: &[],
        files: &lens,
        input: &input,
        scratch_cap: scratch_len(&input, 0),
        deadline: None,
    };
    let result = functions.get.run(&request, &mut MemoryList(&[table])).expect("an answer");
    assert!(matches!(answer(result), Some(Answer::Found { .. })), "a small value fits where the search was");
}

/// Something that is not a table, but has text of one.
trait ConcatText {
    fn concat_text(&self) -> Vec<u8>;
}

impl ConcatText for [(&str, &[u8]); 13] {
    fn concat_text(&self) -> Vec<u8> {
        self.iter().flat_map(|(what, _)| what.bytes()).collect()
    }
}

/// Damage is found out, or does not matter: no answer about a damaged table differs from that about the whole one.
#[test]
fn a_damaged_table_gives_the_right_answer_or_none() {
    let mut functions = Functions::new();
    let mut dice = fastrand::Rng::with_seed(19);
    let (mut decided, mut undecided) = (0, 0);
    for (what, table) in TABLES {
        let facts = functions.facts(&[table]).expect("facts")[0];
        for round in 0..3000 {
            let mut bytes = table.to_vec();
            match round % 4 {
                0 => {
                    let at = dice.usize(..bytes.len());
                    bytes[at] ^= 1 << dice.u32(..8);
                }
                1 => bytes.truncate(dice.usize(..bytes.len())),
                2 => {
                    // The end has what says where everything is.
                    let at = bytes.len() - 1 - dice.usize(..1200);
                    bytes[at] = dice.u8(..);
                }
                _ => {
                    let (from, to) = (dice.usize(..bytes.len() - 64), dice.usize(..bytes.len() - 64));
                    bytes.copy_within(from..from + dice.usize(..64), to);
                }
            }
            let number = dice.u64(..245);
            let snapshot = if dice.bool() { LATEST } else { FIRST_VERSIONS };
            // The facts of a table are those of the whole one: so a lookup meets lengths that are not true any more.
            let known = if dice.bool() { facts } else { unknown(&bytes) };
            match functions.get(&[(&bytes, known)], snapshot, key(number).as_bytes()) {
                None | Some(Answer::Unsupported(_)) => undecided += 1,
                Some(found) => {
                    decided += 1;
                    assert_eq!(seen(&found), value(what, number, snapshot), "{what}: key {number} in round {round}");
                }
            }
        }
    }
    assert!(decided > 1000 && undecided > 1000, "{decided} {undecided}: damage is neither always nor never met");
}

/// Blocks whose checksums are right and whose content is not: a lookup ends, and reads nothing but the table.
#[test]
fn lies_under_a_right_checksum_end_without_harm() {
    let mut functions = Functions::new();
    let mut dice = fastrand::Rng::with_seed(28);
    // Version 2 has CRC-32C. Its first data block begins the file; the rest is found by its facts.
    let table = TABLES[0].1;
    let facts = functions.facts(&[table]).expect("facts")[0];
    let first_len = (0..table.len() - 5)
        .find(|&len| len > 100 && table[len + 1..len + 5] == masked_crc32c(&table[..=len]).to_le_bytes())
        .expect("a block begins the file");
    for _ in 0..4000 {
        let mut bytes = table.to_vec();
        for _ in 0..=dice.usize(..6) {
            // Mostly where entries begin again, and how many do.
            let at = if dice.bool() { dice.usize(..first_len) } else { first_len - 1 - dice.usize(..12) };
            bytes[at] = if dice.bool() { 0xff } else { dice.u8(..) };
        }
        let sum = masked_crc32c(&bytes[..=first_len]).to_le_bytes();
        bytes[first_len + 1..first_len + 5].copy_from_slice(&sum);
        let _ = functions.get(&[(&bytes, facts)], LATEST, key(dice.u64(..20)).as_bytes());
    }
}

/// Blocks that lie about how long they are decompressed, or how: not more is made of them than a block may have.
#[test]
fn lies_about_compression_end_without_harm() {
    let mut functions = Functions::new();
    let mut dice = fastrand::Rng::with_seed(31);
    for (what, table) in TABLES {
        let facts = functions.facts(&[table]).expect("facts")[0];
        let Some(first_len) =
            (100..table.len() - 5).find(|&len| table[len + 1..len + 5] == masked_crc32c(&table[..=len]).to_le_bytes())
        else {
            continue;
        };
        for _ in 0..1000 {
            let mut bytes = table.to_vec();
            for _ in 0..=dice.usize(..4) {
                // Mostly the length.
                let at = if dice.bool() { dice.usize(..first_len) } else { dice.usize(..6) };
                bytes[at] = if dice.bool() { 0xff } else { dice.u8(..) };
            }
            if dice.bool() {
                bytes[first_len] = *dice.choice(&[0, 1, 2, 4, 5, 7, 0x40]).expect("one of them");
            }
            let sum = masked_crc32c(&bytes[..=first_len]).to_le_bytes();
            bytes[first_len + 1..first_len + 5].copy_from_slice(&sum);
            let _ = functions.get(&[(&bytes, facts)], LATEST, key(dice.u64(..20)).as_bytes());
        }
        let bomb = [&[0xff, 0xff, 0xff, 0xff, 0x0f][..], &table[5..]].concat();
        let sum = masked_crc32c(&bomb[..=first_len]).to_le_bytes();
        let bomb = [&bomb[..=first_len], &sum, &bomb[first_len + 5..]].concat();
        if matches!(table[first_len], 1 | 4 | 7) {
            let found = functions.get(&[(&bomb, facts)], LATEST, b"key00000");
            assert_eq!(found, Some(Answer::Unsupported(Unsupported::LongBlock)), "{what}");
        }
    }
}

fn masked_crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}
