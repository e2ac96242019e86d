//! Functions of a server: which there are, and those that callers have found.

use crate::allocation::CsxHandle;
use crate::device::{Device, Opened};
use crate::status::{CS_INVALID_FUNCTION, CS_UNKNOWN_COMPUTE_FUNCTION, Done, Failure};
use crate::types::{CS_CSF_ID, CS_DEV_HANDLE};
use diskside::host::function::Program;
use diskside::sandbox::image::{Image, Kind};
use diskside::{Function, args};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A function that a server has.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    /// The same for this function on every server.
    pub(crate) global_id: u64,
    pub(crate) program: Program,
}

/// A function that a caller has found.
#[derive(Debug)]
pub(crate) struct Csf {
    pub(crate) device: Arc<Device>,
    /// Whose it is: it goes with this handle.
    owner: CsxHandle,
    /// What it was asked for by, with its arguments.
    asked: String,
    pub(crate) listed: Listed,
    pub(crate) how: Run,
    /// Its arguments, unless they come with the request.
    pub(crate) args: Vec<u8>,
    /// Whether they came with its name.
    pub(crate) named: bool,
}

/// How it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Over bytes that are read, its output is written.
    OverBytes,
    /// With memory as its own; a small negative number that it returns is an error.
    OverRanges,
    /// With memory as its own; whatever it returns is its value.
    InPlace,
}

static FOUND: Mutex<BTreeMap<CS_CSF_ID, Arc<Csf>>> = Mutex::new(BTreeMap::new());

fn found() -> MutexGuard<'static, BTreeMap<CS_CSF_ID, Arc<Csf>>> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The functions of a server: those that came with it, each a program, and the first of each program that this machine loaded.
pub(crate) fn list(device: &Device) -> Done<Vec<Listed>> {
    let programs = device.compute.programs()?.into_iter().filter(|program| program.active && !program.is_service());
    Ok(programs.map(|program| Listed::new(program.name.clone(), program)).collect())
}

impl Listed {
    pub(crate) fn new(name: String, program: Program) -> Self {
        let of_name = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let alone = program.functions == 1;
        let global_id = if alone { program.hash } else { name.bytes().fold(program.hash, of_name) };
        Self { name, global_id, program }
    }

    /// How a request names it in its program.
    pub(crate) fn name_in_program(&self) -> Option<&str> {
        (self.program.functions > 1).then_some(self.name.as_str())
    }
}

/// The function of this name: one that came with the server, or one that this machine loaded, also if it is not the first of
/// its program.
pub(crate) fn by_name(device: &Device, name: &str) -> Done<Option<Listed>> {
    let mut listed = list(device)?;
    listed.sort_by_key(|listed| !listed.program.own);
    if let Some(found) = listed.iter().find(|listed| listed.name == name) {
        return Ok(Some(found.clone()));
    }
    for other in listed.iter().filter(|listed| listed.program.own && listed.program.functions > 1) {
        let object = device.compute.object(other.program.index)?;
        if resolve(device, &object, Some(name)).is_ok() {
            return Ok(Some(Listed::new(name.to_owned(), other.program.clone())));
        }
    }
    Ok(None)
}

/// A function in an object.
pub(crate) fn resolve(device: &Device, object: &[u8], name: Option<&str>) -> Done<Function> {
    let helpers = device.session.engine().helpers();
    let image = Image::from_elf(object, helpers).map_err(diskside::LoadError::from)?;
    Ok(Function::any_from_image(&Arc::new(image), name, helpers)?)
}

/// Whether an object is well and has several functions.
pub(crate) fn are_several(device: &Device, object: &[u8]) -> bool {
    let image = Image::from_elf(object, device.session.engine().helpers());
    image.is_ok_and(|image| image.programs.iter().filter(|program| program.kind != Kind::Combine).count() > 1)
}

impl Csf {
    /// A function with the arguments `NAME=VALUE&...`, for the caller with this handle. Found again it has the number that
    /// it had.
    pub(crate) fn find(owner: CS_DEV_HANDLE, opened: &Opened, listed: Listed, given: &str) -> Done<CS_CSF_ID> {
        let owner = CsxHandle(owner.addr());
        let asked = format!("{:#x} {} {given}", listed.global_id, listed.name);
        let same = |csf: &Csf| csf.owner == owner && csf.asked == asked && csf.listed.program == listed.program;
        if let Some((id, _)) = found().iter().find(|(_, csf)| same(csf)) {
            return Ok(*id);
        }
        let device = &opened.device;
        let object = device.compute.object(listed.program.index)?;
        let function = resolve(device, &object, listed.name_in_program())?;
        let refused = |why: String| Failure::new(CS_INVALID_FUNCTION, why);
        let how = match function.kind() {
            Kind::Exec => Run::OverRanges,
            Kind::Delilah => Run::InPlace,
            _ if function.runs_over_bytes() => Run::OverBytes,
            kind => {
                let why =
                    format!("`{}` is of kind `{}`, which is not run over device memory", listed.name, kind.name());
                return Err(refused(why));
            }
        };
        let pairs = given.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let pair = pair.split_once('=').ok_or_else(|| Failure::argument(format!("`{pair}`: write NAME=VALUE")));
            pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        });
        let pairs: Vec<(String, String)> = pairs.collect::<Done<_>>()?;
        let named = !pairs.is_empty();
        let args = match function.args() {
            // Those that have no default may come with the request.
            Some(schema) if !named => args::encode(schema, &pairs).unwrap_or_default(),
            Some(schema) => args::encode(schema, &pairs).map_err(Failure::argument)?,
            None if named => return Err(Failure::argument(format!("`{}` has no arguments with names", listed.name))),
            None => Vec::new(),
        };
        let csf = Self { device: Arc::clone(device), owner, asked, listed, how, args, named };
        let id = next_id();
        found().insert(id, Arc::new(csf));
        Ok(id)
    }

    /// The function of a number.
    pub(crate) fn of(id: CS_CSF_ID) -> Done<Arc<Self>> {
        let unknown =
            || Failure::new(CS_UNKNOWN_COMPUTE_FUNCTION, format!("{id} is no function, or its CSx was closed"));
        found().get(&id).cloned().ok_or_else(unknown)
    }

    /// What a caller found with this handle is gone.
    pub(crate) fn forget_owner(owner: CS_DEV_HANDLE) {
        found().retain(|_, csf| csf.owner != CsxHandle(owner.addr()));
    }

    /// What was found of a program is gone.
    pub(crate) fn forget_program(device: &Device, program: &Program) {
        let same = |csf: &Csf| csf.device.csx.name == device.csx.name && csf.listed.program.sha256 == program.sha256;
        found().retain(|_, csf| !same(csf));
    }
}

/// A number that none had before.
fn next_id() -> CS_CSF_ID {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
