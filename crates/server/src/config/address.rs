//! Addresses as users write them: `0.0.0.0:4420`, `[::1]:4420`, `localhost`, `server.example:0`.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

use serde::{Deserialize, Deserializer};

use super::PORT;

/// An address and port, or a name and port; without a port it is 4420. A name with several addresses means the first of
/// them, with a preference for IPv4, which a machine without IPv6 has, too.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    parse(text, PORT)
}

/// The same for the page and the numbers of a server; without a port it is 9464.
pub fn parse_metrics_address(text: &str) -> Result<SocketAddr, String> {
    parse(text, METRICS_PORT)
}

/// Where OpenTelemetry's exporters for Prometheus are by default.
const METRICS_PORT: u16 = 9464;

fn parse(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let port = port.parse().map_err(|_| format!("`{port}` is not a port: a number from 0 to 65535"))?;
            (host, port)
        }
        _ => (text, default_port),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.contains(':') && (bare == host || bare.parse::<Ipv6Addr>().is_err()) {
        return Err(format!(
            "`{text}` is not an address: an IPv6 address stands in brackets, as in [::1]:{default_port}"
        ));
    }
    if bare.is_empty() {
        return Err(format!("`{text}` has no host; write 0.0.0.0:{port} for every address of this machine"));
    }
    let found = (bare, port).to_socket_addrs().map_err(|error| format!("`{bare}` is no known host: {error}"))?;
    let found: Vec<_> = found.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| format!("the name `{bare}` has no address"))
}

pub(super) fn parse_list<'de, D: Deserializer<'de>>(list: D) -> Result<Option<Vec<SocketAddr>>, D::Error> {
    let list = Vec::<String>::deserialize(list)?;
    list.iter().map(|text| parse_address(text)).collect::<Result<_, _>>().map(Some).map_err(serde::de::Error::custom)
}

pub(super) fn parse_metrics<'de, D: Deserializer<'de>>(text: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(text)?;
    parse_metrics_address(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_understood() {
        for (text, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("127.0.0.1", "127.0.0.1:4420"),
            ("[::1]:0", "[::1]:0"),
            ("[::1]", "[::1]:4420"),
            ("localhost:7", "127.0.0.1:7"),
            ("localhost", "127.0.0.1:4420"),
        ] {
            assert_eq!(parse_address(text).map(|address| address.to_string()), Ok(expected.to_owned()), "{text}");
        }
    }

    /// Without a port a server's page had that of NVMe/TCP, where its own listener is.
    #[test]
    fn a_page_has_a_port_of_its_own() {
        assert_eq!(parse_metrics_address("127.0.0.1"), Ok(([127, 0, 0, 1], 9464).into()));
        assert_eq!(parse_metrics_address("127.0.0.1:80"), Ok(([127, 0, 0, 1], 80).into()));
        assert!(parse_metrics_address("::1").is_err_and(|told| told.ends_with("as in [::1]:9464")));
    }

    #[test]
    fn what_is_no_address_says_what_is_wrong() {
        for (text, expected) in [
            ("localhost:http", "`http` is not a port: a number from 0 to 65535"),
            ("localhost:70000", "`70000` is not a port: a number from 0 to 65535"),
            ("::1", "`::1` is not an address: an IPv6 address stands in brackets, as in [::1]:4420"),
            ("::1:4420", "`::1:4420` is not an address: an IPv6 address stands in brackets, as in [::1]:4420"),
            (":4420", "`:4420` has no host; write 0.0.0.0:4420 for every address of this machine"),
        ] {
            assert_eq!(parse_address(text), Err(expected.to_owned()));
        }
        let unknown = parse_address("no-such-host.invalid:1").unwrap_err();
        assert!(unknown.starts_with("`no-such-host.invalid` is no known host: "), "{unknown}");
    }
}
