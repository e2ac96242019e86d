//! Words, and options of the form `--name=value`.

use std::str::FromStr;

pub(crate) struct Arguments {
    words: Vec<String>,
    options: Vec<String>,
}

impl Arguments {
    pub(crate) fn of_process() -> Self {
        let (options, words) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
        Self { words, options }
    }

    pub(crate) fn word(&self, place: usize) -> Option<&str> {
        self.words.get(place).map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option.strip_prefix("--") == Some(name))
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='))
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str, usual: T) -> Result<T, String> {
        self.value(name).map_or(Ok(usual), |text| text.parse().map_err(|_| format!("--{name}={text}: not a number")))
    }

    /// The options of tables.
    pub(crate) fn table(&self) -> String {
        self.value("table").unwrap_or_default().to_owned()
    }
}
