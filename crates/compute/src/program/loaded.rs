//! A program that was verified, and the functions, traversals and kernels in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use diskside_engine::{Engine, Function, LoadError, TraverseFunction};
use diskside_keys::{Signer, signer_of};
use diskside_nvme::Status;
use diskside_rights as rights;
use diskside_sbpf::image::{Image, Kind};

use crate::call::answer::Problem;

/// A program that was verified.
#[derive(Debug)]
pub struct LoadedProgram {
    /// The object that was loaded.
    pub object: Arc<[u8]>,
    pub(crate) image: Arc<Image>,
    /// The functions that this target runs, by name.
    pub(super) functions: BTreeMap<String, Function>,
    /// Those that follow pointers, by name.
    traversals: BTreeMap<String, TraverseFunction>,
    /// Those that read and write files themselves, by name.
    kernels: BTreeMap<String, Function>,
    /// Programs of a kind that is not run by a call, by name.
    pub(super) others: BTreeMap<String, Kind>,
    /// What a device-defined program means when none is named.
    pub(super) default_function: Option<String>,
    /// Its signer. A signature that does not fit counts as none.
    signer: Option<Signer>,
}

/// Why a function of a program is not found.
#[derive(Debug)]
pub(crate) struct NoFunction(pub(crate) Problem);

impl LoadedProgram {
    /// Reads, links and verifies an object.
    pub(crate) fn load(engine: &Engine, object: Arc<[u8]>, default: Option<&str>) -> Result<Self, LoadError> {
        let image = Arc::new(Image::from_elf(&object, engine.helpers())?);
        let (mut functions, mut traversals, mut others) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut kernels = BTreeMap::new();
        for program in image.programs.iter().filter(|program| program.kind != Kind::Combine) {
            if TraverseFunction::is_kind(program.kind) {
                let traversal = TraverseFunction::from_image(&image, Some(&program.name), engine.helpers())?;
                traversals.insert(program.name.clone(), traversal);
                others.insert(program.name.clone(), program.kind);
                continue;
            }
            if program.kind == Kind::Kernel {
                let kernel = Function::kernel_from_image(&image, Some(&program.name), engine.helpers())?;
                kernels.insert(program.name.clone(), kernel);
                others.insert(program.name.clone(), program.kind);
                continue;
            }
            match Function::from_image(&image, Some(&program.name), engine.helpers()) {
                Ok(function) => drop(functions.insert(program.name.clone(), function)),
                Err(LoadError::WrongKind { .. }) => drop(others.insert(program.name.clone(), program.kind)),
                Err(error) => return Err(error),
            }
        }
        let signer = signer_of(&object).ok().flatten();
        let default_function = default.map(str::to_owned);
        Ok(Self { object, image, functions, traversals, kernels, others, default_function, signer })
    }

    /// By what it is decided who may run it.
    pub(crate) fn credentials(&self) -> rights::Program<'_> {
        let signer = self.signer.as_ref().map(|signer| &signer.0);
        rights::Program { shipped: self.default_function.as_deref(), sha256: &self.image.sha256, signer }
    }

    /// SHA-256 of its object.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        self.image.sha256
    }

    /// The first 64 bits of it.
    pub fn id(&self) -> u64 {
        self.image.content_hash
    }

    /// The function of this name; without a name, the only one.
    pub(crate) fn function(&self, name: Option<&str>) -> Result<&Function, NoFunction> {
        let names = || self.functions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let missing = |message: String| NoFunction(Problem::new(Status::FUNCTION_NOT_FOUND.dnr(), message));
        let Some(name) = name.or(self.default_function.as_deref()) else {
            let mut all = self.functions.values();
            return match (all.next(), all.next()) {
                (Some(only), None) => Ok(only),
                (None, _) => Err(self.wrong_kind(self.others.iter().next())),
                _ => Err(missing(format!("the program has several functions: {}; name one", names()))),
            };
        };
        self.functions.get(name).ok_or_else(|| match self.others.get_key_value(name) {
            Some(other) => self.wrong_kind(Some(other)),
            None => missing(format!("the program has no function `{name}`; it has {}", names())),
        })
    }

    /// The traversal of this name; without a name, the only one.
    pub(crate) fn traversal(&self, name: Option<&str>) -> Result<&TraverseFunction, NoFunction> {
        one_of(&self.traversals, "traversal", name.or(self.default_function.as_deref()))
    }

    /// The kernel of this name; without a name, the only one.
    pub(crate) fn kernel(&self, name: Option<&str>) -> Result<&Function, NoFunction> {
        one_of(&self.kernels, "kernel", name.or(self.default_function.as_deref()))
    }

    fn wrong_kind(&self, other: Option<(&String, &Kind)>) -> NoFunction {
        let (name, kind) = other.map_or(("?", "?"), |(name, kind)| (name.as_str(), kind.name()));
        let message = format!("`{name}` is of kind `{kind}`, which this target does not run over sources");
        NoFunction(Problem::new(Status::FUNCTION_KIND_NOT_SUPPORTED.dnr(), message))
    }

    pub(super) fn first_name(&self) -> &str {
        let first = || self.functions.keys().chain(self.others.keys()).next().map(String::as_str);
        self.default_function.as_deref().or_else(first).unwrap_or("")
    }
}

/// The program of a kind that has this name; without a name, the only one.
fn one_of<'a, T>(all: &'a BTreeMap<String, T>, kind: &str, name: Option<&str>) -> Result<&'a T, NoFunction> {
    let missing = |told: String| NoFunction(Problem::new(Status::FUNCTION_NOT_FOUND.dnr(), told));
    let names = || all.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        let mut all = all.values();
        return match (all.next(), all.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(missing(format!("the program has no {kind}"))),
            _ => Err(missing(format!("the program has several {kind}s: {}; name one", names()))),
        };
    };
    all.get(name).ok_or_else(|| match all.is_empty() {
        true => missing(format!("the program has no {kind}")),
        false => missing(format!("the program has no {kind} `{name}`; it has {}", names())),
    })
}
