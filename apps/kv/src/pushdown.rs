//! Lookups that are followed where the data is.
//!
//! The functions are those that every target ships: `kv_get`, `kv_locate`, `kv_multi_get`, `kv_range` and `kv_sum`
//! (`functions/kv*.bpf.c`). Their arguments and results are a few words; [`Pushdown::call`] carries them.

use crate::error::KvError;
use crate::format::{VALUE_LEN, Value};
use diskside::traverse::{FileList, Traversal, TraverseLimits, TraverseRequest};
use diskside::{Engine, TierChoice, helpers, library};
use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::pin::Pin;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Pairs of key and value, in the order of keys.
pub type Pairs = Vec<(u64, Value)>;

/// Most keys of one request of [`Function::MultiGet`].
pub const MULTI_MAX: usize = 64;
/// Bytes of scratch of a range: the most that one request brings back.
const RANGE_SCRATCH_LEN: usize = 64 << 10;
/// Bytes of scratch of a sum.
pub const SUM_SCRATCH_LEN: usize = 32 + PAIR_LEN + RANGE_STATE_LEN;
/// Bytes of scratch of [`Function::Locate`].
pub(crate) const LOCATE_SCRATCH_LEN: usize = 16;
const PAIR_LEN: usize = 8 + VALUE_LEN;
/// Bytes that a range keeps for itself at the end of scratch.
const RANGE_STATE_LEN: usize = 64;

/// A function that every target has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "named as the functions are")]
pub enum Function {
    Get,
    Locate,
    MultiGet,
    Range,
    Sum,
}

impl Function {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Get, Self::Locate, Self::MultiGet, Self::Range, Self::Sum];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "kv_get",
            Self::Locate => "kv_locate",
            Self::MultiGet => "kv_multi_get",
            Self::Range => "kv_range",
            Self::Sum => "kv_sum",
        }
    }
}

/// The result of a traversal, now or later.
pub type Pushed<'a, T> = Pin<Box<dyn Future<Output = Result<T, KvError>> + 'a>>;

/// Somebody who follows pointers over the store's bytes.
pub trait Pushdown {
    /// Runs a function over the store: `input` is what its scratch of `scratch_cap` bytes begins with;
    /// gives the bytes that travel back. Most functions give `result_len` bytes.
    fn call<'a>(
        &'a self,
        function: Function,
        input: &[u8],
        scratch_cap: usize,
        result_len: usize,
    ) -> Pushed<'a, Vec<u8>>;
}

/// The pairs of a range from a node on.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub struct RangeRequest {
    /// First key.
    pub first: u64,
    /// Offset of the node to start at.
    pub start: u64,
    /// Last key.
    pub last: u64,
    /// Most pairs.
    pub limit: u64,
    /// Where the leaves of an older file end; else 0.
    pub leaf_end: u64,
}

/// The sum of a range, or of its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartSum {
    /// Keys in it.
    pub count: u64,
    /// Sum of their values.
    pub sum: u64,
    /// The first key that is missing.
    pub resume: Option<u64>,
}

/// Bytes of scratch of a range with room for so many pairs.
#[must_use]
pub fn range_scratch_len(limit: u64) -> usize {
    let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_mul(PAIR_LEN);
    room.saturating_add(32 + RANGE_STATE_LEN).min(RANGE_SCRATCH_LEN)
}

impl dyn Pushdown + '_ {
    /// The value of a key, from a node on.
    pub(crate) async fn get(&self, key: u64, start: u64) -> Result<Option<Value>, KvError> {
        let result = self.call(Function::Get, &key_and_start(key, start), VALUE_LEN, VALUE_LEN).await?;
        match result.len() {
            0 => Ok(None),
            _ => Value::read_from_bytes(&result).map(Some).map_err(|_| unexpected(Function::Get, &result)),
        }
    }

    /// Where the value of a key is, from a node on.
    pub(crate) async fn locate(&self, key: u64, start: u64) -> Result<Option<u64>, KvError> {
        let result = self.call(Function::Locate, &key_and_start(key, start), LOCATE_SCRATCH_LEN, 8).await?;
        match result.len() {
            0 => Ok(None),
            8 => Ok(Some(word(&result, 0))),
            _ => Err(unexpected(Function::Locate, &result)),
        }
    }

    /// The values of keys, each from a node on; at most [`MULTI_MAX`].
    pub(crate) async fn multi_get(&self, keys: &[(u64, u64)]) -> Result<Vec<Option<Value>>, KvError> {
        assert!(keys.len() <= MULTI_MAX, "a request has a limit of keys");
        let mut input = Vec::with_capacity(16 + 16 * keys.len());
        input.extend_from_slice(&(keys.len() as u64).to_le_bytes());
        input.extend_from_slice(&[0; 8]);
        for (key, start) in keys {
            input.extend_from_slice(&key.to_le_bytes());
            input.extend_from_slice(&start.to_le_bytes());
        }
        let result_len = 16 + VALUE_LEN * keys.len();
        let result = self.call(Function::MultiGet, &input, result_len + 16 + 16 * keys.len(), result_len).await?;
        if result.len() != result_len {
            return Err(unexpected(Function::MultiGet, &result));
        }
        let found = word(&result, 1);
        let values = result[16..].chunks_exact(VALUE_LEN).enumerate();
        let value = |(i, bytes)| (found >> i & 1 == 1).then(|| Value::read_from_bytes(bytes).expect("as long as one"));
        Ok(values.map(value).collect())
    }

    /// The pairs of a range and the first key that is missing.
    pub(crate) async fn range(&self, request: &RangeRequest) -> Result<(Pairs, Option<u64>), KvError> {
        // Room for what is wanted, so that what is not wanted costs nothing.
        let scratch_cap = range_scratch_len(request.limit);
        let result_len = scratch_cap - RANGE_STATE_LEN;
        let result = self.call(Function::Range, request.as_bytes(), scratch_cap, result_len).await?;
        let pairs = result.get(32..).unwrap_or_default();
        if result.len() < 32 || pairs.len() as u64 != word(&result, 0).saturating_mul(PAIR_LEN as u64) {
            return Err(unexpected(Function::Range, &result));
        }
        let pair = |bytes: &[u8]| (word(bytes, 0), Value::read_from_bytes(&bytes[8..]).expect("the rest of a pair"));
        let resume = (word(&result, 1) != 0).then(|| word(&result, 2));
        Ok((pairs.chunks_exact(PAIR_LEN).map(pair).collect(), resume))
    }

    /// The sum of a range, as far as `limit` goes.
    pub(crate) async fn sum(&self, request: &RangeRequest) -> Result<PartSum, KvError> {
        let result = self.call(Function::Sum, request.as_bytes(), SUM_SCRATCH_LEN, 32).await?;
        if result.len() != 32 {
            return Err(unexpected(Function::Sum, &result));
        }
        let resume = (word(&result, 1) != 0).then(|| word(&result, 2));
        Ok(PartSum { count: word(&result, 0), sum: word(&result, 3), resume })
    }
}

fn key_and_start(key: u64, start: u64) -> [u8; 16] {
    let mut input = [0; 16];
    input[..8].copy_from_slice(&key.to_le_bytes());
    input[8..].copy_from_slice(&start.to_le_bytes());
    input
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("8 bytes"))
}

fn unexpected(function: Function, result: &[u8]) -> KvError {
    KvError::Pushdown(format!("{} gave {} bytes, which is no result of it", function.name(), result.len()))
}

/// Follows pointers over a local file, in this thread.
#[derive(Debug)]
pub struct LocalPushdown {
    here: RefCell<Here>,
}

#[derive(Debug)]
struct Here {
    files: FileList,
    lens: Vec<u64>,
    traversals: Vec<Traversal>,
}

impl LocalPushdown {
    /// Over this file, which keeps its length.
    ///
    /// # Errors
    /// When the file's length is not known or a function cannot be loaded.
    pub fn new(file: File) -> Result<Self, KvError> {
        let engine = Engine::new(helpers());
        let mut traversals = Vec::new();
        for function in Function::ALL {
            let failed = |reason: String| KvError::Pushdown(format!("{}: {reason}", function.name()));
            let object = library::object(function.name()).map_err(|e| failed(e.to_string()))?;
            let loaded = engine.load_traversal(&object.bytes, object.function.as_deref());
            let loaded = loaded.map_err(|e| failed(e.to_string()))?;
            let traversal = engine.traversal(&loaded, TierChoice::Best, TraverseLimits::default());
            traversals.push(traversal.map_err(|e| failed(e.to_string()))?);
        }
        let files = FileList::new(vec![file]);
        let lens = files.lens().map_err(|source| KvError::Io { what: "asking for the length", offset: 0, source })?;
        Ok(Self { here: RefCell::new(Here { files, lens, traversals }) })
    }

    fn run(&self, function: Function, input: &[u8], scratch_cap: usize) -> Result<Vec<u8>, KvError> {
        let Here { files, lens, traversals } = &mut *self.here.borrow_mut();
        let request = TraverseRequest { first: &[], files: lens, input, scratch_cap, deadline: None };
        let result = traversals[function as usize].run(&request, files);
        result.map(<[u8]>::to_vec).map_err(|e| KvError::Pushdown(e.to_string()))
    }
}

impl Pushdown for LocalPushdown {
    fn call<'a>(&'a self, function: Function, input: &[u8], scratch_cap: usize, _: usize) -> Pushed<'a, Vec<u8>> {
        Box::pin(std::future::ready(self.run(function, input, scratch_cap)))
    }
}
