//! Failures of late, in words, for people who watch the server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Failures that are kept, and of one host: nobody drives out what befell the others.
const KEPT_MAX: usize = 64;
const OF_HOST_MAX: usize = 8;
/// The longest text that is kept.
const TEXT_LEN_MAX: usize = 512;

/// A call that failed, or a command that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: SystemTime,
    /// NQN of the host.
    pub host: String,
    /// The function; `None`: a command that ran none.
    pub function: Option<String>,
    /// Why.
    pub text: String,
}

/// The newest ones.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<VecDeque<Failure>>);

impl Failures {
    pub(crate) fn add(&self, host: &str, function: Option<&str>, text: &str) {
        let cut = text.floor_char_boundary(TEXT_LEN_MAX);
        let failure = Failure {
            at: SystemTime::now(),
            host: host.to_owned(),
            function: function.map(str::to_owned),
            text: text[..cut].to_owned(),
        };
        let mut kept = self.lock();
        let of_host = kept.iter().filter(|other| other.host == host).count();
        if of_host >= OF_HOST_MAX {
            let oldest = kept.iter().rposition(|other| other.host == host).expect("it has some");
            kept.remove(oldest);
        }
        kept.truncate(KEPT_MAX - 1);
        kept.push_front(failure);
    }

    /// All, the newest first.
    pub(crate) fn all(&self) -> Vec<Failure> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_fails_without_end_hides_nobody_elses_failures() {
        let failures = Failures::default();
        failures.add("quiet", Some("wc"), "damaged");
        for number in 0..1000 {
            failures.add("loud", None, &number.to_string());
        }
        let texts: Vec<_> = failures.all().into_iter().map(|failure| failure.text).collect();
        assert_eq!(texts, ["999", "998", "997", "996", "995", "994", "993", "992", "damaged"]);
        for host in 0..100 {
            failures.add(&format!("host {host}"), None, &"é".repeat(1000));
        }
        let kept = failures.all();
        assert_eq!((kept.len(), kept[0].text.len()), (KEPT_MAX, TEXT_LEN_MAX));
    }
}
