//! Where each section of an object goes: code slots, or addresses of the data regions.

use super::elf::{Object, Role, Section, limit};
use super::error::ImageError;
use crate::insn::Slot;
use crate::region::RegionId;

/// Most instruction slots.
pub const CODE_SLOTS_MAX: usize = 1 << 20;
/// Most bytes of read-only data, and of other data.
pub const DATA_LEN_MAX: usize = 64 << 20;

/// The place of a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placement {
    /// Not in memory.
    Nowhere,
    /// First slot in the image's code.
    Code(usize),
    /// Region and offset there.
    Data(RegionId, usize),
}

/// The memory of an image, before linking.
pub(super) struct Layout {
    /// By ELF section index.
    pub(super) placements: Vec<Placement>,
    pub(super) code: Vec<Slot>,
    pub(super) rodata: Vec<u8>,
    pub(super) data: Vec<u8>,
}

impl Layout {
    pub(super) fn new(object: &Object<'_>) -> Result<Self, ImageError> {
        let mut layout = Self {
            placements: vec![Placement::Nowhere; object.sections.len()],
            code: Vec::new(),
            rodata: Vec::new(),
            data: Vec::new(),
        };
        for (index, s) in object.with_role(Role::Code) {
            let start = layout.code.len();
            let slots = s.data.len() / Slot::LEN_BYTES;
            limit("the number of instruction slots", start + slots, CODE_SLOTS_MAX)?;
            layout.placements[index] = Placement::Code(start);
            layout.code.extend(decode_slots(s.data));
        }
        for (index, s) in object.with_role(Role::ReadOnly) {
            let start = append(&mut layout.rodata, s, "bytes of read-only data")?;
            layout.placements[index] = Placement::Data(RegionId::RODATA, start);
        }
        for role in [Role::Data, Role::Bss] {
            for (index, s) in object.with_role(role) {
                let start = append(&mut layout.data, s, "bytes of data")?;
                layout.placements[index] = Placement::Data(RegionId::DATA, start);
            }
        }
        Ok(layout)
    }

    /// The bytes of a data region.
    pub(super) fn region_mut(&mut self, region: RegionId) -> &mut [u8] {
        if region == RegionId::RODATA { &mut self.rodata } else { &mut self.data }
    }
}

/// The slots of a code section; bytes behind the last whole slot are left out.
pub(super) fn decode_slots(bytes: &[u8]) -> impl Iterator<Item = Slot> {
    bytes.as_chunks().0.iter().map(|b| Slot::from_bytes(*b))
}

/// Appends a section at its alignment and returns where it starts.
fn append(region: &mut Vec<u8>, section: &Section<'_>, what: &'static str) -> Result<usize, ImageError> {
    let start = region.len().next_multiple_of(section.align as usize);
    let len = usize::try_from(section.len).unwrap_or(usize::MAX);
    let end = start.saturating_add(len);
    limit(what, end, DATA_LEN_MAX)?;
    region.resize(start, 0);
    if section.role == Role::Bss {
        region.resize(end, 0);
    } else {
        region.extend_from_slice(section.data);
    }
    Ok(start)
}
