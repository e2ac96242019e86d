//! A function: a verified program, and the `combine` that folds its results.

use diskside_sbpf::activation::Program;
use diskside_sbpf::helpers::HelperSet;
use diskside_sbpf::image::Program as Entry;
use diskside_sbpf::image::{ArgSchema, Image, ImageError, Kind, Note};
use diskside_sbpf::verify::Diagnostic;
use std::sync::Arc;

/// Output of a piece that is made before any of it is written: as much as usually comes in.
const OUTPUT_LEN: u64 = 8 << 20;
/// Shorter pieces cost more than what they save.
const INPUT_LEN_MIN: u64 = 64 << 10;

/// A function that may run.
#[derive(Clone, Debug)]
pub struct Function {
    main: Arc<Program>,
    combine: Option<Arc<Program>>,
}

/// Why a function cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The object is not an image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// No program has this name.
    #[error("the object has no function `{name}`; it has {}", list(.has))]
    NoSuchFunction {
        /// The name asked for.
        name: String,
        /// What there is.
        has: Vec<String>,
    },
    /// There are several, and none was named.
    #[error("the object has several functions: {}; say which one", list(.has))]
    Ambiguous {
        /// What there is.
        has: Vec<String>,
    },
    /// The verifier refused it.
    #[error("{program} is refused: {}", .report.trim_end())]
    Refused {
        /// Its section name.
        program: String,
        /// What the verifier found.
        findings: Vec<Diagnostic>,
        /// The findings, rendered with source lines.
        report: String,
    },
    /// A `combine` belongs to no function.
    #[error(
        "`{combine}` folds the results of no function: the object has none of that name that runs over bytes, but {}; name it \
         combine/FUNCTION",
        list(.has)
    )]
    OrphanCombine {
        /// Its section name.
        combine: String,
        /// The functions that there are.
        has: Vec<String>,
    },
    /// Its kind does not run over files.
    #[error("`{program}` is of kind `{}`, which does not run over the bytes of a file: {}", .kind.name(), instead(*.kind))]
    WrongKind {
        /// Its section name.
        program: String,
        /// Its kind.
        kind: Kind,
    },
    /// Its kind opens no files.
    #[error(
        "`{program}` is of kind `{kind}`, which reads and writes no files itself: `diskside run` runs functions over files, \
             and `diskside launch` those of kind kernel (docs/kernels.md)"
    )]
    NoKernel {
        /// Its section name.
        program: String,
        /// Its kind.
        kind: &'static str,
    },
    /// Its kind has no columns.
    #[error(
        "`{program}` is of kind `{kind}`, and a scan runs functions over columns: SEC(\"columns/NAME\") in its source (docs/scan.md)"
    )]
    NoColumns {
        /// Its section name.
        program: String,
        /// Its kind.
        kind: &'static str,
    },
    /// Its kind does not traverse.
    #[error("`{program}` is of kind `{kind}`, which follows no pointers; kinds that do: traverse, xrp")]
    NoTraversal {
        /// Its section name.
        program: String,
        /// Its kind.
        kind: &'static str,
    },
}

impl LoadError {
    /// True when the object is well-formed but asks for what this product leaves out or lacks.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Image(e) => e.is_unsupported(),
            Self::Refused { findings, .. } => findings.iter().all(|d| d.class != diskside_sbpf::verify::Class::Unsafe),
            _ => false,
        }
    }
}

impl Function {
    /// Loads from the bytes of an object; see [`crate::Engine::load`].
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn load(object: &[u8], name: Option<&str>, helpers: &Arc<HelperSet>) -> Result<Self, LoadError> {
        let image = Arc::new(Image::from_elf(object, helpers)?);
        Self::from_image(&image, name, helpers)
    }

    /// Takes a function of an image.
    ///
    /// # Errors
    /// Why it cannot be taken.
    pub fn from_image(image: &Arc<Image>, name: Option<&str>, helpers: &Arc<HelperSet>) -> Result<Self, LoadError> {
        let function = Self::any_from_image(image, name, helpers)?;
        if function.runs_over_bytes() {
            return Ok(function);
        }
        Err(LoadError::WrongKind { program: function.main.entry().section.clone(), kind: function.kind() })
    }

    /// Takes a function over columns of an image.
    ///
    /// # Errors
    /// Why it cannot be taken.
    pub fn columns_from_image(
        image: &Arc<Image>,
        name: Option<&str>,
        helpers: &Arc<HelperSet>,
    ) -> Result<Self, LoadError> {
        let function = Self::any_from_image(image, name, helpers)?;
        if function.kind() == Kind::Columns {
            return Ok(function);
        }
        Err(LoadError::NoColumns { program: function.main.entry().section.clone(), kind: function.kind().name() })
    }

    /// Loads a kernel from the bytes of an object; see [`crate::Engine::load_kernel`].
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub fn load_kernel(object: &[u8], name: Option<&str>, helpers: &Arc<HelperSet>) -> Result<Self, LoadError> {
        let image = Arc::new(Image::from_elf(object, helpers)?);
        Self::kernel_from_image(&image, name, helpers)
    }

    /// Takes a kernel of an image.
    ///
    /// # Errors
    /// Why it cannot be taken.
    pub fn kernel_from_image(
        image: &Arc<Image>,
        name: Option<&str>,
        helpers: &Arc<HelperSet>,
    ) -> Result<Self, LoadError> {
        let function = Self::any_from_image(image, name, helpers)?;
        if function.kind() == Kind::Kernel {
            return Ok(function);
        }
        Err(LoadError::NoKernel { program: function.main.entry().section.clone(), kind: function.kind().name() })
    }

    /// Takes a function of an image to look at it; of whatever kind it is.
    ///
    /// # Errors
    /// Why it cannot be taken.
    pub fn any_from_image(image: &Arc<Image>, name: Option<&str>, helpers: &Arc<HelperSet>) -> Result<Self, LoadError> {
        let main = mains(image, name)?;
        refuse_orphans(image)?;
        let entry = &image.programs[main];
        let combine = image.programs.iter().position(|p| p.kind == Kind::Combine && p.name == entry.name);
        Ok(Self {
            main: prepare(image, main, helpers)?,
            combine: combine.map(|i| prepare(image, i, helpers)).transpose()?,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.main.entry().name
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.main.entry().kind
    }

    /// Whether a [`crate::Call`] can run it.
    #[must_use]
    pub fn runs_over_bytes(&self) -> bool {
        runs_over_bytes(self.kind())
    }

    /// Whether it changes its input: the output is the input as the function left it, and the return value is for the
    /// caller.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.kind() == Kind::Delilah
    }

    /// Whether an [`Execution`](crate::Execution) can run it.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.runs_over_bytes() || self.kind() == Kind::Exec
    }

    /// The program itself.
    #[must_use]
    pub fn main(&self) -> &Arc<Program> {
        &self.main
    }

    /// The program that folds its results.
    #[must_use]
    pub fn combine(&self) -> Option<&Arc<Program>> {
        self.combine.as_ref()
    }

    /// The schema of its arguments; `None` when the object says nothing.
    #[must_use]
    pub fn args(&self) -> Option<&ArgSchema> {
        self.main.entry().args.as_ref()
    }

    /// What its object asks for.
    #[must_use]
    pub fn note(&self) -> &Note {
        &self.main.image().note
    }

    /// Bytes of output that it may write for this much input.
    #[must_use]
    pub fn output_cap(&self, input_len: u64) -> u64 {
        if self.is_in_place() {
            return input_len;
        }
        let note = self.note();
        let scaled = u128::from(input_len) * u128::from(note.out_ratio.0) / u128::from(note.out_ratio.1.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX).saturating_add(note.out_constant)
    }

    /// Bytes of a piece when `usual` would do: fewer of a function that expands them, so that it computes while its output
    /// is written, in memory that is used again. The nearest power of two then.
    #[must_use]
    pub fn piece_len(&self, usual: usize) -> usize {
        let cap = self.output_cap(usual as u64);
        if cap <= OUTPUT_LEN.max(usual as u64) {
            return usual;
        }
        let fits = usual as u128 * u128::from(OUTPUT_LEN) / u128::from(cap);
        let fits = (fits as u64).max(INPUT_LEN_MIN);
        usual.min(1 << (fits + fits / 2).ilog2())
    }

    /// Whether results of several calls must be folded in the order of the input.
    #[must_use]
    pub fn folds_in_order(&self) -> bool {
        self.combine.as_ref().is_some_and(|combine| !combine.entry().flags.iter().any(|flag| flag == "unordered"))
    }

    /// Whether it, or its `combine`, calls `ds_alloc`.
    #[must_use]
    pub fn uses_heap(&self) -> bool {
        self.main.image().imports.iter().any(|import| import.name.starts_with("ds_alloc"))
    }

    /// True when results do not depend on how often, where or in what order chunks run.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        let pure = |p: &Arc<Program>| p.verified().effects.is_pure();
        pure(&self.main) && self.combine.as_ref().is_none_or(pure)
    }
}

/// The program of an image that is meant; a `combine` belongs to another and is none.
pub(crate) fn mains(image: &Image, name: Option<&str>) -> Result<usize, LoadError> {
    let mains: Vec<usize> = (0..image.programs.len()).filter(|&i| image.programs[i].kind != Kind::Combine).collect();
    let names = || mains.iter().map(|&i| image.programs[i].name.clone()).collect();
    match (name, &mains[..]) {
        (Some(name), _) => mains
            .iter()
            .copied()
            .find(|&i| image.programs[i].name == name)
            .ok_or_else(|| LoadError::NoSuchFunction { name: name.to_owned(), has: names() }),
        (None, &[only]) => Ok(only),
        (None, []) => Err(LoadError::NoSuchFunction { name: "main".into(), has: names() }),
        (None, _) => Err(LoadError::Ambiguous { has: names() }),
    }
}

/// A `combine` that is never called is one whose function gives unfolded results.
fn refuse_orphans(image: &Image) -> Result<(), LoadError> {
    let folds = |kind| runs_over_bytes(kind) || kind == Kind::Columns;
    let mains = || image.programs.iter().filter(|program| folds(program.kind));
    let is_orphan = |program: &&Entry| program.kind == Kind::Combine && !mains().any(|main| main.name == program.name);
    match image.programs.iter().find(is_orphan) {
        None => Ok(()),
        Some(orphan) => Err(LoadError::OrphanCombine {
            combine: orphan.section.clone(),
            has: mains().map(|main| main.section.clone()).collect(),
        }),
    }
}

fn runs_over_bytes(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Write | Kind::Lambda | Kind::LambdaIo | Kind::Delilah)
}

pub(crate) fn prepare(image: &Arc<Image>, program: usize, helpers: &Arc<HelperSet>) -> Result<Arc<Program>, LoadError> {
    Program::new(image, program, helpers).map(Arc::new).map_err(|findings| LoadError::Refused {
        program: image.programs[program].section.clone(),
        report: findings.iter().map(|d| d.render(image)).collect::<Vec<_>>().join("\n"),
        findings,
    })
}

/// How a program of a kind that runs over no bytes is run.
fn instead(kind: Kind) -> &'static str {
    match kind {
        Kind::Exec => {
            "it runs over memory ranges, by `diskside execute` here and by NVMe's Execute Program at a target (docs/standard.md)"
        }
        Kind::Traverse | Kind::Xrp => {
            "it follows pointers, for Session::traverse in Rust and ds_traverse in C (docs/traversals.md)"
        }
        Kind::Columns => "it runs over the columns of a table, by `diskside scan --function` (docs/scan.md)",
        Kind::Kernel => "it reads and writes files itself, and `diskside launch` runs it (docs/kernels.md)",
        _ => "kinds that do are read, write, lambda, lambda_io and delilah",
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
