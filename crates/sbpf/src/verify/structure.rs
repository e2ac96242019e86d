//! Form: what can be said without following values.

use super::report::Findings;
use super::{CALL_DEPTH_MAX, Cfg, Class};
use crate::image::{Function, Image};
use crate::insn::{CallTarget, DecodeError, Insn, Slot, decode};
use std::collections::{BTreeMap, HashMap};

/// A function that decodes, with its graph.
pub(super) struct Code<'a> {
    /// Index into the image's functions.
    pub(super) function: usize,
    /// Its entry there.
    pub(super) symbol: &'a Function,
    /// By slot; `None` for the second half of a 64-bit immediate.
    pub(super) insns: Vec<Option<Insn>>,
    pub(super) cfg: Cfg,
    /// Local calls: slot to index into the program's functions.
    pub(super) callees: BTreeMap<usize, usize>,
}

/// The functions that a program can reach, the entry point first.
pub(super) fn functions<'a>(image: &'a Image, entry: usize, findings: &mut Findings<'_>) -> Vec<Code<'a>> {
    let by_start: HashMap<usize, usize> = image.functions.iter().enumerate().map(|(i, f)| (f.start, i)).collect();
    let mut numbers = HashMap::from([(entry, 0)]);
    let mut order = vec![entry];
    let mut found = Vec::new();
    let mut blocks_total = 0;
    while let Some(&function) = order.get(found.len()) {
        let symbol = &image.functions[function];
        let Some(insns) = decode_all(image, symbol, findings) else {
            // Its callees stay unknown; continue with those of others.
            found.push(Code { function, symbol, insns: Vec::new(), cfg: Cfg::default(), callees: BTreeMap::new() });
            continue;
        };
        let cfg = Cfg::build(&image.code[symbol.start..symbol.end]);
        blocks_total += cfg.blocks.len();
        if blocks_total > super::BLOCKS_MAX {
            findings.add(
                "V0802",
                Class::Unsupported,
                Some(symbol.start),
                format!("the program has more than {} basic blocks", super::BLOCKS_MAX),
                "split the work over several programs",
            );
            return Vec::new();
        }
        let mut callees = BTreeMap::new();
        for at in cfg.blocks.iter().flat_map(|b| b.start..b.end) {
            let Some(Insn::Call { target: CallTarget::Local(off) }) = insns[at] else {
                continue;
            };
            let target = (symbol.start + at) as i64 + 1 + i64::from(off);
            let callee = usize::try_from(target).ok().and_then(|t| by_start.get(&t).copied());
            let Some(callee) = callee else {
                findings.add(
                    "V0601",
                    Class::Unsafe,
                    Some(symbol.start + at),
                    format!("call of instruction {target}, which is not the start of a function"),
                    "call a function by its name",
                );
                continue;
            };
            let next = numbers.len();
            let number = *numbers.entry(callee).or_insert_with(|| {
                order.push(callee);
                next
            });
            callees.insert(at, number);
        }
        found.push(Code { function, symbol, insns, cfg, callees });
    }
    if findings.is_empty() {
        check_calls(&found, findings);
    }
    found
}

/// Decodes a function and checks its jumps and its end.
fn decode_all(image: &Image, symbol: &Function, findings: &mut Findings<'_>) -> Option<Vec<Option<Insn>>> {
    let before = findings.len();
    let code = &image.code[symbol.start..symbol.end];
    if code.is_empty() {
        findings.add(
            "V0201",
            Class::Unsafe,
            None,
            format!("function `{}` has no instructions", symbol.name),
            "give it a body that ends in `exit`",
        );
        return None;
    }
    let mut insns = vec![None; code.len()];
    let mut at = 0;
    let mut last = 0;
    while at < code.len() && !findings.is_full() {
        match decode(&code[at..]) {
            Ok(insn) => {
                check_form(insn, symbol.start + at, findings);
                insns[at] = Some(insn);
                last = at;
                at += insn.slots();
            }
            Err(e) => {
                undecodable(e, symbol.start + at, findings);
                // The second half belongs to a malformed immediate that has one.
                at += 1 + usize::from(code[at].opcode == 0x18 && second_half(code.get(at + 1)));
            }
        }
    }
    if findings.len() > before {
        return None;
    }
    for (at, insn) in insns.iter().enumerate() {
        if let Some(insn) = insn {
            check_target(&insns, symbol, at, *insn, findings);
        }
    }
    if !matches!(insns[last], Some(Insn::Exit | Insn::Ja { .. })) {
        findings.add(
            "V0204",
            Class::Unsafe,
            Some(symbol.start + last),
            format!("control can fall off the end of function `{}`", symbol.name),
            "end the function with `exit` or an unconditional jump",
        );
    }
    (findings.len() == before).then_some(insns)
}

fn second_half(slot: Option<&Slot>) -> bool {
    slot.is_some_and(|s| s.opcode == 0)
}

fn undecodable(e: DecodeError, at: usize, findings: &mut Findings<'_>) {
    let class = if e.is_unsupported() { Class::Unsupported } else { Class::Unsafe };
    let (code, suggestion) = match e {
        DecodeError::UnknownOpcode(_) => {
            ("V0101", "compile for the eBPF target (`clang -target bpf`), at most `-mcpu=v4`")
        }
        DecodeError::BadRegister(_) => ("V0102", "use r0 to r10"),
        DecodeError::ReservedField(_) => ("V0103", "clear the field; RFC 9669 keeps it for later"),
        DecodeError::BadField { .. } => ("V0104", "use a value that RFC 9669 defines"),
        DecodeError::TruncatedImm64 => {
            ("V0105", "a 64-bit immediate takes two slots; the second holds only the upper 32 bits")
        }
        DecodeError::LegacyPacket(_) => {
            ("V0106", "read the input through its pointer; RFC 9669 deprecates packet access")
        }
        DecodeError::IndirectCall => ("V0107", "call functions by name; replace function pointers by a `switch`"),
    };
    findings.add(code, class, Some(at), e.to_string(), suggestion);
}

/// Well-formed instructions that have no meaning here.
fn check_form(insn: Insn, at: usize, findings: &mut Findings<'_>) {
    match insn {
        Insn::LoadImm64 { src, .. } if src != 0 => {
            let what = match src {
                1 | 5 => "the address of an eBPF map",
                2 | 6 => "the address of an eBPF map's value",
                3 => "the address of a kernel variable",
                _ => "the address of a function",
            };
            let suggestion = match src {
                1 | 2 | 5 | 6 => "keep data in globals, in `ds_alloc` memory or in the state region",
                3 => "call a helper that gives the value",
                _ => "call functions by name; replace function pointers by a `switch`",
            };
            findings.add(
                "V0108",
                Class::Unsupported,
                Some(at),
                format!("64-bit immediate of type {src} loads {what}, which is not supported"),
                suggestion,
            );
        }
        Insn::Call { target: CallTarget::Btf(id) } => findings.add(
            "V0109",
            Class::Unsupported,
            Some(at),
            format!("call of kernel function {id} by its BTF id is not supported"),
            "call a helper by its name",
        ),
        _ => {}
    }
}

fn check_target(insns: &[Option<Insn>], symbol: &Function, at: usize, insn: Insn, findings: &mut Findings<'_>) {
    let off = match insn {
        Insn::Ja { off } => i64::from(off),
        Insn::Jmp { off, .. } => i64::from(off),
        _ => return,
    };
    let target = at as i64 + 1 + off;
    match usize::try_from(target).ok().and_then(|t| insns.get(t)) {
        Some(Some(_)) => {}
        Some(None) => findings.add(
            "V0203",
            Class::Unsafe,
            Some(symbol.start + at),
            format!("jump into the second half of the 64-bit immediate at {}", symbol.start as i64 + target - 1),
            "jump to the start of an instruction",
        ),
        None => findings.add(
            "V0202",
            Class::Unsafe,
            Some(symbol.start + at),
            format!(
                "jump to instruction {}, outside of function `{}` ({} to {})",
                symbol.start as i64 + target,
                symbol.name,
                symbol.start,
                symbol.end - 1
            ),
            "jump only inside the function",
        ),
    }
}

/// Refuses recursion and chains of calls that are too deep.
fn check_calls(codes: &[Code<'_>], findings: &mut Findings<'_>) {
    let edges: Vec<Vec<(usize, usize)>> =
        codes.iter().map(|c| c.callees.iter().map(|(&at, &to)| (at, to)).collect()).collect();
    let name = |f: usize| codes[f].symbol.name.as_str();
    // Longest chain below each function, and the call that begins it.
    let mut depths: Vec<Option<(usize, Option<usize>)>> = vec![None; codes.len()];
    let mut on_path = vec![false; codes.len()];
    let mut path = vec![(0usize, 0usize)];
    on_path[0] = true;
    while let Some(&mut (f, ref mut next)) = path.last_mut() {
        let Some(&(at, to)) = edges[f].get(*next) else {
            let deepest = edges[f].iter().filter_map(|&(_, to)| depths[to].map(|d| (d.0, to))).max_by_key(|d| d.0);
            depths[f] = Some(deepest.map_or((1, None), |(d, to)| (d + 1, Some(to))));
            on_path[f] = false;
            path.pop();
            continue;
        };
        *next += 1;
        if on_path[to] {
            let cycle: Vec<&str> = path.iter().map(|p| p.0).skip_while(|&p| p != to).chain([to]).map(name).collect();
            findings.add(
                "V0602",
                Class::Unsafe,
                Some(codes[f].symbol.start + at),
                format!("recursion: {}", cycle.join(" -> ")),
                "use a loop with a stack of your own in an array",
            );
            return;
        }
        if depths[to].is_none() {
            on_path[to] = true;
            path.push((to, 0));
        }
    }
    let Some((depth, _)) = depths[0] else { return };
    if depth > CALL_DEPTH_MAX {
        let mut chain = vec![name(0)];
        let mut at = 0;
        while let Some((_, Some(next))) = depths[at] {
            chain.push(name(next));
            at = next;
        }
        chain.truncate(CALL_DEPTH_MAX + 1);
        findings.add(
            "V0603",
            Class::Unsafe,
            Some(codes[0].symbol.start),
            format!("calls nest {depth} deep, more than {CALL_DEPTH_MAX}: {}", chain.join(" -> ")),
            "let the compiler inline some of them (`static inline`, `__always_inline`)",
        );
    }
}
