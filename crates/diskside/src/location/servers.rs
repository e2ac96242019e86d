//! The servers that a URL of an export names: one, several that hold copies, or a service of which DNS has the servers.

use super::{ExportUrl, LocationError, VOLUME_SCHEME, shown};
use diskside_host::{Url, UrlError};
use std::fmt;

/// A scheme of URLs of exports: over TLS alone, and a service instead of servers.
pub(super) const SCHEMES: [(&str, bool, bool); 4] = [
    ("diskside+tls+srv://", true, true),
    ("diskside+srv://", false, true),
    ("diskside+tls://", true, false),
    ("diskside://", false, false),
];

/// Servers of a URL beside the first one. All of them hold copies of the same exports, which are only read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// None: the URL names one server.
    #[default]
    None,
    /// These: `diskside://a:4420,b:4420/EXPORT/PATH`.
    Named(Vec<Server>),
    /// The host is the name of a service, and DNS has its servers: `diskside+srv://NAME/EXPORT/PATH`.
    Service,
}

/// A server of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, if it is written.
    pub port: Option<u16>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]")?;
        } else {
            f.write_str(host)?;
        }
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The servers of a URL: what is between its scheme and its path.
pub(super) fn parse(authority: &str, is_service: bool, whole: &str) -> Result<(Server, Copies), LocationError> {
    let mut servers = authority.split(',').map(|one| parse_one(one, whole)).collect::<Result<Vec<_>, _>>()?;
    let others = servers.split_off(1);
    let first = servers.remove(0);
    if is_service && (first.port.is_some() || !others.is_empty() || first.host.contains(':')) {
        return Err(LocationError::Service(shown(whole)));
    }
    let copies = match (is_service, others.is_empty()) {
        (true, _) => Copies::Service,
        (false, true) => Copies::None,
        (false, false) => Copies::Named(others),
    };
    Ok((first, copies))
}

fn parse_one(text: &str, whole: &str) -> Result<Server, LocationError> {
    // The same rules as for volumes.
    let at: Url = format!("{VOLUME_SCHEME}{text}").parse().map_err(|source| match source {
        UrlError::NoHost(_) => LocationError::NoHost(shown(whole)),
        UrlError::Host(host) => LocationError::Host(host),
        source => LocationError::Export { text: shown(whole), source },
    })?;
    Ok(Server { host: at.host, port: at.port })
}

impl ExportUrl {
    /// Whether it names several servers that hold copies, or a service.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        self.copies != Copies::None
    }

    /// The servers that it names; of a service, its name.
    #[must_use]
    pub fn servers(&self) -> Vec<Server> {
        let first = Server { host: self.host.clone(), port: self.port };
        let others: &[Server] = if let Copies::Named(others) = &self.copies { others } else { &[] };
        std::iter::once(first).chain(others.iter().cloned()).collect()
    }

    /// The same as text: `a:4420,b:4420`.
    #[must_use]
    pub fn authority(&self) -> String {
        self.servers().iter().map(Server::to_string).collect::<Vec<_>>().join(",")
    }

    /// The same place at one server.
    #[must_use]
    pub fn at(&self, server: Server) -> Self {
        Self { host: server.host, port: server.port, copies: Copies::None, ..self.clone() }
    }

    /// The target's URL for volumes, without a subsystem. It is that of the server that is named first: see
    /// [`one_target`](Self::one_target).
    #[must_use]
    pub fn target(&self) -> Url {
        Url { tls: self.tls, host: self.host.clone(), port: self.port, subsystem: None, nsid: None }
    }

    /// The target's URL, where one server is needed.
    ///
    /// # Errors
    /// The URL names several.
    pub fn one_target(&self) -> Result<Url, LocationError> {
        if self.has_copies() { Err(LocationError::Several(self.to_string())) } else { Ok(self.target()) }
    }

    pub(super) fn scheme(&self) -> &'static str {
        let is_service = self.copies == Copies::Service;
        let known = SCHEMES.iter().find(|(_, tls, service)| (*tls, *service) == (self.tls, is_service));
        known.expect("each combination has a scheme").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ExportUrl {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn several_servers_are_understood_and_written_the_same() {
        for (text, servers) in [
            ("diskside://a:4420,b:4421/data/x,y", &["a:4420", "b:4421"][..]),
            ("diskside://a,[::1]:1,10.0.0.1/data", &["a", "[::1]:1", "10.0.0.1"]),
            ("diskside+tls://a,b", &["a", "b"]),
            ("diskside+srv://logs.example.org/data/x", &["logs.example.org"]),
            ("diskside+tls+srv://logs.example.org", &["logs.example.org"]),
            ("diskside://a:1/data/x,y", &["a:1"]),
        ] {
            let url = url(text);
            assert_eq!(url.to_string(), text);
            assert_eq!(url.servers().iter().map(Server::to_string).collect::<Vec<_>>(), servers, "{text}");
            assert_eq!(url.has_copies(), servers.len() > 1 || text.contains("+srv"), "{text}");
            assert_eq!(url.one_target().is_err(), url.has_copies(), "{text}");
        }
    }

    #[test]
    fn one_of_several_is_an_ordinary_url() {
        let both = url("diskside+tls://a:4420,b/data/x");
        let at: Vec<String> = both.servers().into_iter().map(|server| both.at(server).to_string()).collect();
        assert_eq!(at, ["diskside+tls://a:4420/data/x", "diskside+tls://b/data/x"]);
        assert_eq!(both.join("y").to_string(), "diskside+tls://a:4420,b/data/x/y");
    }

    #[test]
    fn wrong_lists_of_servers_say_what_is_wrong() {
        for (text, teaches) in [
            ("diskside://a,/data", "names no host"),
            ("diskside://,a/data", "names no host"),
            ("diskside://a,b:0/data", "from 1 to 65535"),
            ("diskside://a,::1/data", "stands in brackets"),
            ("diskside+srv://a:4420/data", "the name of a service, without a port"),
            ("diskside+srv://a,b/data", "the name of a service, without a port"),
            ("diskside+srv://[::1]/data", "the name of a service, without a port"),
        ] {
            let error = text.parse::<ExportUrl>().unwrap_err().to_string();
            assert!(error.contains(teaches), "{text}: {error}");
        }
        let several = url("diskside://a,b/data").one_target().unwrap_err().to_string();
        assert!(several.starts_with("diskside://a,b/data names several servers"), "{several}");
    }
}
