//! Cases with generated functions, each from a seed and a number.

use crate::case::{Case, Origin};
use crate::generate::{STATE_LEN, Source};
use crate::input::{Form, Input, Kind};
use fastrand::Rng;

/// Cases of each source: clang is what takes longest.
pub const CASES_OF_SOURCE: u64 = 20;
/// Inputs that cases choose from.
const INPUTS: u64 = 24;

/// The inputs of a seed's cases.
#[must_use]
pub fn inputs(seed: u64) -> Vec<Input> {
    (0..INPUTS).map(|number| input(seed, number)).collect()
}

fn input(seed: u64, number: u64) -> Input {
    const KINDS: [Kind; 8] =
        [Kind::Lines, Kind::Bytes, Kind::Words, Kind::Floats, Kind::Closed, Kind::Long, Kind::Endless, Kind::Zeros];
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    let kind = KINDS[number as usize % KINDS.len()];
    let len = match rng.u8(..12) {
        0 => 0,
        1 => rng.usize(1..10),
        2 | 3 => rng.usize(10..300),
        4..=6 => rng.usize(300..4000),
        // A whole number of most records.
        7 => 4800,
        8..=10 => rng.usize(4000..20_000),
        _ => rng.usize(20_000..60_000),
    };
    // One that a session can hold half of.
    let len = if number == INPUTS - 1 { 700_000 + len } else { len };
    let form = match number % 8 {
        2 => Form::Npy,
        5 => Form::Gzip,
        7 => Form::Zstd,
        _ => Form::Plain,
    };
    // The large one is for what a session holds, which is nothing of what is decompressed.
    let form = if number == INPUTS - 1 || rng.bool() { Form::Plain } else { form };
    Input { kind, len, seed: rng.u64(..1000), form }
}

/// The case of this number.
#[must_use]
pub fn case(seed: u64, number: u64) -> Case {
    let mut rng = Rng::with_seed(seed.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95) ^ number);
    let source_seed = seed.wrapping_mul(1_000_003).wrapping_add(number / CASES_OF_SOURCE);
    let programs = Source::of(source_seed).programs;
    let program = &programs[number as usize % programs.len()];
    let usual = rng.u64(..INPUTS - 1);
    let of = if rng.u8(..40) == 0 { INPUTS - 1 } else { usual };
    let mut case = Case::new(Origin::Generated(source_seed, program.name.clone()), input(seed, of));
    let len = case.inputs[0].len;
    let is_large = of == INPUTS - 1;
    case.args.clone_from(&program.args);
    let short = [1, 7, 16, 60, 64, 100, 256, 1000, 1024, 4096];
    case.chunk_len = match rng.u8(..10) {
        0 => None,
        _ if is_large => Some([20_000, 65_536, 100_000][rng.usize(..3)]),
        // Pieces of a few bytes are many.
        _ => Some(short[rng.usize(..short.len())].max(len / 100)),
    };
    if rng.u8(..5) == 0 && len > 0 {
        let start = rng.usize(..len);
        case.range = Some(start as u64..rng.usize(start..=len) as u64);
    } else if rng.u8(..8) == 0 && !is_large && !program.has_state {
        // A state is kept at each target.
        case.inputs.push(input(seed, rng.u64(..INPUTS - 1)));
    }
    case.budget = if program.is_endless {
        Some(rng.u64(1000..200_000))
    } else if rng.u8(..12) == 0 {
        Some(rng.u64(..3000))
    } else {
        None
    };
    case.state_len = program.has_state.then_some(STATE_LEN);
    case.folds = rng.u8(..16) != 0;
    case
}
