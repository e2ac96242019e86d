//! Linking: relocations are applied, calls of undefined symbols become imports.
//!
//! clang writes REL sections: the addend is in the field that is relocated. The relocations of
//! eBPF are described in <https://docs.kernel.org/bpf/llvm_reloc.html>.

use super::compat;
use super::elf::{Binding, Definition, Object, Relocation, Role, Symbol};
use super::error::{ImageError, MissingSymbol, Place};
use super::layout::{DATA_LEN_MAX, Layout, Placement};
use super::{Import, Kind};
use crate::helpers::HelperSet;
use crate::insn::Slot;
use crate::region::RegionId;
use std::collections::{HashMap, HashSet};

const R_NONE: u32 = 0;
/// A symbol's address in `LDDW`.
const R_64_64: u32 = 1;
/// A symbol's address in data.
const R_ABS64: u32 = 2;
const R_ABS32: u32 = 3;
const R_NODYLD32: u32 = 4;
/// The target of a call.
const R_64_32: u32 = 10;

const OP_LDDW: u8 = 0x18;
const OP_CALL: u8 = 0x85;
/// `src` of a call to a function of the program.
const CALL_LOCAL: u8 = 1;

/// Missing symbols for which near names are looked up, and the longest such symbol.
const NEAR_SYMBOLS_MAX: usize = 16;
/// Missing symbols that are collected before linking gives up.
const MISSING_MAX: usize = 1024;
const NEAR_LEN_MAX: usize = 64;

/// The results of linking besides the relocated code and data.
pub(super) struct Linked {
    pub(super) imports: Vec<Import>,
    /// Slots of calls that became imports.
    helper_calls: HashSet<usize>,
}

/// Applies all relocations.
pub(super) fn link(object: &Object<'_>, layout: &mut Layout, helpers: &HelperSet) -> Result<Linked, ImageError> {
    let mut linker = Linker {
        object,
        helpers,
        by_name: HashMap::new(),
        missing: Vec::new(),
        missing_names: HashSet::new(),
        linked: Linked { imports: Vec::new(), helper_calls: HashSet::new() },
    };
    for r in &object.relocations {
        match layout.placements[r.section] {
            Placement::Code(start) => linker.relocate_code(layout, start, r)?,
            Placement::Data(region, start) => linker.relocate_data(layout, region, start, r)?,
            Placement::Nowhere => {}
        }
        if linker.missing.len() == MISSING_MAX {
            break;
        }
    }
    refuse_missing(linker.missing, helpers)?;
    Ok(linker.linked)
}

impl Linked {
    /// Gives calls by number their helpers, where one of `kinds` has such numbers.
    pub(super) fn resolve_numbers(
        &mut self,
        code: &mut [Slot],
        kinds: &[Kind],
        helpers: &HelperSet,
        place: impl Fn(usize) -> Place,
    ) -> Result<(), ImageError> {
        let mut by_name: HashMap<String, usize> =
            self.imports.iter().enumerate().map(|(i, m)| (m.name.clone(), i)).collect();
        for at in call_slots(code) {
            let slot = &mut code[at];
            if slot.src != 0 || self.helper_calls.contains(&at) {
                continue;
            }
            let number = slot.imm;
            let Some(named) = kinds.iter().find_map(|k| compat::helper_by_number(*k, number)) else {
                return Err(ImageError::NumericCall { place: place(at), number });
            };
            let Some(helper) = helpers.find(named) else {
                let missing = MissingSymbol { name: named.to_owned(), near: Vec::new(), place: place(at) };
                return refuse_missing(vec![missing], helpers);
            };
            let name = helpers.get(helper).name;
            let index = *by_name.entry(name.to_owned()).or_insert_with(|| {
                self.imports.push(Import { name: name.to_owned(), weak: false, helper: Some(helper) });
                self.imports.len() - 1
            });
            slot.imm = index as i32;
        }
        Ok(())
    }

    /// For raw code: the calls at these slots go to helpers by name.
    pub(super) fn by_name(
        code: &mut [Slot],
        named: &[(usize, String)],
        helpers: &HelperSet,
        place: impl Fn(usize, &str) -> Place,
    ) -> Result<Self, ImageError> {
        let mut linked = Self { imports: Vec::new(), helper_calls: HashSet::new() };
        let mut missing = Vec::new();
        for (at, symbol) in named {
            let name = compat::helper_by_symbol(symbol);
            let known = linked.imports.iter().position(|i| i.name == name);
            let helper = helpers.find(name);
            if helper.is_none() {
                missing.push(MissingSymbol { name: name.to_owned(), near: Vec::new(), place: place(*at, name) });
            }
            let index = known.unwrap_or_else(|| {
                linked.imports.push(Import { name: name.to_owned(), weak: false, helper });
                linked.imports.len() - 1
            });
            code[*at].imm = index as i32;
            linked.helper_calls.insert(*at);
        }
        refuse_missing(missing, helpers)?;
        Ok(linked)
    }
}

/// Fails, with near names, where symbols are missing.
fn refuse_missing(mut missing: Vec<MissingSymbol>, helpers: &HelperSet) -> Result<(), ImageError> {
    if missing.is_empty() {
        return Ok(());
    }
    for m in missing.iter_mut().take(NEAR_SYMBOLS_MAX) {
        if m.name.len() <= NEAR_LEN_MAX {
            m.near = helpers.near(&m.name).into_iter().map(String::from).collect();
        }
    }
    Err(ImageError::Missing { symbols: missing })
}

/// Slots that hold a call; the second halves of `LDDW` are skipped.
pub(super) fn call_slots(code: &[Slot]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(slot) = code.get(at) {
        match slot.opcode {
            OP_LDDW => at += 1,
            OP_CALL => found.push(at),
            _ => {}
        }
        at += 1;
    }
    found
}

/// The target of a symbol.
enum Target {
    /// A slot of the image's code, and the end of its section.
    Code { slot: usize, section: usize },
    /// An address, or any other number.
    Address(u64),
    /// A helper, or an absent weak symbol.
    External { weak: bool },
    /// Nothing: the symbol was added to the missing ones.
    Missing,
}

struct Linker<'o, 'a> {
    object: &'o Object<'a>,
    helpers: &'o HelperSet,
    /// Import by name.
    by_name: HashMap<String, usize>,
    missing: Vec<MissingSymbol>,
    missing_names: HashSet<&'a str>,
    linked: Linked,
}

impl<'a> Linker<'_, 'a> {
    fn relocate_code(&mut self, layout: &mut Layout, start: usize, r: &Relocation) -> Result<(), ImageError> {
        let section_slots = self.object.sections[r.section].data.len() / Slot::LEN_BYTES;
        let relative = (r.offset / 8) as usize;
        if !r.offset.is_multiple_of(8) || relative >= section_slots {
            return Err(self.bad(r, "it is not at an instruction"));
        }
        let at = start + relative;
        match (r.r_type, layout.code[at].opcode) {
            (R_NONE, _) => Ok(()),
            (R_64_64, OP_LDDW) if relative + 1 < section_slots => self.relocate_load(layout, at, r),
            (R_64_64, _) => Err(self.bad(r, "a 64-bit address needs a 64-bit immediate load")),
            (R_64_32, OP_CALL) => self.relocate_call(layout, at, r),
            (R_64_32, _) => Err(self.bad(r, "a call target needs a call")),
            (other, _) => Err(self.bad(r, format!("type {other} does not belong into code"))),
        }
    }

    fn relocate_load(&mut self, layout: &mut Layout, at: usize, r: &Relocation) -> Result<(), ImageError> {
        let (low, high) = (layout.code[at].imm, layout.code[at + 1].imm);
        let addend = match (r.addend, high) {
            (Some(explicit), _) => explicit,
            // Older compilers leave the upper half of a negative addend zero.
            (None, 0 | -1) => i64::from(low),
            (None, _) => i64::MAX,
        };
        if addend.unsigned_abs() > DATA_LEN_MAX as u64 {
            return Err(self.bad(r, "the distance from the symbol is out of range"));
        }
        let value = match self.target(layout, r)? {
            Target::Address(address) => address.wrapping_add_signed(addend),
            Target::External { weak: true } => u64::from(self.helpers.find(self.helper_name(r)).is_some()),
            Target::Code { .. } | Target::External { weak: false } => {
                return Err(self.function_address(r));
            }
            Target::Missing => return Ok(()),
        };
        let slot = &mut layout.code[at];
        slot.src = 0;
        slot.imm = value as u32 as i32;
        layout.code[at + 1].imm = (value >> 32) as u32 as i32;
        Ok(())
    }

    fn relocate_call(&mut self, layout: &mut Layout, at: usize, r: &Relocation) -> Result<(), ImageError> {
        match self.target(layout, r)? {
            Target::Code { slot, section } => {
                // Without an explicit addend, `imm` is the distance in slots from the symbol, less 1.
                let addend = match r.addend {
                    Some(bytes) => bytes / 8,
                    None => i64::from(layout.code[at].imm) + 1,
                };
                let Placement::Code(start) = layout.placements[section] else {
                    return Err(self.bad(r, "the called section is not code"));
                };
                let end = start + self.object.sections[section].data.len() / Slot::LEN_BYTES;
                let target = usize::try_from(slot as i64 + addend)
                    .ok()
                    .filter(|t| (start..end).contains(t))
                    .ok_or_else(|| self.bad(r, "the call leaves the section of its target"))?;
                let slot = &mut layout.code[at];
                slot.src = CALL_LOCAL;
                slot.imm = (target as i64 - at as i64 - 1) as i32;
                Ok(())
            }
            Target::External { weak } => {
                let import = self.import(r, weak);
                let slot = &mut layout.code[at];
                slot.src = 0;
                slot.imm = import as i32;
                self.linked.helper_calls.insert(at);
                Ok(())
            }
            Target::Address(_) => Err(self.bad(r, "the called symbol is no function")),
            Target::Missing => Ok(()),
        }
    }

    fn relocate_data(
        &mut self,
        layout: &mut Layout,
        region: RegionId,
        start: usize,
        r: &Relocation,
    ) -> Result<(), ImageError> {
        match r.r_type {
            R_NONE => return Ok(()),
            R_ABS64 => {}
            R_ABS32 | R_NODYLD32 => {
                return Err(ImageError::UnsupportedRelocation {
                    place: self.place(r),
                    what: "an address in a 32-bit variable",
                    instead: "addresses have 64 bits; use a pointer or a 64-bit integer",
                });
            }
            other => {
                return Err(self.bad(r, format!("type {other} does not belong into data")));
            }
        }
        let len = self.object.sections[r.section].data.len() as u64;
        if r.offset.checked_add(8).is_none_or(|end| end > len) {
            return Err(self.bad(r, "it reaches past the end of the section"));
        }
        let value = match self.target(layout, r)? {
            Target::Address(address) => address,
            Target::External { weak: true } => u64::from(self.helpers.find(self.helper_name(r)).is_some()),
            Target::Code { .. } | Target::External { weak: false } => {
                return Err(self.function_address(r));
            }
            Target::Missing => return Ok(()),
        };
        let at = start + r.offset as usize;
        let field = &mut layout.region_mut(region)[at..at + 8];
        let mut old = [0; 8];
        old.copy_from_slice(field);
        let addend = r.addend.unwrap_or(i64::from_le_bytes(old));
        field.copy_from_slice(&value.wrapping_add_signed(addend).to_le_bytes());
        Ok(())
    }

    fn target(&mut self, layout: &Layout, r: &Relocation) -> Result<Target, ImageError> {
        let symbol = &self.object.symbols[r.symbol];
        match symbol.definition {
            Definition::Section(index) => self.target_in_section(layout, symbol, index, r),
            Definition::Absolute => Ok(Target::Address(symbol.value)),
            Definition::Common => Err(ImageError::UnsupportedRelocation {
                place: self.place(r),
                what: "a common symbol",
                instead: "compile with `-fno-common`",
            }),
            Definition::Undefined => Ok(self.external(r)),
        }
    }

    fn target_in_section(
        &self,
        layout: &Layout,
        symbol: &Symbol<'_>,
        index: usize,
        r: &Relocation,
    ) -> Result<Target, ImageError> {
        let section = &self.object.sections[index];
        let within = symbol.value <= section.len;
        match layout.placements[index] {
            Placement::Code(start) if within && symbol.value.is_multiple_of(8) => {
                Ok(Target::Code { slot: start + (symbol.value / 8) as usize, section: index })
            }
            Placement::Data(region, start) if within => {
                Ok(Target::Address(region.base() + start as u64 + symbol.value))
            }
            Placement::Nowhere => match section.role {
                Role::Unsupported(what) => {
                    Err(ImageError::UnsupportedSection { section: section.name.to_owned(), what })
                }
                _ => Err(self.bad(r, format!("it refers to section `{}`, which is not loaded", section.name))),
            },
            _ => Err(ImageError::Symbol {
                symbol: symbol.name.to_owned(),
                section: section.name.to_owned(),
                what: format!("its value {:#x} is no place in the section", symbol.value),
            }),
        }
    }

    fn external(&mut self, r: &Relocation) -> Target {
        let symbol = &self.object.symbols[r.symbol];
        let weak = symbol.binding == Binding::Weak || compat::is_trap(symbol.name);
        if weak || self.helpers.find(self.helper_name(r)).is_some() {
            return Target::External { weak };
        }
        if self.missing_names.insert(symbol.name) {
            let missing = MissingSymbol { name: symbol.name.to_owned(), near: Vec::new(), place: self.place(r) };
            self.missing.push(missing);
        }
        Target::Missing
    }

    /// The index of the import that a call's symbol refers to.
    fn import(&mut self, r: &Relocation, weak: bool) -> usize {
        let name = self.helper_name(r);
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        let index = self.linked.imports.len();
        self.by_name.insert(name.to_owned(), index);
        self.linked.imports.push(Import { name: name.to_owned(), weak, helper: self.helpers.find(name) });
        index
    }

    fn helper_name(&self, r: &Relocation) -> &'a str {
        compat::helper_by_symbol(self.object.symbols[r.symbol].name)
    }

    fn function_address(&self, r: &Relocation) -> ImageError {
        ImageError::UnsupportedRelocation {
            place: self.place(r),
            what: "the address of a function",
            instead: "call the function directly, or choose by `switch`",
        }
    }

    fn bad(&self, r: &Relocation, what: impl Into<String>) -> ImageError {
        ImageError::Relocation { place: self.place(r), what: what.into() }
    }

    fn place(&self, r: &Relocation) -> Place {
        let symbol = &self.object.symbols[r.symbol];
        let name = match symbol.definition {
            Definition::Section(index) if symbol.name.is_empty() => self.object.sections[index].name,
            _ => symbol.name,
        };
        Place { section: self.object.sections[r.section].name.to_owned(), offset: r.offset, symbol: name.to_owned() }
    }
}
