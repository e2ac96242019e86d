//! Generated functions: C sources, each from a seed, with all ways of saying what may be cut and how results go together.

mod body;
mod expression;

use crate::rule::Records;
use body::Body;
use fastrand::Rng;
use std::fmt::Write as _;

/// Programs of one source: clang takes as long for its start as for several of them.
const PROGRAMS: usize = 10;
/// Bytes of the named state of a program that has one.
pub const STATE_LEN: u32 = 64;

/// A source with several programs.
#[derive(Clone, Debug)]
pub struct Source {
    /// C.
    pub text: String,
    /// What is in it.
    pub programs: Vec<Program>,
}

/// A program of a source.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// What it says of itself.
    pub declared: Declared,
    /// What it is run with.
    pub args: Vec<(String, String)>,
    /// Whether it uses the named state.
    pub has_state: bool,
    /// Whether it tells of each of its calls: its output is rows of [`Trace`](crate::trace::Row).
    pub traces: bool,
    /// Whether it may take more iterations than any case allows.
    pub is_endless: bool,
}

/// What a program says of its records and its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// `None`: nothing.
    pub records: Option<Records>,
    /// How many of them a piece holds a multiple of.
    pub piece_records: u64,
    /// Whether results of pieces can be put together.
    pub joins: bool,
    /// Whether its kind is one run always.
    pub is_one_run: bool,
}

impl Declared {
    /// What a request is cut at, whose results are folded or not.
    #[must_use]
    pub fn cuts(&self, folds: bool) -> Records {
        match self.records {
            Some(records) if (self.joins || !folds) && !self.is_one_run => records,
            _ => Records::Whole,
        }
    }
}

/// How a source says what its records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saying {
    Records(u64),
    Lines,
    After(u8),
    Bytes,
    ByType,
    ByArgument(u64),
    Nothing,
}

/// Element types of `in`, with what each says of records when nothing else does.
const TYPES: [(&str, Option<u64>); 8] = [
    ("__u8", None),
    ("char", None),
    ("void", None),
    ("__u16", Some(2)),
    ("__u32", Some(4)),
    ("__u64", Some(8)),
    ("struct three", Some(12)),
    ("struct pair", Some(16)),
];

impl Source {
    /// The source of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5eed_0f0a_c1e5);
        if rng.u8(..8) == 0 {
            return body::foreign(seed, &mut rng);
        }
        let saying = saying(&mut rng);
        let concatenates = rng.bool();
        let can_group = matches!(saying, Saying::Records(_) | Saying::ByType | Saying::ByArgument(_));
        let piece_records = if can_group && rng.u8(..4) == 0 { [2, 3, 8][rng.usize(..3)] } else { 1 };
        let mut text = prelude(seed, saying, concatenates, piece_records, &mut rng);
        let programs = (0..PROGRAMS)
            .map(|n| {
                let (element, by_type) = TYPES[rng.usize(..TYPES.len())];
                let records = match saying {
                    Saying::Records(len) => Some(Records::Fixed(len)),
                    Saying::Lines => Some(Records::After(b'\n')),
                    Saying::After(byte) => Some(Records::After(byte)),
                    Saying::Bytes => Some(Records::Bytes),
                    Saying::ByArgument(len) if len > 0 => Some(Records::Fixed(len)),
                    Saying::ByArgument(_) | Saying::ByType | Saying::Nothing => by_type.map(Records::Fixed),
                };
                let body = Body::draw(n, element, concatenates, &mut rng);
                text.push_str(&body.text);
                let declared =
                    Declared { records, piece_records, joins: concatenates || body.folds, is_one_run: false };
                let mut args = vec![("mask".to_owned(), rng.u32(..16).to_string())];
                if let Saying::ByArgument(len) = saying {
                    args.push(("record_len".to_owned(), len.to_string()));
                }
                body.into_program(declared, args)
            })
            .collect();
        Self { text, programs }
    }
}

fn saying(rng: &mut Rng) -> Saying {
    let lens = [1, 2, 3, 4, 8, 12, 16, 24, 100];
    match rng.u8(..9) {
        0 | 1 => Saying::Records(lens[rng.usize(..lens.len())]),
        2 | 3 => Saying::Lines,
        4 => Saying::After([b';', b' ', 0, 255][rng.usize(..4)]),
        5 => Saying::Bytes,
        6 => Saying::ByType,
        7 => Saying::ByArgument([0, 1, 4, 12, 20, 64][rng.usize(..6)]),
        _ => Saying::Nothing,
    }
}

fn prelude(seed: u64, saying: Saying, concatenates: bool, piece_records: u64, rng: &mut Rng) -> String {
    let mut text = format!("/* Made of seed {seed}. */\n#include \"diskside.h\"\n");
    let declaration = match saying {
        Saying::Records(len) => format!("DS_SPLIT_RECORDS({len});\n"),
        Saying::Lines => "DS_SPLIT_LINES;\n".to_owned(),
        Saying::After(byte) => format!("DS_SPLIT_AFTER({byte});\n"),
        Saying::Bytes => "DS_SPLIT_BYTES;\n".to_owned(),
        Saying::ByType | Saying::ByArgument(_) | Saying::Nothing => String::new(),
    };
    text.push_str(&declaration);
    if concatenates {
        text.push_str("DS_CONCATENATE;\n");
    }
    if piece_records > 1 {
        writeln!(text, "DS_PIECE_RECORDS({piece_records});").expect("a string");
    }
    let output = ["", "", "DS_OUTPUT(3, 1, 128);\n", "DS_OUTPUT(0, 1, 512);\n", "DS_OUTPUT(1, 8, 256);\n"];
    text.push_str(output[rng.usize(..output.len())]);
    text.push_str("struct three { __u32 a, b, c; };\nstruct pair { __u64 a, b; };\n");
    let record_len = match saying {
        Saying::ByArgument(_) => "__u32 record_len DS_ARG_RECORD_LEN DS_ARG_DEFAULT(\"0\"); ",
        _ => "",
    };
    writeln!(text, "struct args {{ {record_len}__u32 mask DS_ARG_DEFAULT(\"7\"); }};").expect("a string");
    text.push_str(body::MACROS);
    text
}
