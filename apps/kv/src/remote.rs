//! Lookups that a target follows, one round trip each.

use crate::error::KvError;
use crate::format::VALUE_LEN;
use crate::port::Inline;
use crate::pushdown::{Function, LOCATE_SCRATCH_LEN, Pushdown, Pushed};
use diskside::host::Connection;
use diskside::host::function::{Compute, Endpoint, EndpointKind, FunctionKind, FunctionRequest, Prepared, Program};
use diskside::library;
use std::collections::HashMap;
use std::rc::Rc;

/// Bytes of a request that a Call can replace.
pub(crate) const INLINE_LEN: usize = 16;

/// Follows pointers at the target that has the volume.
///
/// A request whose bytes behind the first 16 were [prepared](Self::prepare) is one small command; others
/// travel whole.
pub struct RemotePushdown {
    compute: Compute,
    volume: Endpoint,
    programs: HashMap<Function, Program>,
    prepared: Vec<(Key, Prepared)>,
}

/// Function, length of scratch, and the bytes of input that stay.
pub(crate) type Key = (Function, usize, Vec<u8>);

impl RemotePushdown {
    /// Over the volume with this NSID. The target is given the functions if it does not have them.
    ///
    /// # Errors
    /// When the target runs no functions, or refuses these.
    pub fn new(connection: &Connection, nsid: u32) -> Result<Self, KvError> {
        let compute = Compute::new(connection).map_err(failed)?;
        let programs = load_all(&compute)?;
        let volume = Endpoint::whole(EndpointKind::Volume(nsid));
        let mut this = Self { compute, volume, programs, prepared: Vec::new() };
        this.prepare(Function::Get, &[0; INLINE_LEN], VALUE_LEN)?;
        this.prepare(Function::Locate, &[0; INLINE_LEN], LOCATE_SCRATCH_LEN)?;
        Ok(this)
    }

    /// Makes requests cheap that differ from this one in the first 16 bytes only.
    ///
    /// # Errors
    /// When the target refuses it.
    pub fn prepare(&mut self, function: Function, input: &[u8], scratch_cap: usize) -> Result<(), KvError> {
        let prepared = self.compute.prepare(&self.request(function, input, scratch_cap)).map_err(failed)?;
        self.prepared.push(((function, scratch_cap, tail(input).to_vec()), prepared));
        Ok(())
    }

    fn prepared(&self, function: Function, input: &[u8], scratch_cap: usize) -> Option<&Prepared> {
        let wanted = (function, scratch_cap, tail(input));
        self.prepared.iter().find(|((f, cap, tail), _)| (*f, *cap, &tail[..]) == wanted).map(|(_, prepared)| prepared)
    }

    /// Sends prepared requests on the queue of this volume, which its owner turns. They were prepared on its
    /// connection.
    #[must_use]
    pub fn by(self, inline: Rc<Inline>) -> InlinePushdown {
        InlinePushdown { remote: self, inline }
    }

    fn request(&self, function: Function, input: &[u8], scratch_cap: usize) -> FunctionRequest {
        traverse_request(&self.programs[&function], function, self.volume, input, scratch_cap)
    }
}

/// Gives a target the functions that it does not have.
pub(crate) fn load_all(compute: &Compute) -> Result<HashMap<Function, Program>, KvError> {
    let mut programs = HashMap::new();
    for function in Function::ALL {
        let wrong = |reason: String| KvError::Pushdown(format!("{}: {reason}", function.name()));
        let object = library::object(function.name()).map_err(|e| wrong(e.to_string()))?;
        let program = compute.load(&object.bytes).map_err(|e| wrong(e.to_string()))?;
        programs.insert(function, program);
    }
    Ok(programs)
}

pub(crate) fn traverse_request(
    program: &Program,
    function: Function,
    store: Endpoint,
    input: &[u8],
    scratch_cap: usize,
) -> FunctionRequest {
    let mut request = FunctionRequest::new(FunctionKind::Traverse, program.index);
    request.program_id = program.hash;
    request.function = Some(function.name().to_owned());
    request.sources.push(store);
    request.args = input.to_vec();
    request.result_len_max = scratch_cap as u64;
    request
}

impl Pushdown for RemotePushdown {
    fn call<'a>(
        &'a self,
        function: Function,
        input: &[u8],
        scratch_cap: usize,
        result_len: usize,
    ) -> Pushed<'a, Vec<u8>> {
        let future = match self.prepared(function, input, scratch_cap) {
            Some(prepared) => prepared.call(&input[..input.len().min(INLINE_LEN)], result_len as u32).into(),
            None => self.compute.call(&self.request(function, input, scratch_cap)),
        };
        Box::pin(async move { future.await.map(|outcome| outcome.result).map_err(failed) })
    }
}

/// A [`RemotePushdown`] whose prepared requests leave by the thread that waits for them.
#[derive(Debug)]
pub struct InlinePushdown {
    remote: RemotePushdown,
    inline: Rc<Inline>,
}

impl Pushdown for InlinePushdown {
    fn call<'a>(
        &'a self,
        function: Function,
        input: &[u8],
        scratch_cap: usize,
        result_len: usize,
    ) -> Pushed<'a, Vec<u8>> {
        let Some(prepared) = self.remote.prepared(function, input, scratch_cap) else {
            return self.remote.call(function, input, scratch_cap, result_len);
        };
        let args = &input[..input.len().min(INLINE_LEN)];
        let future = prepared.call_inline(&mut self.inline.0.borrow_mut(), args, result_len as u32);
        Box::pin(async move { future.await.map(|outcome| outcome.result).map_err(failed) })
    }
}

/// What a Call cannot replace.
pub(crate) fn tail(input: &[u8]) -> &[u8] {
    input.get(INLINE_LEN..).unwrap_or_default()
}

fn failed(error: impl std::fmt::Display) -> KvError {
    KvError::Pushdown(error.to_string())
}

impl std::fmt::Debug for RemotePushdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemotePushdown").field("volume", &self.volume).finish_non_exhaustive()
    }
}
