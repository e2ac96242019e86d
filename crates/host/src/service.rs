//! The servers of a service, as DNS has them (RFC 2782).

mod order;
mod resolve;
#[cfg(test)]
mod tests;

use std::io;

/// A service's servers could not be found.
#[derive(Debug, thiserror::Error)]
#[error("cannot find the servers of {name}: {why}")]
pub struct ServiceError {
    /// The name whose SRV records were asked for.
    pub name: String,
    /// Why there are none.
    pub why: ServiceFailure,
}

/// Why there are no servers of a service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceFailure {
    /// The name is not one of DNS.
    #[error("it is not a name of DNS")]
    Name,
    /// There is nothing to ask.
    #[error("no DNS server is known: {NAMESERVER} and {RESOLV_CONF} name none")]
    NoServer,
    /// `DISKSIDE_NAMESERVER` is not an address.
    #[error("{NAMESERVER} is {0:?}, and not an address such as 10.0.0.53 or 10.0.0.53:53")]
    NotAnAddress(String),
    /// The servers of DNS did not answer.
    #[error("the DNS server {0} did not answer: {1}")]
    Silent(std::net::SocketAddr, io::Error),
    /// They answered that there is an error.
    #[error("the DNS server answered {0}")]
    Refused(String),
    /// The answer is malformed.
    #[error("the answer of the DNS server is malformed")]
    Malformed,
    /// There are no records.
    #[error("it has no SRV records: they are made with the zone, such as `{0} SRV 0 0 4420 server.example.org.`")]
    NoRecords(String),
    /// The one record says so.
    #[error("its SRV record says that it is not available")]
    NotAvailable,
}

/// An address of a DNS server that is asked instead of those of the system.
pub const NAMESERVER: &str = "DISKSIDE_NAMESERVER";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Finds the servers of a service: host and port of each, in the order in which they are to be tried. A server of a lower priority
/// comes first; of those with the same one any, more often one with more weight.
///
/// # Errors
/// There are none, or DNS cannot be asked.
pub fn find_service(name: &str) -> Result<Vec<(String, u16)>, ServiceError> {
    let name = format!("_diskside._tcp.{}", name.trim_end_matches('.'));
    let failed = |why| ServiceError { name: name.clone(), why };
    let records = resolve::servers().and_then(|servers| resolve::service(&name, &servers)).map_err(failed)?;
    if let [only] = &records[..]
        && only.host.is_empty()
    {
        return Err(failed(ServiceFailure::NotAvailable));
    }
    if records.is_empty() {
        return Err(failed(ServiceFailure::NoRecords(name.clone())));
    }
    let ordered = order::in_turn(records, order::random);
    Ok(ordered.into_iter().map(|record| (record.host, record.port)).collect())
}
