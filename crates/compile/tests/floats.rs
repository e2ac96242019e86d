//! `double` and `float` in plain C: one answer in every tier, to the last bit, and the stated one where C says nothing.
#![cfg(feature = "llvm-tests")]
#![allow(clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons, reason = "NaN is what they are about")]

mod run;

use run::{Compiled, compiled};

/// Each operation in C over `a` and `b`, and what it is.
type Operation<T> = (&'static str, fn(T, T) -> u64);

fn bits(value: f64) -> u64 {
    if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() }
}

fn bits32(value: f32) -> u64 {
    u64::from(if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() })
}

const DOUBLES: [Operation<f64>; 44] = [
    ("D(a + b)", |a, b| bits(a + b)),
    ("D(a - b)", |a, b| bits(a - b)),
    ("D(a * b)", |a, b| bits(a * b)),
    ("D(a / b)", |a, b| bits(a / b)),
    // Neither fused nor reordered.
    ("D(a * b + a)", |a, b| bits(a * b + a)),
    ("D(a + b - a)", |a, b| bits(a + b - a)),
    // Only the sign changes, of a NaN as well.
    ("D(-a)", |a, _| (-a).to_bits()),
    ("D(fabs(a))", |a, _| a.abs().to_bits()),
    ("D(copysign(a, b))", |a, b| a.copysign(b).to_bits()),
    ("D(sqrt(a))", |a, _| bits(a.sqrt())),
    ("D(floor(a))", |a, _| bits(a.floor())),
    ("D(ceil(a))", |a, _| bits(a.ceil())),
    ("D(trunc(a))", |a, _| bits(a.trunc())),
    ("D(round(a))", |a, _| bits(a.round())),
    ("D(rint(a))", |a, _| bits(a.round_ties_even())),
    ("D(fmin(a, b))", |a, b| if a == b { u64::MAX } else { bits(a.min(b)) }),
    ("D(fmax(a, b))", |a, b| if a == b { u64::MAX } else { bits(a.max(b)) }),
    ("D(a < b ? a : b)", |a, b| if a < b { a.to_bits() } else { b.to_bits() }),
    ("a < b", |a, b| u64::from(a < b)),
    ("a <= b", |a, b| u64::from(a <= b)),
    ("a > b", |a, b| u64::from(a > b)),
    ("a >= b", |a, b| u64::from(a >= b)),
    ("a == b", |a, b| u64::from(a == b)),
    ("a != b", |a, b| u64::from(a != b)),
    ("!(a < b)", |a, b| u64::from(!(a < b))),
    ("!(a >= b)", |a, b| u64::from(!(a >= b))),
    ("isnan(a)", |a, _| u64::from(a.is_nan())),
    ("isinf(a)", |a, _| u64::from(a.is_infinite())),
    ("isfinite(a)", |a, _| u64::from(a.is_finite())),
    ("a < b || a > b", |a, b| u64::from(a < b || a > b)),
    ("a > 0.5", |a, _| u64::from(a > 0.5)),
    // Out of range: 64 bits saturate, NaN is 0, and narrower integers are the low bits of that.
    ("(__s64)a", |a, _| (a as i64) as u64),
    ("(__u64)a", |a, _| a as u64),
    ("(__u64)(__s64)(int)a", |a, _| i64::from(a as i64 as i32) as u64),
    ("(__u64)(unsigned)a", |a, _| u64::from(a as i64 as u32)),
    ("(__u64)(__s64)(short)a", |a, _| i64::from(a as i64 as i16) as u64),
    ("(__u64)(__u8)a", |a, _| u64::from(a as i64 as u8)),
    ("D((double)(__s64)B(a))", |a, _| bits(a.to_bits() as i64 as f64)),
    ("D((double)B(a))", |a, _| bits(a.to_bits() as f64)),
    ("D((double)(int)B(a))", |a, _| bits(f64::from(a.to_bits() as i32))),
    ("D((double)(unsigned)B(a))", |a, _| bits(f64::from(a.to_bits() as u32))),
    ("F((float)a)", |a, _| bits32(a as f32)),
    ("F((float)(__s64)B(a))", |a, _| bits32(a.to_bits() as i64 as f32)),
    ("F((float)B(a))", |a, _| bits32(a.to_bits() as f32)),
];

const FLOATS: [Operation<f32>; 22] = [
    ("F(a + b)", |a, b| bits32(a + b)),
    ("F(a - b)", |a, b| bits32(a - b)),
    ("F(a * b)", |a, b| bits32(a * b)),
    ("F(a / b)", |a, b| bits32(a / b)),
    ("F(-a)", |a, _| u64::from((-a).to_bits())),
    ("F(fabsf(a))", |a, _| u64::from(a.abs().to_bits())),
    ("F(copysignf(a, b))", |a, b| u64::from(a.copysign(b).to_bits())),
    ("F(sqrtf(a))", |a, _| bits32(a.sqrt())),
    ("F(floorf(a))", |a, _| bits32(a.floor())),
    ("F(ceilf(a))", |a, _| bits32(a.ceil())),
    ("F(truncf(a))", |a, _| bits32(a.trunc())),
    ("F(roundf(a))", |a, _| bits32(a.round())),
    ("F(rintf(a))", |a, _| bits32(a.round_ties_even())),
    ("D((double)a)", |a, _| bits(f64::from(a))),
    ("a < b", |a, b| u64::from(a < b)),
    ("a >= b", |a, b| u64::from(a >= b)),
    ("a == b", |a, b| u64::from(a == b)),
    ("a != b", |a, b| u64::from(a != b)),
    ("!(a <= b)", |a, b| u64::from(!(a <= b))),
    ("(__s64)a", |a, _| (a as i64) as u64),
    ("(__u64)a", |a, _| a as u64),
    ("(__u64)(__s64)(int)a", |a, _| i64::from(a as i64 as i32) as u64),
];

/// A function that writes every operation's bits for every pair of its input.
fn function<T>(ty: &str, operations: &[Operation<T>]) -> Compiled {
    let mut body = String::new();
    for (index, (c, _)) in operations.iter().enumerate() {
        body += &format!("        out[{index}] = {c};\n");
    }
    let count = operations.len();
    compiled(&format!(
        "#include <diskside/math.h>\n\
         static inline __u64 D(double x) {{ union {{ double d; __u64 u; }} v = {{x}}; return v.u; }}\n\
         static inline __u64 F(float x) {{ union {{ float f; __u32 u; }} v = {{x}}; return v.u; }}\n\
         #define B D\n\
         SEC(\"read/f\")\n\
         __s64 f(__u64 *out, const {ty} *in, __u64 in_len, const void *args, const struct ds_call *call) {{\n\
         \x20   for (__u64 i = 0; i < in_len / sizeof(*in) / 2; i++, out += {count}) {{\n\
         \x20       {ty} a = in[2 * i], b = in[2 * i + 1];\n{body}    }}\n\
         \x20   return in_len / sizeof(*in) / 2 * {count} * 8;\n}}\n"
    ))
}

/// Numbers where rounding, ranges and signs turn, and some others.
fn doubles() -> Vec<f64> {
    let mut values = vec![
        0.0,
        1.0,
        0.5,
        0.5f64.next_down(),
        1.5,
        2.5,
        0.1,
        1e300,
        1e-300,
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        f64::from_bits(0xf_ffff_ffff_ffff),
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
        f64::from_bits(0x7ff0_0000_0000_0001),
        f64::from_bits(0x7ff8_dead_beef_0000),
        2f64.powi(31),
        2f64.powi(31) - 1.0,
        2f64.powi(32),
        2f64.powi(52) + 1.0,
        2f64.powi(62),
        2f64.powi(63),
        2f64.powi(63).next_down(),
        2f64.powi(64),
        2f64.powi(64).next_down(),
        16_777_217.0,
        3.4e38,
        3.5e38,
        1e-45,
        300.7,
    ];
    values.extend(values.clone().into_iter().map(|x| -x));
    values
}

fn pairs<T: Copy>(values: &[T]) -> Vec<(T, T)> {
    values.iter().flat_map(|a| values.iter().map(|b| (*a, *b))).collect()
}

fn check<T: Copy + std::fmt::Debug>(operations: &[Operation<T>], pairs: &[(T, T)], outputs: [Vec<u8>; 3]) {
    for (tier, output) in run::TIERS.iter().zip(outputs) {
        let words: Vec<u64> = output.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        assert_eq!(words.len(), pairs.len() * operations.len(), "{tier}");
        for ((a, b), got) in pairs.iter().zip(words.chunks(operations.len())) {
            for ((c, expected), got) in operations.iter().zip(got) {
                let expected = expected(*a, *b);
                // Of equal operands fmin and fmax may give either: 0 and -0.
                assert!(
                    *got == expected || expected == u64::MAX && c.starts_with("D(fm"),
                    "{tier}: {c} of {a:?} and {b:?}: {got:#x}, not {expected:#x}"
                );
            }
        }
    }
}

#[test]
fn doubles_are_the_same_in_every_tier_and_those_of_ieee_754() {
    let pairs = pairs(&doubles());
    let input: Vec<u8> = pairs.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat()).collect();
    let outputs = function("double", &DOUBLES).run(&input, pairs.len() * DOUBLES.len() * 8);
    check(&DOUBLES, &pairs, outputs);
}

#[test]
fn floats_are_the_same_in_every_tier_and_those_of_ieee_754() {
    let mut values: Vec<f32> = doubles().into_iter().map(|x| x as f32).collect();
    values.extend([f32::MIN_POSITIVE, f32::from_bits(1), f32::MAX, 0.5f32.next_down(), -f32::from_bits(0x7f_ffff)]);
    let pairs = pairs(&values);
    let input: Vec<u8> = pairs.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat()).collect();
    let outputs = function("float", &FLOATS).run(&input, pairs.len() * FLOATS.len() * 8);
    check(&FLOATS, &pairs, outputs);
}

/// `out[0] = in[0] * in[1]` of doubles said that `__muldf3` is not supported; a copy of 3,200 bytes, a local array of 2,048
/// and a signed division were refused as well. All are plain C, and compile together.
#[test]
fn what_a_c_author_writes_compiles_and_gives_cs_answers() {
    let function = compiled(
        "#include \"diskside.h\"\n\
         struct big { double v[400]; };\n\
         struct result { double sum; __s64 quotient; __u64 counted; double last; struct big copy; };\n\
         static __attribute__((noinline)) double square(double x, int negative) { return negative ? -(x * x) : x * x; }\n\
         SEC(\"read/f\")\n\
         __s64 f(struct result *out, const struct big *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
             __u64 counts[256] = {0};\n\
             struct big local = in[0];\n\
             for (__u64 i = 0; i < in_len; i++)\n\
                 counts[((const __u8 *)in)[i]]++;\n\
             for (int i = 0; i < 400; i++)\n\
                 out->sum += square(local.v[i], i & 1);\n\
             out->quotient = (__s64)in->v[1] / -7 + (__s64)in->v[2] % -5;\n\
             out->counted = counts[0];\n\
             out->last = local.v[in_len % 400];\n\
             out->copy = local;\n\
             __builtin_memset(&out->copy.v[200], 0, in_len % 512);\n\
             return sizeof(*out);\n}\n",
    );
    let values: Vec<f64> = (0..400).map(|i| f64::from(i) * 1.25 - 100.0).collect();
    let input: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut expected = Vec::new();
    let sum = values.iter().enumerate().fold(0.0, |sum, (i, x)| sum + if i & 1 == 1 { -(x * x) } else { x * x });
    expected.extend(sum.to_le_bytes());
    expected.extend((values[1] as i64 / -7 + values[2] as i64 % -5).to_le_bytes());
    expected.extend((input.iter().filter(|byte| **byte == 0).count() as u64).to_le_bytes());
    expected.extend(values[3200 % 400].to_le_bytes());
    let mut copy = input.clone();
    copy[1600..1600 + 3200 % 512].fill(0);
    expected.extend(copy);
    for (tier, output) in run::TIERS.iter().zip(function.run(&input, 8192)) {
        assert!(output == expected, "{tier} differs");
    }
}
