//! TCP sockets set up for a storage protocol: no delay, an optional congestion control, room to listen.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt};

/// How a TCP socket is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// The kernel's congestion control by name, such as `reno` or `bbr`; `None` keeps the system's, but between two
    /// sockets of one machine takes `reno`: there is no path to probe or to be fair on, and the pacing of `bbr` costs
    /// up to a third of the throughput there.
    pub congestion_control: Option<String>,
    /// Size of the send buffer in bytes; `None` lets the kernel adapt it.
    pub send_buffer_bytes: Option<usize>,
    /// Size of the receive buffer in bytes; `None` lets the kernel adapt it.
    pub receive_buffer_bytes: Option<usize>,
}

/// A listening socket at `address` (port 0: any free port). Connections still waiting to be
/// accepted are bounded by `backlog`.
pub fn listen_at(address: SocketAddr, backlog: i32, options: &SocketOptions) -> io::Result<OwnedFd> {
    let socket = new_socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Set before `listen`, so that accepted connections inherit them.
    tune(&socket, options)?;
    bind(&socket, &address)?;
    listen(&socket, backlog)?;
    Ok(socket)
}

/// A fresh socket for a connection to `address`, to be connected by
/// [`Op::Connect`](crate::ring::Op::Connect) or `connect`.
pub fn socket_for(address: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    let socket = new_socket(address)?;
    tune(&socket, options)?;
    Ok(socket)
}

/// Applies the options; accepted and connected sockets need it for what depends on the peer.
pub fn tune(socket: &OwnedFd, options: &SocketOptions) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    if let Some(bytes) = options.send_buffer_bytes {
        sockopt::set_socket_send_buffer_size(socket, bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    if options.congestion_control.is_none() && is_within_machine(socket) {
        // Every kernel has it and lets everybody use it. If not, the system's default does as well.
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
    if let Some(name) = &options.congestion_control {
        sockopt::set_tcp_congestion(socket, name).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(
                error.kind(),
                format!(
                    "TCP congestion control \"{name}\": {error}; \
                     net.ipv4.tcp_available_congestion_control lists what this kernel has"
                ),
            )
        })?;
    }
    Ok(())
}

/// The address that a socket is bound to.
pub fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(address).map_err(io::Error::from)
}

/// The address of a socket's peer.
pub fn peer_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    let address = rustix::net::getpeername(socket)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the socket has no peer"))?;
    SocketAddr::try_from(address).map_err(io::Error::from)
}

/// Whether both ends of a connected socket are on this machine.
fn is_within_machine(socket: &OwnedFd) -> bool {
    match (local_address(socket), peer_address(socket)) {
        (Ok(local), Ok(peer)) => peer.ip().is_loopback() || peer.ip() == local.ip(),
        _ => false,
    }
}

fn new_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?)
}
