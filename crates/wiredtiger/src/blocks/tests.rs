//! The functions over files that WiredTiger wrote (`tests/wiredtiger/layouts.c`), beside what WiredTiger finds in them.
//!
//! The files in `tests/files` are of `layouts DIRECTORY 150 170`, by WiredTiger 3.2.1, and with `new-` by 11.3.1, whose pages may have times.

use super::*;
use crate::order::Order;
use crate::page;
use diskside::traverse::{MemoryList, Traversal, TraverseFault, TraverseLimits, TraverseRequest};
use diskside::{Engine, TierChoice, helpers, library};
use std::collections::BTreeMap;
use std::path::Path;

const ROOM: usize = 200 << 10;

/// A table, and what WiredTiger says of some of its keys.
struct Table {
    name: String,
    allocation: u32,
    root: Address,
    bytes: Vec<u8>,
    lookups: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

struct Functions {
    path: Traversal,
    next: Traversal,
    get: Traversal,
}

impl Functions {
    fn new() -> Self {
        let engine = Engine::new(helpers());
        let [path, next, get] = ["wt_path", "wt_next", "wt_get"].map(|name| {
            let object = library::object(name).expect("shipped");
            let function = engine.load_traversal(&object.bytes, Some(name)).expect("it loads");
            engine.traversal(&function, TierChoice::Best, TraverseLimits::default()).expect("it compiles")
        });
        Self { path, next, get }
    }

    fn get(&mut self, table: &Table, bytes: &[u8], start: Address, key: &[u8]) -> Option<Answer> {
        let find = Find { start, allocation: table.allocation, key, ahead: 0 };
        let scratch_len = find_scratch_len(key.len(), room_of(1, ROOM));
        Some(Answer::parse(&run(&mut self.get, bytes, &find.encode(), scratch_len)?).expect("an answer"))
    }

    fn path(&mut self, table: &Table, bytes: &[u8], start: Address, key: &[u8], ahead: u32) -> Option<Blocks> {
        let find = Find { start, allocation: table.allocation, key, ahead };
        let scratch_len = find_scratch_len(key.len(), ROOM);
        Some(Blocks::parse(run(&mut self.path, bytes, &find.encode(), scratch_len)?).expect("blocks"))
    }
}

/// `None`: a step asked for bytes that are not there, which damaged addresses lead to. Nothing else fails.
fn run(traversal: &mut Traversal, bytes: &[u8], input: &[u8], scratch_cap: usize) -> Option<Vec<u8>> {
    let request = TraverseRequest { first: &[], files: &[bytes.len() as u64], input, scratch_cap, deadline: None };
    match traversal.run(&request, &mut MemoryList(&[bytes])) {
        Ok(result) => Some(result.to_vec()),
        Err(error) if matches!(error.fault, TraverseFault::Trapped { .. } | TraverseFault::Errno { .. }) => {
            panic!("{error}")
        }
        Err(_) => None,
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// The tables that a run of `layouts` has written, by what it said.
fn tables(said: &str, directory: &Path, prefix: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["table", name, allocation, cookie] = words[..] {
            let allocation: u32 = allocation.parse().expect("a number");
            let cookie = unhex(cookie);
            let root = page::address(&mut &cookie[1..], allocation).expect("an address");
            let file = directory.join(format!("{prefix}{name}.wt"));
            let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            tables.push(Table { name: format!("{prefix}{name}"), allocation, root, bytes, lookups: Vec::new() });
        } else if let [key, value] = words[..] {
            let value = (value != "-").then(|| unhex(value));
            tables.last_mut().expect("a table").lookups.push((unhex(key), value));
        }
    }
    tables
}

fn kept() -> Vec<Table> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let of = |said: &str, prefix| tables(said, &files, prefix);
    let mut all = of(include_str!("../../tests/files/lookups.txt"), "");
    all.extend(of(include_str!("../../tests/files/new-lookups.txt"), "new-"));
    all
}

fn is_right(answer: &Answer, value: Option<&Vec<u8>>) -> bool {
    match (answer, value) {
        (Answer::Found(found), Some(value)) => found == value,
        (Answer::Absent, None) => true,
        _ => false,
    }
}

fn agree(tables: &[Table]) {
    let mut functions = Functions::new();
    for table in tables {
        let mut overflows = 0;
        for (key, value) in &table.lookups {
            let answer = functions.get(table, &table.bytes, table.root, key).expect("an answer");
            // A key that has a block of its own is on the way.
            if answer == Answer::Unsupported(Reason(9), 0) {
                overflows += 1;
                continue;
            }
            assert!(
                is_right(&answer, value.as_ref()),
                "{}: {:?}: {answer:?}",
                table.name,
                String::from_utf8_lossy(key)
            );
        }
        assert!(overflows <= table.lookups.len() / 20, "{}: {overflows} keys", table.name);
    }
}

#[test]
fn lookups_agree_with_wiredtiger() {
    let tables = kept();
    assert!(tables.len() >= 5 && tables.iter().all(|table| table.lookups.len() > 150));
    agree(&tables);
}

/// With the WiredTiger of this machine, in all layouts.
#[cfg(feature = "libwiredtiger")]
#[test]
fn lookups_agree_with_the_wiredtiger_of_this_machine() {
    let directory = std::env::temp_dir().join(format!("diskside-wiredtiger-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/wiredtiger/layouts.c");
    let program = directory.join("layouts");
    let mut compile = std::process::Command::new("cc");
    if let Ok(include) = std::env::var("DISKSIDE_WIREDTIGER_INCLUDE") {
        compile.args(["-I", &include]);
    }
    if let Ok(library) = std::env::var("DISKSIDE_WIREDTIGER_LIBRARY") {
        compile.args(["-L", &library, &format!("-Wl,-rpath,{library}")]);
    }
    let compiled = compile.arg("-O1").arg(source).arg("-o").arg(&program).arg("-lwiredtiger").status().expect("cc");
    assert!(compiled.success());
    let snappy = std::env::var("DISKSIDE_WIREDTIGER_SNAPPY").unwrap_or_else(|_| "libwiredtiger_snappy.so".to_owned());
    let run = std::process::Command::new(&program).arg(&directory).args(["20000", "4000", &snappy]).output();
    let run = run.expect("it starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let tables = tables(&String::from_utf8(run.stdout).expect("text"), &directory, "");
    assert!(tables.len() == 9 && tables.iter().all(|table| table.lookups.len() == 4000));
    agree(&tables);
    std::fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn a_path_has_every_block_from_the_root_to_the_value() {
    let mut functions = Functions::new();
    let mut depths = BTreeMap::new();
    for table in kept() {
        for (key, value) in &table.lookups {
            let blocks = functions.path(&table, &table.bytes, table.root, key, 0).expect("blocks");
            assert_eq!(blocks.reason, None, "{}", table.name);
            let places: Vec<u64> = blocks.iter().map(|(offset, _)| offset).collect();
            assert_eq!(places[0], table.root.offset);
            for (offset, bytes) in blocks.iter() {
                assert_eq!(bytes, &table.bytes[offset as usize..][..bytes.len()], "{}", table.name);
            }
            let kinds: Vec<u8> = blocks.iter().map(|(_, bytes)| bytes[24]).collect();
            let is_apart = value.as_ref().is_some_and(|value| value.len() > 256) && table.name.ends_with("overflow");
            let (leaf, inner) = kinds.split_last().expect("a block");
            assert_eq!(*leaf, if is_apart { 5 } else { 7 }, "{}: {kinds:?}", table.name);
            assert!(inner.iter().take(inner.len() - usize::from(is_apart)).all(|kind| *kind == 6), "{kinds:?}");
            depths.insert(table.name.clone(), inner.len());
        }
    }
    assert!(depths.values().any(|depth| *depth >= 2), "{depths:?}");
}

#[test]
fn leaves_are_listed_in_order_and_a_path_brings_those_behind_its_own() {
    let mut functions = Functions::new();
    for table in kept() {
        // All inner pages, in whichever order.
        let (mut order, mut open, mut leaves) = (Order::default(), vec![table.root], 0);
        while let Some(at) = open.pop() {
            let block = &table.bytes[at.offset as usize..][..at.len as usize];
            let children = page::children(block, table.allocation);
            order.learn(at.offset, &children);
            leaves += children.iter().filter(|child| child.kind != page::ChildKind::Inner).count();
            open.extend(
                children.iter().filter(|child| child.kind == page::ChildKind::Inner).map(|child| child.address),
            );
        }
        let first = functions.path(&table, &table.bytes, table.root, b"\0", AHEAD_MAX).expect("blocks");
        let path_leaves: Vec<u64> =
            first.iter().filter(|(_, block)| block[24] == 7).map(|(offset, _)| offset).collect();
        let behind = order.behind(path_leaves[0], BLOCKS_MAX - 1, 1 << 30);
        assert_eq!(behind.len() + 1, leaves.min(BLOCKS_MAX), "{}", table.name);
        assert!(path_leaves[1..].iter().eq(behind.iter().map(|address| &address.offset).take(path_leaves.len() - 1)));
        assert!(path_leaves.len() > 1 || leaves == 1, "{}", table.name);
        let list = &behind[..behind.len().min(60)];
        let result =
            run(&mut functions.next, &table.bytes, &encode_list(list), list_scratch_len(list)).expect("blocks");
        let blocks = Blocks::parse(result).expect("blocks");
        assert_eq!((blocks.len(), blocks.reason), (list.len(), None));
        for ((offset, bytes), address) in blocks.iter().zip(list) {
            assert_eq!(offset, address.offset);
            assert_eq!(bytes, &table.bytes[offset as usize..][..address.len as usize]);
        }
    }
}

#[test]
fn a_block_that_was_reused_is_not_taken_for_the_one_that_was_there() {
    let mut functions = Functions::new();
    for mut table in kept() {
        let key = table.lookups[3].0.clone();
        let path = functions.path(&table, &table.bytes, table.root, &key, 0).expect("blocks");
        let (at, child) = path.iter().nth(1).map(|(at, child)| (at as usize, child.to_vec())).expect("two blocks");
        // Another page, which is sound, takes its place.
        let mut other = child;
        other[8] ^= 1;
        repair(&mut other);
        table.bytes[at..at + other.len()].copy_from_slice(&other);
        let answer = functions.get(&table, &table.bytes, table.root, &key);
        assert_eq!(answer, Some(Answer::Unsupported(Reason(3), 0)), "{}", table.name);
        let path = functions.path(&table, &table.bytes, table.root, &key, 0).expect("blocks");
        assert_eq!((path.len(), path.reason), (1, Some(Reason(3))));
    }
}

#[test]
fn damaged_files_give_no_wrong_answer() {
    let mut functions = Functions::new();
    let mut dice = fastrand::Rng::with_seed(3);
    for table in kept() {
        let mut refused = 0;
        for _ in 0..400 {
            let mut bytes = table.bytes.clone();
            let at = dice.usize(4096..bytes.len());
            for at in at..(at + dice.usize(1..600)).min(bytes.len()) {
                bytes[at] = dice.u8(..);
            }
            let (key, value) = &table.lookups[dice.usize(..table.lookups.len())];
            match functions.get(&table, &bytes, table.root, key) {
                Some(Answer::Unsupported(..)) | None => refused += 1,
                Some(answer) => assert!(is_right(&answer, value.as_ref()), "{}: {answer:?}", table.name),
            }
            if let Some(blocks) = functions.path(&table, &bytes, table.root, key, dice.u32(..20)) {
                assert!(blocks.len() > 0 || blocks.reason.is_some());
            }
        }
        assert!(refused > 0, "{}: nothing that was read was damaged", table.name);
    }
}

/// Bytes that a hostile server or a broken disk could make: sound by their checksums, and nonsense. The steps end, without a trap.
#[test]
fn nonsense_with_right_checksums_is_refused_or_searched() {
    let mut functions = Functions::new();
    let mut dice = fastrand::Rng::with_seed(4);
    let tables = kept();
    for round in 0..6000 {
        let table = &tables[round % tables.len()];
        let (key, _) = &table.lookups[dice.usize(..table.lookups.len())];
        let path = functions.path(table, &table.bytes, table.root, key, 0).expect("blocks");
        let (offset, block) = path.iter().nth(dice.usize(..path.len())).expect("a block");
        let (mut bytes, mut block) = (table.bytes.clone(), block.to_vec());
        for _ in 0..dice.usize(1..6) {
            // The beginnings of the page and of cells are where lengths are.
            let at = if dice.bool() { dice.usize(8..80.min(block.len())) } else { dice.usize(8..block.len()) };
            block[at] = if dice.bool() { dice.u8(..) } else { block[at] ^ 1 << dice.u8(..8) };
        }
        let len = block.len() as u32;
        block[28..32].copy_from_slice(&len.to_le_bytes());
        repair(&mut block);
        bytes[offset as usize..][..block.len()].copy_from_slice(&block);
        let start = Address { offset, len, checksum: 0 };
        functions.get(table, &bytes, start, key);
        functions.path(table, &bytes, start, key, dice.u32(..20));
        let children = page::children(&block, table.allocation);
        Order::default().learn(offset, &children);
    }
}

#[test]
fn too_little_room_is_said_and_how_much_is_needed() {
    let mut functions = Functions::new();
    let tables = kept();
    let table = tables.iter().find(|table| table.name == "overflow").expect("it is kept");
    let (key, value) =
        table.lookups.iter().find(|(_, value)| value.as_ref().is_some_and(|value| value.len() > 9000)).expect("one");
    let find = Find { start: table.root, allocation: table.allocation, key, ahead: 0 };
    let result =
        run(&mut functions.get, &table.bytes, &find.encode(), find_scratch_len(key.len(), 2048)).expect("an answer");
    let needed = value.as_ref().expect("a value").len() as u32;
    assert_eq!(Answer::parse(&result), Some(Answer::Unsupported(Reason::NO_ROOM, needed)));
    let result =
        run(&mut functions.path, &table.bytes, &find.encode(), find_scratch_len(key.len(), 4096)).expect("blocks");
    let blocks = Blocks::parse(result).expect("blocks");
    assert_eq!(blocks.reason, Some(Reason::NO_ROOM));
    assert!(blocks.len() >= 2);
}

#[test]
fn results_of_another_form_are_refused() {
    assert!(Blocks::parse(vec![0; 15]).is_none() && Answer::parse(&[0; 15]).is_none());
    assert!(Blocks::parse([[1, 0, 0, 0].as_slice(), &[0; 12]].concat()).is_none());
    assert!(Blocks::parse([[0, 0, 0, 0].as_slice(), &[0; 13]].concat()).is_none());
    assert!(Answer::parse(&[[9, 0, 0, 0].as_slice(), &[0; 12]].concat()).is_none());
    assert!(Answer::parse(&[[1, 0, 0, 0, 0, 0, 0, 0, 5].as_slice(), &[0; 7]].concat()).is_none());
}

/// Makes a block's checksum right.
fn repair(block: &mut [u8]) {
    block[32..36].fill(0);
    block[36] |= 1;
    let sum = crc32c(block);
    block[32..36].copy_from_slice(&sum.to_le_bytes());
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 })
    })
}
