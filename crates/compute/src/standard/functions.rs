//! The functions that Execute Program runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use diskside_engine::{Function, LoadError};
use diskside_nvme::Status;
use diskside_sbpf::helpers::HelperSet;

use crate::call::answer::Problem;
use crate::program::loaded::LoadedProgram;

/// The function that an execution of a program runs, because it cannot name one: the only one, or the default.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    known: Mutex<HashMap<u64, (Weak<LoadedProgram>, Function)>>,
}

impl Functions {
    pub(crate) fn get(&self, helpers: &Arc<HelperSet>, program: &Arc<LoadedProgram>) -> Result<Function, Problem> {
        if let Ok(function) = program.function(None) {
            return Ok(function.clone());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, function)) =
            known.get(&program.id()).filter(|(of, _)| of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, program)))
        {
            return Ok(function.clone());
        }
        let function = match Function::any_from_image(&program.image, None, helpers) {
            Ok(function) => function,
            Err(error @ LoadError::Ambiguous { .. }) => {
                return Err(Problem::new(Status::FUNCTION_NOT_FOUND.dnr(), error.to_string()));
            }
            // It has nothing but `combine`.
            Err(error) => return Err(Problem::new(Status::FUNCTION_KIND_NOT_SUPPORTED.dnr(), error.to_string())),
        };
        if !function.is_executable() {
            let (name, kind) = (function.name(), function.kind().name());
            let told = format!("`{name}` is of kind `{kind}`, which Execute Program does not run");
            return Err(Problem::new(Status::FUNCTION_KIND_NOT_SUPPORTED.dnr(), told));
        }
        known.retain(|_, (of, _)| of.strong_count() > 0);
        known.insert(program.id(), (Arc::downgrade(program), function.clone()));
        Ok(function)
    }
}
