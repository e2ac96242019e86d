//! A store gives what was put into it, however it is read: one read at a time, many, or pushed down.

use diskside_kv::create::{Creation, Keys};
use diskside_kv::format::{NO_KEY, Value, counting_value, number, text_value};
use diskside_kv::{KvError, Mode, Options, Pairs, Sampling, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use tempfile::NamedTempFile;

const MODES: [Mode; 3] = [Mode::Plain, Mode::Async, Mode::Pushdown];

fn file_of(creation: &Creation) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    creation.write(file.as_file()).expect("written");
    file
}

fn open(file: &NamedTempFile, options: Options) -> Store {
    Store::open_file(file.path(), &options).expect("it opens")
}

fn in_mode(mode: Mode) -> Options {
    Options { mode, ..Options::default() }
}

/// The whole file of two levels, as published tools write it: word by word.
#[test]
fn a_loaded_store_has_the_published_bytes() {
    for older in [false, true] {
        let creation = Creation::new(Keys::Counting(961));
        let creation = if older { creation.older() } else { creation };
        let mut bytes = Vec::new();
        let geometry = creation.write(&mut bytes).expect("written");
        assert_eq!(geometry.nodes, [1, 31]);
        assert_eq!(bytes.len(), 32 * 512 + 61 * 1024 - 1024 + 512, "961 values in blocks of 8");
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
        let mark = 1u64 << 63;
        assert_eq!((word(0), word(1)), (if older { 31 } else { 0 }, 0));
        for i in 0..31 {
            assert_eq!(word(2 + i), 31 * i as u64, "a child's first key");
            assert_eq!(word(33 + i), mark | (512 * (1 + i as u64)), "a child's offset");
            let leaf = 64 * (1 + i);
            let next = if i == 30 { 0 } else { 512 * (2 + i as u64) };
            assert_eq!((word(leaf), word(leaf + 1)), (if older { 31 } else { next }, 1));
            for k in 0..31 {
                let key = 31 * i as u64 + k as u64;
                assert_eq!(word(leaf + 2 + k), key);
                assert_eq!(word(leaf + 33 + k), mark | (32 * 512 + 64 * key));
            }
        }
        let value = &bytes[32 * 512 + 64 * 500..][..64];
        assert_eq!(value, format!("{:>63}\0", 500).as_bytes());
    }
}

#[test]
fn every_key_of_full_stores_is_found_in_every_mode() {
    for (count, older) in [(31, false), (961, true), (29_791, false)] {
        let creation = Creation::new(Keys::Counting(count));
        let file = file_of(&if older { creation.older() } else { creation });
        for mode in MODES {
            for cache_levels in [0, 1, 3] {
                let store = open(&file, Options { cache_levels, ..in_mode(mode) });
                for key in (0..count).step_by(count as usize / 31 - count as usize / 40).chain([count - 1]) {
                    let got = store.block_on(store.get(key)).expect("read");
                    assert_eq!(got, Some(counting_value(key)), "{mode:?} {key}");
                }
                for key in [count, count + 1000, NO_KEY - 1, NO_KEY] {
                    assert_eq!(store.block_on(store.get(key)).expect("read"), None, "{mode:?} {key}");
                }
            }
        }
        let report = open(&file, Options::default());
        let report = report.block_on(report.check()).expect("sound");
        assert_eq!((report.keys, report.is_older), (count, older));
    }
}

#[test]
fn a_lookup_costs_what_it_should() {
    let file = file_of(&Creation::new(Keys::Counting(4096)).fill(4));
    for (mode, cache_levels, reads, pushed) in [
        (Mode::Plain, 0, 7, 0),
        (Mode::Plain, 3, 4, 0),
        (Mode::Plain, 6, 1, 0),
        (Mode::Pushdown, 0, 0, 1),
        (Mode::Pushdown, 3, 0, 1),
        (Mode::Pushdown, 6, 1, 0),
    ] {
        let store = open(&file, Options { cache_levels, ..in_mode(mode) });
        assert_eq!(store.levels(), 6);
        store.block_on(store.get(1234)).expect("read").expect("there");
        let counters = store.counters();
        assert_eq!((counters.reads, counters.pushed), (reads, pushed), "{mode:?} with {cache_levels} levels cached");
        assert_eq!(counters.cached_nodes, u64::from(cache_levels));
        // An update finds its place in the same way, reads the block and writes it.
        assert!(store.block_on(store.put(1234, &counting_value(1234))).expect("written"));
        let update = (store.counters().reads - counters.reads, store.counters().pushed - counters.pushed);
        assert_eq!(update, (reads + pushed, pushed), "{mode:?} with {cache_levels} levels cached");
    }
}

fn pairs_of(map: &BTreeMap<u64, Value>) -> Pairs {
    map.iter().map(|(k, v)| (*k, *v)).collect()
}

fn a_store() -> impl Strategy<Value = BTreeMap<u64, Value>> {
    let key = prop_oneof![3 => 0u64..2000, 1 => any::<u64>().prop_filter("a key", |k| *k != NO_KEY)];
    let value = prop_oneof![
        any::<u64>().prop_map(|n| text_value(&n.to_string()).unwrap()),
        proptest::collection::vec(any::<u8>(), 64).prop_map(|v| v.try_into().unwrap()),
    ];
    proptest::collection::btree_map(key, value, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_mode_answers_as_a_map_does(
        map in a_store(),
        fill in 2u64..=31,
        cache_levels in 0u32..4,
        picks in proptest::collection::vec((any::<prop::sample::Index>(), any::<i8>()), 1..100),
        limit in prop_oneof![Just(u64::MAX), 0u64..200],
    ) {
        let pairs = pairs_of(&map);
        let file = file_of(&Creation::new(Keys::Pairs(pairs.clone())).fill(fill));
        // Keys that are there, and their neighbours, which mostly are not.
        let near = |(at, by): &(prop::sample::Index, i8)| at.get(&pairs).0.saturating_add_signed(i64::from(*by));
        let keys: Vec<u64> = picks.iter().map(near).collect();
        let (first, last) = (keys[0], *keys.last().unwrap());
        let wanted: Pairs = if first > last { Pairs::new() } else { map.range(first..=last).map(|(k, v)| (*k, *v)).collect() };
        let wanted: Pairs = wanted.into_iter().take(limit.min(100_000) as usize).collect();
        let sum = wanted.iter().fold(0u64, |sum, pair| sum.wrapping_add(number(&pair.1)));
        for mode in MODES {
            let store = open(&file, Options { cache_levels, ..in_mode(mode) });
            let got = store.block_on(store.multi_get(&keys)).expect("read");
            for (key, value) in keys.iter().zip(&got) {
                prop_assert_eq!(value.as_ref(), map.get(key), "{:?} {}", mode, key);
                prop_assert_eq!(&store.block_on(store.get(*key)).expect("read"), value);
            }
            prop_assert_eq!(&store.block_on(store.range(first, last, limit)).expect("read"), &wanted, "{:?}", mode);
            prop_assert_eq!(store.block_on(store.sum(first, last, limit)).expect("read"), (wanted.len() as u64, sum));
            prop_assert_eq!(store.block_on(store.range(0, u64::MAX, u64::MAX)).expect("read"), pairs.clone());
            prop_assert_eq!(store.block_on(store.check()).expect("sound").keys, map.len() as u64);
        }
    }
}

/// Values that lie anywhere: each is a read of its own, more than a step can ask for at once.
#[test]
fn a_range_of_scattered_values_is_gathered() {
    let file = file_of(&Creation::new(Keys::Counting(961)));
    // Swaps the pointers of neighbours in every leaf, so that no two values of a leaf are a run.
    for leaf in 1..32u64 {
        let mut pointers = [0u8; 31 * 8];
        let at = leaf * 512 + 33 * 8;
        file.as_file().read_exact_at(&mut pointers, at).expect("read");
        for pair in pointers.chunks_exact_mut(16) {
            pair.rotate_left(8);
        }
        file.as_file().write_all_at(&pointers, at).expect("written");
    }
    let value = |key: u64| {
        counting_value(if key % 31 == 30 {
            key
        } else if (key % 31).is_multiple_of(2) {
            key + 1
        } else {
            key - 1
        })
    };
    for mode in MODES {
        let store = open(&file, in_mode(mode));
        let got = store.block_on(store.range(3, 203, 1000)).expect("read");
        assert_eq!(got, (3..=203).map(|key| (key, value(key))).collect::<Pairs>(), "{mode:?}");
    }
}

#[test]
fn ranges_of_older_files_end_with_the_leaves() {
    let file = file_of(&Creation::new(Keys::Counting(961)).older());
    for mode in MODES {
        let store = open(&file, in_mode(mode));
        let got = store.block_on(store.range(900, u64::MAX, u64::MAX)).expect("read");
        assert_eq!(got.len(), 61, "{mode:?}");
        assert_eq!(store.block_on(store.sum(0, u64::MAX, u64::MAX)).expect("read"), (961, 960 * 961 / 2));
    }
}

#[test]
fn what_was_put_is_read_by_every_mode() {
    let file = file_of(&Creation::new(Keys::Counting(961)));
    let new = text_value("new").expect("short");
    for (mode, key) in MODES.into_iter().zip([0, 8, 960]) {
        let store = open(&file, in_mode(mode));
        assert!(store.block_on(store.put(key, &new)).expect("written"));
        assert!(!store.block_on(store.put(961, &new)).expect("it is not there"));
        store.block_on(store.flush()).expect("flushed");
    }
    for mode in MODES {
        let store = open(&file, in_mode(mode));
        for key in 0..961 {
            let expected = if [0, 8, 960].contains(&key) { new } else { counting_value(key) };
            assert_eq!(store.block_on(store.get(key)).expect("read"), Some(expected));
        }
    }
}

/// Eight values share a block: changing them side by side loses none.
#[test]
fn changes_of_one_block_do_not_overwrite_each_other() {
    let file = file_of(&Creation::new(Keys::Counting(31)));
    let store = open(&file, in_mode(Mode::Async));
    let mut tasks = diskside_kv::drive::Tasks::new(store.port());
    for key in 0..31 {
        let store = &store;
        tasks.spawn(async move {
            let value = text_value(&format!("{}", key * 1000)).expect("short");
            assert!(store.put(key, &value).await.expect("written"));
        });
    }
    tasks.run(store.port(), &diskside_kv::drive::Alarm::default());
    assert_eq!(store.block_on(store.sum(0, 30, 100)).expect("read"), (31, 465_000));
}

/// Updates of one key each read and wrote its block after the one before: of hundreds at once the last waited for hundreds of
/// round trips, and the more lookups gained the longer it was. Those that wait are now written together.
#[test]
fn updates_of_one_block_are_written_together() {
    const UPDATES: u64 = 64;
    let file = file_of(&Creation::new(Keys::Counting(31)));
    let store = open(&file, in_mode(Mode::Async));
    let mut tasks = diskside_kv::drive::Tasks::new(store.port());
    for number in 0..UPDATES {
        let store = &store;
        tasks.spawn(async move {
            assert!(store.put(7, &counting_value(number)).await.expect("written"));
        });
    }
    tasks.run(store.port(), &diskside_kv::drive::Alarm::default());
    let reads = store.counters().reads;
    assert!((UPDATES + 1..UPDATES + UPDATES / 2).contains(&reads), "{reads}: a node each, and the block a few times");
    let found = store.block_on(store.get(7)).expect("read").expect("it is there");
    assert!((0..UPDATES).any(|number| found == counting_value(number)));
}

#[test]
fn sampled_lookups_feed_the_cache() {
    let file = file_of(&Creation::new(Keys::Counting(29_791)));
    let sampling = Sampling::Fixed(0.25);
    let store = open(&file, Options { sampling, ..in_mode(Mode::Pushdown) });
    for _ in 0..8 {
        assert!(store.block_on(store.get(12_345)).expect("read").is_some());
    }
    let counters = store.counters();
    assert_eq!(counters.sampled, 2);
    // The fourth lookup read three nodes and the value; those after it only the value.
    assert_eq!((counters.pushed, counters.reads, counters.cached_nodes), (3, 4 + 4, 12));
    assert_eq!(store.cache_state(), (0.25, 3));
}

#[test]
fn adaptive_sampling_falls_while_nothing_changes() {
    let file = file_of(&Creation::new(Keys::Counting(961)));
    let store = open(&file, Options { sampling: Sampling::Adaptive, ..in_mode(Mode::Pushdown) });
    assert!(store.cache_state().0 > 0.09);
    for i in 0..50_000u64 {
        store.block_on(store.get(i * 7 % 961)).expect("read");
    }
    assert!(store.cache_state().0 < 0.002, "{:?}", store.cache_state());
    assert_eq!(store.cache_state().1, 32, "all nodes are known by then");
}

#[test]
fn damage_is_named() {
    let creation = Creation::new(Keys::Counting(961));
    // Where, what is written there, and what opening, looking up, or checking says.
    for (offset, word, says) in [
        (8, 7u64, "not a sound store: bytes that are no node at offset 0"),
        (33 * 8, 5, "not a sound store: a pointer without its mark at offset 0"),
        (33 * 8, 0, "not a sound store: an empty node at offset 0"),
        (33 * 8, 1 << 63, "not a sound store: more than 16 levels at offset 0"),
        (33 * 8, u64::MAX, "not a sound store: a pointer beyond the end at offset 9223372036854775807"),
        (512, 512, "not a sound store: a node that the one before does not name at offset 1024"),
        (512 + 24, 500, "not a sound store: keys that do not ascend at offset 512"),
        (512 + 16 + 30 * 8, 31, "not a sound store: keys that belong to another node at offset 512"),
        (512 + 63 * 8, 0, "not a sound store: a key without a pointer at offset 512"),
        (512 + 63 * 8, u64::MAX, "not a sound store: a value beyond the end at offset 512"),
    ] {
        let file = file_of(&creation);
        file.as_file().write_all_at(&word.to_le_bytes(), offset).expect("written");
        let error = Store::open_file(file.path(), &in_mode(Mode::Plain)).and_then(|s| s.block_on(s.check()));
        assert_eq!(error.expect_err("it is damaged").to_string(), says, "{word:#x} at {offset}");
    }
    let mut text = NamedTempFile::new().expect("a file");
    text.write_all(&[b'x'; 4096]).expect("written");
    let error = Store::open_file(text.path(), &Options::default()).expect_err("no store");
    assert_eq!(error.to_string(), "not a sound store: bytes that are no node at offset 0");
    let empty = NamedTempFile::new().expect("a file");
    let error = Store::open_file(empty.path(), &Options::default()).expect_err("no store");
    assert_eq!(error.to_string(), "not a sound store: a pointer beyond the end at offset 0");
}

/// A store that turns bad while it is open: the traversal ends with an error that names the hop.
#[test]
fn a_pushed_lookup_over_damage_names_the_hop() {
    let file = file_of(&Creation::new(Keys::Counting(961)));
    let store = open(&file, in_mode(Mode::Pushdown));
    for (word, says) in [
        (7u64, "traverse/kv_get, hop 1: returned -74: Bad message (os error 74)"),
        (0, "traverse/kv_get, hop 1: asks for 512 bytes at offset 9223372036854775807 of file 0"),
    ] {
        let (at, word) = if word == 0 { (33 * 8, u64::MAX) } else { (8, word) };
        let mut old = [0; 8];
        file.as_file().read_exact_at(&mut old, at).expect("read");
        file.as_file().write_all_at(&word.to_le_bytes(), at).expect("written");
        let error = store.block_on(store.get(0)).expect_err("it is damaged");
        assert!(matches!(error, KvError::Pushdown(_)) && error.to_string().contains(says), "{error}");
        file.as_file().write_all_at(&old, at).expect("written");
    }
    // A node that is its own child.
    file.as_file().write_all_at(&(1u64 << 63).to_le_bytes(), 33 * 8).expect("written");
    let error = store.block_on(store.get(0)).expect_err("it is damaged");
    assert!(error.to_string().contains("hop 4096: is not done after 4096 hops, the limit"), "{error}");
}

#[test]
fn stores_that_cannot_be_are_refused() {
    let value = [0; 64];
    for (creation, says) in [
        (Creation::new(Keys::Counting(0)), "a store has at least one key"),
        (Creation::new(Keys::Counting(9)).fill(1), "a node is filled with 2 to 31 keys"),
        (Creation::new(Keys::Counting(9)).fill(32), "a node is filled with 2 to 31 keys"),
        (Creation::new(Keys::Counting(9)).older(), "older stores have full nodes: 31 to the power of levels keys"),
        (Creation::new(Keys::Counting(1 << 20)).fill(2), "a store has at most 16 levels; fill nodes with more keys"),
        (Creation::new(Keys::Pairs(vec![(2, value), (2, value)])), "keys must ascend, each once"),
        (Creation::new(Keys::Pairs(vec![(NO_KEY, value)])), "18446744073709551615 cannot be a key"),
    ] {
        assert_eq!(creation.write(Vec::new()).expect_err("refused").to_string(), says);
    }
}

#[test]
fn numbers_at_the_ends_of_values() {
    for (text, n) in [("  42", 42), ("x7", 7), ("", 0), ("42 ", 0), ("a", 0), ("18446744073709551616", 0)] {
        assert_eq!(number(&text_value(text).expect("short")), n, "{text:?}");
    }
    assert_eq!(text_value(&"x".repeat(65)), None);
}
