//! A medium in memory, which can be told to fail.

use diskside_nvme::Status;
use diskside_nvme::controller::{ByteRange, Completion, MediumId, Operation, Request};
use diskside_nvme::wire::Sqe;

use super::memory::Memory;

/// The media of a target, by [`MediumId`].
#[derive(Debug, Default)]
pub struct Media {
    pub media: Vec<Vec<u8>>,
    /// Commands of other command sets that came, with their data. All are refused.
    pub others: Vec<(Sqe, Vec<u8>)>,
}

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// `EIO`.
    Io,
    /// `ENOSPC`.
    NoSpace,
}

impl Media {
    pub fn add(&mut self, len: usize) -> MediumId {
        self.media.push(vec![0; len]);
        MediumId(self.media.len() as u64 - 1)
    }

    fn at(&mut self, medium: MediumId, range: ByteRange) -> &mut [u8] {
        &mut self.media[medium.0 as usize][range.offset as usize..][..range.len as usize]
    }

    /// Carries out a request. `None`: it is not one that is answered.
    pub fn carry_out(&mut self, request: Request, memory: &mut Memory, fault: Fault) -> Option<Completion> {
        let medium = request.medium;
        let writes =
            !matches!(request.operation, Operation::Read { .. } | Operation::Verify { .. } | Operation::Compare { .. });
        let failed = match fault {
            Fault::None => None,
            Fault::Io if writes => Some(Status::WRITE_FAULT),
            Fault::Io => Some(Status::UNRECOVERED_READ_ERROR),
            Fault::NoSpace => Some(Status::CAPACITY_EXCEEDED),
        };
        Some(match request.operation {
            Operation::Read { offset, len, .. } => {
                if let Some(status) = failed {
                    return Some(Completion::failed(status));
                }
                let bytes = self.at(medium, ByteRange { offset, len: len.into() }).to_vec();
                let buffer = memory.insert(bytes);
                Completion::data(diskside_nvme::BufferSlice::new(buffer, len))
            }
            Operation::Write { offset, data, .. } => {
                let bytes = memory.slice(data).to_vec();
                memory.remove(data.buffer);
                if failed.is_none() {
                    self.at(medium, ByteRange { offset, len: data.len.into() }).copy_from_slice(&bytes);
                }
                failed.map_or(Completion::success(), Completion::failed)
            }
            Operation::Compare { offset, data } => {
                let bytes = memory.slice(data).to_vec();
                memory.remove(data.buffer);
                let equal = self.at(medium, ByteRange { offset, len: data.len.into() }) == bytes;
                match failed {
                    Some(status) => Completion::failed(status),
                    None if equal => Completion::success(),
                    None => Completion::failed(Status::COMPARE_FAILURE.dnr()),
                }
            }
            Operation::Flush | Operation::Verify { .. } => failed.map_or(Completion::success(), Completion::failed),
            Operation::WriteZeroes { range, .. } => {
                if failed.is_none() {
                    self.at(medium, range).fill(0);
                }
                failed.map_or(Completion::success(), Completion::failed)
            }
            Operation::Deallocate { ranges } => {
                if failed.is_none() {
                    for range in ranges {
                        self.at(medium, range).fill(0);
                    }
                }
                failed.map_or(Completion::success(), Completion::failed)
            }
            Operation::Copy { sources, offset, .. } => {
                if failed.is_none() {
                    let bytes: Vec<u8> =
                        sources.iter().flat_map(|source| self.at(source.medium, source.range).to_vec()).collect();
                    self.at(medium, ByteRange { offset, len: bytes.len() as u64 }).copy_from_slice(&bytes);
                }
                failed.map_or(Completion::success(), Completion::failed)
            }
            Operation::Other(other) => {
                let mut bytes = Vec::new();
                if let Some(data) = other.data {
                    bytes.extend_from_slice(memory.slice(data));
                    memory.remove(data.buffer);
                }
                self.others.push((*other.sqe, bytes));
                Completion::failed(Status::INVALID_OPCODE.dnr())
            }
            Operation::Cancel => return None,
            Operation::GiveBack(data) => {
                memory.remove(data.buffer);
                return None;
            }
            operation => panic!("a request that this medium does not know: {operation:?}"),
        })
    }
}
