//! How volumes are named: `nvme-tcp://host:port/NQN/NSID`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use diskside_nvme::{Nqn, NqnError};

use crate::error::HostError;

/// The port of NVMe/TCP I/O controllers (IANA `nvme`).
pub const PORT_DEFAULT: u16 = 4420;
/// The port of discovery controllers (IANA `nvme-disc`).
pub const DISCOVERY_PORT_DEFAULT: u16 = 8009;

const SCHEME: &str = "nvme-tcp://";
/// The same over TLS.
const TLS_SCHEME: &str = "nvme-tcp+tls://";

/// A target, a subsystem of it, or a namespace of that: `nvme-tcp://host[:port][/NQN[/NSID]]`.
///
/// The host is a name, an IPv4 address, or an IPv6 address in brackets. With `nvme-tcp+tls://` it is talked to over TLS, or not
/// at all.
///
/// ```
/// use diskside_host::Url;
/// let url: Url = "nvme-tcp://[::1]:4420/nqn.2014-08.org.example:disks/1".parse()?;
/// assert_eq!((url.host.as_str(), url.port, url.nsid), ("::1", Some(4420), Some(1)));
/// assert_eq!(url.to_string(), "nvme-tcp://[::1]:4420/nqn.2014-08.org.example:disks/1");
/// # Ok::<(), diskside_host::UrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Over TLS alone. Without it TLS is used where the host's key is one of TLS.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, if it is written.
    pub port: Option<u16>,
    /// The subsystem.
    pub subsystem: Option<Nqn>,
    /// The namespace.
    pub nsid: Option<u32>,
}

/// Why a text names no volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Not `nvme-tcp:`.
    #[error(
        "{0:?} does not start with {SCHEME}; a volume is written {SCHEME}host:port/NQN/NSID; `diskside discover {SCHEME}host:port` lists those of a server"
    )]
    Scheme(String),
    /// No host.
    #[error("{0:?} names no host; a volume is written {SCHEME}host:port/NQN/NSID")]
    NoHost(String),
    /// An IPv6 address without brackets, or with a stray one.
    #[error("{0:?} is not a host: an IPv6 address stands in brackets, as in {SCHEME}[2001:db8::1]:4420")]
    Host(String),
    /// The port is not a number from 1 to 65535.
    #[error("{0:?} is not a port: a number from 1 to 65535, usually {PORT_DEFAULT}")]
    Port(String),
    /// The subsystem's name is none.
    #[error("{text:?} is not a subsystem's name: {source}")]
    Nqn {
        /// What was found.
        text: String,
        /// What is wrong with it.
        source: NqnError,
    },
    /// The namespace is not a number from 1 to FFFFFFFEh.
    #[error("{0:?} is not a namespace: a number from 1 on, as in {SCHEME}host:port/NQN/1")]
    Nsid(String),
    /// The URL continues where it should end.
    #[error("{0:?} after the namespace: a volume's URL ends there")]
    Rest(String),
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let behind = |scheme: &str| {
            let start = text.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme));
            start.map(|_| &text[scheme.len()..])
        };
        let (tls, rest) = match (behind(TLS_SCHEME), behind(SCHEME)) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(UrlError::Scheme(shown(text))),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = split_authority(authority, text)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.is_empty() {
            return Ok(Self { tls, host, port, subsystem: None, nsid: None });
        }
        let (name, nsid) = match path.split_once('/') {
            None => (path, None),
            Some((_, rest)) if rest.contains('/') => {
                return Err(UrlError::Rest(shown(&rest[rest.find('/').unwrap_or(0)..])));
            }
            Some((name, nsid)) => (name, Some(nsid)),
        };
        let subsystem = Nqn::new(name).map_err(|source| UrlError::Nqn { text: shown(name), source })?;
        let nsid = match nsid {
            None => None,
            Some(digits) => match digits.parse::<u32>() {
                Ok(nsid) if (1..u32::MAX).contains(&nsid) && !digits.starts_with('+') => Some(nsid),
                _ => return Err(UrlError::Nsid(shown(digits))),
            },
        };
        Ok(Self { tls, host, port, subsystem: Some(subsystem), nsid })
    }
}

impl Url {
    /// The server as this URL names it: `HOST:PORT`, an IPv6 address in brackets.
    pub fn server(&self, port_default: u16) -> String {
        let port = self.port.unwrap_or(port_default);
        let host = self.host.to_ascii_lowercase();
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The addresses of the host's name, with the written port or `port_default`.
    pub fn addresses(&self, port_default: u16) -> Result<Vec<SocketAddr>, HostError> {
        let failed = |source| HostError::Resolve { host: self.host.clone(), source };
        let port = self.port.unwrap_or(port_default);
        let found: Vec<_> = match (self.host.as_str(), port).to_socket_addrs() {
            Ok(found) => found.collect(),
            // RFC 6761: this name is this machine, also where no /etc/hosts says so, as in small containers.
            Err(_) if self.host.eq_ignore_ascii_case("localhost") => {
                vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
            }
            Err(error) => return Err(failed(error)),
        };
        if found.is_empty() {
            return Err(failed(std::io::Error::other("the name has no address")));
        }
        Ok(found)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { TLS_SCHEME } else { SCHEME })?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if let Some(subsystem) = &self.subsystem {
            write!(f, "/{}", subsystem.as_str())?;
            if let Some(nsid) = self.nsid {
                write!(f, "/{nsid}")?;
            }
        }
        Ok(())
    }
}

fn split_authority(authority: &str, whole: &str) -> Result<(String, Option<u16>), UrlError> {
    if authority.is_empty() {
        return Err(UrlError::NoHost(shown(whole)));
    }
    let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
        let (address, after) = inner.split_once(']').ok_or_else(|| UrlError::Host(shown(authority)))?;
        let bare = address.split('%').next().unwrap_or(address);
        if bare.parse::<Ipv6Addr>().is_err() {
            return Err(UrlError::Host(shown(authority)));
        }
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err(UrlError::Host(shown(authority))),
        };
        (address, port)
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        if port.is_some_and(|port| port.contains(':')) || host.contains(['[', ']', '@', ' ']) {
            return Err(UrlError::Host(shown(authority)));
        }
        (host, port)
    };
    if host.is_empty() {
        return Err(UrlError::NoHost(shown(whole)));
    }
    let port = match port {
        None => None,
        Some(digits) => match digits.parse::<u16>() {
            Ok(port) if port > 0 && !digits.starts_with('+') => Some(port),
            _ => return Err(UrlError::Port(shown(digits))),
        },
    };
    Ok((host.to_owned(), port))
}

/// A text as an error repeats it: not longer than a line.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NQN: &str = "nqn.2014-08.org.example:disks";

    #[test]
    fn every_form_is_understood() {
        for (text, host, port, nqn, nsid) in [
            ("nvme-tcp://host", "host", None, None, None),
            ("nvme-tcp://host/", "host", None, None, None),
            ("NVMe-TCP://10.0.0.1:4420", "10.0.0.1", Some(4420), None, None),
            ("nvme-tcp://[fe80::1%eth0]:1", "fe80::1%eth0", Some(1), None, None),
            ("nvme-tcp://h:4420/nqn.2014-08.org.example:disks", "h", Some(4420), Some(NQN), None),
            ("nvme-tcp://h/nqn.2014-08.org.example:disks/7", "h", None, Some(NQN), Some(7)),
            ("nvme-tcp://h/nqn.2014-08.org.example:disks/4294967294", "h", None, Some(NQN), Some(0xffff_fffe)),
        ] {
            let url: Url = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((url.host.as_str(), url.port, url.nsid), (host, port, nsid), "{text}");
            assert_eq!(url.subsystem.as_ref().map(Nqn::as_str), nqn, "{text}");
            assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
            assert!(!url.tls);
            let secure = format!("NVME-TCP+tls://{}", &text[SCHEME.len()..]).parse::<Url>().unwrap();
            assert_eq!(secure, Url { tls: true, ..url });
            assert_eq!(secure.to_string().parse::<Url>().unwrap(), secure);
        }
    }

    #[test]
    fn every_error_says_what_would_be_right() {
        for (text, teaches) in [
            ("tcp://host", "does not start with nvme-tcp://"),
            ("", "nvme-tcp://host:port/NQN/NSID"),
            ("nvme-tcp://", "names no host"),
            ("nvme-tcp://:4420", "names no host"),
            ("nvme-tcp://::1:4420", "stands in brackets"),
            ("nvme-tcp://[::1", "stands in brackets"),
            ("nvme-tcp://[host]:1", "stands in brackets"),
            ("nvme-tcp://[::1]4420", "stands in brackets"),
            ("nvme-tcp://host:0", "from 1 to 65535"),
            ("nvme-tcp://host:65536", "from 1 to 65535"),
            ("nvme-tcp://host:+1", "from 1 to 65535"),
            ("nvme-tcp://host:port/", "from 1 to 65535"),
            ("nvme-tcp://host/disks/1", "starts with \"nqn.\""),
            ("nvme-tcp://host/nqn.2014-08.org.example:d/0", "a number from 1 on"),
            ("nvme-tcp://host/nqn.2014-08.org.example:d/4294967295", "a number from 1 on"),
            ("nvme-tcp://host/nqn.2014-08.org.example:d/one", "a number from 1 on"),
            ("nvme-tcp://host/nqn.2014-08.org.example:d/1/2", "ends there"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(error.contains(teaches), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_carry_the_written_port_or_the_default() {
        let with: Url = "nvme-tcp://[::1]:99".parse().unwrap();
        assert_eq!(with.addresses(PORT_DEFAULT).unwrap(), ["[::1]:99".parse().unwrap()]);
        let without: Url = "nvme-tcp://127.0.0.1".parse().unwrap();
        assert_eq!(without.addresses(PORT_DEFAULT).unwrap(), ["127.0.0.1:4420".parse().unwrap()]);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_parses_comes_back(text in "(nvme-tcp://)?[\\[\\]:/a-z0-9.%é]{0,40}") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
            }
        }
    }
}
