//! Which functions and programs an image has.

use super::btf::Btf;
use super::elf::{Binding, Definition, Object, Role, Symbol, SymbolType, limit};
use super::error::{ImageError, Place};
use super::layout::{Layout, Placement};
use super::link::call_slots;
use super::load::RAW;
use super::{Function, Kind, Program};
use crate::insn::Slot;
use std::collections::{BTreeMap, HashMap};

/// Most functions of an image.
pub const FUNCTIONS_MAX: usize = 64 << 10;
/// Most programs of an image.
pub const PROGRAMS_MAX: usize = 1024;

/// The flag that lets partial results be combined in any order.
const UNORDERED: &str = "unordered";

/// The code sections of an image, in the order of their slots.
pub(super) struct CodeMap<'o, 'a> {
    object: &'o Object<'a>,
    /// First slot and ELF section index.
    starts: Vec<(usize, usize)>,
    /// First slot and length in bytes by section name.
    by_name: HashMap<&'a str, (usize, u64)>,
    /// Symbols in code sections that are not functions, by section and offset.
    labels: HashMap<(usize, u64), &'a str>,
}

impl<'o, 'a> CodeMap<'o, 'a> {
    pub(super) fn new(object: &'o Object<'a>, layout: &Layout) -> Self {
        let mut by_name = HashMap::new();
        let starts = object
            .with_role(Role::Code)
            .filter_map(|(index, s)| match layout.placements[index] {
                Placement::Code(start) => {
                    by_name.entry(s.name).or_insert((start, s.len));
                    Some((start, index))
                }
                _ => None,
            })
            .collect();
        let mut labels = HashMap::new();
        for s in &object.symbols {
            if let (Definition::Section(index), SymbolType::Other) = (s.definition, s.ty)
                && object.sections[index].role == Role::Code
                && !s.name.is_empty()
            {
                labels.entry((index, s.value)).or_insert(s.name);
            }
        }
        Self { object, starts, by_name, labels }
    }

    /// The slot at an offset of a code section, by the section's name.
    pub(super) fn slot_of(&self, section: &str, offset: u32) -> Option<usize> {
        let (start, len) = *self.by_name.get(section)?;
        (u64::from(offset) < len && offset.is_multiple_of(8)).then_some(start + offset as usize / 8)
    }

    /// Section and offset of a slot.
    pub(super) fn place(&self, slot: usize) -> Place {
        let (start, index) = self.section_at(slot);
        Place {
            section: self.object.sections[index].name.to_owned(),
            offset: ((slot - start) * Slot::LEN_BYTES) as u64,
            symbol: String::new(),
        }
    }

    /// First slot and index of the section that holds `slot`.
    fn section_at(&self, slot: usize) -> (usize, usize) {
        let after = self.starts.partition_point(|(start, _)| *start <= slot);
        self.starts[after - 1]
    }

    fn end_of(&self, index: usize, start: usize) -> usize {
        start + self.object.sections[index].data.len() / Slot::LEN_BYTES
    }
}

/// A function symbol.
struct Candidate<'a> {
    name: &'a str,
    binding: Binding,
    /// One past the last slot by the symbol's size; the start when the size is not known.
    end: usize,
}

/// The functions of an object: its function symbols, the starts of code sections, and what calls go
/// to. Each reaches to the next.
pub(super) struct Functions<'a> {
    pub(super) list: Vec<Function>,
    symbols: BTreeMap<usize, Candidate<'a>>,
}

impl<'a> Functions<'a> {
    pub(super) fn collect(map: &CodeMap<'_, 'a>, code: &[Slot]) -> Result<Self, ImageError> {
        let symbols = function_symbols(map)?;
        let mut names: BTreeMap<usize, String> = symbols.iter().map(|(start, c)| (*start, c.name.to_owned())).collect();
        for (start, index) in &map.starts {
            names.entry(*start).or_insert_with(|| {
                let section = map.object.sections[*index].name;
                let label = map.labels.get(&(*index, 0));
                label.map_or(section, |l| *l).to_owned()
            });
        }
        for at in call_slots(code) {
            if code[at].src == 1 {
                let target = call_target(map, &symbols, code, at)?;
                names.entry(target).or_insert_with(|| name_for(map, target));
                limit("the number of functions", names.len(), FUNCTIONS_MAX)?;
            }
        }
        let starts: Vec<usize> = names.keys().copied().collect();
        let mut list = Vec::with_capacity(names.len());
        for (i, (start, name)) in names.into_iter().enumerate() {
            let (section_start, index) = map.section_at(start);
            let section_end = map.end_of(index, section_start);
            let next = starts.get(i + 1).copied().unwrap_or(section_end);
            list.push(Function { name, start, end: next.min(section_end), params: None });
        }
        Ok(Self { list, symbols })
    }

    /// Adds parameter counts; `type_of` gives the BTF number of a function by its first slot.
    pub(super) fn add_params(&mut self, btf: &Btf<'_>, type_of: impl Fn(&Function) -> Option<u32>) {
        for f in &mut self.list {
            let prototype = type_of(f).and_then(|id| btf.prototype(id));
            f.params = prototype.and_then(|p| u8::try_from(p.params.len()).ok());
        }
    }

    /// The programs: functions in sections whose name chooses a kind, or `kind` where it is given.
    pub(super) fn programs(&self, map: &CodeMap<'_, 'a>, kind: Option<Kind>) -> Result<Vec<Program>, ImageError> {
        let mut programs = Vec::new();
        for (start, index) in &map.starts {
            let section = map.object.sections[*index].name;
            if is_text(section) {
                continue;
            }
            let entries = self.entries(*start, map.end_of(*index, *start));
            let head = parse_section_name(section, kind)?;
            limit("the number of programs", programs.len() + entries.len(), PROGRAMS_MAX)?;
            for (slot, symbol) in &entries {
                let name = match head.name {
                    Some(name) if entries.len() == 1 => name,
                    _ => symbol,
                };
                programs.push(self.program(name, section, &head, *slot));
            }
        }
        if let (true, Some(kind)) = (programs.is_empty(), kind) {
            // Objects for other systems keep their entry point in `.text`: its first function.
            let text = map.starts.iter().find(|(start, index)| {
                is_text(map.object.sections[*index].name) && map.end_of(*index, *start) > *start
            });
            if let Some((start, index)) = text {
                let section = map.object.sections[*index].name;
                let entries = self.entries(*start, map.end_of(*index, *start));
                let (slot, name) = entries[0];
                let head = SectionName { kind, flags: Vec::new(), name: None };
                programs.push(self.program(name, section, &head, slot));
            }
        }
        if programs.is_empty() {
            return Err(ImageError::NoProgram);
        }
        refuse_duplicates(&programs)?;
        Ok(programs)
    }

    /// First slots and names of the global functions in a range of slots; where there is none, the
    /// first function of the range.
    fn entries(&self, start: usize, end: usize) -> Vec<(usize, &str)> {
        let global: Vec<_> = self
            .symbols
            .range(start..end)
            .filter(|(_, c)| c.binding != Binding::Local)
            .map(|(slot, c)| (*slot, c.name))
            .collect();
        if !global.is_empty() {
            return global;
        }
        let first = self.list.partition_point(|f| f.start < start);
        vec![(self.list[first].start, &self.list[first].name)]
    }

    fn program(&self, name: &str, section: &str, head: &SectionName<'_>, slot: usize) -> Program {
        Program {
            name: name.to_owned(),
            section: section.to_owned(),
            kind: head.kind,
            flags: head.flags.iter().map(|&f| f.to_owned()).collect(),
            function: self.list.partition_point(|f| f.start < slot),
            args: None,
            result: None,
            input: None,
            columns: None,
        }
    }
}

/// Functions of raw code: its start, and what calls go to.
pub(super) fn raw_functions(name: &str, code: &[Slot]) -> Result<Vec<Function>, ImageError> {
    let mut starts = BTreeMap::from([(0, name.to_owned())]);
    for at in call_slots(code).into_iter().filter(|at| code[*at].src == 1) {
        let target = at as i64 + 1 + i64::from(code[at].imm);
        let slot = usize::try_from(target).ok().filter(|t| *t < code.len()).ok_or_else(|| ImageError::CallTarget {
            place: Place { section: RAW.to_owned(), offset: (at * Slot::LEN_BYTES) as u64, symbol: String::new() },
            what: format!("the call goes to slot {target} of {}", code.len()),
        })?;
        starts.entry(slot).or_insert_with(|| format!("{name}+{slot}"));
        limit("the number of functions", starts.len(), FUNCTIONS_MAX)?;
    }
    let ends: Vec<usize> = starts.keys().copied().skip(1).chain([code.len()]).collect();
    Ok(starts.into_iter().zip(ends).map(|((start, name), end)| Function { name, start, end, params: None }).collect())
}

/// The parts of a code section's name.
struct SectionName<'a> {
    kind: Kind,
    flags: Vec<&'a str>,
    name: Option<&'a str>,
}

fn parse_section_name(section: &str, kind: Option<Kind>) -> Result<SectionName<'_>, ImageError> {
    let bad = |what: String| ImageError::SectionName { section: section.to_owned(), what };
    let (head, name) = match section.split_once('/') {
        Some((head, name)) => (head, Some(name)),
        None => (section, None),
    };
    let mut parts = head.split('.');
    let prefix = parts.next().unwrap_or_default();
    let Some(own) = Kind::from_section_prefix(prefix) else {
        return match kind {
            Some(kind) => Ok(SectionName { kind, flags: Vec::new(), name: None }),
            None => Err(bad("its name chooses no kind of program".to_owned())),
        };
    };
    let flags: Vec<_> = parts.collect();
    if let Some(unknown) = flags.iter().find(|f| !(own == Kind::Combine && **f == UNORDERED)) {
        return Err(bad(format!(
            "`{}` programs have no flag `{unknown}` (only combine has one: `{UNORDERED}`)",
            own.name()
        )));
    }
    if name.is_some_and(str::is_empty) {
        return Err(bad("the name after the slash is empty".to_owned()));
    }
    Ok(SectionName { kind: own, flags, name })
}

fn is_text(section: &str) -> bool {
    section == ".text" || section.starts_with(".text.")
}

fn refuse_duplicates(programs: &[Program]) -> Result<(), ImageError> {
    let mut seen = std::collections::HashSet::new();
    for p in programs {
        if !seen.insert((p.kind, p.name.as_str())) {
            return Err(ImageError::DuplicateProgram { kind: p.kind, name: p.name.clone() });
        }
    }
    Ok(())
}

/// Function symbols by their first slot. Of several names for one function a global one wins.
fn function_symbols<'a>(map: &CodeMap<'_, 'a>) -> Result<BTreeMap<usize, Candidate<'a>>, ImageError> {
    let start_of: HashMap<usize, usize> = map.starts.iter().map(|(s, i)| (*i, *s)).collect();
    let mut found: BTreeMap<usize, Candidate<'a>> = BTreeMap::new();
    for symbol in &map.object.symbols {
        let Definition::Section(index) = symbol.definition else {
            continue;
        };
        let Some(start) = start_of.get(&index).filter(|_| symbol.ty == SymbolType::Function) else {
            continue;
        };
        let section = &map.object.sections[index];
        let inside = symbol.value.is_multiple_of(8)
            && symbol.size.is_multiple_of(8)
            && symbol.value < section.len
            && symbol.size <= section.len - symbol.value;
        if !inside {
            return Err(bad_symbol(
                symbol,
                section.name,
                format!(
                    "a function at {:#x} of {} bytes does not fit the section of {}",
                    symbol.value, symbol.size, section.len
                ),
            ));
        }
        let first = start + (symbol.value / 8) as usize;
        let candidate =
            Candidate { name: symbol.name, binding: symbol.binding, end: first + (symbol.size / 8) as usize };
        match found.get(&first) {
            Some(known) if known.binding != Binding::Local => {}
            _ => {
                found.insert(first, candidate);
            }
        }
    }
    let mut previous: Option<(&usize, &Candidate<'_>)> = None;
    for (first, c) in &found {
        if let Some((_, p)) = previous.filter(|(_, p)| p.end > *first) {
            let place = map.place(*first);
            return Err(ImageError::Symbol {
                symbol: c.name.to_owned(),
                section: place.section,
                what: format!("it lies inside function `{}`", p.name),
            });
        }
        previous = Some((first, c));
    }
    Ok(found)
}

fn call_target(
    map: &CodeMap<'_, '_>,
    symbols: &BTreeMap<usize, Candidate<'_>>,
    code: &[Slot],
    at: usize,
) -> Result<usize, ImageError> {
    let bad = |what: String| ImageError::CallTarget { place: map.place(at), what };
    let target = at as i64 + 1 + i64::from(code[at].imm);
    let slot = usize::try_from(target)
        .ok()
        .filter(|t| *t < code.len())
        .ok_or_else(|| bad(format!("the call goes to slot {target} of {}", code.len())))?;
    if let Some((first, c)) = symbols.range(..=slot).next_back()
        && *first < slot
        && slot < c.end
    {
        return Err(bad(format!("the call goes into the middle of function `{}`", c.name)));
    }
    Ok(slot)
}

/// A name for code that a call goes to and no function symbol names.
fn name_for(map: &CodeMap<'_, '_>, slot: usize) -> String {
    let (start, index) = map.section_at(slot);
    let offset = ((slot - start) * Slot::LEN_BYTES) as u64;
    match map.labels.get(&(index, offset)) {
        Some(label) => (*label).to_owned(),
        None => format!("{}+{offset:#x}", map.object.sections[index].name),
    }
}

fn bad_symbol(symbol: &Symbol<'_>, section: &str, what: String) -> ImageError {
    ImageError::Symbol { symbol: symbol.name.to_owned(), section: section.to_owned(), what }
}
