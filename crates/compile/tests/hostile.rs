//! Sources and bitcode that cannot become an object: each has an answer, and the child that reads them can do no harm.
#![cfg(feature = "llvm-tests")]

mod run;

use diskside_functions::clang;
use diskside_sbpf::helpers::standard;
use diskside_sbpf::image::Image;
use diskside_sbpf::verify::verify;
use diskside_sbpf_llvm::{ChildError, Compiler};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn child() -> Compiler {
    Compiler::find().expect("diskside-llvm is beside the tests")
}

/// What is said of a function with this body.
fn refused(before: &str, body: &str) -> String {
    let source = format!(
        "#include <diskside/math.h>\n{before}\nSEC(\"read/f\")\n__s64 f(double *out, const double *in, __u64 in_len, \
         const void *args, const struct ds_call *call) {{\n{body}\nreturn 8; }}\n"
    );
    run::object(&source).expect_err("there is no such thing")
}

#[test]
fn what_cannot_be_lowered_is_said_with_its_line() {
    for (before, body, line, expected) in [
        (
            "",
            "out[0] = __builtin_fmod(in[0], in[1]);",
            5,
            "there is no remainder of floating-point numbers (fmod): write x - y * trunc(x / y), which rounds twice",
        ),
        ("", "out[0] = __builtin_fma(in[0], in[1], in[2]);", 5, "there is no `fma` of floating-point numbers"),
        ("", "out[0] = __builtin_exp2(in[0]);", 5, "there is no `exp2` of floating-point numbers"),
    ] {
        let said = refused(before, body);
        let (place, what) = said.split_once(": error: ").expect("a place");
        assert_eq!(what, expected, "{body}");
        assert!(place.starts_with(&format!("f.bpf.c:{line}:")), "{place}");
    }
}

#[test]
fn names_of_helpers_are_not_for_functions_of_ones_own() {
    let source = "typedef unsigned long long u64;\n__attribute__((noinline)) u64 ds_f64_mul(u64 a, u64 b) { return a ^ b; }\n\
                  __attribute__((section(\"read/f\"), used)) long f(double *out, double *in, u64 n) { out[0] = in[0] * in[1]; \
                  out[1] = ds_f64_mul(n, 3); return 8; }\n";
    let said = run::object(source).expect_err("the name is taken");
    assert_eq!(said, "f.bpf.c:3:98: error: `ds_f64_mul` is a function of diskside.h; name yours otherwise");
}

/// Bitcode as clang writes it.
fn bitcode() -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let source = dir.path().join("f.bpf.c");
    let text = "struct big { double v[400]; };\n\
                __attribute__((section(\"read/f\"), used)) long f(struct big *out, struct big *in, unsigned long n) {\n\
                double sum = 0; for (unsigned long i = 0; i < n; i++) sum += in->v[i] * (float)i; *out = *in;\n\
                out->v[0] = sum > 3 ? (double)(int)sum : __builtin_round(sum); return 8; }\n";
    std::fs::write(&source, text).expect("written");
    let made = Command::new(clang::find_newest().expect("clang is here"))
        .args(clang::OPTIONS)
        .args(["-emit-llvm", "-o"])
        .arg(dir.path().join("f.bc"))
        .arg(&source)
        .status();
    assert!(made.expect("clang runs").success());
    std::fs::read(dir.path().join("f.bc")).expect("it is written")
}

/// Any object that comes of it is one that the loader takes or refuses.
fn load(object: &[u8]) {
    let helpers = standard();
    if let Ok(image) = Image::from_elf(object, &helpers).map(Arc::new) {
        for index in 0..image.programs.len() {
            let _ = verify(&image, index, &helpers);
        }
    }
}

#[test]
fn damaged_bitcode_has_an_answer_and_does_no_harm() {
    let whole = bitcode();
    load(&child().lower(&whole, 512).expect("it is whole"));
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    let child = child().with_time_max(Duration::from_secs(60));
    let mut taken = 0;
    for turn in 0..150 {
        let mut damaged = whole.clone();
        if turn % 5 == 0 {
            damaged.truncate(random(whole.len()));
        }
        for _ in 0..1 + random(4) {
            if !damaged.is_empty() {
                let at = random(damaged.len());
                damaged[at] ^= 1 << random(8);
            }
        }
        match child.lower(&damaged, 512) {
            Ok(object) => {
                taken += 1;
                load(&object);
            }
            Err(ChildError::Refused(_) | ChildError::Crashed { .. } | ChildError::Garbage(_) | ChildError::Pipe(_)) => {
            }
            Err(error) => panic!("turn {turn}: {error}"),
        }
    }
    assert!(taken > 0, "nothing that was damaged compiled: the damage is all of one kind");
}

#[test]
fn modules_that_are_not_for_ebpf_or_hold_what_it_has_not_are_refused() {
    let lower = |text: &str| match child().lower(text.as_bytes(), 512) {
        Err(ChildError::Refused(said)) => said,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(lower("target triple = \"x86_64-linux-gnu\""), "the module is not for eBPF: compile with -target bpf");
    let function =
        |body: &str| format!("target triple = \"bpf\"\ndefine i64 @f(ptr %p, i64 %n) {{\n{body}\nret i64 0 }}");
    for (body, expected) in [
        (
            "%a = load fp128, ptr %p\n%b = fadd fp128 %a, %a\nstore fp128 %b, ptr %p",
            "error: of floating-point types there are float and double\n",
        ),
        (
            "%a = sext i64 %n to i128\n%b = sitofp i128 %a to double\nstore double %b, ptr %p",
            "error: integers of more than 64 bits do not become floating-point numbers\n",
        ),
        (
            "%a = atomicrmw fadd ptr %p, double 1.0 seq_cst",
            "error: there are no atomic operations on floating-point numbers\n",
        ),
    ] {
        assert_eq!(lower(&function(body)), expected);
    }
    assert!(lower("").contains("the module is not for eBPF"));
    assert!(lower("define nonsense").contains("expected type"));
}

/// A program cannot keep the child from its limits of time and memory.
#[test]
fn a_module_that_takes_long_is_given_up() {
    let mut text = String::from("target triple = \"bpf\"\ndefine double @f(double %x0) {\n");
    for i in 0..200_000 {
        text += &format!("%x{} = fadd double %x{i}, %x{i}\n", i + 1);
    }
    text += "ret double %x200000 }\n";
    let started = Instant::now();
    let _ = child().with_time_max(Duration::from_secs(5)).lower(text.as_bytes(), 512);
    assert!(started.elapsed() < Duration::from_secs(120), "it was waited for");
}
