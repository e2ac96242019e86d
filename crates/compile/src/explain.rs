//! Translates clang's messages about C that eBPF does not have, into words that name the place, the cause and the
//! remedy.

use std::collections::BTreeSet;

/// How clang begins its message about a stack that is too large, in all versions.
const STACK: &str = "Looks like the BPF stack limit";

/// Clang's message when it does not know the option for larger stacks.
pub(super) const NO_STACK_OPTION: &str = "Unknown command line argument '-bpf-stack-size";
/// Clang's message when it does not know the newest instruction set.
pub(super) const NO_V4: &str = "unknown target CPU 'v4'";
/// How LLVM begins when bitcode is not for it to read.
const BITCODE: [&str; 3] = ["Unknown attribute kind", "Invalid record", "Invalid value"];

/// What is missing where the child that lowers is.
pub(super) const NO_LOWERING: &str = "bitcode is compiled by diskside-llvm, which is not here: install LLVM 19 (scripts/setup --for llvm), then make install";

/// What there is to compile with, and what the source says.
#[derive(Clone, Copy, Default)]
pub(super) struct Means {
    pub(super) declared_stack: bool,
    pub(super) lowering: bool,
}

/// Whether the stack is too small, and nothing else is wrong.
pub(super) fn is_about_stack(stderr: &str) -> bool {
    let errors = || stderr.lines().filter(|line| is_error(line));
    errors().next().is_some() && errors().all(|line| line.contains(STACK))
}

/// Whether the source is refused for something that eBPF has no instructions for, or that this clang cannot say in
/// them. The front end has nothing against it then.
pub(super) fn is_about_instructions(stderr: &str) -> bool {
    let known = stderr.lines().any(|line| problem_of(line).is_some());
    let others = stderr.lines().any(|line| is_error(line) && problem_of(line).is_none());
    (known && !others) || stderr.contains(NO_STACK_OPTION)
}

/// Errors of a compiler, each once, by place; then what else it said, if that has errors too.
pub(super) fn explain(stderr: &str, means: &Means) -> String {
    if BITCODE.iter().any(|start| stderr.starts_with(start)) {
        return format!(
            "this clang is newer than the LLVM of diskside-llvm, which cannot read its bitcode ({}). Take clang 19: \
             DISKSIDE_CLANG=clang-19",
            stderr.trim_end()
        );
    }
    if let Some(text) = c_library(stderr) {
        return text;
    }
    let mut explained = BTreeSet::new();
    let mut others = Vec::new();
    for line in stderr.lines() {
        match problem_of(line) {
            Some((place, problem)) => {
                explained.insert((place, problem.text(means), problem.again()));
            }
            None if is_error(line) => others.push(line),
            None => {}
        }
    }
    if explained.is_empty() {
        return stderr.trim_end().to_owned();
    }
    // One stack is reported at each of its variables, and at what the compiler puts there itself, which has no line.
    let stack = Problem::Stack.text(means);
    let place = explained.iter().filter(|(_, text, _)| *text == stack).map(|(place, ..)| place);
    let first = place.min_by_key(|(_, line)| (*line == 0, *line)).cloned();
    explained.retain(|(place, text, _)| *text != stack || Some(place) == first.as_ref());
    // What to install is said once of each cause.
    let mut told = BTreeSet::new();
    let mut text = Vec::new();
    for ((file, line), full, again) in explained {
        let what = match again {
            Some((cause, again)) if !told.insert(cause) => again,
            _ => full,
        };
        text.push(if line == 0 { format!("{file}: {what}") } else { format!("{file}:{line}: {what}") });
    }
    if !others.is_empty() {
        text.push(format!("clang said besides:\n{}", others.join("\n")));
    }
    text.join("\n")
}

/// Whether clang reports an error there that is not just the end of one that was explained.
fn is_error(line: &str) -> bool {
    line.contains(" error: ") && !line.contains("error in backend") && !line.starts_with("clang: error:")
}

/// A file and a line.
type SourcePlace = (String, u32);

enum Problem {
    Float(Intrinsic),
    SignedDivision,
    Copy(&'static str),
    Missing(String),
    Stack,
}

/// The function of `diskside.h` for an operation with floating-point numbers, as a call.
type Intrinsic = String;

impl Problem {
    fn text(&self, means: &Means) -> String {
        match self {
            Self::Float(intrinsic) => format!(
                "eBPF has no instructions for float and double. {LOWERING}, or keep the values as bits (ds_f32, ds_f64) \
                 and write {intrinsic}; `diskside functions --helpers` lists all of them"
            ),
            Self::SignedDivision => format!(
                "this clang has no signed division for eBPF. Install clang 19 (Debian: apt-get install clang-19). \
                 {LOWERING}, or divide unsigned numbers ((__u64)a / b, with the sign taken off before)"
            ),
            Self::Copy(call) => format!(
                "clang cannot copy or fill so many bytes, or a number that it does not know, by instructions. \
                 {LOWERING}, or write {call}"
            ),
            Self::Missing(name) => format!(
                "`{name}` is a function of the compiler's library, which eBPF has not: numbers of 128 bits are for \
                 additions, comparisons and shifts alone"
            ),
            Self::Stack if means.declared_stack => {
                "the local variables do not fit the stack that DS_STACK_BYTES asks for. Ask for more, up to 1048576, or \
                 leave it out: then the stack is as large as it has to be. Or take memory from ds_alloc(bytes)"
                    .into()
            }
            Self::Stack if means.lowering => {
                "the local variables do not fit a stack, which has 1048576 bytes at most. Take memory from \
                 ds_alloc(bytes)"
                    .into()
            }
            Self::Stack => {
                "the local variables do not fit the 512 bytes of a stack, and this clang has no larger ones. Install \
                 clang 19 (Debian: apt-get install clang-19), or take memory from ds_alloc(bytes)"
                    .into()
            }
        }
    }
}

impl Problem {
    /// The cause of an error with several places, and the text for all places except the first.
    fn again(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Float(intrinsic) => Some(("float", format!("float or double again; or write {intrinsic}"))),
            Self::SignedDivision => Some(("division", "signed division again".into())),
            Self::Copy(call) => Some(("copy", format!("so many bytes again; or write {call}"))),
            Self::Missing(_) | Self::Stack => None,
        }
    }
}

/// The replacement of a header of the C library, which needs others that exist for machines alone.
fn c_library(stderr: &str) -> Option<String> {
    let (_, from) = stderr.split_once("In file included from ")?;
    let (place, rest) = from.split_once(":\n")?;
    let missing = rest.lines().find(|line| line.contains(" file not found") && line.contains("/include/"))?;
    let header = missing.split_once("/include/")?.1.split(':').next()?;
    Some(format!(
        "{place}: functions have no C library, and `#include <{header}>` needs one. diskside.h has ds_memcpy, ds_memset and ds_memmove; \
         <diskside/text.h>, <diskside/sort.h> and <diskside/math.h> have the rest"
    ))
}

/// How operations that eBPF lacks come about.
const LOWERING: &str = "diskside-llvm makes it: install LLVM 19 (scripts/setup --for llvm), then make install";

/// The problem in a line of clang's output, if it is about something that eBPF does not have.
fn problem_of(line: &str) -> Option<(SourcePlace, Problem)> {
    if let Some((_, rest)) = line.split_once("Unsupport signed division for DAG: ") {
        // clang before 19 ends with an error of its own: `…, FILE:LINE:COLUMNPlease convert to unsigned div/mod.`
        let place = rest.strip_suffix("Please convert to unsigned div/mod.")?.rsplit_once(", ")?.1;
        return Some((source_place(place)?, Problem::SignedDivision));
    }
    let (place, message) = line.split_once(": error: ")?;
    let place = source_place(place)?;
    if message.starts_with(STACK) {
        return Some((place, Problem::Stack));
    }
    if message.starts_with("unsupported signed division") {
        return Some((place, Problem::SignedDivision));
    }
    let name = message.strip_prefix("A call to built-in function '")?.split('\'').next()?;
    let problem = match name {
        "memcpy" => Problem::Copy("ds_memcpy(to, from, bytes)"),
        "memmove" => Problem::Copy("ds_memmove(to, from, bytes)"),
        "memset" => Problem::Copy("ds_memset(to, byte, bytes)"),
        _ => intrinsic(name).map_or_else(|| Problem::Missing(name.to_owned()), Problem::Float),
    };
    Some((place, problem))
}

/// `FILE:LINE:COLUMN`.
fn source_place(text: &str) -> Option<SourcePlace> {
    let (file_line, _column) = text.rsplit_once(':')?;
    let (file, line) = file_line.rsplit_once(':')?;
    Some((file.to_owned(), line.parse().ok()?))
}

/// The intrinsic in place of a function of the compiler's library for floating-point numbers, such as `__adddf3`.
fn intrinsic(name: &str) -> Option<Intrinsic> {
    let (stem, ty) = name.strip_suffix('f').map_or((name, "f64"), |stem| (stem, "f32"));
    match stem {
        "sqrt" | "floor" | "ceil" | "trunc" => return Some(format!("ds_{ty}_{stem}(a)")),
        "rint" | "nearbyint" | "round" => return Some(format!("ds_{ty}_round(a)")),
        "fmin" | "fmax" => return Some(format!("ds_{ty}_{}(a, b)", &stem[1..])),
        _ => {}
    }
    let name = name.strip_prefix("__")?;
    let conversion = match name {
        "extendsfdf2" => Some("ds_f64_from_f32(a)".to_owned()),
        "truncdfsf2" => Some("ds_f32_from_f64(a)".to_owned()),
        _ => None,
    };
    if conversion.is_some() {
        return conversion;
    }
    let float = |text: &str| match text {
        "sf" => Some("f32"),
        "df" => Some("f64"),
        _ => None,
    };
    // From a whole number: `floatundidf`; to one: `fixdfdi`.
    if let Some(rest) = name.strip_prefix("float") {
        let (sign, rest) = rest.strip_prefix("un").map_or(("i64", rest), |rest| ("u64", rest));
        return Some(format!("ds_{}_from_{sign}(a)", float(rest.get(2..)?)?));
    }
    if let Some(rest) = name.strip_prefix("fix") {
        let (sign, rest) = rest.strip_prefix("uns").map_or(("i64", rest), |rest| ("u64", rest));
        return Some(format!("ds_{}_to_{sign}(a)", float(rest.get(..2)?)?));
    }
    let stem = name.strip_suffix(['2', '3'])?;
    let (operation, ty) = stem.split_at_checked(stem.len().checked_sub(2)?)?;
    let ty = float(ty)?;
    Some(match operation {
        "add" | "sub" | "mul" | "div" => format!("ds_{ty}_{operation}(a, b)"),
        "neg" => format!("ds_{ty}_neg(a)"),
        "lt" | "le" | "eq" => format!("ds_{ty}_{operation}(a, b)"),
        "gt" => format!("ds_{ty}_lt(b, a)"),
        "ge" => format!("ds_{ty}_le(b, a)"),
        "ne" | "unord" => format!("!ds_{ty}_eq(a, b)"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_intrinsic() {
        for (name, expected) in [
            ("__adddf3", "ds_f64_add(a, b)"),
            ("__subsf3", "ds_f32_sub(a, b)"),
            ("__divdf3", "ds_f64_div(a, b)"),
            ("__gtdf2", "ds_f64_lt(b, a)"),
            ("__floatundidf", "ds_f64_from_u64(a)"),
            ("__floatsisf", "ds_f32_from_i64(a)"),
            ("__fixunsdfdi", "ds_f64_to_u64(a)"),
            ("__fixsfsi", "ds_f32_to_i64(a)"),
            ("__extendsfdf2", "ds_f64_from_f32(a)"),
            ("sqrt", "ds_f64_sqrt(a)"),
            ("fminf", "ds_f32_min(a, b)"),
        ] {
            assert_eq!(intrinsic(name).as_deref(), Some(expected), "{name}");
        }
        for name in ["__udivti3", "memcmp", "__df3", "__x"] {
            assert_eq!(intrinsic(name), None, "{name}");
        }
    }

    /// Ten lines that calculate with doubles were ten times the same advice.
    #[test]
    fn what_to_install_is_said_once() {
        let error = |line, name| {
            format!("f.c:{line}:9: error: A call to built-in function '{name}' is not supported.\n x\n x\n")
        };
        let stderr = [error(5, "__adddf3"), error(6, "__muldf3"), error(7, "memcpy"), error(8, "__divdf3")].concat();
        let text = explain(&stderr, &Means::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("f.c:5: eBPF has no instructions for float and double. diskside-llvm makes it"),
            "{text}"
        );
        assert_eq!(lines[1], "f.c:6: float or double again; or write ds_f64_mul(a, b)");
        assert!(lines[2].starts_with("f.c:7: clang cannot copy"), "{text}");
        assert_eq!(lines[3..], ["f.c:8: float or double again; or write ds_f64_div(a, b)"]);
    }

    #[test]
    fn what_old_and_new_clangs_say_of_signed_division_is_understood() {
        let old = "Error at line 5: Unsupport signed division for DAG: 0x12: i64 = sdiv 0x13, 0x14, ./a b.c:5:19Please \
                   convert to unsigned div/mod.\nfatal error: error in backend: Cannot select: 0x12: i64 = sdiv\nStack \
                   dump:\nclang: error: clang frontend command failed with exit code 70 (use -v to see invocation)";
        let new = "./a b.c:5:19: error: unsupported signed division, please convert to unsigned div/mod.\n    5 | x\n";
        assert_eq!(explain(old, &Means::default()), explain(new, &Means::default()));
        assert!(explain(new, &Means::default()).starts_with("./a b.c:5: this clang has no signed division"));
    }

    /// `fatal error: 'bits/libc-header-start.h' file not found` said nothing of what to do.
    #[test]
    fn a_header_of_the_c_library_is_named_with_what_there_is_instead() {
        let stderr = "In file included from a.bpf.c:2:\n/usr/include/string.h:26:10: fatal error: 'bits/libc-header-start.h' file \
                      not found\n   26 | #include <bits/libc-header-start.h>\n1 error generated.\n";
        let text = explain(stderr, &Means::default());
        assert!(
            text.starts_with("a.bpf.c:2: functions have no C library, and `#include <string.h>` needs one."),
            "{text}"
        );
        let own = "In file included from a.bpf.c:2:\nown.h:3:10: fatal error: 'x.h' file not found\n1 error generated.";
        assert_eq!(explain(own, &Means::default()), own);
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let stderr = "f.c:1:1: warning: unused\nf.c:2:1: error: unknown type name 'x'\n x\n1 error generated.";
        assert_eq!(explain(stderr, &Means::default()), stderr);
        let both = format!("{stderr}\nf.c:3:1: error: A call to built-in function 'memset' is not supported.\n y\n y");
        let text = explain(&both, &Means::default());
        assert!(text.starts_with("f.c:3: clang cannot"), "{text}");
        assert!(text.ends_with("\nclang said besides:\nf.c:2:1: error: unknown type name 'x'"), "{text}");
    }
}
