//! Nodes in memory: the top levels for good, others as lookups that are sampled bring them.
//!
//! A lookup that is pushed down brings no nodes, so the cache would never learn what is hot. With
//! [`Sampling`] a share of the lookups takes the plain path, and the nodes that it reads are kept.

use crate::error::KvError;
use crate::format::{LEVELS_MAX, NODE_LEN, Node, Place};
use quick_cache::unsync::Cache as Bounded;
use std::collections::HashMap;
use std::rc::Rc;

/// Which lookups take the plain path to feed the cache.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Sampling {
    /// None.
    #[default]
    Off,
    /// This share, from 0 to 1.
    Fixed(f64),
    /// A share between 0.1 % and 10 %: more while the cache finds more or less than before, less
    /// while nothing changes.
    Adaptive,
}

/// Nodes by offset.
#[derive(Debug)]
pub struct Cache {
    /// The nodes that the file begins with, without a gap: how the top levels of a store lie.
    top: Vec<Rc<Node>>,
    /// Others that are kept for good.
    pinned: HashMap<u64, Rc<Node>>,
    sampled: Option<Bounded<u64, Rc<Node>>>,
}

impl Cache {
    /// A cache that keeps up to so many nodes besides the pinned ones.
    #[must_use]
    pub fn new(sampled_nodes_max: usize) -> Self {
        let sampled = (sampled_nodes_max > 0).then(|| Bounded::new(sampled_nodes_max));
        Self { top: Vec::new(), pinned: HashMap::new(), sampled }
    }

    /// Keeps a node for good.
    pub fn pin(&mut self, offset: u64, node: Node) {
        let node = Rc::new(node);
        if offset == (self.top.len() * NODE_LEN) as u64 {
            self.top.push(node);
        } else {
            self.pinned.insert(offset, node);
        }
    }

    /// Keeps a node that a sampled lookup has read, for as long as there is room.
    pub fn keep(&mut self, offset: u64, node: &Node) {
        if self.kept(offset).is_some() {
            return;
        }
        if let Some(sampled) = &mut self.sampled {
            sampled.insert(offset, Rc::new(node.clone()));
        }
    }

    /// The node at an offset.
    pub fn get(&mut self, offset: u64) -> Option<Rc<Node>> {
        if let Some(node) = self.kept(offset) {
            return Some(Rc::clone(node));
        }
        self.sampled.as_mut()?.get(&offset).cloned()
    }

    /// The node at an offset, if it is kept for good.
    fn kept(&self, offset: u64) -> Option<&Rc<Node>> {
        let place = usize::try_from(offset).ok().filter(|at| at.is_multiple_of(NODE_LEN));
        let top = place.and_then(|at| self.top.get(at / NODE_LEN));
        top.or_else(|| if self.pinned.is_empty() { None } else { self.pinned.get(&offset) })
    }

    /// Where the node at an offset sends a key, if the node is here.
    fn find(&mut self, key: u64, offset: u64) -> Option<Result<Place, KvError>> {
        if let Some(node) = self.kept(offset) {
            return Some(node.find(key, offset));
        }
        Some(self.sampled.as_mut()?.get(&offset)?.find(key, offset))
    }

    /// Follows a key from the root as far as the cache goes, and tells how many nodes that were.
    ///
    /// # Errors
    /// When a node is damaged, or the nodes here lead in a circle.
    pub fn walk(&mut self, key: u64) -> Result<(Place, u32), KvError> {
        let (mut offset, mut found) = (0, 0);
        while let Some(place) = self.find(key, offset) {
            found += 1;
            match place? {
                Place::Node(_) if found > LEVELS_MAX => {
                    return Err(KvError::Format { offset, what: "a chain of nodes that does not end" });
                }
                Place::Node(child) => offset = child,
                place => return Ok((place, found)),
            }
        }
        Ok((Place::Node(offset), found))
    }

    /// Nodes in it.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.top.len() + self.pinned.len() + self.sampled.as_ref().map_or(0, Bounded::len)
    }
}

/// Says of each lookup whether it is sampled.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    share: f64,
    /// Grows by `share` with each lookup; a lookup that takes it to 1 is sampled.
    due: f64,
    window: Window,
    before: Option<f64>,
}

/// What the lookups since the share was last set have found.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    lookups: u32,
    found: u64,
}

impl Sampler {
    const WINDOW_LOOKUPS: u32 = 4096;
    const SHARE_MIN: f64 = 0.001;
    const SHARE_MAX: f64 = 0.1;
    /// A mean that moves by less of a node is as before.
    const STEADY_NODES: f64 = 0.01;

    /// A sampler.
    #[must_use]
    pub fn new(sampling: Sampling) -> Self {
        let share = match sampling {
            Sampling::Off => 0.0,
            Sampling::Fixed(share) => share.clamp(0.0, 1.0),
            Sampling::Adaptive => Self::SHARE_MAX,
        };
        Self { sampling, share, due: 0.0, window: Window::default(), before: None }
    }

    /// Whether this lookup, for which the cache had `found` nodes, takes the plain path.
    pub fn sample(&mut self, found: u32) -> bool {
        if self.sampling == Sampling::Adaptive {
            self.window.lookups += 1;
            self.window.found += u64::from(found);
            if self.window.lookups == Self::WINDOW_LOOKUPS {
                self.adapt();
            }
        }
        self.due += self.share;
        let sampled = self.due >= 1.0;
        if sampled {
            self.due -= 1.0;
        }
        sampled
    }

    /// The share that is sampled now.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    fn adapt(&mut self) {
        let mean = self.window.found as f64 / f64::from(self.window.lookups);
        let steady = self.before.is_some_and(|before| (mean - before).abs() < Self::STEADY_NODES);
        self.share = match steady {
            true => (self.share / 2.0).max(Self::SHARE_MIN),
            false => (self.share * 2.0).min(Self::SHARE_MAX),
        };
        self.before = Some(mean);
        self.window = Window::default();
    }
}
