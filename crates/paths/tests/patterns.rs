//! The meanings of patterns, from `patterns.txt`; and walks that continue where others ended.

use diskside_paths::{Kind, Pattern, PatternError, Tree, Visit, WalkError, walk};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Paths in memory, and how often a directory was listed.
#[derive(Default)]
struct Paths {
    kinds: BTreeMap<String, (Kind, String)>,
    listed: usize,
}

impl Paths {
    fn add(&mut self, line: &str) {
        let (path, kind, target) = if let Some(path) = line.strip_suffix('/') {
            (path, Kind::Directory, "")
        } else if let Some((path, target)) = line.split_once('@') {
            (path, Kind::Symlink, target)
        } else {
            (line, Kind::File, "")
        };
        self.kinds.insert(path.into(), (kind, target.into()));
    }

    /// The path without links.
    fn resolve(&self, path: &str) -> String {
        let mut real = String::new();
        for name in path.split('/') {
            real = if real.is_empty() { name.into() } else { format!("{real}/{name}") };
            if let Some((Kind::Symlink, target)) = self.kinds.get(&real) {
                real.clone_from(target);
            }
        }
        real
    }
}

impl Tree for Paths {
    type Error = Infallible;

    fn kind(&mut self, path: &[u8]) -> Result<Option<Kind>, Infallible> {
        let path = self.resolve(std::str::from_utf8(path).unwrap());
        Ok(self.kinds.get(&path).map(|(kind, _)| *kind))
    }

    fn list(&mut self, directory: &[u8], each: &mut dyn FnMut(&[u8], Kind)) -> Result<(), Infallible> {
        self.listed += 1;
        let directory = self.resolve(std::str::from_utf8(directory).unwrap());
        // Backwards: a directory has no order.
        for (path, (kind, _)) in self.kinds.iter().rev() {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            if parent == directory {
                each(name.as_bytes(), *kind);
            }
        }
        Ok(())
    }
}

/// All that a pattern means behind `after`; at most so many.
fn found(tree: &mut Paths, pattern: &Pattern, after: &str, max: usize) -> Vec<String> {
    let mut all = Vec::new();
    let walked = walk(pattern, tree, after.as_bytes(), &mut |visit| {
        if let Visit::Found(path, _) = visit {
            all.push(String::from_utf8(path.to_vec()).unwrap());
        }
        if all.len() >= max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    walked.unwrap();
    all
}

fn cases() -> (Paths, Vec<(String, bool, Vec<String>)>) {
    let (mut tree, mut cases, mut in_tree) = (Paths::default(), Vec::<(String, bool, Vec<String>)>::new(), false);
    for line in include_str!("patterns.txt").lines() {
        match line.strip_prefix("  ") {
            _ if line.is_empty() || line.starts_with('#') => {}
            Some(path) if in_tree => tree.add(path),
            Some(paths) => cases.last_mut().unwrap().2 = paths.split(' ').map(str::to_owned).collect(),
            None if line == "tree" => in_tree = true,
            None => {
                in_tree = false;
                let below = line.strip_prefix("-r ");
                cases.push((below.unwrap_or(line).to_owned(), below.is_some(), Vec::new()));
            }
        }
    }
    (tree, cases)
}

#[test]
fn patterns_mean_what_the_file_says_and_walks_go_on_behind_any_path() {
    let (mut tree, cases) = cases();
    assert!(cases.len() > 30);
    for (text, below, wanted) in cases {
        let pattern = Pattern::parse(text.as_bytes(), below).unwrap();
        let all = found(&mut tree, &pattern, "", usize::MAX);
        assert_eq!(all, wanted, "{text}");
        for (at, path) in all.iter().enumerate() {
            assert_eq!(found(&mut tree, &pattern, path, usize::MAX), all[at + 1..], "{text} behind {path}");
            assert_eq!(found(&mut tree, &pattern, path, 1), all[at + 1..].iter().take(1).cloned().collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_walk_may_go_on_in_a_directory_that_it_was_about_to_enter() {
    let (mut tree, _) = cases();
    let pattern = Pattern::parse(b"**/*.log", false).unwrap();
    let all = found(&mut tree, &pattern, "", usize::MAX);
    for directory in ["a", "a/b", "a-b"] {
        let before = |path: &&String| path.split('/').collect::<Vec<_>>() > directory.split('/').collect::<Vec<_>>();
        let wanted: Vec<String> = all.iter().filter(before).cloned().collect();
        assert_eq!(found(&mut tree, &pattern, directory, usize::MAX), wanted, "{directory}");
    }
}

#[test]
fn any_path_can_be_named_as_it_is() {
    let (mut tree, _) = cases();
    for path in ["[1].log", "star*.log", "{x}.log"] {
        let pattern = Pattern::literal(path.as_bytes(), false).unwrap();
        assert_eq!(found(&mut tree, &pattern, "", usize::MAX), [path]);
    }
}

#[test]
fn a_directory_of_very_many_names_is_listed_again_instead_of_kept() {
    let mut tree = Paths::default();
    for number in 0..100_000 {
        tree.add(&format!("{number:06}.log"));
    }
    let pattern = Pattern::parse(b"*.log", false).unwrap();
    let all = found(&mut tree, &pattern, "", usize::MAX);
    assert_eq!(all.len(), 100_000);
    assert!(all.is_sorted());
    // 2 MiB of names at a time.
    assert!((3..=8).contains(&tree.listed), "{}", tree.listed);
}

#[test]
fn what_is_no_pattern_says_why() {
    let told = |text: &str| Pattern::parse(text.as_bytes(), false).unwrap_err().to_string();
    assert_eq!(told(&"*/".repeat(64)), "a pattern has at most 63 names, not 64");
    assert_eq!(told(&"*".repeat(256)), "a name with wildcards has at most 255 bytes, not 256");
    assert_eq!(told("a/[x"), "\"[x\" is no pattern of a name: unclosed character class; missing ']'");
    assert!(matches!(Pattern::parse(b"*\xff", false), Err(PatternError::Malformed { .. })));
    let deep = "x/".repeat(63);
    assert!(Pattern::parse(deep.as_bytes(), false).is_ok());
}

/// A pattern with many stars took time that doubled with each of them in simpler matchers.
#[test]
fn a_hostile_pattern_takes_no_longer_than_names_are_long() {
    let mut tree = Paths::default();
    for number in 0..2000 {
        tree.add(&format!("{}{number}", "a".repeat(240)));
    }
    let began = Instant::now();
    for text in ["*a".repeat(120) + "b", "*?".repeat(120) + "b", "[a]*".repeat(60) + "b"] {
        let pattern = Pattern::parse(text.as_bytes(), false).unwrap();
        assert!(found(&mut tree, &pattern, "", usize::MAX).is_empty());
    }
    // Some milliseconds; with backtracking it would be years.
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn directories_without_end_are_an_error() {
    struct Endless;
    impl Tree for Endless {
        type Error = Infallible;
        fn kind(&mut self, _: &[u8]) -> Result<Option<Kind>, Infallible> {
            Ok(Some(Kind::Directory))
        }
        fn list(&mut self, _: &[u8], each: &mut dyn FnMut(&[u8], Kind)) -> Result<(), Infallible> {
            each(b"d", Kind::Directory);
            Ok(())
        }
    }
    let pattern = Pattern::parse(b"**/x", false).unwrap();
    let walked = walk(&pattern, &mut Endless, b"", &mut |_| ControlFlow::Continue(()));
    assert_eq!(walked, Err(WalkError::TooDeep));
    assert_eq!(WalkError::<Infallible>::TooDeep.to_string(), "more than 256 directories in each other");
}
