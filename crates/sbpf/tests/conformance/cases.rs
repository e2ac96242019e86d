//! Conformance cases in text files, and the harness that runs them on any tier.
//!
//! A file holds cases, each with sections that start with two dashes, as in the public eBPF
//! conformance suite:
//!
//! | section | content |
//! |---|---|
//! | `-- case NAME` | starts a case |
//! | `-- asm` | the program, in the assembler's syntax |
//! | `-- raw` | or the program as 64-bit words, one slot each |
//! | `-- mem` | memory in hexadecimal; `r1` is its address, `r2` its length |
//! | `-- result` | what `r0` holds at the end |
//! | `-- error` | or a part of the error: of loading, verifying or running |

use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program};
use diskside_sbpf::asm::{Assembly, assemble};
use diskside_sbpf::helpers::standard;
use diskside_sbpf::image::Kind;
use diskside_sbpf::insn::Slot;
use diskside_sbpf::region::RegionId;
use std::path::Path;
use std::sync::Arc;

/// A case of a file.
struct Case {
    name: String,
    asm: String,
    raw: Vec<u64>,
    memory: Vec<u8>,
    result: Option<u64>,
    error: Option<String>,
}

/// Runs all cases of all files with the code that `compile` makes, and fails with a list of those
/// that went wrong. Returns how many ran.
pub(crate) fn run_all(compile: impl Fn(&Arc<Program>) -> Arc<dyn Code>) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/sbpf/tests/conformance");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of the cases")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|p| p.extension().is_some_and(|e| e == "data"))
        .collect();
    files.sort();
    let mut failures = Vec::new();
    let mut count = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        let name = file.file_name().expect("a name").to_string_lossy();
        for case in parse(&name, &text) {
            count += 1;
            if let Err(why) = case.check(&compile) {
                failures.push(format!("{name}: {}: {why}", case.name));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases failed:\n{}", failures.len(), failures.join("\n"));
    count
}

impl Case {
    fn check(&self, compile: impl Fn(&Arc<Program>) -> Arc<dyn Code>) -> Result<(), String> {
        let outcome = self.run(compile);
        match (&outcome, self.result, &self.error) {
            (Ok(value), Some(expected), None) if *value == expected => Ok(()),
            (Ok(value), Some(expected), None) => Err(format!("r0 is {value:#x} instead of {expected:#x}")),
            (Err(error), None, Some(expected)) if error.contains(expected) => Ok(()),
            (Err(error), ..) => Err(format!("the error is: {error}")),
            (Ok(value), ..) => Err(format!("r0 is {value:#x} instead of an error")),
        }
    }

    fn run(&self, compile: impl Fn(&Arc<Program>) -> Arc<dyn Code>) -> Result<u64, String> {
        let assembly = if self.raw.is_empty() {
            assemble(&self.asm).map_err(|e| e.to_string())?
        } else {
            let slot = |w: &u64| Slot::from_bytes(w.to_le_bytes());
            Assembly { code: self.raw.iter().map(slot).collect(), calls: Vec::new() }
        };
        let helpers = Arc::new(standard());
        let image = assembly.into_image(Kind::Raw, &helpers).map_err(|e| e.to_string())?;
        let program = Program::new(&Arc::new(image), 0, &helpers).map_err(|findings| {
            let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
            lines.join("; ")
        })?;
        let program = Arc::new(program);
        let mut activation = Activation::new(&program, compile(&program), ActivationOptions::default());
        let len = self.memory.len();
        // Words, so that atomic operations find aligned memory.
        let mut words = vec![0u64; len.div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(self.memory.chunks(8)) {
            let mut b = [0; 8];
            b[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(b);
        }
        let memory = zerocopy::IntoBytes::as_mut_bytes(&mut words[..]);
        let mappings = Mappings::new().writable(RegionId::INPUT, &mut memory[..len]);
        let args = program.entry_registers(&[len as u64]);
        activation
            .call(&mappings, args, &Limits::for_bytes(len as u64, 0))
            .map(|r| r.value)
            .map_err(|stopped| stopped.to_string())
    }
}

/// Reads the cases of a file. Files are part of the tests, so mistakes in them panic.
fn parse(file: &str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        let at = || format!("{file}:{}", index + 1);
        if let Some(directive) = line.strip_prefix("-- ") {
            let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            if word == "case" {
                cases.push(Case {
                    name: rest.to_owned(),
                    asm: String::new(),
                    raw: Vec::new(),
                    memory: Vec::new(),
                    result: None,
                    error: None,
                });
            }
            word.clone_into(&mut section);
            continue;
        }
        let Some(case) = cases.last_mut() else {
            assert!(line.is_empty() || line.starts_with('#'), "{}", at());
            continue;
        };
        if line.trim().is_empty() {
            continue;
        }
        match section.as_str() {
            "asm" => case.asm.extend([line, "\n"]),
            "raw" => case.raw.push(number(line, &at())),
            "mem" => case.memory.extend(
                line.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap_or_else(|_| panic!("{}", at()))),
            ),
            "result" => case.result = Some(number(line, &at())),
            "error" => case.error = Some(line.to_owned()),
            other => panic!("{}: there is no section `{other}`", at()),
        }
    }
    for case in &cases {
        assert!(
            case.result.is_some() != case.error.is_some(),
            "{file}: {}: a case has a result or an error",
            case.name
        );
    }
    cases
}

fn number(text: &str, at: &str) -> u64 {
    let digits = text.trim().strip_prefix("0x").expect(at);
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{at}: no number"))
}
