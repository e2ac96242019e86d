//! Collects findings and completes them with source lines and paths.

use super::{Cfg, Class, Diagnostic};
use crate::image::Image;
use std::collections::{BTreeMap, VecDeque};

/// Most findings of one run.
pub(super) const FINDINGS_MAX: usize = 32;

/// The findings so far: at most one per place and code.
pub(super) struct Findings<'a> {
    image: &'a Image,
    found: BTreeMap<(usize, &'static str), Diagnostic>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Self { image, found: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= FINDINGS_MAX
    }

    pub(super) fn add(
        &mut self,
        code: &'static str,
        class: Class,
        insn: Option<usize>,
        reason: String,
        suggestion: &str,
    ) {
        self.add_with_path(code, class, insn, reason, suggestion, Vec::new());
    }

    pub(super) fn add_with_path(
        &mut self,
        code: &'static str,
        class: Class,
        insn: Option<usize>,
        reason: String,
        suggestion: &str,
        path: Vec<usize>,
    ) {
        if self.is_full() {
            return;
        }
        let source = insn.and_then(|i| self.image.line_of(i)).map(|l| {
            if l.text.is_empty() {
                format!("{}:{}", l.file, l.line)
            } else {
                format!("{}:{}: {}", l.file, l.line, l.text)
            }
        });
        self.found.entry((insn.unwrap_or(0), code)).or_insert_with(|| Diagnostic {
            code,
            class,
            reason,
            insn,
            source,
            path,
            suggestion: suggestion.to_owned(),
        });
    }

    /// In order of the instructions.
    pub(super) fn into_vec(self) -> Vec<Diagnostic> {
        self.found.into_values().collect()
    }
}

/// A shortest path from the entry to `goal`: block numbers, both ends included.
pub(super) fn path_to(cfg: &Cfg, goal: usize) -> Vec<usize> {
    let mut from = vec![None; cfg.blocks.len()];
    let mut queue = VecDeque::from([0usize]);
    from[0] = Some(0);
    while let Some(block) = queue.pop_front() {
        if block == goal {
            break;
        }
        for &next in &cfg.blocks[block].successors {
            if from[next].is_none() {
                from[next] = Some(block);
                queue.push_back(next);
            }
        }
    }
    let mut path = vec![goal];
    let mut at = goal;
    while at != 0 {
        // Every block of a graph is reachable.
        let Some(before) = from[at] else { break };
        path.push(before);
        at = before;
    }
    path.reverse();
    path
}
