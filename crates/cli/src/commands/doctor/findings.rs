//! What was found of one thing.

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// As it should be.
    Good,
    /// It works, and could be better.
    Slow,
    /// Something does not work without it.
    Missing,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Slow => "slower",
            Self::Missing => "missing",
        }
    }
}

/// One thing.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) what: String,
    pub(super) state: State,
    pub(super) found: String,
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn good(what: &str, found: impl Into<String>) -> Self {
        Self { what: what.into(), state: State::Good, found: found.into(), remedy: None }
    }

    pub(super) fn slow(what: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), state: State::Slow, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn missing(what: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), state: State::Missing, found: found.into(), remedy: Some(remedy.into()) }
    }
}
