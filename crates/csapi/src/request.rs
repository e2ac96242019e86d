//! Requests: descriptions by callers, and how they are carried out.
//!
//! A [`Described`] request is a copy of what C handed over; a [`Work`] is one whose handles were looked up, and holds
//! their objects until it is done.

use crate::allocation::{Allocation, memory_of};
use crate::device::InUse;
use crate::functions::{Csf, Run};
use crate::raw::{HostBytes, elements, structure};
use crate::status::{CS_DEVICE_NOT_READY, CS_ERROR_IN_EXECUTION, CS_INVALID_LENGTH, Done, Failure};
use crate::storage::{DescribedStorage, Storage};
use crate::types::{
    CS_32BIT_VALUE_TYPE, CS_64BIT_VALUE_TYPE, CS_AFDM_TYPE, CS_BATCH_REQ_TYPE, CS_COPY_AFDM, CS_COPY_FROM_DEVICE,
    CS_COPY_TO_DEVICE, CS_CSF_ID, CS_DESCRIPTOR_TYPE, CS_QUEUE_COMPUTE, CS_STORAGE_IO, CS_STREAM_TYPE, CsBatchRequest,
    CsComputeArg, CsComputeRequest, CsCopyMemRequest, CsDevAFDM, CsStorageRequest,
};
use diskside::host::function::{
    CallHandle, CallOutcome, Endpoint, EndpointKind, FunctionKind, FunctionRequest, RANGE_GRANULARITY, RemoteCall,
};
use std::mem::offset_of;
use std::ops::Range;
use std::ptr::addr_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Arguments of a function.
pub(crate) const ARGUMENTS_MAX: usize = 256;
/// The greatest number of an error.
const ERRNO_MAX: i64 = 4095;
/// How often what the server has no room for is tried again, after a pause of up to [`BUSY_PAUSE_MAX`].
const BUSY_TRIES: u32 = 200;
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(50);

/// A request as it was described.
#[derive(Clone, Debug)]
pub(crate) enum Described {
    Copy { to_device: bool, host: HostBytes, place: Place },
    Storage(DescribedStorage),
    Compute { csf: CS_CSF_ID, args: Vec<Argument> },
}

/// A place in device memory, by its handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    memory: usize,
    offset: u64,
}

impl Place {
    pub(crate) fn find(self) -> Done<(InUse<Allocation>, u64)> {
        memory_of(&CsDevAFDM { MemHandle: std::ptr::without_provenance_mut(self.memory), ByteOffset: self.offset })
    }
}

impl From<CsDevAFDM> for Place {
    fn from(place: CsDevAFDM) -> Self {
        Self { memory: place.MemHandle.addr(), offset: place.ByteOffset }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Memory(Place),
    Value32(u32),
    Value64(u64),
}

impl Described {
    /// # Safety
    /// The crate's contract.
    pub(crate) unsafe fn copy(request: *const CsCopyMemRequest) -> Done<Self> {
        // SAFETY: the caller's promise.
        let request = unsafe { structure(request, "CopyReq")? };
        let to_device = match request.Type {
            CS_COPY_TO_DEVICE => true,
            CS_COPY_FROM_DEVICE => false,
            other => return Err(Failure::argument(format!("Type of a copy is {other}"))),
        };
        let host = HostBytes::new(request.HostVAddress, request.Bytes as usize)?;
        Ok(Self::Copy { to_device, host, place: request.DevMem.into() })
    }

    /// # Safety
    /// The crate's contract.
    pub(crate) unsafe fn storage(request: *const CsStorageRequest) -> Done<Self> {
        // SAFETY: the caller's promise.
        unsafe { DescribedStorage::read(request) }.map(Self::Storage)
    }

    /// # Safety
    /// The crate's contract.
    pub(crate) unsafe fn compute(request: *const CsComputeRequest) -> Done<Self> {
        // SAFETY: the caller's promise: of a request with fewer arguments there may be less memory than the structure has.
        let (csf, count, first) = unsafe {
            if request.is_null() {
                return Err(Failure::null("Req"));
            }
            let count = addr_of!((*request).NumArgs).read_unaligned();
            (addr_of!((*request).CSFId).read_unaligned(), count, addr_of!((*request).Args).cast::<CsComputeArg>())
        };
        let count = usize::try_from(count).ok().filter(|count| *count <= ARGUMENTS_MAX);
        let count = count.ok_or_else(|| Failure::argument(format!("NumArgs is not from 0 to {ARGUMENTS_MAX}")))?;
        // SAFETY: as above: there are so many arguments.
        let args = unsafe { elements(first, count) };
        let args = args.iter().map(Argument::read).collect::<Done<_>>()?;
        Ok(Self::Compute { csf, args })
    }

    /// # Safety
    /// The crate's contract.
    pub(crate) unsafe fn entry(request: *const CsBatchRequest) -> Done<Self> {
        if request.is_null() {
            return Err(Failure::null("Req"));
        }
        // SAFETY: the caller's promise.
        let (kind, given_len, entry) = unsafe {
            let kind: CS_BATCH_REQ_TYPE = addr_of!((*request).ReqType).read_unaligned();
            (kind, addr_of!((*request).reqLength).read_unaligned(), addr_of!((*request).u))
        };
        // SAFETY: as above; the union has what its type says.
        let (described, len) = unsafe {
            match kind {
                CS_COPY_AFDM => (Self::copy(entry.cast())?, size_of::<CsCopyMemRequest>()),
                CS_STORAGE_IO => (Self::storage(entry.cast())?, 0),
                CS_QUEUE_COMPUTE => {
                    let described = Self::compute(entry.cast())?;
                    let Self::Compute { args, .. } = &described else { unreachable!("it is one that computes") };
                    let len = offset_of!(CsComputeRequest, Args) + args.len() * size_of::<CsComputeArg>();
                    (described, len)
                }
                other => return Err(Failure::argument(format!("ReqType is {other}"))),
            }
        };
        if given_len != 0 && (given_len as usize) < len {
            let why = format!("reqLength is {given_len}, and the request has {len} bytes");
            return Err(Failure::new(CS_INVALID_LENGTH, why));
        }
        Ok(described)
    }

    /// Looks up what it names.
    pub(crate) fn resolve(&self) -> Done<Work> {
        match self {
            Self::Copy { to_device, host, place } => {
                let (memory, offset) = place.find()?;
                memory.device.check()?;
                memory.place(offset, host.len() as u64)?;
                Ok(Work::Copy { to_device: *to_device, host: *host, memory, offset })
            }
            Self::Storage(storage) => storage.resolve().map(Work::Storage),
            Self::Compute { csf, args } => Compute::resolve(*csf, args).map(Work::Compute),
        }
    }
}

impl Argument {
    fn read(arg: &CsComputeArg) -> Done<Self> {
        // SAFETY: the union has what its type says; any bits are a value of each of its members.
        unsafe {
            match arg.Type {
                CS_AFDM_TYPE => Ok(Self::Memory(arg.u.DevMem.into())),
                CS_32BIT_VALUE_TYPE => Ok(Self::Value32(arg.u.Value32)),
                CS_64BIT_VALUE_TYPE => Ok(Self::Value64(arg.u.Value64)),
                CS_STREAM_TYPE | CS_DESCRIPTOR_TYPE => {
                    Err(Failure::unsupported("arguments are device memory and numbers, no streams and descriptors"))
                }
                other => Err(Failure::argument(format!("Type of an argument is {other}"))),
            }
        }
    }
}

/// A request that can be carried out.
#[derive(Debug)]
pub(crate) enum Work {
    Copy { to_device: bool, host: HostBytes, memory: InUse<Allocation>, offset: u64 },
    Storage(Storage),
    Compute(Compute),
}

impl Work {
    /// Carries it out, and gives its value.
    pub(crate) fn run(&self, abort: &Abort) -> Done<u64> {
        abort.check()?;
        match self {
            Self::Copy { to_device: true, host, memory, offset } => {
                // SAFETY: the caller keeps its bytes until the request has completed.
                memory.write(*offset, unsafe { host.bytes() })?;
                Ok(host.len() as u64)
            }
            Self::Copy { to_device: false, host, memory, offset } => {
                // SAFETY: as above.
                memory.read(*offset, unsafe { host.bytes_mut() })?;
                Ok(host.len() as u64)
            }
            Self::Storage(storage) => storage.run(abort),
            Self::Compute(compute) => compute.run(abort),
        }
    }

    /// The function that it runs.
    pub(crate) fn csf(&self) -> Option<&Arc<Csf>> {
        match self {
            Self::Compute(compute) => Some(&compute.csf),
            Self::Copy { .. } | Self::Storage(_) => None,
        }
    }

    /// The CSx that it is for, by its name.
    pub(crate) fn csx(&self) -> &str {
        match self {
            Self::Copy { memory, .. } => &memory.device.csx.name,
            Self::Storage(storage) => storage.csx(),
            Self::Compute(compute) => &compute.csf.device.csx.name,
        }
    }
}

/// A run of a function.
#[derive(Debug)]
pub(crate) struct Compute {
    csf: Arc<Csf>,
    /// The memory arguments of the function: held, and where they lie.
    memory: Vec<(InUse<Allocation>, Range<u64>)>,
    data: Vec<u8>,
    /// The first two numbers.
    parameters: (u64, u64),
}

impl Compute {
    /// A number behind a memory is how many bytes of it are meant; those before all memory are the function's arguments.
    fn resolve(csf: CS_CSF_ID, args: &[Argument]) -> Done<Self> {
        let csf = Csf::of(csf)?;
        csf.device.check()?;
        let mut memory: Vec<(InUse<Allocation>, Range<u64>)> = Vec::new();
        let (mut data, mut numbers) = (Vec::new(), Vec::new());
        // Whether the last argument was memory.
        let mut open = false;
        for arg in args {
            let (value, len) = match arg {
                Argument::Memory(place) => {
                    let (allocation, offset) = place.find()?;
                    let rest = allocation.len().checked_sub(offset);
                    let place = allocation.place(offset, rest.unwrap_or(1))?;
                    if allocation.device.csx.name != csf.device.csx.name {
                        return Err(Failure::argument("the function and the memory are on different CSxes"));
                    }
                    allocation.device.check()?;
                    memory.push((allocation, place));
                    open = true;
                    continue;
                }
                Argument::Value32(value) => (u64::from(*value), size_of::<u32>()),
                Argument::Value64(value) => (*value, size_of::<u64>()),
            };
            match memory.last_mut() {
                Some((_, place)) if open => {
                    if value > place.end - place.start {
                        let has = place.end - place.start;
                        let why = format!("{value} bytes of a memory are meant, of which there are {has}");
                        return Err(Failure::argument(why));
                    }
                    place.end = place.start + value;
                    open = false;
                }
                Some(_) => {
                    let why = "a number behind a memory is its length, and there are two: numbers for the function come first";
                    return Err(Failure::argument(why));
                }
                None => {
                    numbers.push(value);
                    data.resize(usize::next_multiple_of(data.len(), len), 0);
                    data.extend_from_slice(&value.to_le_bytes()[..len]);
                }
            }
        }
        if numbers.is_empty() {
            data.clone_from(&csf.args);
        } else if csf.named {
            return Err(Failure::argument("the function's arguments came with its name, and cannot come again"));
        }
        match csf.how {
            Run::OverBytes if memory.len() < 2 => {
                return Err(Failure::argument(
                    "the function reads memory and writes other memory: two arguments or more",
                ));
            }
            Run::OverRanges | Run::InPlace => {
                let is_aligned = |place: &Range<u64>| place.start.is_multiple_of(RANGE_GRANULARITY);
                if memory.is_empty() || !memory.iter().all(|(_, place)| is_aligned(place) && !place.is_empty()) {
                    let why =
                        "the function has memory of 1 byte and more as its own, at offsets that are multiples of 8";
                    return Err(Failure::argument(why));
                }
            }
            Run::OverBytes => {}
        }
        let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
        Ok(Self { csf, memory, data, parameters: (number(0), number(1)) })
    }

    fn run(&self, abort: &Abort) -> Done<u64> {
        match self.csf.how {
            Run::OverRanges | Run::InPlace => patiently(abort, || self.execute()),
            Run::OverBytes => patiently(abort, || self.call(abort)),
        }
    }

    fn execute(&self) -> Done<u64> {
        // The rest of the last word is the allocation's, too.
        let whole = |place: &Range<u64>| place.start..place.end.next_multiple_of(RANGE_GRANULARITY);
        let ranges: Vec<Range<u64>> = self.memory.iter().map(|(_, place)| whole(place)).collect();
        let index = self.csf.listed.program.index;
        let returned = self.csf.device.memory()?.execute(index, &ranges, &self.data, self.parameters)?;
        match (returned as i64).checked_neg() {
            Some(errno @ 1..=ERRNO_MAX) if self.csf.how == Run::OverRanges => {
                let why = format!("`{}` returned -{errno}", self.csf.listed.name);
                Err(Failure::new(CS_ERROR_IN_EXECUTION, why))
            }
            _ => Ok(returned),
        }
    }

    fn call(&self, abort: &Abort) -> Done<u64> {
        let device = &self.csf.device;
        let kind = EndpointKind::Memory(device.memory()?.nsid());
        let endpoint = |(_, place): &(_, Range<u64>)| Endpoint::new(kind, place.start, place.end - place.start);
        let (output, input) = self.memory.split_last().expect("there are two or more");
        let program = &self.csf.listed.program;
        let mut request = FunctionRequest::new(FunctionKind::Write, program.index);
        request.program_id = program.hash;
        request.function = self.csf.listed.name_in_program().map(ToOwned::to_owned);
        request.sources = input.iter().map(endpoint).collect();
        request.sinks = vec![endpoint(output)];
        request.args.clone_from(&self.data);
        let outcome = abort.call(device.compute.call(&request))?;
        Ok(outcome.trailer.media_written)
    }
}

/// Tries again while the server has no room for it.
pub(crate) fn patiently<T>(abort: &Abort, mut work: impl FnMut() -> Done<T>) -> Done<T> {
    let mut tries = 0;
    loop {
        abort.check()?;
        match work() {
            Err(failure) if failure.status == CS_DEVICE_NOT_READY && tries < BUSY_TRIES => tries += 1,
            done => return done,
        }
        std::thread::sleep((Duration::from_millis(1) * tries).min(BUSY_PAUSE_MAX));
    }
}

/// Whether a request is to be given up, and what stops it.
#[derive(Debug, Default)]
pub(crate) struct Abort {
    asked: AtomicBool,
    /// Calls of it that run: of a batch there may be several.
    calls: Mutex<Vec<CallHandle>>,
}

impl Abort {
    /// Gives the request up: functions over bytes are stopped at the server, everything else ends with its next step.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.lock().iter().for_each(CallHandle::cancel);
    }

    pub(crate) fn check(&self) -> Done<()> {
        match self.asked.load(Ordering::SeqCst) {
            true => Err(Failure::new(CS_ERROR_IN_EXECUTION, "the request was cancelled")),
            false => Ok(()),
        }
    }

    /// Waits for a call, which is stopped if the request is given up.
    pub(crate) fn call(&self, call: RemoteCall) -> Done<CallOutcome> {
        let handle = call.handle();
        self.lock().extend(handle.clone());
        if self.asked.load(Ordering::SeqCst) {
            call.cancel();
        }
        let outcome = call.wait();
        self.lock().retain(|other| handle.as_ref().is_none_or(|handle| handle.tag() != other.tag()));
        Ok(outcome?)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CallHandle>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
