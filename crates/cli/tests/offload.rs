//! How much of a function runs at a target: nothing, the function without its fold, or all; in pieces of any length.

mod common;

use common::{Server, diskside, good};
use diskside::session::{File, Ran, RunOptions, Session, SessionOptions, Where};

const NUMBERS: u64 = 100_000;
const PIECE: usize = 64 << 10;
/// Pieces of the numbers.
const PIECES: u64 = (NUMBERS * 8).div_ceil(PIECE as u64);

fn numbers() -> Vec<u8> {
    (0..NUMBERS).flat_map(|n| (n * 7919 % 10007).to_le_bytes()).collect()
}

fn options(place: Where, chunk_len: usize, fold_here: bool) -> RunOptions {
    RunOptions { place, chunk_len: Some(chunk_len), fold_here, ..RunOptions::default() }
}

#[test]
fn the_result_is_the_same_however_much_is_offloaded() {
    let server = Server::start("");
    let local = server.file("n.u64", &numbers());
    let session = Session::new(SessionOptions::default());
    let open = |name: &str| session.open(name).expect("it opens");
    let (here, there) = (open(&local.display().to_string()), open(&server.at("n.u64")));
    let stats = session.function("stats64").expect("it is shipped");
    let run = |file: &File, options: &RunOptions| -> Ran {
        let ran = file.pread_fn(0.., &stats, &[], options).wait();
        ran.unwrap_or_else(|error| panic!("{options:?}: {error}"))
    };
    let expected = run(&here, &RunOptions::default()).result;
    for chunk in [PIECE, 128 << 20] {
        for place in [Where::Host, Where::Device, Where::Auto] {
            for fold_here in [false, true] {
                let ran = run(&there, &options(place, chunk, fold_here));
                assert!(ran.result == expected, "{place:?} {chunk} {fold_here}");
            }
        }
        assert!(run(&here, &options(Where::Auto, chunk, true)).result == expected, "{chunk}");
    }
    // The results of all pieces travel if the host folds them, and one if the device does.
    let len = expected.len() as u64;
    let whole = run(&there, &options(Where::Device, PIECE, false));
    let partly = run(&there, &options(Where::Device, PIECE, true));
    assert!(whole.received_bytes < 2 * len + 1000, "{}", whole.received_bytes);
    assert!(partly.received_bytes >= PIECES * len, "{}", partly.received_bytes);
    // The fold is counted where it took place.
    assert!(partly.parts.iter().all(|part| part.fold.is_none_or(|fold| fold.is_zero())), "{:?}", partly.parts);
    assert!(!partly.fold.is_zero());
    // Over several files, more than run at the same time too.
    for count in [2, 40] {
        let (all_here, all_there) = (vec![here.clone(); count], vec![there.clone(); count]);
        let together = |files: &[File], options: &RunOptions| session.run(files, &stats, &[], options, None);
        let expected = together(&all_here, &RunOptions::default()).expect("it runs").result;
        for fold_here in [false, true] {
            let ran = together(&all_there, &options(Where::Device, PIECE, fold_here)).expect("it runs");
            assert!(ran.result == expected, "{count} files, {fold_here}");
        }
    }
}

#[test]
fn the_command_folds_here_when_it_is_told() {
    let server = Server::start("");
    server.file("n.u64", &numbers());
    let url = server.at("n.u64");
    let run = ["run", "stats64", &url, "--where", "device", "--chunk", "64KiB"];
    assert_eq!(good(&[&run[..], &["--fold-here"]].concat()), good(&run));
    let (code, _, said) = diskside(&[&run[..], &["--fold-here", "--stats"]].concat());
    assert!(code == 0 && said.contains("the results of all parts were folded here in"), "{said}");
    let (code, _, said) = diskside(&[&run[..], &["--fold-here", "--no-combine"]].concat());
    assert!(code == 2 && said.contains("cannot be used with"), "{said}");
    // A function without a `combine` has nothing to fold.
    let (text, lines) = (server.at("t"), b"one\ntwo\none\n");
    server.file("t", lines);
    assert_eq!(good(&["run", "grep", &text, "--arg", "pattern=one", "--fold-here", "--where", "device"]), "one\none\n");
}
