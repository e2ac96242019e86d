//! The programs that the verifier accepts and refuses, and in which words.
//!
//! The cases are in `verifier/*.s`. Each begins with `;;; name`; lines of `;; key: value` say what is not in the code
//! (see [`Case::directive`]), then comes the program in the assembler's syntax, and lines that begin with `;=` contain
//! the verifier's answers. `BLESS=1 cargo test` writes the answers again; read the difference before you keep it.

use diskside_sbpf::asm::assemble;
use diskside_sbpf::helpers::{HelperSet, standard};
use diskside_sbpf::image::{Function, Image, Import, Kind, Note, SourceLine, Split};
use diskside_sbpf::insn::{CallTarget, Insn, Slot, decode};
use diskside_sbpf::verify::{BLOCKS_MAX, Base, CODE_SLOTS_MAX, Diagnostic, Verified, explain, explanations, verify};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn answers_are_as_written() {
    let mut wrong = Vec::new();
    for file in case_files() {
        let text = std::fs::read_to_string(&file).expect("a case file is readable");
        let answered = answer_all(&text);
        if answered == text {
            continue;
        }
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&file, answered).expect("a case file is writable");
        } else {
            wrong.push(format!("{}:\n{}", file.display(), difference(&text, &answered)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_code_is_emitted_by_a_case_and_explained() {
    let mut emitted: BTreeSet<String> =
        limit_cases().into_iter().flat_map(|(_, found)| found).map(|d| d.code.to_owned()).collect();
    for file in case_files() {
        let text = std::fs::read_to_string(file).expect("a case file is readable");
        for case in cases(&text) {
            if let (_, Err(found)) = case.run() {
                emitted.extend(found.iter().map(|d| d.code.to_owned()));
            }
        }
    }
    let explained: BTreeSet<String> = explanations().iter().map(|e| e.code.to_owned()).collect();
    let in_source = codes_in_source();
    assert_eq!(in_source, explained, "codes in the source, and explained");
    assert_eq!(emitted, explained, "codes that a case emits, and explained");
}

#[test]
fn explanations_are_sorted_and_found_in_any_case() {
    let codes: Vec<_> = explanations().iter().map(|e| e.code).collect();
    assert!(codes.is_sorted());
    assert_eq!(explain("v0301"), explain("V0301"));
    assert!(explain("V0301").is_some());
    assert_eq!(explain("V9999"), None);
}

/// At most 32 findings, in order of the instructions.
#[test]
fn many_findings_are_cut_and_sorted() {
    let mut code = vec![Slot { opcode: 0x7b, dst: 10, src: 10, off: 0, imm: 0 }; 100];
    code.push(EXIT);
    let found = refused(Image::from_code("many", Kind::Raw, code, Vec::new()));
    assert_eq!(found.len(), 32);
    assert!(found.is_sorted_by_key(|d| d.insn));
}

/// Random slots, biased to be decodable, never panic: they verify or are refused with reasons.
#[test]
fn mutations_never_panic() {
    let seeds: Vec<Vec<Slot>> = case_files()
        .iter()
        .flat_map(|f| {
            let text = std::fs::read_to_string(f).expect("a case file is readable");
            cases(&text).iter().map(|c| c.image().code).collect::<Vec<_>>()
        })
        .collect();
    let helpers = standard();
    let imports: Vec<Import> = ["ds_alloc", "ds_memcpy", "ds_find", "ds_log"]
        .iter()
        .map(|name| Import { name: (*name).to_owned(), weak: false, helper: helpers.find(name) })
        .collect();
    let kinds = [Kind::Read, Kind::Combine, Kind::Traverse, Kind::Exec, Kind::Delilah, Kind::Raw];
    let mut random = Random(0x5eed);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..20_000 {
        let mut code = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut code, &mut random);
        }
        let kind = kinds[random.below(kinds.len())];
        let mut image = Image::from_code("mutant", kind, code, imports.clone());
        split_at_calls(&mut image);
        match verify(&Arc::new(image), 0, &helpers) {
            Ok(v) => {
                accepted += 1;
                check_promises(&v);
            }
            Err(found) => {
                refused += 1;
                assert!(!found.is_empty(), "refused without a reason in round {round}");
            }
        }
    }
    // Both outcomes have to occur, or the mutations test nothing.
    assert!(accepted > 500 && refused > 500, "{accepted} accepted, {refused} refused");
}

/// What later stages rely on.
fn check_promises(v: &Verified) {
    assert!(v.stack_len.is_multiple_of(64));
    for f in &v.functions {
        let symbol = &v.image.functions[f.function];
        assert_eq!(f.bases.len(), symbol.end - symbol.start);
        assert!(f.frame_len.is_multiple_of(64));
        assert!(f.frame_len <= u64::from(v.image.note.stack_bytes));
        for (at, base) in f.bases.iter().enumerate() {
            let len = match decode(&v.image.code[symbol.start + at..symbol.end]) {
                Ok(Insn::Load { size, .. } | Insn::Store { size, .. } | Insn::Atomic { size, .. }) => {
                    size.bytes() as i64
                }
                _ => {
                    assert_eq!(*base, Base::Unknown);
                    continue;
                }
            };
            if let Base::Frame(off) = *base {
                assert!(i64::from(off) >= -(f.frame_len as i64) && i64::from(off) + len <= 0);
            }
        }
    }
}

/// Refusals that no readable text file can hold: name of the code, and what is found.
fn limit_cases() -> Vec<(&'static str, Vec<Diagnostic>)> {
    let nothing = Slot { opcode: 0xb7, ..Slot::default() };
    let with_exit = |mut code: Vec<Slot>| {
        code.push(EXIT);
        Image::from_code("long", Kind::Raw, code, Vec::new())
    };
    let good = || with_exit(vec![nothing]);
    let noted = |change: &dyn Fn(&mut Note)| {
        let mut image = good();
        change(&mut image.note);
        image
    };
    let jumps: Vec<Slot> =
        std::iter::once(nothing).chain((0..=BLOCKS_MAX).map(|_| Slot { opcode: 0x15, ..Slot::default() })).collect();
    let mut broken = good();
    broken.functions[0].end = 100;
    let mut empty = good();
    empty.code.clear();
    empty.functions[0].end = 0;
    let mut unlinked = with_exit(vec![Slot { opcode: 0x85, imm: 7, ..Slot::default() }]);
    unlinked.imports.clear();
    let no_program = verify(&Arc::new(good()), 3, &HelperSet::default()).expect_err("no program 3");
    vec![
        ("V0201", refused(empty)),
        ("V0604", refused(unlinked)),
        ("V0701", no_program),
        ("V0702", refused(broken)),
        ("V0703", refused(noted(&|n| n.abi_version = 2))),
        ("V0704", refused(noted(&|n| n.stack_bytes = 100))),
        ("V0704", refused(noted(&|n| n.stack_bytes = 0))),
        ("V0704", refused(noted(&|n| n.stack_bytes = (1 << 20) + 64))),
        ("V0705", refused(noted(&|n| n.out_ratio = (1, 0)))),
        ("V0706", refused(noted(&|n| n.split = Some(Split::Fixed(0))))),
        ("V0707", refused(noted(&|n| n.out_constant = (1 << 40) - (64 << 10) + 1))),
        ("V0707", refused(noted(&|n| n.out_constant = u64::MAX))),
        ("V0801", refused(with_exit(vec![nothing; CODE_SLOTS_MAX]))),
        ("V0802", refused(with_exit(jumps))),
        ("V0803", refused(slow_program())),
    ]
}

/// A long loop that shifts an unknown number through many stack slots, one a round, so that each
/// round over the body teaches the verifier one thing more.
fn slow_program() -> Image {
    const SLOTS: i16 = 60;
    let slot = |opcode, dst, src, off, imm| Slot { opcode, dst, src, off, imm };
    let mut code = vec![slot(0xb7, 0, 0, 0, 0)];
    // stdw [r10 - 8 n], 7
    code.extend((1..=SLOTS).map(|n| slot(0x7a, 10, 0, -8 * n, 7)));
    let head = code.len();
    // jeq r1, 0, +1; ja32 past the loop
    code.push(slot(0x15, 1, 0, 1, 0));
    code.push(slot(0x05, 0, 0, 1, 0));
    code.push(EXIT);
    for n in (1..SLOTS).rev() {
        code.push(slot(0x79, 3, 10, -8 * n, 0));
        code.push(slot(0x7b, 10, 3, -8 * (n + 1), 0));
    }
    code.push(slot(0x7b, 10, 2, -8, 0));
    code.extend(std::iter::repeat_n(slot(0xb7, 4, 0, 0, 0), 100_000));
    let back = head as i32 - code.len() as i32 - 1;
    code.push(slot(0x06, 0, 0, 0, back));
    Image::from_code("slow", Kind::Raw, code, Vec::new())
}

const EXIT: Slot = Slot { opcode: 0x95, dst: 0, src: 0, off: 0, imm: 0 };

fn refused(image: Image) -> Vec<Diagnostic> {
    let name = image.functions[0].name.clone();
    match verify(&Arc::new(image), 0, &standard()) {
        Ok(_) => panic!("`{name}` is to be refused"),
        Err(found) => found,
    }
}

/// One case of a file.
struct Case {
    name: String,
    /// Everything but the answer.
    head: String,
    directives: Vec<(String, String)>,
}

impl Case {
    fn run(&self) -> (Arc<Image>, Result<Verified, Vec<Diagnostic>>) {
        let image = Arc::new(self.image());
        let verified = verify(&image, 0, &standard());
        (image, verified)
    }

    fn image(&self) -> Image {
        let assembly = assemble(&self.head).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let helpers = standard();
        let mut code = assembly.code;
        let mut imports: Vec<Import> = Vec::new();
        for (at, name) in assembly.calls {
            let index = imports.iter().position(|i| i.name == name);
            code[at].imm = index.unwrap_or(imports.len()) as i32;
            if index.is_none() {
                imports.push(Import { helper: helpers.find(&name), weak: false, name });
            }
        }
        let mut image = Image::from_code("main", Kind::Raw, code, imports);
        for (key, value) in &self.directives {
            self.directive(&mut image, key, value);
        }
        split_at_calls(&mut image);
        image
    }

    /// Applies `kind`, `stack` (bytes of a frame), `data` and `rodata` (bytes), `weak` (names of
    /// helpers) or `source` (`slot file:line: text`).
    fn directive(&self, image: &mut Image, key: &str, value: &str) {
        let number = || value.parse::<usize>().expect("a number");
        match key {
            "kind" => {
                image.programs[0].kind = match value {
                    "raw" => Kind::Raw,
                    name => Kind::from_section_prefix(name).expect("a kind"),
                };
            }
            "stack" => image.note.stack_bytes = number() as u32,
            "data" => image.data = vec![0; number()],
            "rodata" => image.rodata = vec![0; number()],
            "weak" => {
                for import in &mut image.imports {
                    import.weak |= value.split(' ').any(|n| n == import.name);
                }
            }
            "source" => {
                let mut parts = value.splitn(4, [' ', ':']);
                let mut part = || parts.next().expect("slot file:line: text").trim();
                image.lines.push(SourceLine {
                    insn: part().parse().expect("a slot"),
                    file: part().to_owned(),
                    line: part().parse().expect("a line"),
                    column: 0,
                    text: part().to_owned(),
                });
            }
            _ => panic!("{}: no directive `{key}`", self.name),
        }
    }

    fn answer(&self) -> String {
        match self.run() {
            (_, Ok(verified)) => describe(&verified),
            (image, Err(found)) => {
                let mut out = "verify: rejected\n".to_owned();
                for d in found {
                    out.push_str(&d.render(&image));
                }
                out
            }
        }
    }
}

/// Everything that a verified program promises to the stages behind, except its graph.
fn describe(v: &Verified) -> String {
    let mut out = "verify: ok\n".to_owned();
    let mut effects = Vec::new();
    let e = v.effects;
    for (is, name) in [
        (e.writes_globals, "writes_globals"),
        (e.uses_clock, "uses_clock"),
        (e.does_io, "does_io"),
        (e.uses_state, "uses_state"),
    ] {
        if is {
            effects.push(name);
        }
    }
    // Globals are set back before each call: nobody else sees a write to them.
    assert_eq!(effects.iter().all(|effect| *effect == "writes_globals"), e.is_pure());
    let addressable = if v.stack_addressable { ", addressable" } else { "" };
    let _ = writeln!(out, "stack: {}{addressable}", v.stack_len);
    if !effects.is_empty() {
        let _ = writeln!(out, "effects: {}", effects.join(" "));
    }
    for f in &v.functions {
        let symbol = &v.image.functions[f.function];
        let _ = writeln!(out, "{}: frame {}", symbol.name, f.frame_len);
        for (at, base) in f.bases.iter().enumerate() {
            let slots = &v.image.code[symbol.start + at..symbol.end];
            let is_access = matches!(decode(slots), Ok(Insn::Load { .. } | Insn::Store { .. } | Insn::Atomic { .. }));
            if !is_access {
                continue;
            }
            let base = match base {
                Base::Unknown => "unknown".to_owned(),
                Base::Region(r) => r.to_string(),
                Base::Frame(off) => format!("frame {off}"),
                Base::Context(off) => format!("context {off}"),
            };
            let _ = writeln!(out, "  {}: {base}", symbol.start + at);
        }
    }
    out
}

fn case_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verifier");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of cases exists")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "s"))
        .collect();
    files.sort();
    files
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix(";;; ") {
            cases.push(Case { name: name.to_owned(), head: format!("{line}\n"), directives: Vec::new() });
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        if line.starts_with(";=") {
            continue;
        }
        if let Some((key, value)) = line.strip_prefix(";; ").and_then(|l| l.split_once(": ")) {
            case.directives.push((key.to_owned(), value.to_owned()));
        }
        case.head.push_str(line);
        case.head.push('\n');
    }
    cases
}

/// The file with every answer as it is now.
fn answer_all(text: &str) -> String {
    let preamble: String = text.lines().take_while(|l| !l.starts_with(";;; ")).map(|l| format!("{l}\n")).collect();
    let answers: Vec<String> = cases(text)
        .iter()
        .map(|case| {
            let mut out = case.head.trim_end().to_owned();
            out.push('\n');
            for line in case.answer().lines() {
                out.push_str(format!(";= {line}").trim_end());
                out.push('\n');
            }
            out
        })
        .collect();
    preamble + &answers.join("\n")
}

/// The lines that differ, in the manner of `diff`.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let show = |sign: &str, lines: &[&str]| -> String {
        lines.iter().skip(same).take(12).map(|l| format!("{sign} {l}\n")).collect()
    };
    format!("from line {}\n{}{}", same + 1, show("-", &expected), show("+", &found))
}

/// Makes a function of each target of a local call, named by its first slot.
fn split_at_calls(image: &mut Image) {
    let mut starts = BTreeMap::from([(0, "main".to_owned())]);
    let mut at = 0;
    while at < image.code.len() {
        let insn = decode(&image.code[at..]);
        if let Ok(Insn::Call { target: CallTarget::Local(off) }) = insn {
            let target = at as i64 + 1 + i64::from(off);
            if (1..image.code.len() as i64).contains(&target) {
                starts.insert(target as usize, format!("f{target}"));
            }
        }
        at += insn.map_or(1, |i| i.slots());
    }
    let ends: Vec<usize> = starts.keys().copied().skip(1).chain([image.code.len()]).collect();
    image.functions =
        starts.into_iter().zip(ends).map(|((start, name), end)| Function { name, start, end, params: None }).collect();
}

/// Every string literal that looks like a code, outside of the explanations.
fn codes_in_source() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/verify");
    let mut codes = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        if path.ends_with("explain.rs") {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a source is readable");
        for (at, _) in text.match_indices("\"V0") {
            codes.insert(text[at + 1..at + 6].to_owned());
        }
    }
    codes
}

fn mutate(code: &mut Vec<Slot>, random: &mut Random) {
    let at = random.below(code.len());
    let slot = &mut code[at];
    match random.below(8) {
        0 => slot.opcode = random.next() as u8,
        1 => slot.dst = random.below(11) as u8,
        2 => slot.src = random.below(11) as u8,
        3 => slot.off = random.below(33) as i16 - 16,
        4 => slot.imm = random.below(33) as i32 - 16,
        5 => *slot = Slot::from_bytes(random.next().to_le_bytes()),
        6 => {
            let copy = *slot;
            code.insert(at, copy);
        }
        _ => {
            if code.len() > 1 {
                code.remove(at);
            }
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
