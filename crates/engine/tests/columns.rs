//! Functions over columns: what they are given, what becomes of it, and what stops them.

use diskside_engine::columns::{ColumnCalls, ColumnsError, Outputs, Rows};
use diskside_engine::{Engine, Function, LoadError, TierChoice};
use diskside_sbpf::activation::Tier;
use diskside_sbpf::helpers::standard;
use proptest::prelude::*;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const TIERS: [TierChoice; 2] = [TierChoice::Only(Tier::Interpreter), TierChoice::Only(Tier::Cranelift)];

fn engine() -> Engine {
    Engine::new(standard())
}

fn compile(source: &str) -> Vec<u8> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi/include");
    let clang = ["clang-19", "clang"].into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    let mut child = Command::new(clang.expect("clang is on the path: install the package `clang`"))
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-I"])
        .arg(include)
        .args(["-x", "c", "-c", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let compiled = child.wait_with_output().unwrap();
    assert!(compiled.status.success(), "{source}");
    compiled.stdout
}

/// A function of one member, which is declared so.
fn with_member(declared: &str, note: &str) -> String {
    format!(
        "#include \"diskside.h\"\n{note}\nstruct items {{ {declared} }};\nstruct out {{ __s64 a; }};\n\
         SEC(\"columns/one\") __s64 one(struct out *out, const struct items *in, __u64 rows, const void *args, \
         const struct ds_call *call) {{ return 0; }}\n"
    )
}

fn load(source: &str, name: Option<&str>) -> Result<Function, LoadError> {
    engine().load_columns(&compile(source), name)
}

fn bytes<T: zerocopy::IntoBytes + zerocopy::Immutable>(values: &[T]) -> &[u8] {
    zerocopy::IntoBytes::as_bytes(values)
}

/// Texts behind one another, and where each begins.
fn texts(of: &[&str]) -> (Vec<u32>, String) {
    let mut offsets = vec![0];
    of.iter().for_each(|text| offsets.push(offsets.last().unwrap() + text.len() as u32));
    (offsets, of.concat())
}

#[derive(Clone, Debug)]
struct Row {
    price: i64,
    quantity: Option<i64>,
    mode: usize,
}

const MODES: [&str; 4] = ["RAIL", "AIR", "AI", "AIRY"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sums_are_those_of_the_rows_in_every_tier_however_they_are_cut(
        rows in proptest::collection::vec((-1_000_i64..1_000, proptest::option::of(-50_i64..50), 0..MODES.len()), 0..200),
        cut in 1_usize..70,
        below in -50_i64..50,
    ) {
        let rows: Vec<Row> = rows.into_iter().map(|(price, quantity, mode)| Row { price, quantity, mode }).collect();
        let wanted: Vec<(i64, i64)> = rows.iter().filter(|row| row.mode == 1)
            .filter_map(|row| row.quantity.filter(|quantity| *quantity < below).map(|quantity| (row.price, quantity)))
            .collect();
        let total: i64 = wanted.iter().map(|(price, quantity)| price * quantity).sum();
        static OBJECT: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let object = OBJECT.get_or_init(|| compile(include_str!("columns/sums.bpf.c")));
        let engine = engine();
        let function = engine.load_columns(object, None).unwrap();
        for tier in TIERS {
            let mut calls = ColumnCalls::new(&engine, &function, below.to_le_bytes().to_vec(), tier).unwrap();
            prop_assert_eq!(calls.outputs(), Outputs::Folded);
            for rows in rows.chunks(cut) {
                let price: Vec<i64> = rows.iter().map(|row| row.price).collect();
                // The value behind a NULL is anything.
                let quantity: Vec<i64> = rows.iter().map(|row| row.quantity.unwrap_or(i64::MIN)).collect();
                let valid: Vec<u8> = rows.iter().map(|row| row.quantity.is_some().into()).collect();
                let codes: Vec<u32> = rows.iter().map(|row| row.mode as u32).collect();
                let (offsets, values) = texts(&MODES);
                let buffers =
                    vec![bytes(&price), bytes(&quantity), &valid[..], bytes(&codes), bytes(&offsets), values.as_bytes()];
                calls.add(&Rows { count: rows.len() as u64, buffers, dictionary_lens: vec![4] }).unwrap();
            }
            let folded = if rows.is_empty() { Vec::new() } else { bytes(&[total, wanted.len() as i64]).to_vec() };
            prop_assert_eq!(calls.folded(), &folded[..]);
        }
    }
}

fn call_hostile(name: &str, tier: TierChoice) -> Result<Vec<u8>, ColumnsError> {
    static OBJECT: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let object = OBJECT.get_or_init(|| compile(include_str!("columns/hostile.bpf.c")));
    let engine = engine();
    let function = engine.load_columns(object, Some(name)).unwrap();
    let mut calls = ColumnCalls::new(&engine, &function, Vec::new(), tier)?;
    let (price, (offsets, names)) = ([7_i64, 8], texts(&["a", "bc"]));
    let buffers = vec![bytes(&price), bytes(&price), bytes(&offsets), names.as_bytes()];
    calls.call(&Rows { count: 2, buffers, dictionary_lens: Vec::new() }).map(<[u8]>::to_vec)
}

#[test]
fn an_access_outside_its_buffer_stops_it_and_names_the_column() {
    for tier in TIERS {
        assert_eq!(call_hostile("good", tier).unwrap(), (7_i64 + 64).to_le_bytes());
        let told = |name| call_hostile(name, tier).unwrap_err().to_string();
        let overrun = told("overrun");
        assert!(overrun.starts_with("columns/overrun was stopped at instruction "), "{overrun}");
        let what = "out-of-bounds read of 8 bytes of column `l_tax` at offset 16, which is 16 bytes long";
        assert!(overrun.ends_with(what) && overrun.contains("<stdin>:10)"), "{overrun}");
        assert!(
            told("below").ends_with("read of 1 bytes of column `name` at offset -1, which is 3 bytes long"),
            "{}",
            told("below")
        );
        assert!(told("endless").ends_with("the budget of 16777216 loop iterations is used up"), "{}", told("endless"));
        let too_long =
            "columns/too_long returned 65, but there is room for 64 bytes: ask for more with DS_OUTPUT in its source";
        assert_eq!(told("too_long"), too_long);
        assert_eq!(told("fails"), "columns/fails returned -22: a price is negative");
        assert!(told("clock").contains("uses a clock, a log or a state"), "{}", told("clock"));
    }
}

#[test]
fn columns_and_the_pointers_to_them_are_read_only() {
    let object = compile(include_str!("columns/hostile.bpf.c"));
    for (name, what) in [
        ("writes", "write to the range 0 region, which is read-only"),
        ("moves", "write to the pointer at offset 64 of the context"),
    ] {
        let refused = engine().load_columns(&object, Some(name)).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused}");
    }
}

#[test]
fn a_structure_that_no_table_has_is_refused_with_its_member() {
    for (declared, what) in [
        ("const void *a;", "column `a`: it points to no number"),
        ("__s64 a;", "column `a`: a column is a pointer to numbers, a struct ds_utf8 or a struct ds_dict"),
        ("union { const __s64 *a; const __s64 *b; };", "a column is a pointer"),
        (
            "const __s32 *a__valid;",
            "column `a__valid`: what says which values are there, NAME__valid, is a const __u8 *",
        ),
        ("struct ds_utf8 a DS_DECIMAL(2);", "column `a`: the digits of decimals are a const __s64 *"),
        ("const __s64 *a DS_DECIMAL(19);", "column `a`: a decimal has 0 to 18 digits behind the point"),
        ("", "its second parameter points to no structure with columns"),
        ("const char *a; char gap[5000];", "the length in bytes of the structure of a columns program"),
    ] {
        let refused = load(&with_member(declared, "DS_SELECT;"), None).unwrap_err().to_string();
        assert!(refused.contains(what), "{declared}: {refused}");
    }
    let members = |count| (0..count).map(|at| format!("const __s64 *c{at};")).collect::<String>();
    load(&with_member(&members(64), ""), None).unwrap();
    let refused = load(&with_member(&members(65), ""), None).unwrap_err().to_string();
    assert!(refused.contains("the number of buffers of a columns program"), "{refused}");
}

#[test]
fn a_function_says_what_becomes_of_its_outputs() {
    for (note, what) in [
        ("", "does not say what becomes of its outputs"),
        ("DS_SELECT; DS_CONCATENATE;", "says two things of its outputs"),
    ] {
        let function = load(&with_member("const __s64 *a;", note), None).unwrap();
        let error = ColumnCalls::new(&engine(), &function, Vec::new(), TierChoice::Best).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let function = load(&with_member("const __s64 *a;", "DS_SELECT;"), None).unwrap();
    let mut calls = ColumnCalls::new(&engine(), &function, Vec::new(), TierChoice::Best).unwrap();
    let rows = Rows { count: 2, buffers: vec![&[0; 16]], dictionary_lens: Vec::new() };
    let error = calls.call(&rows).unwrap_err().to_string();
    assert!(error.contains("returned 0, but it selects rows, of which there are 2"), "{error}");
    let read = "#include \"diskside.h\"\nSEC(\"read/r\") __s64 r(void *o, const void *i, __u64 n) { return 0; }\n";
    let error = load(read, None).unwrap_err().to_string();
    assert!(error.contains("`read/r` is of kind `read`, and a scan runs functions over columns"), "{error}");
}

/// Pointers that were loaded from a structure were checked at each access: eight times as slow.
#[test]
fn loops_over_columns_check_nothing_at_each_access() {
    let source = "#include \"diskside.h\"\nstruct items { const __s64 *a, *b; };\nstruct out { __s64 a; };\nDS_CONCATENATE;\n\
        SEC(\"columns/product\") __s64 product(struct out *out, const struct items *in, __u64 rows, const void *args, \
        const struct ds_call *call) { const __s64 *a = in->a, *b = in->b; __s64 sum = 0;\n\
        for (__u64 i = 0; i < rows; i++) sum += a[i] * b[i];\n out->a = sum; return 8; }\n";
    let function = load(source, None).unwrap();
    let loops = &function.main().optimised().functions[0].loops;
    assert!(!loops.is_empty() && loops.iter().all(|one| one.hoisted && one.unchecked == one.accesses), "{loops:?}");
}
