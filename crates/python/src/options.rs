//! How a function is to run: Python gives each option by its name, checked as far as its type goes.

use crate::error::Failure;
use diskside::io::instance::{InstanceConfig, Threads};
use diskside::sandbox::activation::Tier;
use diskside::sandbox::machine::CancelToken;
use diskside::session::{ChunkRange, Chunks, Decompress, Header, RunOptions, ScanPlace, Where};
use diskside::split::Split;
use diskside::wire::function::StateName;
use diskside::{ChunkCodec, Codec, TierChoice};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The longest named state.
const STATE_LEN_MAX: u32 = 16 << 20;

/// The options of a run, with a token that stops it and a counter of what is done.
pub(crate) fn read(given: &Bound<'_, PyDict>) -> PyResult<(RunOptions, CancelToken, Arc<AtomicU64>)> {
    let mut options = RunOptions { decompress: Decompress::Auto, header: Header::Auto, ..RunOptions::default() };
    for (name, value) in given {
        let name: String = name.extract()?;
        set(&mut options, &name, &value).map_err(|error| named(&name, &value, error))?;
    }
    if options.chunks.is_some() && !given.contains("threads")? {
        options.threads = RunOptions::ALL_THREADS;
    } else if options.threads == 0 || options.threads > 1024 {
        return Err(Failure::usage(format!("threads: {} is not from 1 to 1024", options.threads)).into());
    }
    let (cancel, progress) = (CancelToken::new(), Arc::<AtomicU64>::default());
    options.limits.cancel = Some(cancel.clone());
    options.progress = Some(Arc::clone(&progress));
    Ok((options, cancel, progress))
}

/// How a session's instances are set up.
pub(crate) fn instances(given: &Bound<'_, PyDict>) -> PyResult<InstanceConfig> {
    let mut config = InstanceConfig::default();
    for (name, value) in given {
        let name: String = name.extract()?;
        set_instances(&mut config, &name, &value).map_err(|error| named(&format!("io: {name}"), &value, error))?;
    }
    config.check().map_err(|error| Failure::usage(format!("io: {error}")))?;
    Ok(config)
}

/// Where a scan is to run.
pub(crate) fn scan_place(value: &Bound<'_, PyAny>) -> PyResult<ScanPlace> {
    chosen("place", value, &SCAN_PLACES)
}

fn set_instances(config: &mut InstanceConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let wrong = |why: String| PyErr::from(Failure::usage(format!("io: {why}")));
    let seconds = || {
        let time = Duration::try_from_secs_f64(value.extract()?);
        time.map_err(|error| wrong(format!("{name}: {error}")))
    };
    match name {
        "instances" => config.instances = value.extract()?,
        "threads" => match value.extract()? {
            1 => config.threads = Threads::One,
            2 => config.threads = Threads::Two,
            other => return Err(wrong(format!("threads is {other}, and must be 1 or 2"))),
        },
        "in_flight_max" => config.in_flight_max = value.extract()?,
        "staging_max" => config.staging_max = value.extract()?,
        "spin" => config.spin = seconds()?,
        "sq_poll" => config.sq_poll = Some(seconds()?),
        "io_poll" => config.io_poll = value.extract()?,
        other => {
            let has = "instances, threads, in_flight_max, staging_max, spin, sq_poll, io_poll";
            return Err(wrong(format!("there is no `{other}`; there are {has}")));
        }
    }
    Ok(())
}

/// How the input is compressed, from the options of a run.
pub(crate) fn decompress(given: &Bound<'_, PyDict>) -> PyResult<Decompress> {
    let value = given.get_item("decompress")?;
    value.map_or(Ok(Decompress::Auto), |value| chosen("decompress", &value, &DECOMPRESS))
}

fn set(options: &mut RunOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "place" => options.place = chosen(name, value, &PLACES)?,
        "tier" => options.tier = chosen(name, value, &TIERS)?,
        "split" => options.split = Some(split(value)?),
        "chunk" => options.chunk_len = Some(value.extract()?),
        "heap" => options.limits.heap_quota_bytes = value.extract()?,
        "offset" => options.offset = value.extract()?,
        "length" => options.length = Some(value.extract()?),
        "decompress" => options.decompress = chosen(name, value, &DECOMPRESS)?,
        "header" => options.header = chosen(name, value, &HEADERS)?,
        "threads" => options.threads = value.extract()?,
        "combine" => options.fold = value.extract()?,
        "budget" => options.limits.budget = Some(value.extract()?),
        "deadline" => {
            let deadline = Duration::try_from_secs_f64(value.extract()?);
            options.limits.deadline = Some(deadline.map_err(|error| Failure::usage(format!("deadline: {error}")))?);
        }
        "result_max" => options.limits.result_len_max = value.extract()?,
        "background" => options.background = value.extract()?,
        "durable" => options.durable = value.extract()?,
        "chunks" => options.chunks = Some(Arc::new(chunks(name, value)?)),
        "state" => options.state = Some(state(value)?),
        other => return Err(Failure::usage(format!("a run has no option `{other}`")).into()),
    }
    Ok(())
}

/// Python's error for a number that does not fit, or for a value of another type, does not name the option.
fn named(name: &str, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = value.py();
    if !error.is_instance_of::<PyOverflowError>(py) && !error.is_instance_of::<PyTypeError>(py) {
        return error;
    }
    let shown: String = value.to_string().chars().take(80).collect();
    Failure::usage(format!("{name}: {shown}: {}", error.value(py))).into()
}

const PLACES: [(&str, Where); 3] = [("auto", Where::Auto), ("host", Where::Host), ("device", Where::Device)];
const SCAN_PLACES: [(&str, ScanPlace); 4] =
    [("auto", ScanPlace::Auto), ("host", ScanPlace::Host), ("device", ScanPlace::Device), ("both", ScanPlace::Both)];
const TIERS: [(&str, TierChoice); 4] = [
    ("best", TierChoice::Best),
    ("interp", TierChoice::Only(Tier::Interpreter)),
    ("cranelift", TierChoice::Only(Tier::Cranelift)),
    ("llvm", TierChoice::Only(Tier::Llvm)),
];
const DECOMPRESS: [(&str, Decompress); 4] = [
    ("auto", Decompress::Auto),
    ("none", Decompress::Never),
    ("gzip", Decompress::Only(Codec::Gzip)),
    ("zstd", Decompress::Only(Codec::Zstd)),
];
const HEADERS: [(&str, Header); 3] = [("auto", Header::Auto), ("none", Header::Ignore), ("npy", Header::Npy)];

const CODECS: [(&str, ChunkCodec); 6] = [
    ("gzip", ChunkCodec::Gzip),
    ("zstd", ChunkCodec::Zstd),
    ("zlib", ChunkCodec::Zlib),
    ("lz4", ChunkCodec::Lz4),
    ("blosc", ChunkCodec::Blosc),
    ("crc32c", ChunkCodec::Crc32c),
];

/// First byte, end, and version of the file.
type Ranged = (u64, u64, Option<u64>);

/// Names of codecs, the bytes of a decoded chunk, and ranges.
fn chunks(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Chunks> {
    let (codecs, len_bytes, ranges): (Vec<Bound<'_, PyAny>>, u64, Vec<Ranged>) = value.extract()?;
    let codecs = codecs.iter().map(|codec| chosen(name, codec, &CODECS)).collect::<PyResult<_>>()?;
    let range = |(start, end, version): Ranged| ChunkRange { bytes: start..end, version };
    Ok(Chunks { codecs, len_bytes, ranges: ranges.into_iter().map(range).collect() })
}

fn chosen<T: Copy>(name: &str, value: &Bound<'_, PyAny>, all: &[(&str, T)]) -> PyResult<T> {
    let text: Option<String> = value.extract().ok();
    if let Some((_, found)) = all.iter().find(|(name, _)| text.as_deref() == Some(*name)) {
        return Ok(*found);
    }
    let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
    let given = text.map_or_else(|| value.to_string(), |text| format!("{text:?}"));
    Err(Failure::usage(format!("{name}: {given} is none of {}", names.join(", "))).into())
}

/// "lines", "bytes", "whole", or the bytes of a record.
fn split(value: &Bound<'_, PyAny>) -> PyResult<Split> {
    if let Ok(len) = value.extract::<u32>() {
        return match len {
            0 => Err(Failure::usage("split: a record has at least 1 byte").into()),
            len => Ok(Split::Fixed(len)),
        };
    }
    chosen("split", value, &[("lines", Split::Delimiter(b'\n')), ("bytes", Split::Bytes), ("whole", Split::Whole)])
}

/// A name and a size.
fn state(value: &Bound<'_, PyAny>) -> PyResult<StateName> {
    let (name, len_bytes): (String, u32) = value.extract()?;
    if (1..=64).contains(&name.len()) && (1..=STATE_LEN_MAX).contains(&len_bytes) {
        return Ok(StateName { name, len_bytes });
    }
    let told = "state: it has a name of 1 to 64 bytes, and 1 byte to 16 MiB";
    Err(Failure::usage(format!("{told}; this is {name:?} with {len_bytes}")).into())
}
