//! Masks of kernels' results: which blocks travel, decided by hosts and by kernels, the same wherever a kernel runs.

mod common;

use std::path::Path;

use common::{Server, diskside};
use diskside::TierChoice;
use diskside::kernel::{RESULT_BLOCK_LEN, ResultBlocks};
use diskside::sandbox::activation::Tier;
use diskside::session::{FailureKind, KernelRan, RunOptions, Session, SessionError, SessionOptions, Side, Where};

const BLOCK: usize = RESULT_BLOCK_LEN;
/// Nine blocks, and a part of the tenth.
const LEN: usize = 9 * BLOCK + 77;
/// Room for twenty.
const ROOM: usize = 20 * BLOCK;

/// What window.bpf.c does with the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    Only(u32, u64),
    Masks(u32, u64),
    Unmasks(u32, u64),
    Sets(u32),
}

impl Does {
    fn args(self, len: usize) -> Vec<u8> {
        let (what, first, count) = match self {
            Self::Nothing => (0_u32, 0, 0),
            Self::Only(first, count) => (1, first, count),
            Self::Masks(first, count) => (2, first, count),
            Self::Unmasks(first, count) => (3, first, count),
            Self::Sets(first) => (4, first, 0),
        };
        let mut args = (len as u64).to_le_bytes().to_vec();
        args.extend([what, first].into_iter().flat_map(u32::to_le_bytes));
        args.extend(count.to_le_bytes());
        args
    }
}

fn source() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/window.bpf.c").display().to_string()
}

fn blocks(listed: impl IntoIterator<Item = usize>) -> ResultBlocks {
    let mut blocks = ResultBlocks::default();
    listed.into_iter().for_each(|block| blocks.add(block..block + 1));
    blocks
}

/// The result of the kernel, of which these blocks were given back.
fn window(given: &[usize]) -> Vec<u8> {
    let byte = |at: usize| if given.contains(&(at / BLOCK)) { (1 + at / BLOCK * 7 + at % 3) as u8 } else { 0 };
    (0..LEN).map(byte).collect()
}

fn launch(
    session: &Session,
    file: &str,
    does: Does,
    mask: Option<ResultBlocks>,
    options: &RunOptions,
) -> Result<KernelRan, SessionError> {
    let kernel = session.kernel(&source()).unwrap_or_else(|error| panic!("{error}"));
    let mut options = RunOptions { result_blocks: mask, ..options.clone() };
    options.limits.result_len_max = ROOM;
    session.launch(&[session.open(file).expect("it opens")], &[], &kernel, &does.args(LEN), &options).wait()
}

#[test]
fn the_same_blocks_travel_wherever_a_kernel_runs() {
    let server = Server::start("");
    let here = server.file("in", &[1; 10]).display().to_string();
    let there = server.at("in");
    let session = Session::new(SessionOptions::default());
    let all: Vec<usize> = (0..10).collect();
    let without = |held: &[usize]| all.iter().copied().filter(|block| !held.contains(block)).collect::<Vec<_>>();
    let cases = [
        (None, Does::Nothing, all.clone()),
        (None, Does::Only(3, 2), vec![3, 4]),
        (None, Does::Only(9, 1), vec![9]),
        (None, Does::Only(0, 0), vec![]),
        // The room has blocks that the result has not.
        (None, Does::Only(8, 12), vec![8, 9]),
        (None, Does::Masks(0, 1), without(&[0])),
        (None, Does::Masks(9, 11), without(&[9])),
        // Only a short block is held back, so what travels is longer than the result: the mask comes before it.
        (None, Does::Masks(9, 1), without(&[9])),
        (Some(blocks(0..20)), Does::Nothing, all.clone()),
        (Some(blocks([])), Does::Nothing, vec![]),
        (Some(blocks([1, 2, 7])), Does::Nothing, vec![1, 2, 7]),
        (Some(blocks([1, 2, 7])), Does::Unmasks(9, 1), vec![1, 2, 7, 9]),
        (Some(blocks([1, 2, 7])), Does::Masks(2, 6), vec![1]),
        (Some(blocks([1, 2, 7])), Does::Only(5, 1), vec![5]),
        (Some(blocks([1, 2])), Does::Sets(19), vec![1, 2]),
    ];
    for (file, place, side) in
        [(&here, Where::Auto, Side::Host), (&there, Where::Auto, Side::Device), (&there, Where::Host, Side::Host)]
    {
        for tier in [Tier::Interpreter, Tier::Cranelift] {
            let options = RunOptions { place, tier: TierChoice::Only(tier), ..RunOptions::default() };
            for (mask, does, given) in &cases {
                let what = format!("{place:?} {tier:?} {mask:?} {does:?}");
                let ran = launch(&session, file, *does, mask.clone(), &options);
                let ran = ran.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(ran.side, side, "{what}");
                assert!(ran.result == window(given), "{what}");
                let told = ran.blocks.map(|blocks| blocks.ranges().into_iter().flatten().collect::<Vec<_>>());
                assert_eq!(told.as_ref(), (*given != all).then_some(given), "{what}");
            }
        }
    }
}

#[test]
fn blocks_that_there_is_no_room_for_are_refused_everywhere() {
    let server = Server::start("");
    let here = server.file("in", &[1; 10]).display().to_string();
    let there = server.at("in");
    let session = Session::new(SessionOptions::default());
    let options = RunOptions::default();
    for file in [&here, &there] {
        let error = launch(&session, file, Does::Nothing, Some(blocks([20])), &options).expect_err("no such block");
        assert_eq!(error.kind(), FailureKind::Usage, "{error}");
        let told = "window: block 20 is not in its result, which has room for 20 blocks of 4 KiB";
        assert_eq!(error.to_string(), told);
        // The mask has bits of three bytes, and the last four of them are of no block.
        let error = launch(&session, file, Does::Sets(20), None, &options).expect_err("no such block");
        assert_eq!(error.kind(), FailureKind::OutputFull, "{error}");
        let told = "kernel/window marked a block behind the room for its result, which has 20";
        assert!(error.to_string().ends_with(told), "{error}");
        // Behind the mask there is nothing.
        let error = launch(&session, file, Does::Sets(24), None, &options).expect_err("no such byte");
        assert_eq!(error.kind(), FailureKind::Trap, "{error}");
        for does in [Does::Masks(20, 1), Does::Unmasks(19, 2), Does::Only(0, u64::MAX), Does::Masks(u32::MAX, 1)] {
            let error = launch(&session, file, does, None, &options).expect_err("no such block");
            assert!(error.kind() == FailureKind::Returned && error.to_string().contains("-34"), "{does:?}: {error}");
        }
    }
}

#[test]
fn the_command_takes_a_mask_and_names_the_blocks_that_travelled() {
    let server = Server::start("");
    server.file("in", &[1; 10]);
    let (source, file, len) = (source(), server.at("in"), format!("len={LEN}"));
    let out = server.dir.join("out").display().to_string();
    let launch = ["launch", &source, &file, "--arg", &len];
    let run = |more: &[&str]| diskside(&[&launch[..], more].concat());
    let (code, told, said) = run(&["--mask", "0,2-3,9", "--out", &out, "--json"]);
    assert_eq!(code, 0, "{said}");
    let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
    assert_eq!(told["result_blocks"], serde_json::json!(["0", "2-3", "9"]));
    assert!(std::fs::read(&out).expect("made") == window(&[0, 2, 3, 9]));
    let (code, told, said) = run(&["--out", &out, "--json"]);
    assert_eq!(code, 0, "{said}");
    let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
    assert_eq!(told["result_blocks"], serde_json::json!(["0-9"]));
    let (code, _, said) = run(&["--mask", "none", "--arg", "what=3", "--arg", "count=4", "--out", &out, "--stats"]);
    assert!(code == 0 && said.contains("; 4 of 10 blocks of its result"), "{said}");
    assert!(std::fs::read(&out).expect("made") == window(&[0, 1, 2, 3]));
    let (code, _, said) = run(&["--mask", "3", "--result", "12KiB"]);
    assert!(code == 2 && said.contains("block 3 is not in its result, which has room for 3 blocks"), "{code}: {said}");
    for wrong in ["", "3-1", "a", "1,,2", "-1", "0-9999999999", "1 2"] {
        let (code, _, said) = run(&[&format!("--mask={wrong}")]);
        assert!(code == 2 && said.contains("is neither a block, from 0 to 524287"), "{wrong}: {said}");
    }
}
