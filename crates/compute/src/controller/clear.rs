//! Function Clear: what was kept, of volumes and objects, of a state, of a prepared request.

use std::sync::{Arc, PoisonError};

use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_rights::Access;
use diskside_volume::Volume;
use diskside_volume::blocking::flush;
use diskside_wire::function::{ClearSelect, FunctionCommand as _};

use super::{Answers, Association, guarded};
use crate::call::answer::{Answer, Problem};
use crate::environment::Environment;
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
        let me = Arc::clone(self);
        let run = Box::new(move || {
            let dropped = guarded(|| volumes.iter().try_for_each(|volume| me.drop_cached(volume)));
            let answer = dropped.flatten().map_or_else(Into::into, |()| Answer::success());
            me.answer(name, answer, &mut Answers::default());
        });
        if self.context.submit(WorkClass::Prompt, 0, run) { Ok(()) } else { Err(Status::FUNCTION_BUSY.into()) }
    }

    fn drop_cached(&self, volume: &Volume) -> Result<(), Problem> {
        self.context.environment.cache.clear(Some(volume.serial()));
        flush(volume).and_then(|()| volume.medium.drop_cached()).map_err(|errno| {
            let told = format!("what is cached of the volume `{}` was not dropped: {errno}", volume.name);
            Problem::new(Status::WRITE_FAULT, told)
        })
    }
}
