//! The helpers of every host, as data.

use super::{Helper, HelperCost, HelperEffects, HelperFn, HelperSet, Param, Return};
use super::{decompress, file, filter, find, fold, hash, heap, memory, regex, world};
use crate::float::eval;
use crate::ir::FloatOp;

const SCALAR: Param = Param::Scalar;
const PURE: HelperEffects = HelperEffects { uses_clock: false, does_io: false, uses_files: false };

/// The standard set: what `diskside.h` declares.
#[must_use]
pub fn standard() -> HelperSet {
    let mut all = memory_helpers();
    all.extend(vector_helpers());
    all.extend(digest_helpers());
    all.extend(file_helpers());
    all.extend(float_helpers());
    HelperSet::new(all)
}

fn helper(
    name: &'static str,
    prototype: &'static str,
    params: &'static [Param],
    ret: Return,
    body: HelperFn,
    doc: &'static str,
) -> Helper {
    // A helper that is given memory, or gives some, handles bytes.
    let handles = |param: &Param| !matches!(param, Param::Scalar | Param::Pointer);
    let cost = if ret == Return::Heap || params.iter().any(handles) { HelperCost::Linear } else { HelperCost::Fixed };
    Helper { name, version: 1, cost, prototype, doc, params, ret, effects: PURE, float: None, body }
}

fn memory_helpers() -> Vec<Helper> {
    vec![
        helper(
            "ds_alloc",
            "void *ds_alloc(__u64 len)",
            &[SCALAR],
            Return::Heap,
            heap::ds_alloc,
            "Zeroed memory aligned to 64 bytes; NULL when len is 0 or the quota is used up.",
        ),
        helper(
            "ds_alloc_aligned",
            "void *ds_alloc_aligned(__u64 align, __u64 len)",
            &[SCALAR, SCALAR],
            Return::Heap,
            heap::ds_alloc_aligned,
            "As ds_alloc, aligned to a power of two up to 1 MiB (at least 64).",
        ),
        helper(
            "ds_free",
            "void ds_free(void *p)",
            &[Param::Pointer],
            Return::Void,
            heap::ds_free,
            "Gives memory of ds_alloc back; NULL is allowed, any other pointer traps.",
        ),
        helper(
            "ds_memcpy",
            "void *ds_memcpy(void *to, const void *from, __u64 len)",
            &[Param::Write { len: 2, unit: 1 }, Param::Read { len: 2, unit: 1 }, SCALAR],
            Return::Param(0),
            memory::ds_memmove,
            "Copies len bytes; the ranges may overlap. Returns to.",
        ),
        helper(
            "ds_memmove",
            "void *ds_memmove(void *to, const void *from, __u64 len)",
            &[Param::Write { len: 2, unit: 1 }, Param::Read { len: 2, unit: 1 }, SCALAR],
            Return::Param(0),
            memory::ds_memmove,
            "Copies len bytes; the ranges may overlap. Returns to.",
        ),
        helper(
            "ds_memset",
            "void *ds_memset(void *to, int value, __u64 len)",
            &[Param::Write { len: 2, unit: 1 }, SCALAR, SCALAR],
            Return::Param(0),
            memory::ds_memset,
            "Sets len bytes to the low byte of value. Returns to.",
        ),
        helper(
            "ds_memcmp",
            "__s64 ds_memcmp(const void *a, const void *b, __u64 len)",
            &[Param::Read { len: 2, unit: 1 }, Param::Read { len: 2, unit: 1 }, SCALAR],
            Return::Scalar,
            memory::ds_memcmp,
            "Compares bytes as unsigned numbers: -1, 0 or 1.",
        ),
        helper(
            "ds_find",
            "__s64 ds_find(const void *hay, __u64 hay_len, const void *needle, __u64 needle_len)",
            &[Param::Read { len: 1, unit: 1 }, SCALAR, Param::Read { len: 3, unit: 1 }, SCALAR],
            Return::Scalar,
            find::ds_find,
            "Offset of the first occurrence of needle in hay, or -1.",
        ),
        helper(
            "ds_regex_find",
            "__s64 ds_regex_find(const void *hay, __u64 hay_len, const void *pattern, __u64 pattern_len)",
            &[Param::Read { len: 1, unit: 1 }, SCALAR, Param::Read { len: 3, unit: 1 }, SCALAR],
            Return::Scalar,
            regex::ds_regex_find,
            "Where the match of a regular expression ends that ends first, or -1.",
        ),
        helper(
            "ds_lambda_mem_read",
            "__s64 ds_lambda_mem_read(void *to, const void *from, __u64 offset, __u64 len, __u64 boundary)",
            &[Param::Write { len: 3, unit: 1 }, Param::ReadWithin { boundary: 4 }, SCALAR, SCALAR, SCALAR],
            Return::Scalar,
            memory::ds_lambda_mem_read,
            "lambda-IO's 159: copies len bytes from offset in from; one past boundary - len counts as that. Returns len.",
        ),
        helper(
            "ds_lambda_mem_write",
            "__s64 ds_lambda_mem_write(void *to, const void *from, __u64 offset, __u64 len, __u64 boundary)",
            &[Param::WriteWithin { boundary: 4 }, Param::Read { len: 3, unit: 1 }, SCALAR, SCALAR, SCALAR],
            Return::Scalar,
            memory::ds_lambda_mem_write,
            "lambda-IO's 160: copies len bytes to offset in to; one past boundary - len counts as that. Returns len.",
        ),
    ]
}

fn vector_helpers() -> Vec<Helper> {
    const FILTER_4: &[Param] = &[
        Param::Write { len: 1, unit: 1 },
        SCALAR,
        Param::Read { len: 3, unit: 4 },
        SCALAR,
        Param::Struct(filter::SPEC_LEN_BYTES as u8),
    ];
    const FILTER_8: &[Param] = &[
        Param::Write { len: 1, unit: 1 },
        SCALAR,
        Param::Read { len: 3, unit: 8 },
        SCALAR,
        Param::Struct(filter::SPEC_LEN_BYTES as u8),
    ];
    const ARRAY_1: &[Param] = &[Param::Read { len: 1, unit: 1 }, SCALAR];
    const ARRAY_4: &[Param] = &[Param::Read { len: 1, unit: 4 }, SCALAR];
    const ARRAY_8: &[Param] = &[Param::Read { len: 1, unit: 8 }, SCALAR];
    const FILTER_DOC: &str =
        "Which elements satisfy spec, as a bitmap or as positions: the number of matches, or -DS_ENOSPC.";
    const SUM_DOC: &str = "Sum of n elements modulo 2^64; 0 for none.";
    const FLOAT_SUM_DOC: &str = "Sum of n elements in binary64, in eight lanes; 0 for none.";
    const MIN_DOC: &str = "Least of n elements; for none the greatest value of the type.";
    const MAX_DOC: &str = "Greatest of n elements; for none the least value of the type.";
    const FLOAT_MIN_DOC: &str = "Least of n elements; NaN if one is NaN; plus infinity for none.";
    const FLOAT_MAX_DOC: &str = "Greatest of n elements; NaN if one is NaN; minus infinity for none.";

    macro_rules! array {
        ($name:ident, $prototype:literal, $params:ident, $body:expr, $doc:ident) => {
            helper(stringify!($name), $prototype, $params, Return::Scalar, $body, $doc)
        };
    }
    vec![
        array!(
            ds_filter_u32,
            "__s64 ds_filter_u32(void *out, __u64 out_cap, const __u32 *in, __u64 n, const struct ds_filter *spec)",
            FILTER_4,
            filter::ds_filter::<u32>,
            FILTER_DOC
        ),
        array!(
            ds_filter_i32,
            "__s64 ds_filter_i32(void *out, __u64 out_cap, const __s32 *in, __u64 n, const struct ds_filter *spec)",
            FILTER_4,
            filter::ds_filter::<i32>,
            FILTER_DOC
        ),
        array!(
            ds_filter_u64,
            "__s64 ds_filter_u64(void *out, __u64 out_cap, const __u64 *in, __u64 n, const struct ds_filter *spec)",
            FILTER_8,
            filter::ds_filter::<u64>,
            FILTER_DOC
        ),
        array!(
            ds_filter_i64,
            "__s64 ds_filter_i64(void *out, __u64 out_cap, const __s64 *in, __u64 n, const struct ds_filter *spec)",
            FILTER_8,
            filter::ds_filter::<i64>,
            FILTER_DOC
        ),
        array!(
            ds_filter_f32,
            "__s64 ds_filter_f32(void *out, __u64 out_cap, const ds_f32 *in, __u64 n, const struct ds_filter *spec)",
            FILTER_4,
            filter::ds_filter::<f32>,
            FILTER_DOC
        ),
        array!(
            ds_filter_f64,
            "__s64 ds_filter_f64(void *out, __u64 out_cap, const ds_f64 *in, __u64 n, const struct ds_filter *spec)",
            FILTER_8,
            filter::ds_filter::<f64>,
            FILTER_DOC
        ),
        array!(ds_sum_u32, "__u64 ds_sum_u32(const __u32 *p, __u64 n)", ARRAY_4, fold::ds_sum_u32, SUM_DOC),
        array!(ds_sum_i32, "__s64 ds_sum_i32(const __s32 *p, __u64 n)", ARRAY_4, fold::ds_sum_i32, SUM_DOC),
        array!(ds_sum_u64, "__u64 ds_sum_u64(const __u64 *p, __u64 n)", ARRAY_8, fold::ds_sum_u64, SUM_DOC),
        array!(ds_sum_i64, "__s64 ds_sum_i64(const __s64 *p, __u64 n)", ARRAY_8, fold::ds_sum_i64, SUM_DOC),
        array!(ds_sum_f32, "ds_f64 ds_sum_f32(const ds_f32 *p, __u64 n)", ARRAY_4, fold::ds_sum_f32, FLOAT_SUM_DOC),
        array!(ds_sum_f64, "ds_f64 ds_sum_f64(const ds_f64 *p, __u64 n)", ARRAY_8, fold::ds_sum_f64, FLOAT_SUM_DOC),
        array!(ds_min_u32, "__u64 ds_min_u32(const __u32 *p, __u64 n)", ARRAY_4, fold::ds_min_u32, MIN_DOC),
        array!(ds_min_i32, "__s64 ds_min_i32(const __s32 *p, __u64 n)", ARRAY_4, fold::ds_min_i32, MIN_DOC),
        array!(ds_min_u64, "__u64 ds_min_u64(const __u64 *p, __u64 n)", ARRAY_8, fold::ds_min_u64, MIN_DOC),
        array!(ds_min_i64, "__s64 ds_min_i64(const __s64 *p, __u64 n)", ARRAY_8, fold::ds_min_i64, MIN_DOC),
        array!(ds_min_f32, "ds_f32 ds_min_f32(const ds_f32 *p, __u64 n)", ARRAY_4, fold::ds_min_f32, FLOAT_MIN_DOC),
        array!(ds_min_f64, "ds_f64 ds_min_f64(const ds_f64 *p, __u64 n)", ARRAY_8, fold::ds_min_f64, FLOAT_MIN_DOC),
        array!(ds_max_u32, "__u64 ds_max_u32(const __u32 *p, __u64 n)", ARRAY_4, fold::ds_max_u32, MAX_DOC),
        array!(ds_max_i32, "__s64 ds_max_i32(const __s32 *p, __u64 n)", ARRAY_4, fold::ds_max_i32, MAX_DOC),
        array!(ds_max_u64, "__u64 ds_max_u64(const __u64 *p, __u64 n)", ARRAY_8, fold::ds_max_u64, MAX_DOC),
        array!(ds_max_i64, "__s64 ds_max_i64(const __s64 *p, __u64 n)", ARRAY_8, fold::ds_max_i64, MAX_DOC),
        array!(ds_max_f32, "ds_f32 ds_max_f32(const ds_f32 *p, __u64 n)", ARRAY_4, fold::ds_max_f32, FLOAT_MAX_DOC),
        array!(ds_max_f64, "ds_f64 ds_max_f64(const ds_f64 *p, __u64 n)", ARRAY_8, fold::ds_max_f64, FLOAT_MAX_DOC),
        helper(
            "ds_popcount",
            "__u64 ds_popcount(const void *p, __u64 len)",
            ARRAY_1,
            Return::Scalar,
            fold::ds_popcount,
            "Number of bits that are set in len bytes.",
        ),
    ]
}

fn digest_helpers() -> Vec<Helper> {
    vec![
        helper(
            "ds_crc32c",
            "__u32 ds_crc32c(__u32 seed, const void *p, __u64 len)",
            &[SCALAR, Param::Read { len: 2, unit: 1 }, SCALAR],
            Return::Scalar,
            hash::ds_crc32c,
            "CRC-32C (Castagnoli); seed is the CRC of what came before, 0 at the start.",
        ),
        helper(
            "ds_hash64",
            "__u64 ds_hash64(const void *p, __u64 len, __u64 seed)",
            &[Param::Read { len: 1, unit: 1 }, SCALAR, SCALAR],
            Return::Scalar,
            hash::ds_hash64,
            "XXH3 of 64 bits (XXH3_64bits_withSeed).",
        ),
        helper(
            "ds_decompress",
            "__s64 ds_decompress(void *to, __u64 to_len, const void *from, __u64 from_len, const struct ds_compression *how)",
            &[
                Param::Write { len: 1, unit: 1 },
                SCALAR,
                Param::Read { len: 3, unit: 1 },
                SCALAR,
                Param::Struct(decompress::HOW_LEN_BYTES as u8),
            ],
            Return::Scalar,
            decompress::ds_decompress,
            "Bytes that a block of Snappy or LZ4, or frames of zstd, decompress to; -DS_ENOSPC or -DS_EBADMSG.",
        ),
        Helper {
            effects: HelperEffects { does_io: true, ..PURE },
            ..helper(
                "ds_log",
                "void ds_log(const char *msg, __u64 len)",
                &[Param::Read { len: 1, unit: 1 }, SCALAR],
                Return::Void,
                world::ds_log,
                "Writes a line to the host's log: up to 256 bytes a line, 16 lines a call; further lines are counted.",
            )
        },
        // Nobody sees what it says unless the call has no result.
        helper(
            "ds_fail",
            "__s64 ds_fail(__s64 error, const char *why, __u64 len)",
            &[SCALAR, Param::Read { len: 2, unit: 1 }, SCALAR],
            Return::Scalar,
            world::ds_fail,
            "-error, for the function to return; the message of its failure then has these words, up to 256 bytes.",
        ),
        Helper {
            effects: HelperEffects { uses_clock: true, ..PURE },
            ..helper(
                "ds_now",
                "__u64 ds_now(void)",
                &[],
                Return::Scalar,
                world::ds_now,
                "Nanoseconds of a clock that never goes back.",
            )
        },
    ]
}

fn file_helpers() -> Vec<Helper> {
    let list = vec![
        helper(
            "ds_pread",
            "__s64 ds_pread(__u32 file, void *buf, __u64 len, __u64 offset)",
            &[SCALAR, Param::Write { len: 2, unit: 1 }, SCALAR, SCALAR],
            Return::Scalar,
            file::ds_pread,
            "Reads len bytes at offset: how many, fewer only at the end of the file; or a negative errno.",
        ),
        helper(
            "ds_pwrite",
            "__s64 ds_pwrite(__u32 file, const void *buf, __u64 len, __u64 offset)",
            &[SCALAR, Param::Read { len: 2, unit: 1 }, SCALAR, SCALAR],
            Return::Scalar,
            file::ds_pwrite,
            "Writes len bytes at offset: len; or a negative errno, and then some may be written.",
        ),
        helper(
            "ds_file_len",
            "__s64 ds_file_len(__u32 file)",
            &[SCALAR],
            Return::Scalar,
            file::ds_file_len,
            "Present length of a file in bytes, or a negative errno.",
        ),
        helper(
            "ds_sync",
            "__s64 ds_sync(__u32 file)",
            &[SCALAR],
            Return::Scalar,
            file::ds_sync,
            "What was written to the file survives power loss: 0, or a negative errno.",
        ),
        Helper {
            cost: HelperCost::Linear,
            ..helper(
                "ds_submit_read",
                "__s64 ds_submit_read(__u32 file, void *buf, __u64 len, __u64 offset, __u64 cookie)",
                &[SCALAR, Param::Pointer, SCALAR, SCALAR, SCALAR],
                Return::Scalar,
                file::ds_submit_read,
                "Begins a read, whose bytes are there after a wait: 0, or a negative errno.",
            )
        },
        helper(
            "ds_submit_write",
            "__s64 ds_submit_write(__u32 file, const void *buf, __u64 len, __u64 offset, __u64 cookie)",
            &[SCALAR, Param::Read { len: 2, unit: 1 }, SCALAR, SCALAR, SCALAR],
            Return::Scalar,
            file::ds_submit_write,
            "Begins a write, and takes its bytes: 0, or a negative errno.",
        ),
        helper(
            "ds_wait",
            "__s64 ds_wait(__u64 cookie)",
            &[SCALAR],
            Return::Scalar,
            file::ds_wait,
            "Waits for the oldest access of this cookie: bytes moved, or a negative errno.",
        ),
        helper(
            "ds_wait_any",
            "__s64 ds_wait_any(__u64 *cookies, __s64 *results, __u64 n)",
            &[Param::Write { len: 2, unit: 8 }, Param::Write { len: 2, unit: 8 }, SCALAR],
            Return::Scalar,
            file::ds_wait_any,
            "Waits for one access or more, up to n, and gives their cookies and results: how many, 0 if none is under way.",
        ),
    ];
    let effects = HelperEffects { does_io: true, uses_files: true, ..PURE };
    list.into_iter().map(|helper| Helper { effects, ..helper }).collect()
}

macro_rules! floats {
    ($($op:ident $params:ident $prototype:literal $doc:literal)*) => {
        vec![$(Helper {
            float: Some(FloatOp::$op),
            cost: HelperCost::Inline,
            ..helper(
                name_in($prototype),
                $prototype,
                $params,
                Return::Scalar,
                |_, [a, b, ..]| Ok(eval(FloatOp::$op, a, b)),
                $doc,
            )
        }),*]
    };
}

fn float_helpers() -> Vec<Helper> {
    const ONE: &[Param] = &[SCALAR];
    const TWO: &[Param] = &[SCALAR, SCALAR];
    floats! {
        F64Add TWO "ds_f64 ds_f64_add(ds_f64 a, ds_f64 b)" "a + b"
        F64Sub TWO "ds_f64 ds_f64_sub(ds_f64 a, ds_f64 b)" "a - b"
        F64Mul TWO "ds_f64 ds_f64_mul(ds_f64 a, ds_f64 b)" "a * b"
        F64Div TWO "ds_f64 ds_f64_div(ds_f64 a, ds_f64 b)" "a / b"
        F64Sqrt ONE "ds_f64 ds_f64_sqrt(ds_f64 a)" "Square root."
        F64Neg ONE "ds_f64 ds_f64_neg(ds_f64 a)" "-a"
        F64Abs ONE "ds_f64 ds_f64_abs(ds_f64 a)" "Absolute value."
        F64Min TWO "ds_f64 ds_f64_min(ds_f64 a, ds_f64 b)" "The lesser; NaN if one is NaN; -0 is below +0."
        F64Max TWO "ds_f64 ds_f64_max(ds_f64 a, ds_f64 b)" "The greater; NaN if one is NaN; -0 is below +0."
        F64Floor ONE "ds_f64 ds_f64_floor(ds_f64 a)" "Integer at or below a."
        F64Ceil ONE "ds_f64 ds_f64_ceil(ds_f64 a)" "Integer at or above a."
        F64Trunc ONE "ds_f64 ds_f64_trunc(ds_f64 a)" "a without its fraction."
        F64Round ONE "ds_f64 ds_f64_round(ds_f64 a)" "Nearest integer, ties to even."
        F64Eq TWO "__u64 ds_f64_eq(ds_f64 a, ds_f64 b)" "1 when equal, else 0, also with NaN."
        F64Lt TWO "__u64 ds_f64_lt(ds_f64 a, ds_f64 b)" "1 when a < b, else 0, also with NaN."
        F64Le TWO "__u64 ds_f64_le(ds_f64 a, ds_f64 b)" "1 when a <= b, else 0, also with NaN."
        F64FromI64 ONE "ds_f64 ds_f64_from_i64(__s64 a)" "Nearest value, ties to even."
        F64FromU64 ONE "ds_f64 ds_f64_from_u64(__u64 a)" "Nearest value, ties to even."
        F64ToI64 ONE "__s64 ds_f64_to_i64(ds_f64 a)" "Truncates and saturates; NaN gives 0."
        F64ToU64 ONE "__u64 ds_f64_to_u64(ds_f64 a)" "Truncates and saturates; NaN gives 0."
        F64FromF32 ONE "ds_f64 ds_f64_from_f32(ds_f32 a)" "The same value."
        F32Add TWO "ds_f32 ds_f32_add(ds_f32 a, ds_f32 b)" "a + b"
        F32Sub TWO "ds_f32 ds_f32_sub(ds_f32 a, ds_f32 b)" "a - b"
        F32Mul TWO "ds_f32 ds_f32_mul(ds_f32 a, ds_f32 b)" "a * b"
        F32Div TWO "ds_f32 ds_f32_div(ds_f32 a, ds_f32 b)" "a / b"
        F32Sqrt ONE "ds_f32 ds_f32_sqrt(ds_f32 a)" "Square root."
        F32Neg ONE "ds_f32 ds_f32_neg(ds_f32 a)" "-a"
        F32Abs ONE "ds_f32 ds_f32_abs(ds_f32 a)" "Absolute value."
        F32Min TWO "ds_f32 ds_f32_min(ds_f32 a, ds_f32 b)" "The lesser; NaN if one is NaN; -0 is below +0."
        F32Max TWO "ds_f32 ds_f32_max(ds_f32 a, ds_f32 b)" "The greater; NaN if one is NaN; -0 is below +0."
        F32Floor ONE "ds_f32 ds_f32_floor(ds_f32 a)" "Integer at or below a."
        F32Ceil ONE "ds_f32 ds_f32_ceil(ds_f32 a)" "Integer at or above a."
        F32Trunc ONE "ds_f32 ds_f32_trunc(ds_f32 a)" "a without its fraction."
        F32Round ONE "ds_f32 ds_f32_round(ds_f32 a)" "Nearest integer, ties to even."
        F32Eq TWO "__u64 ds_f32_eq(ds_f32 a, ds_f32 b)" "1 when equal, else 0, also with NaN."
        F32Lt TWO "__u64 ds_f32_lt(ds_f32 a, ds_f32 b)" "1 when a < b, else 0, also with NaN."
        F32Le TWO "__u64 ds_f32_le(ds_f32 a, ds_f32 b)" "1 when a <= b, else 0, also with NaN."
        F32FromI64 ONE "ds_f32 ds_f32_from_i64(__s64 a)" "Nearest value, ties to even."
        F32FromU64 ONE "ds_f32 ds_f32_from_u64(__u64 a)" "Nearest value, ties to even."
        F32ToI64 ONE "__s64 ds_f32_to_i64(ds_f32 a)" "Truncates and saturates; NaN gives 0."
        F32ToU64 ONE "__u64 ds_f32_to_u64(ds_f32 a)" "Truncates and saturates; NaN gives 0."
        F32FromF64 ONE "ds_f32 ds_f32_from_f64(ds_f64 a)" "Nearest value, ties to even."
    }
}

/// The function's name in a prototype: the text between the last space before the parenthesis
/// and the parenthesis.
fn name_in(prototype: &'static str) -> &'static str {
    let head = prototype.split('(').next().unwrap_or(prototype);
    head.rsplit([' ', '*']).next().unwrap_or(head)
}
