//! Whether a store is sound: every node, every pointer, in the order of keys.

use crate::error::KvError;
use crate::format::{NO_KEY, NODE_LEN, Node, VALUE_LEN};
use crate::store::Store;

/// What a sound store has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Levels of nodes.
    pub levels: u32,
    /// Nodes.
    pub nodes: u64,
    /// Keys.
    pub keys: u64,
    /// Whether its nodes are those of older files.
    pub is_older: bool,
}

/// A node to be looked at: where, on which level, and between which keys (the last one is outside).
struct Todo {
    offset: u64,
    level: u32,
    first: u64,
    end: u64,
}

impl Store {
    /// Reads every node.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of keys, and where it is.
    pub async fn check(&self) -> Result<Report, KvError> {
        let mut report = Report { levels: self.levels(), is_older: self.leaf_end.is_some(), ..Report::default() };
        let mut todo = vec![Todo { offset: 0, level: 1, first: 0, end: NO_KEY }];
        // By level: where the node that was looked at last says that the next one is.
        let mut expected = vec![None; self.levels() as usize + 1];
        while let Some(at) = todo.pop() {
            let lent = self.read(at.offset, NODE_LEN as u64).await?;
            let node = Node::parse(lent.bytes(), at.offset)?;
            let wrong = |what| KvError::Format { offset: at.offset, what };
            if node.is_leaf() != (at.level == report.levels) {
                return Err(wrong("a leaf and an inner node on one level"));
            }
            if node.is_older() != report.is_older {
                return Err(wrong("a node of another version"));
            }
            if !report.is_older {
                let next = expected[at.level as usize].replace(node.next.get());
                if next.is_some_and(|next| next != at.offset) {
                    return Err(wrong("a node that the one before does not name"));
                }
            }
            report.nodes += 1;
            let entries = node.entries(at.offset).collect::<Result<Vec<_>, _>>()?;
            check_keys(node, &entries, &at).map_err(wrong)?;
            if node.is_leaf() {
                report.keys += entries.len() as u64;
                let beyond = |to: &u64| to.checked_add(VALUE_LEN as u64).is_none_or(|end| end > self.len_bytes());
                if entries.iter().any(|(_, to)| beyond(to)) {
                    return Err(wrong("a value beyond the end"));
                }
                continue;
            }
            // The last one first, so that the first one is looked at next.
            let mut end = at.end;
            for &(first, offset) in entries.iter().rev() {
                todo.push(Todo { offset, level: at.level + 1, first, end });
                end = first;
            }
        }
        if expected.iter().flatten().any(|next| *next != 0) {
            return Err(KvError::Format { offset: 0, what: "a last node of a level that names another" });
        }
        Ok(report)
    }
}

fn check_keys(node: &Node, entries: &[(u64, u64)], at: &Todo) -> Result<(), &'static str> {
    let first = entries.first().ok_or("an empty node")?.0;
    if entries.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err("keys that do not ascend");
    }
    // Keys below the least one lead to the first child, so the first key on the left edge is free.
    if first < at.first || entries.last().is_some_and(|entry| entry.0 >= at.end) {
        return Err("keys that belong to another node");
    }
    if node.keys[entries.len()..].iter().any(|key| key.get() != NO_KEY) {
        return Err("a key without a pointer");
    }
    Ok(())
}
