//! Traversals from source: the one in the book, and one written for XRP.

use diskside::sandbox::image::Kind;
use diskside::traverse::{MemoryList, Traversal, TraverseFunction, TraverseLimits, TraverseRequest};
use diskside::{Engine, TierChoice, helpers, library};
use diskside_kv::create::{Creation, Keys};
use diskside_kv::format::counting_value;
use std::path::Path;
use std::sync::Arc;

fn compile(source: &Path, kind: Option<Kind>) -> Traversal {
    let engine = Engine::new(helpers());
    let object = library::object(source.to_str().expect("a path")).expect("it compiles").bytes;
    let function = TraverseFunction::load(&object, None, kind, &Arc::new(helpers())).expect("it loads");
    engine.traversal(&function, TierChoice::Best, TraverseLimits::default()).expect("it runs")
}

fn run(traversal: &mut Traversal, file: &[u8], input: &[u8], scratch_cap: usize) -> Vec<u8> {
    let request = TraverseRequest { first: &[], files: &[file.len() as u64], input, scratch_cap, deadline: None };
    traversal.run(&request, &mut MemoryList(&[file])).expect("it ends well").to_vec()
}

/// `docs/traversals.md` shows a lookup: it compiles and finds what is there.
#[test]
fn the_lookup_in_the_book_finds_every_key() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/traversals.md")).expect("the page is there");
    let source = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it shows a function");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("lookup.bpf.c");
    std::fs::write(&path, source).expect("written");
    let mut lookup = compile(&path, None);
    // A root with 10 leaves of 31 keys: the key 2 * i has the value 100 + i.
    let node = |is_leaf: u64, entries: &[(u64, u64)]| {
        let mut words = vec![is_leaf, entries.len() as u64];
        words.resize(64, 0);
        for (i, (key, child)) in entries.iter().enumerate() {
            (words[2 + i], words[33 + i]) = (*key, *child);
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    let mut tree = node(0, &(0..10).map(|leaf| (62 * leaf, 512 * (1 + leaf))).collect::<Vec<_>>());
    for leaf in 0..10u64 {
        tree.extend(node(1, &(31 * leaf..31 * (leaf + 1)).map(|i| (2 * i, 100 + i)).collect::<Vec<_>>()));
    }
    for key in 0..700u64 {
        let result = run(&mut lookup, &tree, &key.to_le_bytes(), 8);
        let expected = (key % 2 == 0 && key < 620).then(|| (100 + key / 2).to_le_bytes().to_vec());
        assert_eq!(result, expected.unwrap_or_default(), "{key}");
        assert_eq!(lookup.hops(), 3);
    }
}

/// A source that names no kind and includes nothing of ours but the header runs over a published store.
#[test]
fn a_lookup_written_for_xrp_runs() {
    let mut lookup = compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xrp_get.bpf.c"), Some(Kind::Xrp));
    let mut store = Vec::new();
    Creation::new(Keys::Counting(961)).older().write(&mut store).expect("written");
    for key in [0u64, 1, 30, 31, 500, 960, 961] {
        let scratch = run(&mut lookup, &store, &key.to_le_bytes(), 4096);
        assert_eq!(scratch.len(), 4096, "all of it travels back");
        assert_eq!(scratch[8] == 1, key < 961, "{key}");
        if key < 961 {
            assert_eq!(scratch[32..96], counting_value(key), "{key}");
        }
    }
}
