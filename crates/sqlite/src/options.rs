//! The parameters of a database's URI.

use super::ahead::Limits;
use std::time::Duration;

/// How a database is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) limits: Limits,
    /// Bytes of pages that are kept.
    pub(crate) cache_len: usize,
    /// How long a server that does not answer is waited for.
    pub(crate) timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), cache_len: 64 << 20, timeout: Duration::from_secs(30) }
    }
}

impl Options {
    /// As the parameters say, of which `get` gives the values.
    ///
    /// # Errors
    /// A value that the parameter cannot have.
    pub(crate) fn of(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut options = Self::default();
        let number = |name: &str, least: u64, most: u64, default: u64| {
            let Some(text) = get(name) else { return Ok(default) };
            let parsed = text.parse().ok().filter(|value| (least..=most).contains(value));
            parsed.ok_or_else(|| format!("{name}={text}: a number from {least} to {most} is wanted"))
        };
        options.cache_len = (number("cache_mib", 1, 1 << 20, 64)? as usize) << 20;
        options.timeout = Duration::from_secs(number("timeout", 1, 3600, 30)?);
        options.limits.around_len = (number("around_kib", 0, 1024, 16)? as u32) << 10;
        options.limits.ahead_len = (number("ahead_kib", 0, 16 << 10, 2 << 10)? as u32) << 10;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Result<Options, String> {
        Options::of(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn parameters_are_read_and_refused_by_name() {
        assert_eq!(Options::of(|_| None), Ok(Options::default()));
        assert_eq!(of("cache_mib", "3").map(|options| options.cache_len), Ok(3 << 20));
        assert_eq!(of("timeout", "5").map(|options| options.timeout), Ok(Duration::from_secs(5)));
        assert_eq!(of("ahead_kib", "0").map(|options| options.limits.ahead_len), Ok(0));
        assert_eq!(of("around_kib", "64").map(|options| options.limits.around_len), Ok(64 << 10));
        for (name, value) in [("cache_mib", "0"), ("timeout", "soon"), ("ahead_kib", "-1"), ("around_kib", "99999")] {
            let why = of(name, value).expect_err("it is refused");
            assert!(why.starts_with(&format!("{name}={value}: ")), "{why}");
        }
    }
}
