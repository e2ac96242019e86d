//! Why hosts had calls run here, where they chose: calls by the word that came with them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Words that are counted. They come from peers: what comes past this is counted together.
const WORDS_MAX: usize = 32;
const OTHERS: &str = "others";

#[derive(Debug, Default)]
pub(crate) struct Reasons(Mutex<BTreeMap<String, u64>>);

impl Reasons {
    pub(crate) fn count(&self, word: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = counts.len() < WORDS_MAX || counts.contains_key(word);
        *counts.entry(if has_room { word } else { OTHERS }.to_owned()).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_hosts_make_up_take_bounded_room() {
        let reasons = Reasons::default();
        reasons.count("faster");
        for number in 0..1000 {
            reasons.count(&format!("word_{number}"));
            reasons.count("faster");
        }
        let counts = reasons.counts();
        assert_eq!((counts.len(), counts["faster"]), (WORDS_MAX + 1, 1001));
        assert_eq!(counts.values().sum::<u64>(), 2001);
    }
}
