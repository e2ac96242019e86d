//! Ranges of keys: their pairs, or the sum of their values.

use crate::error::KvError;
use crate::format::{LEVELS_MAX, NO_KEY, NODE_LEN, Node, VALUE_LEN, Value, number};
use crate::pushdown::{Pairs, RangeRequest};
use crate::store::{Mode, Read, Store};
use std::ops::Range;
use zerocopy::FromBytes;

/// Values that lie side by side, and the places of their pairs.
struct Run {
    offset: u64,
    pairs: Range<usize>,
}

impl Store {
    /// The pairs of the keys `first..=last`, at most `limit` of them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn range(&self, first: u64, last: u64, limit: u64) -> Result<Pairs, KvError> {
        let Some(pushdown) = &self.pushdown else { return self.range_by_reads(first, last, limit).await };
        let (mut pairs, mut first) = (Pairs::new(), first);
        while (pairs.len() as u64) < limit {
            let limit = limit - pairs.len() as u64;
            let start = self.start_of(first)?;
            let leaf_end = self.leaf_end.unwrap_or(0);
            self.count(|c| c.pushed += 1);
            let (some, resume) = pushdown.range(&RangeRequest { first, start, last, limit, leaf_end }).await?;
            pairs.extend(some);
            match resume {
                Some(resume) => first = resume,
                None => break,
            }
        }
        Ok(pairs)
    }

    /// How many keys there are in `first..=last`, at most `limit`, and the sum of the numbers that
    /// their values end with. It wraps.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn sum(&self, first: u64, last: u64, limit: u64) -> Result<(u64, u64), KvError> {
        let Some(pushdown) = &self.pushdown else {
            return self.sum_by_reads(first, last, limit).await;
        };
        // In steps, so that a sum over a large store keeps to the limits of one traversal.
        const STEP: u64 = 1 << 14;
        let (mut count, mut sum, mut first) = (0, 0u64, first);
        while count < limit {
            let limit = (limit - count).min(STEP);
            let start = self.start_of(first)?;
            let leaf_end = self.leaf_end.unwrap_or(0);
            self.count(|c| c.pushed += 1);
            let some = pushdown.sum(&RangeRequest { first, start, last, limit, leaf_end }).await?;
            count += some.count;
            sum = sum.wrapping_add(some.sum);
            match some.resume {
                Some(resume) => first = resume,
                None => break,
            }
        }
        Ok((count, sum))
    }

    /// The greatest key.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn last_key(&self) -> Result<u64, KvError> {
        let offset = self.leaf_of(NO_KEY - 1).await?;
        let lent = self.read(offset, NODE_LEN as u64).await?;
        let entries = Node::parse(lent.bytes(), offset)?.entries(offset).last().transpose()?;
        entries.map(|entry| entry.0).ok_or(KvError::Format { offset, what: "an empty node" })
    }

    async fn sum_by_reads(&self, mut first: u64, last: u64, limit: u64) -> Result<(u64, u64), KvError> {
        const STEP: u64 = 1 << 14;
        let (mut count, mut sum) = (0, 0u64);
        while count < limit {
            let wanted = (limit - count).min(STEP);
            let pairs = self.range_by_reads(first, last, wanted).await?;
            sum = pairs.iter().fold(sum, |sum, pair| sum.wrapping_add(number(&pair.1)));
            count += pairs.len() as u64;
            match pairs.last() {
                Some(pair) if pairs.len() as u64 == wanted && pair.0 < last => first = pair.0 + 1,
                _ => break,
            }
        }
        Ok((count, sum))
    }

    /// As [`Store::range`]: down to a leaf, then along the leaves. Values that lie side by side are
    /// read at once; in [`Mode::Async`] the next leaf is read meanwhile.
    async fn range_by_reads(&self, first: u64, last: u64, limit: u64) -> Result<Pairs, KvError> {
        let mut pairs = Pairs::new();
        let mut waiting = Vec::new();
        let mut offset = self.leaf_of(first).await?;
        loop {
            let lent = self.read(offset, NODE_LEN as u64).await?;
            let leaf = Node::parse(lent.bytes(), offset)?;
            if !leaf.is_leaf() {
                return Err(KvError::Format { offset, what: "a node where a leaf should be" });
            }
            let (runs, is_last) = take(leaf, offset, first..=last, limit, &mut pairs)?;
            for run in runs {
                let read = self.start_read(run.offset, (run.pairs.len() * VALUE_LEN) as u64)?;
                if self.mode == Mode::Plain {
                    self.fill(&mut pairs, (run, read)).await?;
                } else {
                    waiting.push((run, read));
                }
            }
            match self.next_leaf(leaf, offset).filter(|_| !is_last) {
                Some(next) if next > offset => offset = next,
                Some(_) => return Err(KvError::Format { offset, what: "leaves that are not in order" }),
                None => break,
            }
        }
        for one in waiting {
            self.fill(&mut pairs, one).await?;
        }
        Ok(pairs)
    }

    async fn fill(&self, pairs: &mut Pairs, (run, read): (Run, Read)) -> Result<(), KvError> {
        let lent = read.done(self).await?;
        for (pair, value) in pairs[run.pairs].iter_mut().zip(lent.bytes().chunks_exact(VALUE_LEN)) {
            pair.1 = Value::read_from_bytes(value).expect("chunks of a value's length");
        }
        Ok(())
    }

    fn next_leaf(&self, leaf: &Node, offset: u64) -> Option<u64> {
        let next = match self.leaf_end {
            Some(end) => Some(offset + NODE_LEN as u64).filter(|next| *next < end),
            None => Some(leaf.next.get()),
        };
        next.filter(|next| *next != 0)
    }

    /// Offset of the leaf that a range begins in.
    async fn leaf_of(&self, key: u64) -> Result<u64, KvError> {
        let mut offset = self.start_of(key)?;
        for _ in 0..LEVELS_MAX {
            let lent = self.read(offset, NODE_LEN as u64).await?;
            let node = Node::parse(lent.bytes(), offset)?;
            if node.is_leaf() {
                return Ok(offset);
            }
            offset = child(node, key, offset)?;
        }
        Err(KvError::Format { offset, what: "a chain of nodes that does not end" })
    }

    /// Offset of the first node on the way to a range that is not in memory, or of its leaf.
    fn start_of(&self, key: u64) -> Result<u64, KvError> {
        let mut offset = 0;
        while let Some(node) = self.cached(offset).filter(|node| !node.is_leaf()) {
            self.count(|c| c.cached_nodes += 1);
            offset = child(&node, key, offset)?;
        }
        Ok(offset)
    }
}

/// The child that a range from `key` on begins in: the first one when all keys are greater.
fn child(node: &Node, key: u64, offset: u64) -> Result<u64, KvError> {
    let at = node.rank(key.min(NO_KEY - 1)).saturating_sub(1);
    node.pointer(at, offset)?.ok_or(KvError::Format { offset, what: "an empty node" })
}

/// Takes a leaf's keys that are wanted; true when no later leaf has any.
fn take(
    leaf: &Node,
    offset: u64,
    wanted: std::ops::RangeInclusive<u64>,
    limit: u64,
    pairs: &mut Pairs,
) -> Result<(Vec<Run>, bool), KvError> {
    let mut runs: Vec<Run> = Vec::new();
    for entry in leaf.entries(offset) {
        let (key, value) = entry?;
        if key < *wanted.start() {
            continue;
        }
        if key > *wanted.end() || pairs.len() as u64 >= limit {
            return Ok((runs, true));
        }
        let at = pairs.len();
        pairs.push((key, [0; VALUE_LEN]));
        match runs.last_mut() {
            Some(run) if value == run.offset + (run.pairs.len() * VALUE_LEN) as u64 => run.pairs.end += 1,
            _ => runs.push(Run { offset: value, pairs: at..at + 1 }),
        }
    }
    let is_last = pairs.len() as u64 >= limit || pairs.last().is_some_and(|pair| pair.0 >= *wanted.end());
    Ok((runs, is_last))
}
