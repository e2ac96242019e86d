//! Function Clear: what was kept, of volumes and objects, of a state, of a prepared request.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_rights::Access;
use diskside_volume::Volume;
use diskside_volume::blocking;
use diskside_wire::function::{ClearSelect, FunctionCommand as _};

use super::{Answers, Association, guarded};
use crate::call::answer::{Answer, Problem};
use crate::environment::{Clearing, Environment, Submitter};
use crate::reactors::Name;
use crate::schedule::pool::WorkClass;

impl Association {
    /// Function Clear. `None`: a thread of the pool answers.
    pub(super) fn clear(self: &Arc<Self>, name: Name, sqe: &Sqe) -> Option<Result<(), Problem>> {
        let id = sqe.function_tag();
        Some(match ClearSelect::from_bits(sqe.clear_select()) {
            Some(ClearSelect::Cache) => {
                return self.clear_cache(name, id).map_or_else(|problem| Some(Err(problem)), |()| None);
            }
            Some(ClearSelect::State) => {
                let (offset, len) = sqe.clear_range();
                self.context.host.clear_state(id, (offset, len), self.context.shared_states())
            }
            Some(ClearSelect::Prepared) => self.clear_prepared(id),
            None => Err(Problem::in_command(40, "this SEL is not known")),
        })
    }

    fn clear_prepared(&self, id: u64) -> Result<(), Problem> {
        let handle = u32::try_from(id).map_err(|_| Status::UNKNOWN_HANDLE.dnr())?;
        let mut table = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        table.all.remove(&handle).map(drop).ok_or(Status::UNKNOWN_HANDLE.dnr().into())
    }

    /// Drops what is kept of a volume, or of all and of objects of stores (0): here, and in the page cache, for which a disk may be
    /// waited for.
    fn clear_cache(self: &Arc<Self>, name: Name, id: u64) -> Result<(), Problem> {
        let volumes = if id == 0 {
            let Environment { exports, cache, .. } = &*self.context.environment;
            exports.stores(&self.context.rights.now()).into_iter().for_each(|store| cache.clear_store(store));
            let all = self.context.environment.volumes.snapshot().into_iter().flatten();
            all.filter(|volume| self.context.rights.volume(&volume.name) > Access::None).collect()
        } else {
            let nsid = u32::try_from(id).map_err(|_| {
                let told = format!("there is no volume with namespace ID {id}");
                Problem::new(Status::NAMESPACE_NOT_REACHABLE.dnr(), told)
            })?;
            vec![self.context.volume(nsid, Access::Read)?]
        };
        let clearing = Clear { by: Arc::downgrade(self), name, rest: volumes };
        Box::new(clearing).next(Ok(()));
        Ok(())
    }
}

/// A Clear of what is cached, between two of its volumes.
#[derive(Debug)]
struct Clear {
    /// Once it is gone nobody waits for the answer.
    by: Weak<Association>,
    name: Name,
    /// The volumes that are still to be cleared.
    rest: Vec<Arc<Volume>>,
}

impl Clearing for Clear {
    /// Hosts may ask for this as often as they like, and each time costs all others that use the volume. So there is one run of a
    /// volume at a time, and those that come meanwhile share one.
    fn next(mut self: Box<Self>, cleared: Result<(), Problem>) {
        let Some(by) = self.by.upgrade() else { return };
        let volume = match cleared.map(|()| self.rest.pop()) {
            Ok(Some(volume)) => volume,
            ended => {
                let answer = ended.map_or_else(Into::into, |_| Answer::success());
                return by.answer(self.name, answer, &mut Answers::default());
            }
        };
        let environment = &by.context.environment;
        if let Some(first) = environment.clears.ask(volume.serial(), self as Box<dyn Clearing>) {
            run(environment, &volume, vec![first]);
        }
    }

    fn writes(&self, volume: &Volume) -> bool {
        let may_write = |by: Arc<Association>| by.context.rights.volume(&volume.name) == Access::Write;
        !volume.read_only && self.by.upgrade().is_some_and(may_write)
    }

    fn submitter(&self) -> Submitter {
        let by = self.by.upgrade();
        Box::new(move |work| by.is_some_and(|by| by.context.submit(WorkClass::Prompt, 0, work)))
    }
}

/// Has a thread clear a volume for all of these, and then for those that come meanwhile.
fn run(environment: &Arc<Environment>, volume: &Arc<Volume>, mut all: Vec<Box<dyn Clearing>>) {
    while !all.is_empty() {
        // It is work of the host that asked first.
        let submit = all[0].submitter();
        let shared = Arc::new(Mutex::new(all));
        let (theirs, (at, of)) = (Arc::clone(&shared), (Arc::clone(environment), Arc::clone(volume)));
        let work = Box::new(move || {
            let all = take(&theirs);
            let flushes = all.iter().any(|clearing| clearing.writes(&of));
            let cleared = guarded(|| drop_cached(&at, &of, flushes)).flatten();
            let waiting = at.clears.end(of.serial());
            all.into_iter().for_each(|clearing| clearing.next(cleared.clone()));
            run(&at, &of, waiting);
        });
        if submit(work) {
            return;
        }
        // That host is gone, or has too much of such work waiting.
        all = take(&shared);
        all.remove(0).next(Err(Status::FUNCTION_BUSY.into()));
        if all.is_empty() {
            all = environment.clears.end(volume.serial());
        }
    }
}

fn take(shared: &Mutex<Vec<Box<dyn Clearing>>>) -> Vec<Box<dyn Clearing>> {
    std::mem::take(&mut *shared.lock().unwrap_or_else(PoisonError::into_inner))
}

fn drop_cached(environment: &Environment, volume: &Volume, flushes: bool) -> Result<(), Problem> {
    environment.cache.clear(Some(volume.serial()));
    let flushed = if flushes { blocking::flush(volume) } else { Ok(()) };
    flushed.and_then(|()| blocking::drop_cached(volume)).map_err(|errno| {
        let told = format!("what is cached of the volume `{}` was not dropped: {errno}", volume.name);
        Problem::new(Status::WRITE_FAULT, told)
    })
}
