//! Layout Send: where the bytes of a file on a mounted volume are, so that calls can name the file.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::FUNCTION_VERSION;
use super::field::FieldError;

/// The most runs in one Layout Send; a layout with more is sent in parts.
pub const LAYOUT_RUNS_MAX: usize = 1 << 15;

/// The header. The runs follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LayoutHeader {
    version: U16,
    header_len: U16,
    action: U32,
    id: U32,
    nsid: U32,
    generation: U64,
    file_len: U64,
    runs: U32,
    reserved: U32,
}
const _: () = assert!(size_of::<LayoutHeader>() == 40);

/// A run of bytes as it is sent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RunEntry {
    logical: U64,
    physical: U64,
    len: U64,
}
const _: () = assert!(size_of::<RunEntry>() == 24);

/// The action to take on a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LayoutAction {
    /// Keep it, in the place of any earlier generation. Calls that use an earlier one continue with what they know.
    Set = 0,
    /// Add runs to it: it is sent in parts.
    Append = 1,
    /// Forget it, and whatever is earlier. Completes when no call uses it any more: a fence.
    Revoke = 2,
}

/// Bytes of a file that lie in one piece on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRun {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the volume.
    pub physical: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A Layout Send's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutRequest {
    /// The action to take.
    pub action: LayoutAction,
    /// The host's name for the file; calls name it so.
    pub id: u32,
    /// The volume.
    pub nsid: u32,
    /// Which state of the file; grows with each. Not 0, which means any in a call.
    pub generation: u64,
    /// Length of the file in bytes. Ranges that no run covers read as zeroes.
    pub file_len: u64,
    /// Where bytes are, in the order of the file, not overlapping.
    pub runs: Vec<LayoutRun>,
}

impl LayoutRequest {
    /// As it is sent.
    ///
    /// # Panics
    /// In debug builds, with more than [`LAYOUT_RUNS_MAX`] runs.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.runs.len() <= LAYOUT_RUNS_MAX, "a longer layout is sent in parts");
        let header = LayoutHeader {
            version: U16::new(FUNCTION_VERSION.into()),
            header_len: U16::new(size_of::<LayoutHeader>() as u16),
            action: U32::new(self.action as u32),
            id: U32::new(self.id),
            nsid: U32::new(self.nsid),
            generation: U64::new(self.generation),
            file_len: U64::new(self.file_len),
            runs: U32::new(self.runs.len() as u32),
            reserved: U32::ZERO,
        };
        let mut bytes = header.as_bytes().to_vec();
        for run in &self.runs {
            let [logical, physical, len] = [run.logical, run.physical, run.len].map(U64::new);
            bytes.extend_from_slice(RunEntry { logical, physical, len }.as_bytes());
        }
        bytes
    }

    /// Parses the whole data of a command.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode(bytes: &[u8]) -> Result<Self, FieldError> {
        let (header, rest) = LayoutHeader::ref_from_prefix(bytes)
            .map_err(|_| FieldError::new(bytes.len(), "the layout ends in its header"))?;
        if header.version.get() != u16::from(FUNCTION_VERSION) {
            return Err(FieldError::new(0, "the version is not 1"));
        }
        if usize::from(header.header_len.get()) != size_of::<LayoutHeader>() {
            return Err(FieldError::new(2, "the header of version 1 has 40 bytes"));
        }
        let action = match header.action.get() {
            0 => LayoutAction::Set,
            1 => LayoutAction::Append,
            2 => LayoutAction::Revoke,
            _ => return Err(FieldError::new(4, "the action is 0 (set), 1 (append) or 2 (revoke)")),
        };
        if header.generation.get() == 0 {
            return Err(FieldError::new(16, "a generation is at least 1"));
        }
        let count = header.runs.get() as usize;
        if count > LAYOUT_RUNS_MAX || (action == LayoutAction::Revoke && count > 0) {
            return Err(FieldError::new(32, "more runs than such a command has"));
        }
        if header.reserved != U32::ZERO {
            return Err(FieldError::new(36, "reserved bytes are zero"));
        }
        if rest.len() != count * size_of::<RunEntry>() {
            return Err(FieldError::new(bytes.len(), "the layout is not as long as its header says"));
        }
        let mut runs = Vec::with_capacity(count);
        let mut done = 0;
        for (index, entry) in rest.chunks_exact(size_of::<RunEntry>()).enumerate() {
            let base = size_of::<LayoutHeader>() + index * size_of::<RunEntry>();
            let run = LayoutRun::parse(entry, base, done, header.file_len.get())?;
            done = run.logical + run.len;
            runs.push(run);
        }
        Ok(Self {
            action,
            id: header.id.get(),
            nsid: header.nsid.get(),
            generation: header.generation.get(),
            file_len: header.file_len.get(),
            runs,
        })
    }
}

impl LayoutRun {
    /// Parses a run that begins at or after `done` in a file of `file_len` bytes.
    fn parse(bytes: &[u8], base: usize, done: u64, file_len: u64) -> Result<Self, FieldError> {
        let (entry, _) = RunEntry::ref_from_prefix(bytes).map_err(|_| FieldError::new(base, "a run has 24 bytes"))?;
        let run = Self { logical: entry.logical.get(), physical: entry.physical.get(), len: entry.len.get() };
        if run.logical < done {
            return Err(FieldError::new(base, "runs are in the order of the file and do not overlap"));
        }
        if run.physical.checked_add(run.len).is_none() {
            return Err(FieldError::new(base + 8, "the run ends past all volumes"));
        }
        if run.len == 0 || run.logical.checked_add(run.len).is_none_or(|end| end > file_len) {
            return Err(FieldError::new(base + 16, "the run is empty or ends past the file"));
        }
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> LayoutRequest {
        LayoutRequest {
            action: LayoutAction::Append,
            id: 0x0403_0201,
            nsid: 0x1413_1211,
            generation: 0x2827_2625_2423_2221,
            file_len: 0x3000,
            runs: vec![
                LayoutRun { logical: 0, physical: 0x5000, len: 0x1000 },
                LayoutRun { logical: 0x2000, physical: 0x4000, len: 0xfff },
            ],
        }
    }

    #[test]
    fn each_field_stands_where_the_specification_says() {
        let bytes = request().encode();
        let mut want = vec![1, 0, 40, 0, 1, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14];
        want.extend([
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0, 0x30, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
        ]);
        for number in [0, 0x5000, 0x1000, 0x2000, 0x4000, 0xfffu64] {
            want.extend(number.to_le_bytes());
        }
        assert_eq!(bytes, want);
        assert_eq!(LayoutRequest::decode(&bytes), Ok(request()));
    }

    #[test]
    fn what_cannot_be_names_its_byte() {
        let place = |change: fn(&mut LayoutRequest)| {
            let mut request = request();
            change(&mut request);
            LayoutRequest::decode(&request.encode()).expect_err("refused").offset
        };
        assert_eq!(place(|request| request.generation = 0), 16);
        assert_eq!(place(|request| request.action = LayoutAction::Revoke), 32);
        assert_eq!(place(|request| request.runs[1].logical = 0xfff), 64);
        assert_eq!(place(|request| request.runs[0].physical = u64::MAX), 48);
        assert_eq!(place(|request| request.runs[0].len = 0), 56);
        assert_eq!(place(|request| request.runs[1].len = 0x1001), 80);
        assert_eq!(place(|request| request.runs[1].logical = u64::MAX), 80);
        let bytes = request().encode();
        for (at, want) in [(0, 0), (2, 2), (4, 4), (36, 36), (32, 32 + 56)] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x7;
            assert_eq!(LayoutRequest::decode(&bytes).expect_err("refused").offset, want, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), like in any::<bool>()) {
            if like && bytes.len() >= 40 {
                bytes[..8].copy_from_slice(&[1, 0, 40, 0, 0, 0, 0, 0]);
                let count = (bytes.len() - 40) / 24;
                bytes[32..40].copy_from_slice(&[count as u8, 0, 0, 0, 0, 0, 0, 0]);
            }
            if let Ok(request) = LayoutRequest::decode(&bytes) {
                prop_assert_eq!(request.encode(), bytes);
            }
        }
    }
}
