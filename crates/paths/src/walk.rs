//! Directories, walked in order.

use crate::pattern::{Pattern, Place};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The kind of thing that a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Something else.
    Other,
}

/// Directories that can be listed.
pub trait Tree {
    /// Why one cannot.
    type Error;

    /// The kind of thing at a path, behind symbolic links; `None`: nothing, or nothing that can be reached.
    ///
    /// # Errors
    /// It cannot be known.
    fn kind(&mut self, path: &[u8]) -> Result<Option<Kind>, Self::Error>;

    /// Gives each name of a directory, in any order, `.` and `..` left out. A directory that is gone has none.
    ///
    /// # Errors
    /// It cannot be listed.
    fn list(&mut self, directory: &[u8], each: &mut dyn FnMut(&[u8], Kind)) -> Result<(), Self::Error>;
}

/// What a walk comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit<'a> {
    /// A path that the pattern matches. A symbolic link is reported as its target, or as a link if that does not exist.
    Found(&'a [u8], Kind),
    /// A directory that is listed next, behind which a walk may be continued.
    Enter(&'a [u8]),
}

/// Why a walk ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalkError<E> {
    /// A directory could not be listed.
    #[error("{0}")]
    Tree(E),
    /// Directories lie in each other without end, as it seems.
    #[error("more than {DEPTH_MAX} directories in each other")]
    TooDeep,
}

/// Directories in each other.
const DEPTH_MAX: usize = 256;
/// Bytes of names of one directory that are kept at a time. A directory that has more is listed again.
const NAMES_BYTES: usize = 2 << 20;
/// What is kept in deeper ones, where those above keep theirs.
const NAMES_BYTES_MIN: usize = 16 << 10;
/// What a name costs besides its bytes.
const NAME_BYTES: usize = 64;

/// Goes through what a pattern means, in order, behind the path `after` (empty: from the start), until `visit` breaks.
/// Symbolic links to directories are followed where the pattern names them without wildcards, and behind no `**`.
///
/// # Errors
/// A directory cannot be listed, or they lie too deep.
pub fn walk<T: Tree>(
    pattern: &Pattern,
    tree: &mut T,
    after: &[u8],
    visit: &mut dyn FnMut(Visit<'_>) -> ControlFlow<()>,
) -> Result<(), WalkError<T::Error>> {
    let mut walk = Walk { pattern, tree, visit, path: Vec::new(), depth: 0 };
    walk.directory(pattern.start(), (!after.is_empty()).then_some(after)).map(|_| ())
}

struct Walk<'w, T: Tree> {
    pattern: &'w Pattern,
    tree: &'w mut T,
    visit: &'w mut dyn FnMut(Visit<'_>) -> ControlFlow<()>,
    path: Vec<u8>,
    depth: usize,
}

type Done<E> = Result<ControlFlow<()>, WalkError<E>>;

impl<T: Tree> Walk<'_, T> {
    /// What is in the directory at the path, behind `after` in it.
    fn directory(&mut self, place: Place, after: Option<&[u8]>) -> Done<T::Error> {
        if let Some(name) = self.pattern.only(place) {
            let name = name.to_vec();
            let order = after.map_or(Ordering::Greater, |after| name.as_slice().cmp(first(after)));
            let Some(kind) = self.at(&name, |this| this.tree.kind(&this.path)).map_err(WalkError::Tree)? else {
                return Ok(ControlFlow::Continue(()));
            };
            return if order.is_lt() { Ok(ControlFlow::Continue(())) } else { self.entry(place, after, &name, kind) };
        }
        if self.depth >= DEPTH_MAX {
            return Err(WalkError::TooDeep);
        }
        if (self.visit)(Visit::Enter(&self.path)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        // The name behind which it continues; that name's directory was not finished.
        let (mut from, mut whole) = (after.map(|after| first(after).to_vec()), false);
        while !whole {
            let names = self.names(place, from.as_deref())?;
            whole = !names.cut;
            for (name, kind) in &names.kept {
                let in_it = after.filter(|after| first(after) == name.as_slice());
                if self.entry(place, in_it, name, *kind)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if let Some((last, _)) = names.kept.last_key_value() {
                // Not this name again.
                let mut behind = last.clone();
                behind.push(0);
                from = Some(behind);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The first names of the directory at the path, from one on, that the pattern may mean.
    fn names(&mut self, place: Place, from: Option<&[u8]>) -> Result<Names, WalkError<T::Error>> {
        let mut names = Names { kept: BTreeMap::new(), bytes: 0, cut: false };
        let max = (NAMES_BYTES >> self.depth.min(16)).max(NAMES_BYTES_MIN);
        let pattern = self.pattern;
        let mut each = |name: &[u8], kind: Kind| {
            if from.is_some_and(|from| name < from) {
                return;
            }
            let next = pattern.step(place, name);
            if pattern.is_meant(next) || kind == Kind::Directory && pattern.goes_on(next) {
                names.add(name, kind, max);
            }
        };
        self.tree.list(&self.path, &mut each).map_err(WalkError::Tree)?;
        Ok(names)
    }

    /// A name of the directory at the path. With `after` it was reported before, and so were some of its entries.
    fn entry(&mut self, before: Place, after: Option<&[u8]>, name: &[u8], kind: Kind) -> Done<T::Error> {
        let place = self.pattern.step(before, name);
        let rest = after.and_then(|after| after.get(name.len() + 1..)).filter(|rest| !rest.is_empty());
        let is_told = after.is_some_and(|after| first(after) == name);
        let named = self.pattern.is_named(before, place);
        self.at(name, |this| {
            let (kind, enters) = match kind {
                // Below a directory, links are nobody's wish who does not say so.
                Kind::Symlink if !named && !this.pattern.has_links() => return Ok(ControlFlow::Continue(())),
                Kind::Symlink => match this.tree.kind(&this.path).map_err(WalkError::Tree)? {
                    Some(Kind::Directory) if this.pattern.is_below() && !this.pattern.has_links() => {
                        return Ok(ControlFlow::Continue(()));
                    }
                    found => (found.unwrap_or(Kind::Symlink), false),
                },
                kind => (kind, true),
            };
            let is_directory = kind == Kind::Directory;
            let meant = this.pattern.is_meant(place) && !(is_directory && enters && this.pattern.is_below());
            if meant && !is_told && (this.visit)(Visit::Found(&this.path, kind)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if is_directory && enters && this.pattern.goes_on(place) {
                return this.directory(place, if is_told { rest } else { None });
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Does something with `name` at the end of the path.
    fn at<R>(&mut self, name: &[u8], work: impl FnOnce(&mut Self) -> R) -> R {
        let len = self.path.len();
        if len > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        self.path.truncate(len);
        result
    }
}

/// The first names of a directory, as many as there is room for.
struct Names {
    kept: BTreeMap<Vec<u8>, Kind>,
    bytes: usize,
    /// There were more.
    cut: bool,
}

impl Names {
    fn add(&mut self, name: &[u8], kind: Kind, max: usize) {
        if self.cut && self.kept.last_key_value().is_some_and(|(last, _)| name > last.as_slice()) {
            return;
        }
        self.bytes += name.len() + NAME_BYTES;
        self.kept.insert(name.to_vec(), kind);
        while self.bytes > max && self.kept.len() > 1 {
            if let Some((last, _)) = self.kept.pop_last() {
                self.bytes -= last.len() + NAME_BYTES;
            }
            self.cut = true;
        }
    }
}

/// The first name of a path.
fn first(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}
