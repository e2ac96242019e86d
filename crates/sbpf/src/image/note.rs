//! The `.diskside` section: what an object asks of its host, as a sequence of records.
//!
//! All numbers are little-endian. Each record is
//!
//! | bytes | field |
//! |---|---|
//! | 0-1 | type |
//! | 2-3 | length of the payload in bytes, without padding |
//! | 4-… | payload, then zeros up to a multiple of 4 |
//!
//! and records follow one another from the start of the section, each at a multiple of 4. The types:
//!
//! | type | payload | meaning |
//! |---|---|---|
//! | 0 | none | four bytes of padding between records; any number of them |
//! | 1 | `u32` version | version of the program ABI, from 1 |
//! | 2 | `u32` bytes | stack frame: a multiple of 64 from 64 to 1 MiB |
//! | 3 | `u32` num, `u32` den, `u64` constant | output capacity is `in_len * num / den + constant` |
//! | 4 | `u32` kind, `u32` arg | records: kind 0 not declared (arg 0), 1 of arg bytes, 2 after delimiter byte arg, 3 any byte (arg 0) |
//! | 5 | `u32` kind | kind of programs whose section names none: 1 `xrp`, 2 `delilah` |
//! | 6 | `u32` 1 | outputs of pieces stand one after another |
//! | 7 | `u32` count | a piece holds a multiple of so many records, from 1 to 65,536 |
//! | 8001h | `u32` permille, `u32` passes, `u32` places | hints of what programs cost: output for 1,000 bytes of input, up to 1,000,000; times that they go through it, 1 to 1,000; 0 in order, 1 scattered |
//!
//! A type may appear once. An unknown type with bit 15 set is ignored (a hint for later hosts); any
//! other unknown type is an error, because the program needs something that this host does not know.

use super::error::ImageError;
use super::{CostHints, Kind, Note, Split};

/// The newest version of the program ABI that is known here.
pub const ABI_VERSION: u32 = 1;

const PADDING: u16 = 0;
const ABI: u16 = 1;
const STACK: u16 = 2;
const OUT_RATIO: u16 = 3;
const SPLIT: u16 = 4;
const KIND: u16 = 5;
const CONCATENATE: u16 = 6;
const PIECE: u16 = 7;
const SELECT: u16 = 8;
/// The last type that is known.
const LAST: u16 = SELECT;
/// Set in types that a host may ignore.
const OPTIONAL: u16 = 0x8000;
const COST: u16 = 1 | OPTIONAL;

/// Reads the section.
pub(super) fn parse(bytes: &[u8]) -> Result<Note, ImageError> {
    let mut note = Note::default();
    let (mut seen, mut seen_cost) = ([false; LAST as usize + 1], false);
    let mut at = 0;
    while at < bytes.len() {
        let bad = |what: String| ImageError::Note { offset: at, what };
        let cut = || bad("a record is cut short; compile the object again".to_owned());
        let header = bytes.get(at..at + 4).ok_or_else(cut)?;
        let ty = u16::from_le_bytes([header[0], header[1]]);
        let len = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let payload = bytes.get(at + 4..at + 4 + len).ok_or_else(cut)?;
        let known = match ty {
            COST => Some(&mut seen_cost),
            PADDING => None,
            ty => seen.get_mut(usize::from(ty)),
        };
        if let Some(known) = known {
            let again = std::mem::replace(known, true);
            if again {
                return Err(bad(format!("record type {ty} appears twice; keep one")));
            }
        }
        let record = Record { ty, payload };
        match record.apply(&mut note) {
            Ok(()) => {}
            Err(Refusal::Note(what)) => return Err(bad(what)),
            Err(Refusal::Version(version)) => {
                return Err(ImageError::AbiVersion { version, supported: ABI_VERSION });
            }
        }
        at += 4 + len.next_multiple_of(4);
    }
    Ok(note)
}

struct Record<'a> {
    ty: u16,
    payload: &'a [u8],
}

enum Refusal {
    Note(String),
    Version(u32),
}

impl Record<'_> {
    fn apply(&self, note: &mut Note) -> Result<(), Refusal> {
        match self.ty {
            PADDING => {
                self.words::<0>()?;
            }
            ABI => {
                let [version] = self.words()?;
                if version == 0 || version > ABI_VERSION {
                    return Err(Refusal::Version(version));
                }
                note.abi_version = version;
            }
            STACK => {
                let [bytes] = self.words()?;
                if bytes == 0 || !bytes.is_multiple_of(64) || bytes > Note::STACK_BYTES_MAX {
                    return refuse(format!(
                        "a stack of {bytes} bytes: ask for a multiple of 64 up to {}",
                        Note::STACK_BYTES_MAX
                    ));
                }
                note.stack_bytes = bytes;
            }
            OUT_RATIO => {
                let [num, den, low, high] = self.words()?;
                if den == 0 {
                    return refuse("the denominator of the output ratio is 0".to_owned());
                }
                note.out_ratio = (num, den);
                note.out_constant = u64::from(low) | (u64::from(high) << 32);
            }
            SPLIT => {
                let [kind, arg] = self.words()?;
                note.split = match (kind, arg) {
                    (0, 0) => None,
                    (1, 1..) => Some(Split::Fixed(arg)),
                    (2, 0..=255) => Some(Split::Delimiter(arg as u8)),
                    (3, 0) => Some(Split::Bytes),
                    _ => return refuse(format!("split kind {kind} with {arg} is not defined")),
                };
            }
            KIND => {
                let [kind] = self.words()?;
                note.kind = Some(match kind {
                    1 => Kind::Xrp,
                    2 => Kind::Delilah,
                    _ => return refuse(format!("kind {kind} is not defined")),
                });
            }
            CONCATENATE => {
                let [yes] = self.words()?;
                if yes != 1 {
                    return refuse(format!("concatenation {yes} is not defined; it is 1 or left out"));
                }
                note.concatenates = true;
            }
            SELECT => {
                let [yes] = self.words()?;
                if yes != 1 {
                    return refuse(format!("selection {yes} is not defined; it is 1 or left out"));
                }
                note.selects = true;
            }
            PIECE => {
                let [records] = self.words()?;
                if records == 0 || records > Note::PIECE_RECORDS_MAX {
                    return refuse(format!(
                        "pieces of a multiple of {records} records: ask for 1 to {}",
                        Note::PIECE_RECORDS_MAX
                    ));
                }
                note.piece_records = records;
            }
            COST => {
                let [output_permille, passes, places] = self.words()?;
                if output_permille > CostHints::OUTPUT_PERMILLE_MAX {
                    return refuse(format!(
                        "{output_permille} bytes of output for 1000 of input: at most {}",
                        CostHints::OUTPUT_PERMILLE_MAX
                    ));
                }
                if passes == 0 || passes > CostHints::PASSES_MAX {
                    return refuse(format!("{passes} passes over the input: 1 to {}", CostHints::PASSES_MAX));
                }
                let scattered = match places {
                    0 => false,
                    1 => true,
                    _ => return refuse(format!("accesses {places} are not defined: 0 in order, 1 scattered")),
                };
                note.cost = Some(CostHints { output_permille, passes, scattered });
            }
            ty if ty & OPTIONAL != 0 => {}
            ty => {
                return refuse(format!("record type {ty} is unknown here; compile with the header of this host"));
            }
        }
        Ok(())
    }

    /// The payload as exactly `N` words.
    fn words<const N: usize>(&self) -> Result<[u32; N], Refusal> {
        let (chunks, rest) = self.payload.as_chunks::<4>();
        let words: Option<[[u8; 4]; N]> = chunks.try_into().ok();
        match words {
            Some(w) if rest.is_empty() => Ok(w.map(u32::from_le_bytes)),
            _ => Err(Refusal::Note(format!(
                "record type {} is {} bytes long instead of {}",
                self.ty,
                self.payload.len(),
                4 * N
            ))),
        }
    }
}

fn refuse(what: String) -> Result<(), Refusal> {
    Err(Refusal::Note(what))
}
