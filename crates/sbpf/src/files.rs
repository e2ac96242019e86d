//! The files of a program of kind `kernel`, as its helpers ask for them. The code that runs the program offers them for a call.

/// Files by their numbers. Offsets and lengths are in bytes; no range ends behind [`OFFSET_MAX`].
pub trait Files {
    /// Reads into `into`, and waits. Returns the number of bytes: fewer than asked for only at the end of the file.
    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<u64, FileFault>;

    /// Writes all of them, and waits: how many bytes that are. After an error some may be written.
    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<u64, FileFault>;

    /// Present length in bytes.
    fn len_bytes(&mut self, file: u32) -> Result<u64, FileFault>;

    /// Makes written bytes durable.
    fn sync(&mut self, file: u32) -> Result<(), FileFault>;

    /// Begins a read whose bytes are to go to `address`, which comes back with them.
    fn begin_read(&mut self, file: u32, offset: u64, len: u64, address: u64, cookie: u64) -> Result<(), FileFault>;

    /// Begins a write, whose bytes are taken at once.
    fn begin_write(&mut self, file: u32, offset: u64, bytes: &[u8], cookie: u64) -> Result<(), FileFault>;

    /// Waits until the oldest access of this cookie has ended, or any if it is `None`, and hands it over; false: there is
    /// none.
    fn wait(&mut self, cookie: Option<u64>, take: &mut dyn FnMut(Ended<'_>)) -> Result<bool, FileFault>;

    /// Called now and then while the program computes, so that work under way continues. Waits for nothing.
    fn pause(&mut self) {}

    /// Hands over an access that has ended, if one has.
    fn take_ended(&mut self, take: &mut dyn FnMut(Ended<'_>)) -> bool;
}

/// Linux's offsets are signed.
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// An access that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// By which the program knows it.
    pub cookie: u64,
    /// Bytes moved, or the errno.
    pub result: Result<u64, i32>,
    /// The bytes that were read.
    pub bytes: &'a [u8],
    /// Where they go.
    pub address: u64,
}

/// Why an access of a file did not end well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFault {
    /// With this errno, which goes to the program.
    Errno(i32),
    /// The call has to stop: it was cancelled, or its deadline passed.
    Interrupted,
}
