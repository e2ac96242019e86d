//! `.BTF.ext`: which type each function has, and which source line each instruction comes from.
//!
//! Layout: <https://docs.kernel.org/bpf/btf.html>, section 3. Offsets are relative to the named code
//! section, so the relocations that clang adds for linkers need not be applied.

use super::SourceLine;
use super::btf::{Btf, u32_at};
use super::elf::limit;
use super::error::ImageError;

const MAGIC: u16 = 0xeb9f;
/// Longest file name that is kept; the rest is cut.
const FILE_LEN_MAX: usize = 512;
/// Longest line text that is kept; the rest is cut.
const TEXT_LEN_MAX: usize = 256;
/// Most bytes of file names and line texts together.
const TEXT_TOTAL_LEN_MAX: usize = 32 << 20;

/// A record of either table.
pub(super) struct Record<'a> {
    /// Name of the code section.
    pub(super) section: &'a str,
    /// Offset of the instruction in bytes.
    pub(super) offset: u32,
    /// The words behind the offset: a type number, or file, line text, line and column.
    words: [u32; 3],
}

impl Record<'_> {
    /// The number of the function's type.
    pub(super) const fn type_id(&self) -> u32 {
        self.words[0]
    }
}

/// The two tables.
pub(super) struct Ext<'a> {
    pub(super) functions: Vec<Record<'a>>,
    lines: Vec<Record<'a>>,
}

impl<'a> Ext<'a> {
    pub(super) fn parse(bytes: &'a [u8], btf: &Btf<'a>) -> Result<Self, ImageError> {
        let bad = |offset, what| ImageError::Debug { section: ".BTF.ext", offset, what };
        let magic = bytes.get(..2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        let header_len = u32_at(bytes, 4).unwrap_or(0) as usize;
        if magic != Some(MAGIC) || bytes.get(2) != Some(&1) || header_len < 24 {
            return Err(bad(0, "the header is damaged, or for another version than 1"));
        }
        let table = |at: usize, words: usize| {
            let start = header_len.checked_add(u32_at(bytes, at)? as usize)?;
            let end = start.checked_add(u32_at(bytes, at + 4)? as usize)?;
            bytes.get(start..end)?;
            Some(records(&bytes[..end], start, words, btf).map_err(|at| bad(at, CUT)))
        };
        let missing = || bad(8, "a table reaches past the end of the section");
        Ok(Self { functions: table(8, 1).ok_or_else(missing)??, lines: table(16, 3).ok_or_else(missing)?? })
    }

    /// Source positions by instruction slot; `slot_of` finds the slot of a section's offset.
    pub(super) fn source_lines(
        &self,
        btf: &Btf<'a>,
        slot_of: impl Fn(&str, u32) -> Option<usize>,
    ) -> Result<Vec<SourceLine>, ImageError> {
        let mut at: Vec<_> = self.lines.iter().filter_map(|r| Some((slot_of(r.section, r.offset)?, r))).collect();
        at.sort_by_key(|(slot, _)| *slot);
        // Of several positions for one instruction the last is the most precise.
        at.reverse();
        at.dedup_by_key(|(slot, _)| *slot);
        at.reverse();
        let mut total = 0;
        let mut lines = Vec::with_capacity(at.len());
        for (insn, r) in at {
            let [file, text, line_column] = r.words;
            let file = btf.text_cut(file, FILE_LEN_MAX).into_owned();
            let text = btf.text_cut(text, TEXT_LEN_MAX).trim().to_owned();
            total += file.len() + text.len();
            limit("the length in bytes of all source lines", total, TEXT_TOTAL_LEN_MAX)?;
            lines.push(SourceLine { insn, file, line: line_column >> 10, column: line_column & 0x3ff, text });
        }
        Ok(lines)
    }
}

const CUT: &str = "a record is cut short or names no section";

/// Reads a table that ends with `bytes`; the error is the offset of the damage.
fn records<'a>(bytes: &[u8], start: usize, words: usize, btf: &Btf<'a>) -> Result<Vec<Record<'a>>, usize> {
    let mut out = Vec::new();
    if start == bytes.len() {
        return Ok(out);
    }
    let record_len = u32_at(bytes, start).ok_or(start)? as usize;
    if record_len < 4 + 4 * words || !record_len.is_multiple_of(4) {
        return Err(start);
    }
    let mut at = start + 4;
    while at < bytes.len() {
        let section = u32_at(bytes, at).and_then(|o| btf.text(o)).ok_or(at)?;
        let count = u32_at(bytes, at + 4).ok_or(at)? as usize;
        at += 8;
        let end = count
            .checked_mul(record_len)
            .and_then(|len| at.checked_add(len))
            .filter(|end| *end <= bytes.len())
            .ok_or(at - 8)?;
        while at < end {
            let word = |i: usize| u32_at(bytes, at + 4 * i).unwrap_or_default();
            let mut kept = [0; 3];
            for (i, w) in kept.iter_mut().take(words).enumerate() {
                *w = word(i + 1);
            }
            out.push(Record { section, offset: word(0), words: kept });
            at += record_len;
        }
    }
    Ok(out)
}
