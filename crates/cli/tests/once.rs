//! Functions that say nothing of their records or their outputs: they are called once, over the whole input.

mod common;

use common::{Server, diskside, good};
use std::path::Path;

/// How much it was given, and which flags; it says neither what its records are nor how outputs become one.
const GIVEN: &str = r#"
#include "diskside.h"
struct given { __u64 len, offset, source_len, flags; };
SEC("read/given")
__s64 given(struct given *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    *out = (struct given){ in_len, call->in_offset, call->source_len, call->flags };
    return sizeof(*out);
}
"#;

/// With a `combine` and no records; with records and no word on its outputs.
const HALF: [(&str, &str, &str); 2] = [
    (
        "given",
        "SEC(\"combine/given\") __s64 fold(void *acc, __u64 acc_len, __u64 cap, const void *part, __u64 len) { return acc_len; }\n",
        "what its records are (DS_SPLIT_LINES, DS_SPLIT_RECORDS(bytes), DS_SPLIT_BYTES, or a type of `in`)",
    ),
    ("given", "DS_SPLIT_BYTES;\n", "what becomes of its outputs (a `combine`, or DS_CONCATENATE)"),
];

/// Over more than 8 MiB a function was called on pieces wherever it ran, whatever it said; then at a server alone.
#[test]
fn a_function_that_declares_nothing_is_called_once_wherever_it_runs() {
    let server = Server::start("");
    let len = (20 << 20) + 12_345;
    let here = server.file("in", &vec![7; len]).display().to_string();
    let there = server.at("in");
    let function = server.file("given.bpf.c", GIVEN.as_bytes()).display().to_string();
    for (input, place) in [(&here, "auto"), (&there, "device"), (&there, "host"), (&there, "auto")] {
        for more in [&[][..], &["--threads", "3"], &["--chunk", "1MiB"]] {
            let args = [&["run", &function, input, "--where", place, "--json"], more].concat();
            let told: serde_json::Value = serde_json::from_str(&good(&args)).expect("JSON");
            let once = serde_json::json!([{ "len": len, "offset": 0, "source_len": len, "flags": 3 }]);
            assert_eq!(told["rows"], once, "{args:?}");
        }
    }
}

/// Nothing of it is read before that is known: the file is a hole.
#[test]
fn more_than_128_mib_in_one_call_is_refused_with_what_to_declare() {
    let server = Server::start("");
    let here = server.file("in", b"");
    let len = (128 << 20) + 1;
    std::fs::File::options().write(true).open(&here).and_then(|file| file.set_len(len)).expect("there");
    let (here, there) = (here.display().to_string(), server.at("in"));
    let records = "what its records are (DS_SPLIT_LINES, DS_SPLIT_RECORDS(bytes), DS_SPLIT_BYTES, or a type of `in`)";
    let outputs = "what becomes of its outputs (a `combine`, or DS_CONCATENATE)";
    let both = ("neither", "", format!("{records} and {outputs}"));
    let half = HALF.map(|(name, more, remedy)| (name, more, remedy.to_owned()));
    for (at, (name, more, remedy)) in [both].into_iter().chain(half).enumerate() {
        let source = server.file(&format!("{name}{at}.bpf.c"), (GIVEN.to_owned() + more).as_bytes());
        let source = source.display().to_string();
        for (input, place) in [(&here, "auto"), (&there, "device"), (&there, "host"), (&there, "auto")] {
            let (code, out, said) = diskside(&["run", &source, input, "--where", place]);
            let told = format!(
                "diskside: {input}: read/given runs once over its whole input, of up to 134217728 bytes, and this has {len}; \
                 ask for one piece of all of it (--chunk {len}), or declare {remedy} in its source; if it looks back over \
                 earlier bytes, it must then keep them in a state (DS_STATE)\n"
            );
            assert_eq!((code, &out[..], said), (1, &b""[..], told), "{place} {more}");
        }
    }
}

/// Counts by remainder in a global, as people write C.
const IN_A_GLOBAL: &str = r#"
#include "diskside.h"
static __u64 counts[16];
struct row { __u64 count; };
DS_SPLIT_RECORDS(8);
SEC("read/counted")
__s64 counted(struct row *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    for (__u64 i = 0; i < in_len / 8; i++)
        counts[in[i] % 16]++;
    for (int i = 0; i < 16; i++)
        out[i].count = counts[i];
    return sizeof(counts);
}
DS_OUTPUT(0, 1, 128);
SEC("combine/counted")
__s64 fold(struct row *acc, __u64 acc_len, __u64 acc_cap, const struct row *part, __u64 part_len)
{
    for (int i = 0; i < 16; i++)
        acc[i].count += part[i].count;
    return sizeof(counts);
}
"#;

/// The count of one piece was in the global when the next began, and in the sum as often as there were pieces after it.
#[test]
fn a_global_begins_anew_with_each_piece() {
    let server = Server::start("");
    let numbers: Vec<u8> = (0..200_000_u64).flat_map(u64::to_le_bytes).collect();
    let here = server.file("numbers", &numbers).display().to_string();
    let there = server.at("numbers");
    let function = server.file("counted.bpf.c", IN_A_GLOBAL.as_bytes()).display().to_string();
    for (input, place) in [(&here, "auto"), (&there, "device"), (&there, "host"), (&there, "auto")] {
        for more in [&[][..], &["--threads", "3", "--chunk", "64KiB"], &["--chunk", "4KiB"], &["--tier", "interp"]] {
            let args = [&["run", &function, input, "--where", place, "--json"], more].concat();
            let told: serde_json::Value = serde_json::from_str(&good(&args)).expect("JSON");
            let rows = told["rows"].as_array().expect("rows");
            assert!(rows.len() == 16 && rows.iter().all(|row| row["count"] == 12_500), "{args:?}: {told}");
        }
    }
}

/// The sum of the last seven numbers, for each number.
const LAST_SEVEN: &str = r#"
#include "diskside.h"
DS_OUTPUT(1, 1, 64);
struct row { __s64 sum; };
SEC("read/last_seven")
__s64 last_seven(struct row *out, const __s64 *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    __u64 n = in_len / sizeof(*in);
    __s64 sum = 0;
    for (__u64 i = 0; i < n; i++) {
        sum += in[i] - (i >= 7 ? in[i - 7] : 0);
        out[i].sum = sum;
    }
    return n * sizeof(*out);
}
"#;

/// The message for input that is too long for one call advised DS_CONCATENATE, which is wrong for a function that looks back: at
/// the beginning of each piece it misses the numbers before. One piece of all, and a state, give the right sums.
#[test]
fn a_function_looks_back_over_earlier_bytes_in_one_piece_or_with_a_state() {
    let server = Server::start("");
    let len = (128_usize << 20) + 8;
    let hole = server.file("hole", b"");
    std::fs::File::options().write(true).open(&hole).and_then(|file| file.set_len(len as u64)).expect("there");
    let hole = hole.display().to_string();
    let once = server.file("once.bpf.c", LAST_SEVEN.as_bytes()).display().to_string();
    let (code, _, said) = diskside(&["run", &once, &hole]);
    assert!(code == 1 && said.contains("(--chunk 134217736)") && said.contains("a state (DS_STATE)"), "{said}");
    // The advice holds for the input that was refused.
    let out = server.dir.join("out").display().to_string();
    good(&["run", &once, &hole, "--chunk", "134217736", "--out", &out]);
    assert_eq!(std::fs::metadata(&out).expect("there").len(), len as u64);

    let numbers: Vec<i64> = (0..20_000).map(|n| n * n % 1009 - 500).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let sums = (0..numbers.len()).map(|at| numbers[at.saturating_sub(6)..=at].iter().sum::<i64>());
    let sums: Vec<u8> = sums.flat_map(i64::to_le_bytes).collect();
    let here = server.file("numbers", &bytes).display().to_string();
    let there = server.at("numbers");
    // The documentation has the function that keeps the last seven numbers in a state from piece to piece.
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    let mut blocks = guide.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let source = blocks.find(|block| block.contains("read/last_seven")).expect("it shows the function");
    let pieces = server.file("pieces.bpf.c", source.as_bytes()).display().to_string();
    for (input, place) in [(&here, "auto"), (&there, "device"), (&there, "host"), (&there, "auto")] {
        let whole = ["run", &once, input, "--where", place, "--chunk", "160000"];
        let mut ways = vec![whole.to_vec()];
        // Also pieces of fewer numbers than it looks back over. The state of an earlier run is not looked at.
        for chunk in ["4KiB", "24", "8"] {
            let state = ["--state", "last=56", "--threads", "3", "--chunk", chunk];
            ways.push([&["run", &pieces, input, "--where", place][..], &state].concat());
        }
        for args in ways {
            let args = [&args[..], &["--out", &out]].concat();
            good(&args);
            assert!(std::fs::read(&out).expect("there") == sums, "{args:?}");
        }
    }
}
