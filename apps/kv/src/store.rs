//! A store that is open: lookups, level by level or pushed down, and updates.

use crate::cache::{Cache, Sampler, Sampling};
use crate::changes::{Changes, Turn, Writing};
use crate::drive;
use crate::error::KvError;
use crate::format::{LEVELS_MAX, NODE_LEN, Node, Place, VALUE_LEN, Value};
use crate::mounted::MountedPushdown;
use crate::port::{Port, Shared};
use crate::pushdown::{LocalPushdown, Pushdown};
use diskside::io::buffer::{Buffer, Hugepages};
use diskside::io::instance::{InstanceConfig, Instances};
use diskside::io::request::{Outcome, Request, RequestFuture};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use zerocopy::FromBytes;

/// How an operation reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// One read at a time.
    Plain,
    /// One after another where a read depends on another; at once where it does not.
    Async,
    /// The holder of the data follows the pointers.
    #[default]
    Pushdown,
}

/// How a store is opened.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// How operations read.
    pub mode: Mode,
    /// Levels from the root on that are kept in memory.
    pub cache_levels: u32,
    /// Which lookups feed the cache.
    pub sampling: Sampling,
    /// Most nodes that sampled lookups leave in memory.
    pub sampled_nodes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: Mode::default(), cache_levels: 0, sampling: Sampling::Off, sampled_nodes_max: 1 << 16 }
    }
}

/// What operations have cost so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Reads that the store made itself.
    pub reads: u64,
    /// Requests that were pushed down.
    pub pushed: u64,
    /// Lookups that took the plain path to feed the cache.
    pub sampled: u64,
    /// Nodes that were found in memory.
    pub cached_nodes: u64,
}

/// A store that is open, for the thread that opened it.
pub struct Store {
    pub(crate) port: Box<dyn Port>,
    pub(crate) pushdown: Option<Box<dyn Pushdown>>,
    pub(crate) mode: Mode,
    len: u64,
    levels: u32,
    /// Of older files: where the leaves end.
    pub(crate) leaf_end: Option<u64>,
    cache: RefCell<Cache>,
    sampler: RefCell<Sampler>,
    counters: Cell<Counters>,
    spare: RefCell<Vec<Buffer>>,
    /// Blocks that are being changed, and who waits for them.
    changes: Changes,
    /// The outcomes of lookups in a file of a mounted volume.
    mounted: Option<Arc<diskside::host::mounted::Counters>>,
}

/// Buffers of at most this are kept for the next read.
const SPARE_LEN_MAX: usize = 4096;

impl Store {
    /// Opens a store in a local file; traversals run in this process.
    ///
    /// # Errors
    /// When it cannot be read, or is not a store.
    pub fn open_file(path: &Path, options: &Options) -> Result<Self, KvError> {
        let open = |error: io::Error| KvError::Open { name: path.display().to_string(), reason: error.to_string() };
        let file = std::fs::File::options().read(true).write(true).open(path);
        let file = file.or_else(|_| std::fs::File::open(path)).map_err(open)?;
        let pushdown: Option<Box<dyn Pushdown>> = match options.mode {
            Mode::Pushdown => Some(Box::new(LocalPushdown::new(file.try_clone().map_err(open)?)?)),
            Mode::Plain | Mode::Async => None,
        };
        Self::over_file(file, pushdown, options)
    }

    /// Opens a store in a file of a mounted volume, to read it: the volume's target follows the pointers, and this
    /// host where that cannot be proved.
    ///
    /// # Errors
    /// When it cannot be read, or is not a store.
    pub fn open_mounted(pushdown: MountedPushdown, options: &Options) -> Result<Self, KvError> {
        let open =
            |error: io::Error| KvError::Open { name: "a file of a mounted volume".into(), reason: error.to_string() };
        let file = pushdown.reopen().map_err(open)?;
        let mounted = Some(Arc::clone(pushdown.counters()));
        Ok(Self { mounted, ..Self::over_file(file, Some(Box::new(pushdown)), options)? })
    }

    fn over_file(file: std::fs::File, pushdown: Option<Box<dyn Pushdown>>, options: &Options) -> Result<Self, KvError> {
        let open =
            |error: io::Error| KvError::Open { name: "rings for the store's file".into(), reason: error.to_string() };
        let instances = Instances::start(&InstanceConfig::default()).map_err(open)?;
        let file = instances.file(file).map_err(open)?;
        Self::open(Box::new(Shared(Arc::new(file))), pushdown, options)
    }

    /// Opens a store behind a port. Without `pushdown`, [`Mode::Pushdown`] reads as [`Mode::Async`].
    ///
    /// # Errors
    /// When it cannot be read, or is not a store.
    pub fn open(port: Box<dyn Port>, pushdown: Option<Box<dyn Pushdown>>, options: &Options) -> Result<Self, KvError> {
        let len =
            port.len_bytes().map_err(|source| KvError::Io { what: "asking for the length", offset: 0, source })?;
        let sampled_nodes_max = if options.sampling == Sampling::Off { 0 } else { options.sampled_nodes_max };
        let mut store = Self {
            port,
            pushdown,
            mode: options.mode,
            len,
            levels: 0,
            leaf_end: None,
            cache: RefCell::new(Cache::new(sampled_nodes_max)),
            sampler: RefCell::new(Sampler::new(options.sampling)),
            counters: Cell::default(),
            spare: RefCell::default(),
            changes: Changes::default(),
            mounted: None,
        };
        (store.levels, store.leaf_end) = store.block_on(store.look_around())?;
        store.block_on(store.fill_cache(options.cache_levels))?;
        store.counters.set(Counters::default());
        Ok(store)
    }

    /// Runs an operation to its end.
    pub fn block_on<T>(&self, operation: impl Future<Output = T>) -> T {
        drive::block_on(&*self.port, operation)
    }

    /// How many lookups in a file of a mounted volume ended at the volume's target, and why others did not.
    #[must_use]
    pub fn mounted_counters(&self) -> Option<&diskside::host::mounted::Counters> {
        self.mounted.as_deref()
    }

    /// Where its bytes are.
    #[must_use]
    pub fn port(&self) -> &dyn Port {
        &*self.port
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    pub(crate) fn cached(&self, offset: u64) -> Option<std::rc::Rc<Node>> {
        self.cache.borrow_mut().get(offset)
    }

    /// Levels of nodes.
    #[must_use]
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// What operations have cost so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// The share of lookups that feeds the cache now, and the nodes in it.
    #[must_use]
    pub fn cache_state(&self) -> (f64, usize) {
        (self.sampler.borrow().share(), self.cache.borrow().nodes())
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn get(&self, key: u64) -> Result<Option<Value>, KvError> {
        match self.enter(key)? {
            (Place::Absent, _) => Ok(None),
            (Place::Value(offset), _) => self.value(offset).await.map(Some),
            (Place::Node(start), sampled) => match &self.pushdown {
                Some(pushdown) if !sampled => {
                    self.count(|c| c.pushed += 1);
                    pushdown.get(key, start).await
                }
                _ => match self.descend(key, start, sampled).await? {
                    Some(offset) => self.value(offset).await.map(Some),
                    None => Ok(None),
                },
            },
        }
    }

    /// The values of keys, in the order of the keys.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn multi_get(&self, keys: &[u64]) -> Result<Vec<Option<Value>>, KvError> {
        let mut places = Vec::with_capacity(keys.len());
        for key in keys {
            places.push(self.enter(*key)?.0);
        }
        match &self.pushdown {
            Some(pushdown) => {
                let mut values = self.values_at(&places).await?;
                let is_below = |i: &usize| matches!(places[*i], Place::Node(_));
                let below: Vec<usize> = (0..keys.len()).filter(is_below).collect();
                for some in below.chunks(crate::pushdown::MULTI_MAX) {
                    let starts = some.iter().map(|&i| match places[i] {
                        Place::Node(start) => (keys[i], start),
                        Place::Value(_) | Place::Absent => unreachable!("only those that lead to nodes are here"),
                    });
                    let starts: Vec<(u64, u64)> = starts.collect();
                    self.count(|c| c.pushed += 1);
                    for (&i, value) in some.iter().zip(pushdown.multi_get(&starts).await?) {
                        values[i] = value;
                    }
                }
                Ok(values)
            }
            None => {
                self.descend_all(keys, &mut places).await?;
                self.values_at(&places).await
            }
        }
    }

    /// Replaces the value of a key. False when the key is not there.
    ///
    /// # Errors
    /// When the store cannot be read or written. The value is then the old or the new one.
    pub async fn put(&self, key: u64, value: &Value) -> Result<bool, KvError> {
        let offset = match self.enter(key)? {
            (Place::Absent, _) => None,
            (Place::Value(offset), _) => Some(offset),
            (Place::Node(start), sampled) => match &self.pushdown {
                Some(pushdown) if !sampled => {
                    self.count(|c| c.pushed += 1);
                    pushdown.locate(key, start).await?
                }
                _ => self.descend(key, start, sampled).await?,
            },
        };
        let Some(offset) = offset else { return Ok(false) };
        let window = self.window(offset, VALUE_LEN as u64)?;
        let turn = self.changes.turn(&window, (offset - window.start) as usize, value).await;
        match turn {
            Turn::Ended(ended) => ended?,
            Turn::Write(writing) => {
                let written = self.write(&window, &writing).await;
                writing.end(&written);
                written?;
            }
        }
        Ok(true)
    }

    /// Makes changes of a block.
    async fn write(&self, window: &Range<u64>, writing: &Writing<'_>) -> Result<(), KvError> {
        let mut buffer = self.read_window(window).await?;
        writing.apply(&mut buffer);
        let request = Request::Write { offset: window.start, buffer, durable: false };
        let outcome = self.port.submit(request).await;
        let (buffer, _) = self.finish("writing", window.start, outcome)?;
        self.put_back(buffer);
        Ok(())
    }

    /// Makes durable what was put.
    ///
    /// # Errors
    /// When the system cannot.
    pub async fn flush(&self) -> Result<(), KvError> {
        let outcome = self.port.submit(Request::Flush).await;
        outcome.status.to_result().map_err(|source| KvError::Io { what: "flushing", offset: 0, source })
    }

    /// Where the cache leads, and whether this lookup feeds it.
    fn enter(&self, key: u64) -> Result<(Place, bool), KvError> {
        let (place, found) = self.cache.borrow_mut().walk(key)?;
        self.count(|c| c.cached_nodes += u64::from(found));
        let sampled = self.sampler.borrow_mut().sample(found);
        self.count(|c| c.sampled += u64::from(sampled));
        Ok((place, sampled))
    }

    /// Offset of a key's value, level by level.
    async fn descend(&self, key: u64, mut offset: u64, keep: bool) -> Result<Option<u64>, KvError> {
        for _ in 0..LEVELS_MAX {
            let lent = self.read(offset, NODE_LEN as u64).await?;
            let node = Node::parse(lent.bytes(), offset)?;
            if keep {
                self.cache.borrow_mut().keep(offset, node);
            }
            match node.find(key, offset)? {
                Place::Node(child) => offset = child,
                Place::Value(value) => return Ok(Some(value)),
                Place::Absent => return Ok(None),
            }
        }
        Err(KvError::Format { offset, what: "a chain of nodes that does not end" })
    }

    /// Takes all keys to their values, level by level; in [`Mode::Plain`] one read at a time.
    async fn descend_all(&self, keys: &[u64], places: &mut [Place]) -> Result<(), KvError> {
        if self.mode == Mode::Plain {
            for (place, key) in places.iter_mut().zip(keys) {
                if let Place::Node(start) = *place {
                    *place = self.descend(*key, start, false).await?.map_or(Place::Absent, Place::Value);
                }
            }
            return Ok(());
        }
        for _ in 0..=LEVELS_MAX {
            let mut reads = Vec::new();
            for (i, place) in places.iter().enumerate() {
                if let Place::Node(offset) = *place {
                    reads.push((i, offset, self.start_read(offset, NODE_LEN as u64)?));
                }
            }
            if reads.is_empty() {
                return Ok(());
            }
            for (i, offset, read) in reads {
                let lent = read.done(self).await?;
                places[i] = Node::parse(lent.bytes(), offset)?.find(keys[i], offset)?;
            }
        }
        Err(KvError::Format { offset: 0, what: "a chain of nodes that does not end" })
    }

    /// The values at places that are values; the others have none.
    async fn values_at(&self, places: &[Place]) -> Result<Vec<Option<Value>>, KvError> {
        let mut values = vec![None; places.len()];
        let mut reads = Vec::new();
        for (i, place) in places.iter().enumerate() {
            let Place::Value(offset) = *place else { continue };
            if self.mode == Mode::Plain {
                values[i] = Some(self.value(offset).await?);
            } else {
                reads.push((i, self.start_read(offset, VALUE_LEN as u64)?));
            }
        }
        for (i, read) in reads {
            values[i] = Some(value_of(&read.done(self).await?));
        }
        Ok(values)
    }

    async fn value(&self, offset: u64) -> Result<Value, KvError> {
        Ok(value_of(&self.read(offset, VALUE_LEN as u64).await?))
    }

    /// Reads bytes, wherever they lie.
    pub(crate) async fn read(&self, offset: u64, len: u64) -> Result<Lent<'_>, KvError> {
        self.start_read(offset, len)?.done(self).await
    }

    /// Starts a read; several may be started before the first is waited for.
    pub(crate) fn start_read(&self, offset: u64, len: u64) -> Result<Read, KvError> {
        let window = self.window(offset, len)?;
        let buffer = self.take_buffer((window.end - window.start) as usize);
        self.count(|c| c.reads += 1);
        let future = self.port.submit(Request::Read { offset: window.start, buffer });
        Ok(Read { future, offset, len, window })
    }

    async fn read_window(&self, window: &Range<u64>) -> Result<Buffer, KvError> {
        let mut lent = self.read(window.start, window.end - window.start).await?;
        Ok(lent.buffer.take().expect("a buffer is lent until it is taken"))
    }

    /// The bytes around a range that can be read and written.
    fn window(&self, offset: u64, len: u64) -> Result<Range<u64>, KvError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => {
                let alignment = self.port.alignment().max(1);
                let start = offset - offset % alignment;
                Ok(start..end.next_multiple_of(alignment).min(self.len))
            }
            _ => Err(KvError::Format { offset, what: "a pointer beyond the end" }),
        }
    }

    fn finish(&self, what: &'static str, offset: u64, outcome: Outcome) -> Result<(Buffer, u64), KvError> {
        let Outcome { status, transferred_bytes, buffer } = outcome;
        let error = |source| KvError::Io { what, offset, source };
        status.to_result().map_err(error)?;
        let buffer = buffer.ok_or_else(|| error(io::Error::other("the buffer is lost")))?;
        Ok((buffer, transferred_bytes))
    }

    fn take_buffer(&self, len: usize) -> Buffer {
        let mut spare = self.spare.borrow_mut();
        match spare.pop() {
            Some(mut buffer) if len <= buffer.capacity() => {
                buffer.set_len(len);
                buffer
            }
            _ => Buffer::with_hugepages(len, Hugepages::No),
        }
    }

    fn put_back(&self, buffer: Buffer) {
        if buffer.capacity() <= SPARE_LEN_MAX {
            self.spare.borrow_mut().push(buffer);
        }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// How many levels there are and, in older files, where the leaves end.
    async fn look_around(&self) -> Result<(u32, Option<u64>), KvError> {
        let mut offset = 0;
        for level in 1..=LEVELS_MAX {
            let lent = self.read(offset, NODE_LEN as u64).await?;
            let node = Node::parse(lent.bytes(), offset)?;
            let Some(first) = node.pointer(0, offset)? else {
                return Err(KvError::Format { offset, what: "an empty node" });
            };
            if node.is_leaf() {
                return Ok((level, node.is_older().then_some(first)));
            }
            offset = first;
        }
        Err(KvError::Format { offset, what: "more than 16 levels" })
    }

    /// Reads the top levels into memory.
    async fn fill_cache(&self, levels: u32) -> Result<(), KvError> {
        let mut level = vec![0];
        for _ in 0..levels.min(self.levels) {
            let mut below = Vec::new();
            for offset in level {
                let lent = self.read(offset, NODE_LEN as u64).await?;
                let node = Node::parse(lent.bytes(), offset)?;
                if !node.is_leaf() {
                    for entry in node.entries(offset) {
                        below.push(entry?.1);
                    }
                }
                self.cache.borrow_mut().pin(offset, node.clone());
            }
            level = below;
        }
        Ok(())
    }
}

/// A read that was started.
pub(crate) struct Read {
    future: RequestFuture,
    offset: u64,
    len: u64,
    window: Range<u64>,
}

impl Read {
    pub(crate) async fn done(self, store: &Store) -> Result<Lent<'_>, KvError> {
        let (buffer, transferred) = store.finish("reading", self.window.start, self.future.await)?;
        let at = (self.offset - self.window.start) as usize;
        let bytes = at..at + self.len as usize;
        if (transferred as usize) < bytes.end {
            return Err(KvError::Format { offset: self.offset, what: "the end of a file that became shorter" });
        }
        Ok(Lent { store, buffer: Some(buffer), bytes })
    }
}

/// Bytes that were read; their buffer goes back to the store.
pub(crate) struct Lent<'a> {
    store: &'a Store,
    buffer: Option<Buffer>,
    bytes: Range<usize>,
}

impl Lent<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.as_ref().expect("a buffer is lent until it is taken")[self.bytes.clone()]
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.store.put_back(buffer);
        }
    }
}

fn value_of(lent: &Lent<'_>) -> Value {
    Value::read_from_bytes(lent.bytes()).expect("a value's bytes were read")
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("mode", &self.mode).field("levels", &self.levels).finish_non_exhaustive()
    }
}
