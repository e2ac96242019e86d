//! The sockets that a target listens on: its own, or those that the process was given.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use diskside_io::patience::Patience;
use diskside_io::socket::{SocketOptions, listen_at, local_address, tune};

use super::TargetError;
use crate::config::{ListenSpec, ServeConfig};

/// Sockets that listen, and of each, under its number, what there is to know.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub(super) sockets: Vec<Arc<OwnedFd>>,
    /// Where they listen.
    pub(super) addresses: Vec<SocketAddr>,
    /// The addresses that name them in a configuration, and the states of the paths.
    pub(super) paths: Vec<ListenSpec>,
}

/// Listens at the addresses of `config`, and says which they are where it left the port open.
pub(super) fn bind_all(config: &ServeConfig) -> Result<Listeners, TargetError> {
    let options = SocketOptions { congestion_control: config.congestion_control.clone(), ..SocketOptions::default() };
    let mut bound = Listeners { paths: config.listen.clone(), ..Listeners::default() };
    for &ListenSpec { address, .. } in &config.listen {
        let in_listen = |error| TargetError::Listen { address, error };
        let socket = listen_patiently(address, BACKLOG, &options).map_err(in_listen)?;
        bound.addresses.push(local_address(&socket).map_err(in_listen)?);
        bound.sockets.push(Arc::new(socket));
    }
    Ok(bound)
}

/// Makes sockets that the process was given ready, and refuses them where `config` would refuse their addresses.
pub(super) fn take_all(config: &ServeConfig, given: Vec<TcpListener>) -> Result<Listeners, TargetError> {
    let options = SocketOptions { congestion_control: config.congestion_control.clone(), ..SocketOptions::default() };
    let mut taken = Listeners::default();
    for listener in given {
        let address = listener.local_addr().map_err(TargetError::Inherited)?;
        listener.set_nonblocking(true).map_err(TargetError::Inherited)?;
        let socket = OwnedFd::from(listener);
        tune(&socket, &options).map_err(|error| TargetError::Listen { address, error })?;
        taken.addresses.push(address);
        taken.paths.push(address.into());
        taken.sockets.push(Arc::new(socket));
    }
    config.check_listened(taken.addresses.iter())?;
    ListenSpec::renew(&mut taken.paths, &config.listen);
    Ok(taken)
}

/// Listens, also where a target that was killed a moment ago still does: the kernel takes down its ring, and the
/// accept that is pending there, some time after the process.
fn listen_patiently(address: SocketAddr, backlog: i32, options: &SocketOptions) -> io::Result<OwnedFd> {
    let mut patience = Patience::new();
    let tell = |at_most_s| tracing::warn!(%address, at_most_s, "another program listens there: waiting for its end");
    loop {
        match listen_at(address, backlog, options) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && patience.wait(tell) => {}
            result => return result,
        }
    }
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
