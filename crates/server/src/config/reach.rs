//! From where a server can be reached, and what that takes.

use std::net::SocketAddr;

use super::{ConfigError, ServeConfig};

impl ServeConfig {
    /// A server that others reach must know who they are, or be told that it need not.
    pub(super) fn check_reach(&self) -> Result<(), ConfigError> {
        if let Some(address) = self.metrics.filter(|address| !is_local(address) && !self.insecure) {
            let what = format!("{address} {METRICS_OPEN_TO_ANYBODY}");
            return Err(ConfigError::Value { field: "metrics".into(), what });
        }
        self.check_listened(self.listen.iter().map(|listen| &listen.address))
    }

    /// The same of addresses that the process was given.
    pub(crate) fn check_listened<'a>(
        &self,
        mut addresses: impl Iterator<Item = &'a SocketAddr>,
    ) -> Result<(), ConfigError> {
        match addresses.find(|address| !is_local(address)) {
            Some(address) if !self.insecure && !self.authenticates_hosts() => {
                Err(ConfigError::Value { field: "listen".into(), what: format!("{address} {OPEN_TO_ANYBODY}") })
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn is_local(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// The danger of listening beyond this machine as long as hosts are not authenticated, and the remedy.
const OPEN_TO_ANYBODY: &str = "is reached from other machines, and hosts are not authenticated: anybody who reaches it can use all \
    that is served. Give hosts keys (`diskside key new` there, `diskside key allow --name NAME --config FILE` here, and serve \
    with --config FILE); or write require = \"auth\" below [security], and nobody is let in until hosts have keys; or listen on \
    127.0.0.1 and reach it through ssh (ssh -L 4420:localhost:4420 SERVER); or, where \
    everybody on the network may, say so with --insecure (insecure = true in the file)";

const METRICS_OPEN_TO_ANYBODY: &str = "is reached from other machines, and tells anybody who asks the names of hosts, volumes, exports \
    and functions: listen on 127.0.0.1 and reach it through ssh (ssh -L 9464:localhost:9464 SERVER) or a proxy that knows who \
    may; or, where everybody on the network may know, say so with --insecure (insecure = true in the file)";
