//! Objects as real compilers write them: every clang on the path, every CPU version it knows.

use diskside_sbpf::activation::{Activation, ActivationOptions, Limits, Mappings, Program};
use diskside_sbpf::helpers::standard;
use diskside_sbpf::image::{ArgField, ArgType, Image, ImageError, Kind, LoadOptions, Split};
use diskside_sbpf::region::RegionId;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A compiler on the path.
#[derive(Clone)]
struct Clang {
    command: String,
    version: u32,
}

/// How to compile.
#[derive(Clone)]
struct Build {
    clang: Clang,
    cpu: &'static str,
    flags: Vec<&'static str>,
}

/// Every clang from 14 on; at least one must be there.
fn compilers() -> Vec<Clang> {
    let mut found: Vec<Clang> = Vec::new();
    let names = (14..=22).map(|v| format!("clang-{v}"));
    for command in names.chain(["clang".to_owned()]) {
        let Ok(out) = Command::new(&command).arg("--version").output() else {
            continue;
        };
        let text = String::from_utf8_lossy(&out.stdout);
        let version = text.split("version ").nth(1).and_then(|t| t.split('.').next()).and_then(|t| t.parse().ok());
        match version {
            Some(version) if version >= 14 && found.iter().all(|c| c.version != version) => {
                found.push(Clang { command, version });
            }
            _ => {}
        }
    }
    assert!(!found.is_empty(), "no clang of version 14 or later is on the path; install the package `clang`");
    let names: Vec<_> = found.iter().map(|c| c.command.as_str()).collect();
    println!("compilers: {}", names.join(", "));
    found
}

/// Every compiler with every CPU version that it knows, optimised and with debug information.
fn matrix() -> Vec<Build> {
    let mut builds = Vec::new();
    for clang in compilers() {
        for cpu in ["v1", "v2", "v3", "v4"] {
            if cpu == "v4" && clang.version < 18 {
                continue;
            }
            builds.push(Build { clang: clang.clone(), cpu, flags: vec!["-O2", "-g"] });
        }
    }
    let newest = builds.last().expect("at least one").clone();
    for flags in [vec!["-O1"], vec!["-O1", "-g"], vec!["-O3"], vec!["-Os", "-g"]] {
        builds.push(Build { flags, ..newest.clone() });
    }
    builds
}

/// A build of the newest compiler.
fn newest() -> Build {
    let clang = compilers().into_iter().max_by_key(|c| c.version);
    Build { clang: clang.expect("at least one"), cpu: "v3", flags: vec!["-O2", "-g"] }
}

impl Build {
    fn compile(&self, source: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects");
        let out = Command::new(&self.clang.command)
            .args(["-target", "bpf", "-Wall", "-fno-stack-protector"])
            .arg(format!("-mcpu={}", self.cpu))
            .args(&self.flags)
            .arg("-c")
            .arg(folder.join(source))
            .args(["-o", "-"])
            .output()
            .expect("clang runs");
        assert!(out.status.success(), "{self} cannot compile {source}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }

    fn load(&self, source: &str) -> Image {
        Image::from_elf(&self.compile(source), &standard()).unwrap_or_else(|e| panic!("{self}: {source}: {e}"))
    }

    fn has_debug_info(&self) -> bool {
        self.flags.contains(&"-g")
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.clang.command, self.cpu, self.flags.join(" "))
    }
}

/// Verifies and runs a program in the interpreter, with `len` bytes of input.
fn run(build: &Build, image: Image, name: &str, mappings: Mappings<'_>, scalars: &[u64]) -> u64 {
    let helpers = Arc::new(standard());
    let index = image.program(name).expect("the program");
    let program = Program::new(&Arc::new(image), index, &helpers).unwrap_or_else(|findings| {
        let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
        panic!("{build}: {name}: {}", lines.join("; "));
    });
    let program = Arc::new(program);
    let code = Arc::new(program.interpreter());
    let mut activation = Activation::new(&program, code, ActivationOptions::default());
    let args = program.entry_registers(scalars);
    activation
        .call(&mappings, args, &Limits::for_bytes(0, 0))
        .unwrap_or_else(|stopped| panic!("{build}: {name}: {stopped}"))
        .value
}

/// What `link.bpf.c` writes.
fn expected_of_link(input: &[u8]) -> [u64; 14] {
    let n = input.len() as u64;
    let mut counter = 7;
    let mut out = [0; 14];
    out[0] = 10 + (n & 7);
    out[1] = counter;
    // 19 & 3 is 3, and zeros[1] stays 0.
    out[2] = n;
    out[3] = u64::from(["alpha", "beta"][(n & 1) as usize].as_bytes()[(n & 3) as usize]);
    out[4] = u64::from(["gamma", "delta"][(n & 1) as usize].as_bytes()[1]);
    out[5] = 200;
    counter += 5;
    out[6] = 2 * n + 5;
    counter += 3;
    out[7] = (2 * n + 3) ^ 0x55;
    counter += 9;
    out[8] = u64::from(input[(n & 3) as usize]) + 2 * n + 9;
    out[9] = input.iter().map(|b| u64::from(b.count_ones())).sum();
    out[10] = 77;
    out[11] = 1;
    out[12] = counter;
    out[13] = match input[0] & 7 {
        0 => 5,
        1 => n * 3,
        2 => n ^ 9,
        3 => counter,
        4 => 1234,
        5 => u64::from(input[1]),
        _ => 0,
    };
    out
}

#[test]
fn references_between_code_and_data() {
    for build in matrix() {
        let image = build.load("link.bpf.c");
        let names: Vec<_> = image.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["twice_plus", "visible", "other", "link_entry", "link_combine"], "{build}");
        let covered: usize = image.functions.iter().map(|f| f.end - f.start).sum();
        assert_eq!(covered, image.code.len(), "{build}");
        assert!(image.functions.windows(2).all(|w| w[0].end == w[1].start));
        let programs: Vec<_> = image.programs.iter().map(|p| (p.name.as_str(), p.kind, p.flags.join(" "))).collect();
        assert_eq!(programs, [("link", Kind::Read, String::new()), ("link", Kind::Combine, "unordered".to_owned())]);
        let imports: Vec<_> = image.imports.iter().map(|i| (i.name.as_str(), i.weak, i.helper.is_some())).collect();
        assert_eq!(imports, [("ds_popcount", false, true), ("ds_not_there", true, false)], "{build}");
        let params: Vec<_> = image.functions.iter().map(|f| f.params).collect();
        let known = [Some(2), Some(2), Some(1), Some(3), Some(5)];
        assert_eq!(params, if build.has_debug_info() { known } else { [None; 5] });
        for first in 0..8 {
            let mut input = *b"?iskside test bytes";
            input[0] = first;
            let mut out = [0u64; 14];
            let context = [0u8; 56];
            let mappings = Mappings::new()
                .read_only(RegionId::INPUT, &input)
                .writable(RegionId::OUTPUT, out.as_mut_bytes())
                .read_only(RegionId::CONTEXT, &context);
            let len = input.len() as u64;
            let value = run(&build, image.clone(), "link", mappings, &[len]);
            assert_eq!(value, 14 * 8, "{build}");
            assert_eq!(out, expected_of_link(&input), "{build}");
        }
    }
}

#[test]
fn source_lines() {
    for build in matrix() {
        let image = build.load("link.bpf.c");
        if !build.has_debug_info() {
            assert!(image.lines.is_empty());
            continue;
        }
        assert!(image.lines.windows(2).all(|w| w[0].insn < w[1].insn));
        for f in &image.functions {
            let line = image.line_of(f.start).expect("each function has lines");
            assert!(line.file.ends_with("link.bpf.c"), "{build}: {}", line.file);
            assert!((17..60).contains(&line.line), "{build}: {line:?}");
        }
        let texts: Vec<_> = image.lines.iter().map(|l| l.text.as_str()).collect();
        assert!(texts.contains(&"out[9] = ds_popcount(in, in_len);"), "{build}");
        let entry = image.programs[0].function;
        let listing = diskside_sbpf::disasm::listing(&image, entry);
        assert!(listing.starts_with("link_entry:\n; "), "{listing}");
        assert!(listing.contains("call helper ds_popcount\n"), "{listing}");
        assert!(listing.contains("visible\n"), "{listing}");
    }
}

fn field(fields: &[ArgField], name: &str) -> ArgField {
    let found = fields.iter().find(|f| f.name == name);
    found.unwrap_or_else(|| panic!("no field {name}")).clone()
}

#[test]
fn argument_schema() {
    for build in matrix().into_iter().filter(Build::has_debug_info) {
        let image = build.load("args.bpf.c");
        // Earlier compilers do not record that an enumeration has negative values.
        let (order_type, none) = match build.clang.version {
            ..=14 => (ArgType::U32, 0xffff_ffff),
            _ => (ArgType::I32, -1),
        };
        let schemas: Vec<_> = image.programs.iter().map(|p| p.args.is_some()).collect();
        assert_eq!(schemas, [true, false, false], "{build}");
        let schema = image.programs[0].args.as_ref().expect("a schema");
        assert_eq!((schema.name.as_str(), schema.len_bytes), ("all_args", 80));
        let shape: Vec<_> =
            schema.fields.iter().map(|f| (f.name.as_str(), f.offset, f.ty, f.count, f.is_array)).collect();
        assert_eq!(
            shape,
            [
                ("k", 0, ArgType::U32, 1, false),
                ("order", 4, order_type, 1, false),
                ("pattern", 8, ArgType::Char, 16, true),
                ("origin.x", 24, ArgType::I32, 1, false),
                ("origin.y", 28, ArgType::I32, 1, false),
                ("ratio", 32, ArgType::F32, 1, false),
                ("weight", 40, ArgType::F64, 1, false),
                ("small", 48, ArgType::I8, 1, false),
                ("byte", 49, ArgType::U8, 1, false),
                ("half", 50, ArgType::I16, 1, false),
                ("word", 52, ArgType::U16, 1, false),
                ("strict", 54, ArgType::Bool, 1, false),
                ("wide", 56, ArgType::I64, 1, false),
                ("grid", 64, ArgType::U16, 6, true),
                ("target", 80, ArgType::U64, 0, true),
            ],
            "{build}"
        );
        let k = field(&schema.fields, "k");
        assert_eq!(k.default.as_deref(), Some("10"));
        assert_eq!((k.min, k.max), (Some(1), Some(1000)));
        assert_eq!(k.doc.as_deref(), Some("how many rows"));
        let order = field(&schema.fields, "order");
        let values = [("ASCENDING", 0), ("DESCENDING", 5), ("NONE", none)];
        assert_eq!(order.values, values.map(|(n, v)| (n.to_owned(), v)));
        assert_eq!(order.default.as_deref(), Some("DESCENDING"));
        let y = field(&schema.fields, "origin.y");
        assert_eq!(y.default.as_deref(), Some("-4"));
    }
}

#[test]
fn note_section() {
    for build in matrix() {
        let image = build.load("note.bpf.c");
        let note = &image.note;
        assert_eq!((note.abi_version, note.stack_bytes), (1, 8192), "{build}");
        assert_eq!((note.out_ratio, note.out_constant), ((32, 1), 0x1_0000_0001));
        assert_eq!(note.split, Some(Split::Delimiter(b'\n')));
    }
}

#[test]
fn programs_written_for_lambda_io() {
    for build in matrix() {
        let bytes = build.compile("lambda.bpf.c");
        let options = LoadOptions { kind: Some(Kind::Lambda) };
        let image = Image::from_elf_with(&bytes, &standard(), options).unwrap_or_else(|e| panic!("{build}: {e}"));
        let mut out = [0u64; 2];
        let mappings = Mappings::new()
            .read_only(RegionId::INPUT, b"abcdefghijklmnop")
            .writable(RegionId::OUTPUT, out.as_mut_bytes());
        let value = run(&build, image, "compute", mappings, &[16]);
        assert_eq!(value, 16, "{build}");
        assert_eq!(out.as_bytes(), b"abcdefgh\xee\xee\xee\xee\xee\xee\xee\xee");
        let none = Image::from_elf(&bytes, &standard());
        assert_eq!(none.unwrap_err(), ImageError::NoProgram);
    }
}

/// Its helpers 159 and 160 were known by number, but no host had them.
#[test]
fn programs_written_for_lambda_io_read_and_write_at_offsets() {
    for build in matrix() {
        let bytes = build.compile("lambda_offset.bpf.c");
        let options = LoadOptions { kind: Some(Kind::Lambda) };
        let image = Image::from_elf_with(&bytes, &standard(), options).unwrap_or_else(|e| panic!("{build}: {e}"));
        let mut out = [0u64; 2];
        let mappings = Mappings::new()
            .read_only(RegionId::INPUT, b"abcdefghijklmnop")
            .writable(RegionId::OUTPUT, out.as_mut_bytes());
        assert_eq!(run(&build, image, "compute", mappings, &[16]), 16, "{build}");
        assert_eq!(out.as_bytes(), b"mnopabcdefghijkl", "{build}");
    }
}

#[test]
fn kind_by_option() {
    let bytes = newest().compile("xrp.bpf.c");
    let options = LoadOptions { kind: Some(Kind::Xrp) };
    let image = Image::load(&bytes, &standard(), options).expect("it loads");
    let p = &image.programs[0];
    assert_eq!((p.kind, p.name.as_str(), p.section.as_str()), (Kind::Xrp, "aggregate", "oliver_agg"));
}

/// clang from version 21 on calls an undefined function where a program's behaviour is undefined.
/// The object loads, and only the call traps.
#[test]
fn trap_of_the_compiler() {
    let build = newest();
    if build.clang.version < 21 {
        return;
    }
    let image = build.load("trap.bpf.c");
    assert_eq!(image.imports[0].name, "__bpf_trap");
    assert!(image.imports[0].weak && image.imports[0].helper.is_none());
}

/// Source, part of the error, and whether the object is well-formed but not supported.
const REFUSED: &[(&str, &str, bool)] = &[
    (
        "refused_maps.bpf.c",
        "eBPF maps are not supported: `counts`, `limits` in section `.maps`; keep state in global \
         variables, or in the state region between calls",
        true,
    ),
    (
        "refused_pointer.bpf.c",
        "the address of a function is not supported; call the function directly, or choose by \
         `switch`",
        true,
    ),
    (
        "refused_signature.bpf.c",
        "helper `ds_popcount` is declared with a number as parameter 1, but this host offers \
         `__u64 ds_popcount(const void *p, __u64 len)`; include the header that belongs to this \
         version",
        false,
    ),
    ("refused_number.bpf.c", "`read/number`+0x0: call of helper number 5; helpers are called by name here", false),
    (
        "refused_section.bpf.c",
        "section `xdp/pass`: its name chooses no kind of program; name it `<kind>/<name>`",
        false,
    ),
    (
        "refused_flag.bpf.c",
        "section `read.unordered/flag`: `read` programs have no flag `unordered` (only combine has \
         one: `unordered`)",
        false,
    ),
    (
        "refused_args.bpf.c",
        "argument `name` of program `bad`: its type is no number, enumeration, array or structure \
         of them; pointers and unions have no meaning outside the caller",
        false,
    ),
    (
        "refused_tag.bpf.c",
        "argument `k` of program `bad`: tag `defalt:3`: tags are default:…, min:…, max:…, doc:…, \
         is:record_len, is:regex, is:column, is:column_names, is:hidden, decimal:… and type:f32 or type:f64",
        false,
    ),
    ("refused_duplicate.bpf.c", "two `read` programs are named `same`; rename one", false),
    (
        "refused_narrow.bpf.c",
        "`.data`+0x0 (symbol `cell`): an address in a 32-bit variable is not supported; addresses \
         have 64 bits; use a pointer or a 64-bit integer",
        true,
    ),
];

#[test]
fn refused_objects() {
    let build = newest();
    for (source, expected, is_unsupported) in REFUSED {
        let error = Image::from_elf(&build.compile(source), &standard()).expect_err(source);
        let text = error.to_string();
        assert!(text.contains(expected), "{source}: {text}");
        assert_eq!(error.is_unsupported(), *is_unsupported, "{source}: {text}");
    }
}

#[test]
fn all_missing_symbols_are_named() {
    let error = Image::from_elf(&newest().compile("refused_missing.bpf.c"), &standard());
    let Err(ImageError::Missing { symbols }) = error else {
        panic!("{error:?}");
    };
    let mut names: Vec<_> = symbols.iter().map(|s| s.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["ds_popcnt", "nothing_like_it", "shared_total"]);
    let first = symbols.iter().find(|s| s.name == "ds_popcnt");
    let first = first.expect("the helper with a typo");
    assert_eq!(first.near[0], "ds_popcount");
    assert_eq!(first.place.section, "read/missing");
}

#[test]
fn big_endian_is_refused() {
    let mut build = newest();
    build.flags = vec!["-O2", "-target", "bpfeb"];
    let error = Image::from_elf(&build.compile("xrp.bpf.c"), &standard());
    assert_eq!(error.unwrap_err(), ImageError::BigEndian);
}
