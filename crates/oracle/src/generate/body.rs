//! What generated programs do.

use super::expression::expression;
use super::{Declared, Program, STATE_LEN, Source};
use fastrand::Rng;
use std::fmt::Write as _;

/// What every source has before its programs.
pub(super) const MACROS: &str = "
#define READ(name, IN) SEC(\"read/\" #name) \\
    __s64 name(__u64 *out, const IN *in, __u64 in_len, const struct args *args, const struct ds_call *call)
#define WRITE(name, IN) SEC(\"write/\" #name) \\
    __s64 name(__u64 *out, const IN *in, __u64 in_len, const struct args *args, const struct ds_call *call)
#define FOLD(name) SEC(\"combine/\" #name) \\
    __s64 name##_fold(__u64 *acc, __u64 acc_len, __u64 acc_cap, const __u64 *part, __u64 part_len)
#define FOLD_UNORDERED(name) SEC(\"combine.unordered/\" #name) \\
    __s64 name##_fold(__u64 *acc, __u64 acc_len, __u64 acc_cap, const __u64 *part, __u64 part_len)
";

/// The function of a program, before its source is written.
pub(super) struct Body {
    pub(super) text: String,
    pub(super) folds: bool,
    name: String,
    has_state: bool,
    traces: bool,
    is_endless: bool,
}

/// How results go together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fold {
    None,
    /// By a `combine` that depends on the order.
    Mix,
    /// By one that does not.
    Add,
    /// Sums of floating-point numbers, which depend on the order in their last bits.
    AddF64,
    /// One behind the other.
    Append,
    /// Wrongly.
    Wrong,
}

/// A program's use of its input: the lines of its function, how results are joined, and special properties.
struct Does {
    lines: String,
    fold: Fold,
    has_state: bool,
    traces: bool,
    is_endless: bool,
    globals: String,
}

impl Does {
    fn new(lines: impl Into<String>, fold: Fold) -> Self {
        let (lines, globals) = (lines.into(), String::new());
        Self { lines, fold, has_state: false, traces: false, is_endless: false, globals }
    }
}

impl Body {
    /// The `n`th of a source.
    pub(super) fn draw(n: usize, element: &str, concatenates: bool, rng: &mut Rng) -> Self {
        // Each source has one that traces.
        let does = if n == 0 { trace(concatenates, rng) } else { draw(n, rng) };
        let kind = if rng.u8(..6) == 0 { "WRITE" } else { "READ" };
        let name = format!("{}{n}", ["f", "g", "h"][rng.usize(..3)]);
        // Without a combine of its own, what the source says holds.
        let fold = if concatenates && does.fold != Fold::Wrong && rng.bool() { Fold::None } else { does.fold };
        let mut text = format!("{}\n{kind}({name}, {element})\n{{\n", does.globals);
        text.push_str("    const __u8 *b = (const void *)in;\n    (void)b;\n");
        text.push_str(&does.lines);
        text.push_str("}\n");
        text.push_str(&combine(&name, fold, rng));
        Self {
            text,
            folds: fold != Fold::None,
            name,
            has_state: does.has_state,
            traces: does.traces,
            is_endless: does.is_endless,
        }
    }

    pub(super) fn into_program(self, declared: Declared, args: Vec<(String, String)>) -> Program {
        Program {
            name: self.name,
            declared,
            args,
            has_state: self.has_state,
            traces: self.traces,
            is_endless: self.is_endless,
        }
    }
}

fn combine(name: &str, fold: Fold, rng: &mut Rng) -> String {
    let mut body = "    for (__u64 i = 0; i < part_len / 8; i++)\n".to_owned();
    let section = match fold {
        Fold::None => return String::new(),
        Fold::Append => {
            let append = "    ds_memcpy((char *)acc + acc_len, part, part_len);\n    return acc_len + part_len;\n";
            return format!("FOLD({name})\n{{\n{append}}}\n");
        }
        Fold::Wrong => {
            let wrong = [
                "return acc_cap + 1;",
                "return acc_len ? -DS_EBADMSG : (acc[0] = part[0], 8);",
                "return acc_len > 8 ? acc_len - 8 : (acc[0] += part[0], 24);",
                "acc[acc_cap / 8] = part[0];\n    return 8;",
                "acc[0] = part[part_len / 8 - (acc_len ? 0 : 1)];\n    return 8;",
                "return acc_len + 1;",
            ];
            return format!("FOLD({name})\n{{\n    {}\n}}\n", wrong[rng.usize(..wrong.len())]);
        }
        Fold::Mix => {
            let mixed = expression(&["acc[i]", "part[i]", "acc_len", "i"], 3, rng);
            writeln!(body, "        acc[i] = acc_len > i * 8 ? {mixed} * 3 + part[i] : part[i];").expect("a string");
            "FOLD"
        }
        Fold::Add => {
            let op = ["+", "^", "|"][rng.usize(..3)];
            writeln!(body, "        acc[i] = acc_len > i * 8 ? acc[i] {op} part[i] : part[i];").expect("a string");
            ["FOLD_UNORDERED", "FOLD"][rng.usize(..2)]
        }
        Fold::AddF64 => {
            body.push_str("        acc[i] = acc_len > i * 8 ? ds_f64_add(acc[i], part[i]) : part[i];\n");
            "FOLD"
        }
    };
    format!("{section}({name})\n{{\n{body}    return part_len > acc_len ? part_len : acc_len;\n}}\n")
}

/// A row for each call: see [`crate::trace`].
fn trace(concatenates: bool, rng: &mut Rng) -> Does {
    let lines = "    __u64 row[] = {in_len, call->size, call->flags, call->args_len, call->out_cap, call->in_offset,\n\
        \x20       call->record_index, call->source_len, call->source_index, call->chunk_index, ds_crc32c(0, in, in_len)};\n\
        \x20   for (__u64 i = 0; i < sizeof(row) / 8; i++)\n        out[i] = row[i];\n    return sizeof(row);\n";
    let fold = if !concatenates && rng.bool() { Fold::Append } else { Fold::None };
    Does { traces: true, ..Does::new(lines, fold) }
}

/// A loop over elements of some width.
fn over(rng: &mut Rng, body: &str) -> String {
    let (kind, len) = [("__u8", 1), ("__u16", 2), ("__u32", 4), ("__u64", 8), ("__s32", 4)][rng.usize(..5)];
    format!(
        "    for (__u64 i = 0; i < in_len / {len}; i++) {{\n        __u64 v = *(const {kind} *)(b + i * {len});\n{body}    }}\n"
    )
}

fn draw(n: usize, rng: &mut Rng) -> Does {
    let any = [Fold::Mix, Fold::Add, Fold::Append, Fold::None][rng.usize(..4)];
    let value = expression(&["v", "i", "sum", "args->mask"], 3, rng);
    let sum = over(rng, &format!("        sum = sum * 31 + {value};\n"));
    let begin = "    __u64 sum = 1;\n";
    let end = "    out[0] = sum;\n    return 8;\n";
    let modulus = rng.u64(3..200);
    let rest = rng.u64(..3);
    match rng.u8(..21) {
        0 | 1 => Does::new(format!("{begin}{sum}{end}"), any),
        2 => {
            let wide =
                "    out[0] = sum;\n    out[1] = in_len;\n    out[2] = sum ^ call->chunk_index;\n    return 24;\n";
            Does::new(format!("{begin}{sum}{wide}"), any)
        }
        3 | 4 => floats(rng),
        5 => {
            let about =
                ["call->in_offset", "call->record_index", "call->chunk_index", "call->flags", "call->source_len"];
            let about = [&about[..], &["call->source_index", "call->args_len", "call->out_cap", "in_len"]].concat();
            let mixed = expression(&about, 4, rng);
            Does::new(
                format!("    out[0] = {mixed};\n    out[1] = {};\n    return 16;\n", expression(&about, 3, rng)),
                any,
            )
        }
        // Some of its elements.
        6 | 7 => {
            let take =
                over(rng, "        if ((v & 15) == (args->mask & 15) || v % 7 == 3)\n            to[n++] = v;\n");
            let lines = format!("    __u8 *to = (void *)out;\n    __u64 n = 0;\n{take}    return n;\n");
            Does::new(lines, [Fold::Append, Fold::None][rng.usize(..2)])
        }
        // More than its input, where there is room for that.
        8 => {
            let lines = "    __u8 *to = (void *)out;\n    for (__u64 i = 0; i < in_len; i++) {\n        to[2 * i] = b[i];\n        \
                to[2 * i + 1] = i;\n    }\n    return 2 * in_len;\n";
            Does::new(lines, [Fold::Append, Fold::None][rng.usize(..2)])
        }
        // Traps.
        9 | 10 => {
            let bad = ["sum += b[in_len + (v & 63)];", "sum += b[i - in_len - v];", "out[call->out_cap / 8 + v] = i;"];
            let bad = bad[rng.usize(..bad.len())];
            let lines =
                over(rng, &format!("        sum += v;\n        if (sum % {modulus} == {rest})\n            {bad}\n"));
            Does::new(format!("{begin}{lines}{end}"), any)
        }
        // Its own errors, and too much output.
        11 => {
            let error = format!("    if (sum % {modulus} < 2)\n        return -(__s64)(sum & 63) - 1;\n");
            Does::new(format!("{begin}{sum}{error}{end}"), any)
        }
        12 => {
            let full = format!("    if (sum % {modulus} < 2)\n        return call->out_cap + 1 + (sum & 7);\n");
            Does::new(format!("{begin}{sum}{full}{end}"), any)
        }
        13 => {
            let spin = format!(
                "    if (sum % {modulus} == {rest})\n        for (volatile __u64 i = 0; i < 1ull << 50; i++)\n            ;\n"
            );
            Does { is_endless: true, ..Does::new(format!("{begin}{sum}{spin}{end}"), any) }
        }
        14 => {
            let globals = format!("static __u64 calls_{n} = {rest};\n");
            let lines = format!("{begin}{sum}    sum += ++calls_{n};\n{end}");
            Does { globals, ..Does::new(lines, any) }
        }
        15 => {
            let words = STATE_LEN / 8;
            let lines = format!(
                "{begin}{sum}    DS_STATE(__u64)[0]++;\n    DS_STATE(__u64)[sum % {words}] += sum;\n    sum ^= DS_STATE(__u64)[{rest}];\n{end}"
            );
            Does { has_state: true, ..Does::new(lines, any) }
        }
        16 => heap(rng, any),
        17 => {
            let lines = format!("{begin}{sum}    ds_log((const char *)in, in_len < 20 ? in_len : 20);\n{end}");
            Does::new(lines, any)
        }
        18 => {
            let lines = "    out[0] = ds_crc32c(args->mask, in, in_len);\n    out[1] = ds_hash64(in, in_len, args->mask);\n    \
                out[2] = ds_sum_f64((const ds_f64 *)b, in_len / 8);\n    return 24;\n";
            Does::new(lines, any)
        }
        // A block of Snappy that says that it is 32 times the same byte, one of which is the input's; and the input itself.
        19 => {
            let lines = format!(
                "{begin}    __u8 packed[] = {{32, 0, in_len ? b[0] : 7, 0x7a, 1, 0}}, made[64];\n    struct ds_compression how = \
                 {{.codec = DS_SNAPPY}};\n    sum += ds_decompress(made, 64, packed, sizeof(packed) - args->mask % 3, &how);\n    \
                 sum ^= ds_crc32c(0, made, 32);\n    how.codec = in_len % 3;\n    \
                 sum += ds_decompress(made, 64, in, in_len < 999 ? in_len : 999, &how);\n{end}"
            );
            Does::new(lines, any)
        }
        _ => Does::new(format!("{begin}{sum}{end}"), Fold::Wrong),
    }
}

/// A sum of floating-point numbers that is another one in another order.
fn floats(rng: &mut Rng) -> Does {
    let lines = if rng.bool() {
        "    ds_f64 sum = 0;\n    for (__u64 i = 0; i < in_len / 8; i++) {\n        ds_f64 v = *(const __u64 *)(b + i * 8);\n        \
            sum = ds_f64_add(sum, v);\n    }\n    out[0] = sum;\n    return 8;\n"
            .to_owned()
    } else {
        let body = "        ds_f64 term = ds_f64_div(ds_f64_from_u64(v & 0xffffff), ds_f64_from_u64(i * 3 + 7));\n        \
            sum = ds_f64_add(sum, i & 1 ? ds_f64_neg(term) : ds_f64_mul(term, term));\n";
        format!("    ds_f64 sum = 0;\n{}    out[0] = sum;\n    return 8;\n", over(rng, body))
    };
    Does::new(lines, Fold::AddF64)
}

/// Memory, given back or not: then the next call has less.
fn heap(rng: &mut Rng, fold: Fold) -> Does {
    let give_back = if rng.bool() { "    ds_free(copy);\n" } else { "" };
    let len = ["in_len", "1 << 20", "5000000", "in_len * 64 + 1"][rng.usize(..4)];
    let lines = format!(
        "    __u8 *copy = ds_alloc({len});\n    out[0] = in_len;\n    if (copy != NULL && in_len != 0) {{\n        \
            copy[0] += b[in_len - 1] + 1;\n        out[0] = copy[0];\n    }}\n    out[1] = copy != NULL;\n{give_back}    return 16;\n"
    );
    Does::new(lines, fold)
}

/// Programs of the kinds of other systems, which run once.
pub(super) fn foreign(seed: u64, rng: &mut Rng) -> Source {
    let value = expression(&["v", "i", "sum"], 3, rng);
    let (modulus, rest) = (rng.u64(2..50), rng.u64(..2));
    let (header, programs) = match rng.u8(..3) {
        0 => {
            let one = |name: &str, body: &str| {
                format!("SEC(\"lambda/{name}\")\nssize_t {name}(void *output, void *input, size_t len)\n{{\n{body}}}\n")
            };
            let sum = format!(
                "    uint64_t sum = 0;\n    for (size_t i = 0; i < len / 4; i++) {{\n        uint64_t v = ((const int *)input)[i];\n        \
                    sum += {value} ^ v;\n    }}\n"
            );
            let traps = format!("    if (sum % {modulus} == {rest})\n        sum += ((char *)input)[len + 3];\n");
            let end = "    *(uint64_t *)output = sum;\n    return 8;\n";
            let copy = "    for (size_t i = 0; i < len; i++)\n        ((char *)output)[i] = ((char *)input)[len - 1 - i];\n    return len;\n";
            let texts = [one("f0", &format!("{sum}{end}")), one("f1", &format!("{sum}{traps}{end}")), one("f2", copy)];
            ("lambda_io.h", texts)
        }
        1 => {
            let one = |name: &str, body: &str| {
                format!(
                    "int LIO_PROG({name})(struct context *ctx)\n{{\n    char *buf_i = ctx->buf_i;\n    char *buf_o = ctx->buf_o;\n    \
                        int64_t size_i = ctx->size_i;\n{body}}}\n"
                )
            };
            let sum = format!(
                "    uint64_t sum = 0;\n    for_check(int64_t i = 0, i < (int64_t)((uint64_t)size_i / 4), i++) {{\n        uint64_t v = ibuf_deref_check(int, i * 4);\n        \
                    sum += {value} ^ v;\n    }}\n"
            );
            let error = format!("    if (sum % {modulus} == {rest})\n        return -(int)(sum & 63) - 1;\n");
            let end = "    obuf_deref_check(uint64_t, 0) = sum;\n    return 8;\n";
            let past = "    obuf_deref_check(int, 0) = ibuf_deref_check(int, size_i);\n    return 4;\n";
            let texts = [one("f0", &format!("{sum}{end}")), one("f1", &format!("{sum}{error}{end}")), one("f2", past)];
            ("lambda_io.h", texts)
        }
        _ => {
            let one = |name: &str, body: &str| {
                format!(
                    "SEC(\"delilah/{name}\")\nuint64_t {name}(void *data, uint64_t len, void *state, uint64_t state_len)\n{{\n    uint8_t *b = data;\n    \
                        uint64_t sum = 0;\n{body}    return sum;\n}}\n"
                )
            };
            let change = format!(
                "    for (uint64_t i = 0; i < len; i++) {{\n        uint64_t v = b[i];\n        sum += {value} ^ v;\n        b[i] = sum;\n    }}\n"
            );
            let reverse = "    for (uint64_t i = 0; i < len / 2; i++) {\n        sum += b[i];\n        b[i] = b[len - 1 - i];\n    }\n";
            let traps = format!("{change}    if (sum % {modulus} == {rest})\n        b[len] = 1;\n");
            ("delilah.h", [one("f0", &change), one("f1", reverse), one("f2", &traps)])
        }
    };
    let declared = Declared { records: None, piece_records: 1, joins: false, is_one_run: true };
    let program = |name: &str| Program {
        name: name.to_owned(),
        declared,
        args: Vec::new(),
        has_state: false,
        traces: false,
        is_endless: false,
    };
    let text = format!("/* Made of seed {seed}. */\n#include \"{header}\"\n{}", programs.concat());
    Source { text, programs: ["f0", "f1", "f2"].into_iter().map(program).collect() }
}
