//! Which server of several answered.

/// Why a server of several was not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFailure {
    /// The server, as its URL names it.
    pub server: String,
    /// Why.
    pub why: String,
}

/// Which server of several answered a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The URL of all of them.
    pub url: String,
    /// The server that answered.
    pub server: String,
    /// Servers that were tried before, and why they were not used.
    pub failed: Vec<ServerFailure>,
}

impl std::fmt::Display for Answered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} answered", self.url, self.server)?;
        self.failed.iter().try_for_each(|failure| write!(f, "; not used: {failure}"))
    }
}

impl std::fmt::Display for ServerFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.why.contains(&self.server) {
            f.write_str(&self.why)
        } else {
            write!(f, "{}: {}", self.server, self.why)
        }
    }
}
