//! All the ways in which a case is run.

use crate::case::{Case, Origin, Said};
use crate::chunk::codec_of;
use crate::ending::Ending;
use crate::input::Input;
use crate::oracle::Loaded;
use crate::world::{HOSTS, World};
use diskside::TierChoice;
use diskside::sandbox::activation::Tier;
use diskside::session::{Chunks, Decompress, File, Header, RunOptions, Session, Where};
use diskside::split::Split;
use diskside::wire::function::StateName;
use std::sync::Arc;

/// Where and how a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over files of this machine.
    Local(TierChoice, usize),
    /// The same, its result written as it comes.
    LocalWritten,
    /// Here, over files of targets.
    Host,
    /// At the targets.
    Device(TierChoice, usize),
    /// At the targets, the result written as it comes.
    DeviceWritten,
    /// Where it is faster.
    Auto,
    /// The same, with half of the file in this machine's memory.
    AutoHalfHeld,
    /// The same, its result written as it comes.
    AutoWritten,
    /// Measured on both sides at every other request.
    Alternating,
    /// Of several files the first is here, the others at targets.
    Apart,
    /// Over files of URLs that name several servers, of which one answers.
    Copies(Where),
    /// Over objects of a web server that a target exports.
    Objects(Where),
    /// Over files of this machine that hold what the others hold in another form.
    Unpacked,
    /// Over files of targets that are chunks of an array: the input, encoded.
    Chunk(Where, usize),
}

const BEST: TierChoice = TierChoice::Best;
const INTERPRETER: TierChoice = TierChoice::Only(Tier::Interpreter);
const CRANELIFT: TierChoice = TierChoice::Only(Tier::Cranelift);

/// Inputs up to this length are also run by the interpreter.
const INTERPRETED_LEN_MAX: usize = 40_000;
/// What a session keeps of a file is blocks of 256 KiB.
const HALF_HELD_LEN_MIN: usize = 600_000;

impl Way {
    /// What all others are compared with.
    #[must_use]
    pub fn first(case: &Case) -> Self {
        Self::Local(if len(case) <= INTERPRETED_LEN_MAX { INTERPRETER } else { CRANELIFT }, 1)
    }

    /// All others for a case.
    #[must_use]
    pub fn others(case: &Case, has_llvm: bool) -> Vec<Self> {
        let mut ways = vec![
            Self::Local(CRANELIFT, 3),
            Self::LocalWritten,
            Self::Host,
            // What is held now.
            Self::Host,
            Self::Device(BEST, 1),
            Self::Device(CRANELIFT, 2),
            Self::DeviceWritten,
            Self::Auto,
            // It has learnt.
            Self::Auto,
            Self::Auto,
            Self::AutoWritten,
            Self::Alternating,
            Self::Alternating,
            Self::Copies(Where::Device),
            Self::Copies(Where::Host),
            Self::Objects(Where::Device),
            Self::Objects(Where::Host),
            Self::Objects(Where::Auto),
        ];
        if len(case) <= INTERPRETED_LEN_MAX {
            ways.push(Self::Device(INTERPRETER, 1));
        }
        if len(case) >= HALF_HELD_LEN_MIN && !case.is_packed() {
            ways.insert(7, Self::AutoHalfHeld);
        }
        if case.inputs.len() > 1 {
            ways.push(Self::Apart);
        }
        // Traces have the length of a file, and the length of decompressed bytes is unknown before their end.
        if case.is_packed() && matches!(case.origin, Origin::Shipped(_)) {
            ways.push(Self::Unpacked);
        }
        if codec_of(case).is_some() {
            ways.extend([Self::Chunk(Where::Host, 3), Self::Chunk(Where::Device, 2), Self::Chunk(Where::Auto, 1)]);
        }
        if has_llvm {
            let llvm = TierChoice::Only(Tier::Llvm);
            ways.extend([Self::Local(llvm, 1), Self::Device(llvm, 1)]);
        }
        ways
    }

    /// Runs a case.
    ///
    /// # Panics
    /// When its files cannot be opened.
    #[must_use]
    pub fn run(self, world: &World, case: &Case, loaded: &Loaded) -> Ending {
        let (session, place) = match self {
            Self::Local(..) | Self::LocalWritten | Self::Unpacked | Self::Host => (&world.told, Where::Host),
            Self::Device(..) | Self::DeviceWritten => (&world.told, Where::Device),
            Self::Chunk(place, _) | Self::Copies(place) | Self::Objects(place) => (&world.told, place),
            Self::Auto | Self::AutoHalfHeld | Self::AutoWritten | Self::Apart => (&world.adaptive, Where::Auto),
            Self::Alternating => (&world.alternating, Where::Auto),
        };
        if case.state_len.is_some() {
            clear_state(session);
        }
        let unpacked = (self == Self::Unpacked).then(|| case.unpacked());
        let case = unpacked.as_ref().unwrap_or(case);
        let files = self.files(world, session, case);
        if self == Self::AutoHalfHeld {
            session.drop_cache();
            let half = len(case) / 2;
            files[0].pread(0, half).wait().expect("it is read");
        }
        let (tier, threads) = match self {
            Self::Local(tier, threads) | Self::Device(tier, threads) => (tier, threads),
            Self::Chunk(_, threads) => (BEST, threads),
            _ => (BEST, 1),
        };
        let mut options = RunOptions { place, tier, threads, ..options(case) };
        if let Self::Chunk(..) = self {
            options.chunks = codec_of(case)
                .map(|codec| Arc::new(Chunks { codecs: vec![codec], len_bytes: len(case) as u64, ranges: Vec::new() }));
        }
        let is_written = matches!(self, Self::LocalWritten | Self::DeviceWritten | Self::AutoWritten);
        let mut written = Vec::new();
        let args = match self {
            // Nobody reads the first line of an array's chunk.
            Self::Chunk(..) => loaded.args(&here(session, world, &case.inputs[0]), options.decompress),
            _ => loaded.args(&files[0], options.decompress),
        };
        let args = match args {
            Ok(args) => args,
            Err(error) => return Ending::of(Err(error), None, &names(world, case)),
        };
        let (function, args) = (&loaded.function, &args[..]);
        let ran = match (&files[..], &case.range) {
            (files, _) if options.chunks.is_some() => session.run(files, function, args, &options, None),
            ([only], None) if !is_written => only.fold_fn(function, args, &options).wait(),
            ([only], Some(range)) if !is_written => only.pread_fn(range.clone(), function, args, &options).wait(),
            (files, _) if is_written => session.run(files, function, args, &options, Some(&mut written)),
            (files, _) => session.run(files, function, args, &options, None),
        };
        Ending::of(ran, is_written.then_some(written), &names(world, case))
    }

    fn files(self, world: &World, session: &Session, case: &Case) -> Vec<File> {
        let open = |(at, input)| {
            let is_here = match self {
                Self::Local(..) | Self::LocalWritten | Self::Unpacked => true,
                Self::Apart => at == 0,
                _ => false,
            };
            let location = match is_here {
                true => world.path(input).display().to_string(),
                false => {
                    let codec = codec_of(case).filter(|_| matches!(self, Self::Chunk(..)));
                    let host = HOSTS[at % HOSTS.len()];
                    let url = world.url_as(host, input, codec);
                    match self {
                        Self::Copies(_) => url.replacen(&format!("://{host}/"), &format!("://gone,{host}/"), 1),
                        Self::Objects(_) => url.replacen("/data/", "/web/", 1),
                        _ => url,
                    }
                }
            };
            session.open(&location).unwrap_or_else(|error| panic!("{location}: {error}"))
        };
        case.inputs.iter().enumerate().map(open).collect()
    }
}

/// The file of this machine with an input.
pub(crate) fn here(session: &Session, world: &World, input: &Input) -> File {
    let path = world.path(input).display().to_string();
    session.open(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn len(case: &Case) -> usize {
    case.inputs.iter().map(|input| input.len).sum()
}

/// The named state of all cases that have one.
const STATE: &str = "state";

/// Each run begins with zeros. A side that has no such state yet has nothing to clear.
fn clear_state(session: &Session) {
    let _ = session.clear_state(STATE, 0..u64::MAX);
    for host in HOSTS {
        let target = format!("nvme-tcp://{host}").parse().expect("a URL");
        let _ = session.clear_state_at(&target, STATE, 0..u64::MAX);
    }
}

fn options(case: &Case) -> RunOptions {
    let usual = RunOptions::default();
    let mut options = RunOptions {
        chunk_len: case.chunk_len,
        offset: case.range.as_ref().map_or(0, |range| range.start),
        length: case.range.as_ref().map(|range| range.end - range.start),
        split: case.split.map(|split| match split {
            Said::Lines => Split::Delimiter(b'\n'),
            Said::Records(len) => Split::Fixed(len),
        }),
        fold: case.folds,
        decompress: Decompress::Auto,
        header: Header::Auto,
        state: case.state_len.map(|len_bytes| StateName { name: STATE.to_owned(), len_bytes }),
        ..usual
    };
    options.limits.budget = case.budget;
    options
}

/// What errors may call the files, the longest names first.
fn names(world: &World, case: &Case) -> Vec<String> {
    let mut names = Vec::new();
    for input in &case.inputs {
        let path = world.path(input);
        let name = path.file_name().expect("it has a name").to_string_lossy();
        let urls = HOSTS.map(|host| world.url(host, input));
        names.extend(urls.iter().map(|url| url.replacen("/data/", "/web/", 1)));
        names.extend(urls);
        if let Some(codec) = codec_of(case).filter(|_| world.has_exports()) {
            let url = world.url_as(HOSTS[0], input, Some(codec));
            names.push(format!("data/{}", url.rsplit('/').next().unwrap_or_default()));
            names.push(url);
        }
        names.push(path.display().to_string());
        names.extend(["data", "web"].map(|export| format!("{export}/{name}")));
        // What is on a mounted volume has no name at its target.
        names.push("a file on data".to_owned());
    }
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names
}
