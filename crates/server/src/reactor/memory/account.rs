//! A reactor's memory as the machine of one connection sees it.

use std::ops::Range;
use std::rc::Rc;

use diskside_io::ring::Received;
use diskside_nvme::{BufferId, BufferPool, BufferSlice, Buffers, crc32c};

use super::{Account, Charge, Data, HostCharge, Memory, class_bytes, class_of};

/// A reactor's memory as one connection's machine sees it.
pub(crate) struct AccountMemory<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) account: &'a mut Account,
    /// The bytes that are being looked at, if they are memory that can be referred to.
    pub(crate) arriving: Option<&'a Rc<Received>>,
    /// A buffer was asked for and there was none.
    pub(crate) refused: bool,
}

impl<'a> AccountMemory<'a> {
    pub(crate) fn new(memory: &'a mut Memory, account: &'a mut Account) -> Self {
        Self { memory, account, arriving: None, refused: false }
    }

    /// Where in what arrived `bytes` are.
    fn place(&self, bytes: &[u8]) -> Option<(Rc<Received>, Range<usize>)> {
        let arriving = self.arriving?;
        let start = bytes.as_ptr().addr().checked_sub(arriving.as_ptr().addr())?;
        let range = start..start + bytes.len();
        (range.end <= arriving.len()).then(|| (Rc::clone(arriving), range))
    }
}

impl Buffers for AccountMemory<'_> {
    fn write(&mut self, buffer: BufferId, offset: u32, bytes: &[u8]) {
        let index = buffer.0 as usize;
        if let Data::Promised { len } = self.memory.entries[index].data {
            if bytes.len() == len
                && let Some((bytes, range)) = self.place(bytes)
            {
                self.memory.entries[index].data = Data::Arrived { bytes, range };
                self.memory.arrived.push(buffer);
                return;
            }
            self.memory.entries[index].data = Data::Filling(self.memory.buffer(len));
        }
        let Data::Filling(data) = &mut self.memory.entries[index].data else {
            unreachable!("only buffers that were acquired are written, and each byte once")
        };
        data[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn digest(&mut self, slice: BufferSlice) -> u32 {
        let range = slice.offset as usize..(slice.offset + slice.len) as usize;
        // A volume's bytes are held until they are sent or copied: the checksum stays theirs.
        if let Data::Volume { volume, offset, .. } = &self.memory.entries[slice.buffer.0 as usize].data {
            let start = *offset as usize;
            if let Some(digest) = volume.volume.medium.crc32c(start + range.start..start + range.end) {
                return digest;
            }
            self.memory.detach_one(slice.buffer.0 as usize);
        }
        match &self.memory.entries[slice.buffer.0 as usize].data {
            Data::Filling(buffer) => crc32c(&buffer[range]),
            Data::Sending(buffer) => crc32c(&buffer[range]),
            _ => unreachable!("copied above, or not to be sent"),
        }
    }

    fn release(&mut self, buffer: BufferId) {
        self.memory.release(self.account, buffer);
    }
}

impl BufferPool for AccountMemory<'_> {
    fn acquire(&mut self, len: u32) -> Option<BufferId> {
        let bytes = class_bytes(class_of(len as usize));
        let may = self.memory.may_be_owed(self.account, bytes);
        let charge = may.then(|| self.memory.charge(self.account, len as usize)).flatten();
        self.promised(charge, len)
    }

    fn acquire_arriving(&mut self, len: u32) -> Option<BufferId> {
        let charge = self.memory.charge_arriving(self.account, len as usize);
        self.promised(charge, len)
    }
}

impl AccountMemory<'_> {
    /// A buffer for data that is to come, if there was room for it.
    fn promised(&mut self, charge: Option<Charge>, len: u32) -> Option<BufferId> {
        let Some(charge) = charge else {
            self.refused = true;
            return None;
        };
        let (memory, account) = (&mut *self.memory, &mut *self.account);
        memory.owed += charge.0;
        account.owed += charge.0;
        if let Some(host) = &account.host {
            HostCharge::add(&host.owed, charge.0);
        }
        let buffer = memory.insert(account, charge, Data::Promised { len: len as usize });
        memory.entries[buffer.0 as usize].owed = true;
        Some(buffer)
    }
}
