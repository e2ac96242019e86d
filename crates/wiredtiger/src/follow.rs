//! The functions at the server, run over one file.

use crate::blocks::{Address, Answer, Blocks, Find, encode_list, find_scratch_len, list_scratch_len, room_of};
use crate::file::DataFile;
use crate::stats::Fallback;
use diskside::host::function::{Compute, Endpoint, FunctionError, FunctionKind, FunctionRequest, Program};
use diskside::library;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After a failure of the server, reads are plain for so long.
const REST: Duration = Duration::from_secs(1);

/// Both objects at the server.
#[derive(Debug)]
struct Loaded {
    path: Program,
    get: Program,
}

/// What is known of a server's functions.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    loaded: Option<Arc<Loaded>>,
    failed: Option<Instant>,
}

impl Functions {
    /// The blocks on the way to a key, of which the first is the one that the way begins with.
    pub(crate) fn path(&self, file: &DataFile, find: &Find<'_>, room: usize) -> Result<Blocks, Fallback> {
        let scratch_len = find_scratch_len(find.key.len(), room);
        let result = self.run(file, "wt_path", find.encode(), scratch_len)?;
        blocks_from(result, find.start.offset)
    }

    /// These blocks, as far as they are sound.
    pub(crate) fn list(&self, file: &DataFile, addresses: &[Address]) -> Result<Blocks, Fallback> {
        let result = self.run(file, "wt_next", encode_list(addresses), list_scratch_len(addresses))?;
        blocks_from(result, addresses[0].offset)
    }

    /// The newest version of a key in the file.
    pub(crate) fn get(&self, file: &DataFile, find: &Find<'_>, room: usize) -> Result<Answer, Fallback> {
        let scratch_len = find_scratch_len(find.key.len(), room_of(1, room));
        let result = self.run(file, "wt_get", find.encode(), scratch_len)?;
        Answer::parse(&result).ok_or(Fallback::Form)
    }

    fn run(&self, file: &DataFile, function: &str, args: Vec<u8>, scratch_len: usize) -> Result<Vec<u8>, Fallback> {
        if self.lock().failed.is_some_and(|failed| failed.elapsed() < REST) {
            return Err(Fallback::Server);
        }
        let remote = file.remote();
        let compute = remote.files().compute();
        let ran = self.loaded(compute).and_then(|loaded| {
            let program = if function == "wt_get" { &loaded.get } else { &loaded.path };
            let mut request = FunctionRequest::new(FunctionKind::Traverse, program.index);
            request.program_id = program.hash;
            request.function = Some(function.to_owned());
            request.sources = vec![remote.endpoint(0, Endpoint::TO_END)];
            request.args = args;
            request.result_len_max = scratch_len as u64;
            // The write log, or WiredTiger's lock on the page, says whether the bytes are those that count.
            request.guarded = true;
            compute.call_expecting(&request, scratch_len as u64).wait()
        });
        match ran {
            Ok(outcome) => Ok(outcome.result),
            Err(error) => {
                let mut state = self.lock();
                state.loaded = None;
                // A step that asked for bytes behind the end of the file, because a block is damaged, is not the server's failure.
                if error.trailer().is_none() {
                    state.failed = Some(Instant::now());
                }
                Err(Fallback::Server)
            }
        }
    }

    fn loaded(&self, compute: &Compute) -> Result<Arc<Loaded>, FunctionError> {
        let mut state = self.lock();
        if let Some(loaded) = &state.loaded {
            return Ok(Arc::clone(loaded));
        }
        let load = |name| compute.load(&library::object(name).expect("this build has it").bytes);
        let loaded = Arc::new(Loaded { path: load("wt_path")?, get: load("wt_get")? });
        state.loaded = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The blocks of a result, if the first is the one that was asked for.
fn blocks_from(result: Vec<u8>, first: u64) -> Result<Blocks, Fallback> {
    let blocks = Blocks::parse(result).ok_or(Fallback::Form)?;
    let found = blocks.iter().next().map(|(offset, _)| offset);
    match found {
        Some(offset) if offset == first => Ok(blocks),
        Some(_) => Err(Fallback::Other),
        None => Err(blocks.reason.map_or(Fallback::Form, Fallback::Of)),
    }
}
