//! Files as a kill leaves them.

#![allow(unreachable_pub, dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};

/// Files as they are now, with the mark of a volume's.
pub struct Files(Vec<(PathBuf, Vec<u8>, Option<Vec<u8>>)>);

const MARK: &str = "user.diskside.journal";

impl Files {
    pub fn now<const N: usize>(paths: [&Path; N]) -> Self {
        let now = |path: &Path| {
            let mut mark = vec![0; 4096];
            let len = rustix::fs::getxattr(path, MARK, &mut mark[..]).ok();
            (path.to_owned(), std::fs::read(path).unwrap(), len.map(|len| mark[..len].to_vec()))
        };
        Self(paths.into_iter().map(now).collect())
    }

    pub fn bytes(&mut self, index: usize) -> &mut Vec<u8> {
        &mut self.0[index].1
    }

    /// Puts them back, as after a kill at that moment.
    pub fn put_back(&self) {
        for (path, bytes, mark) in &self.0 {
            std::fs::write(path, bytes).unwrap();
            let _ = rustix::fs::removexattr(path, MARK);
            if let Some(mark) = mark {
                rustix::fs::setxattr(path, MARK, mark, rustix::fs::XattrFlags::empty()).unwrap();
            }
        }
    }
}
