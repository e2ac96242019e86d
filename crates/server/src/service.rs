//! The messages to and from a service manager: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).
//!
//! The socket is connected before the process confines itself, and kept.

use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Once;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The service manager that started this process, if one did.
#[derive(Debug)]
pub struct Service {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
    stopping: Once,
}

impl Service {
    /// As the environment says. A manager that cannot be reached is warned of, and told nothing.
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let socket = variable("NOTIFY_SOCKET").and_then(|path| {
            let connected = connect(&path);
            connected
                .inspect_err(|error| tracing::warn!(%error, ?path, "the service manager is not told anything"))
                .ok()
        });
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| is_meant && *usec > 0).map(Duration::from_micros);
        Self { watchdog: watchdog.filter(|_| socket.is_some()), socket, stopping: Once::new() }
    }

    /// How often it must be told that the server is well, at least.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Hosts are answered; `status` says what is served.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The configuration is read again; [`ready`](Self::ready) ends that.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
    }

    /// Commands in flight are finished, and then the process ends. One message is sent, however often this is called.
    pub fn stopping(&self) {
        self.stopping.call_once(|| self.tell("STOPPING=1\nSTATUS=finishing what is in flight"));
    }

    /// The server is well.
    pub fn is_well(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(what.as_bytes())
        {
            tracing::debug!(%error, what, "the service manager did not take it");
        }
    }
}

fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read holds nobody up.
    socket.set_nonblocking(true)?;
    match path.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(path)?,
    }
    Ok(socket)
}

/// The sockets on which the service manager listens for this process.
///
/// # Errors
/// One of them is not a listening socket of TCP.
pub fn inherited_listeners() -> io::Result<Vec<TcpListener>> {
    let mut given = listenfd::ListenFd::from_env();
    let count = given.len();
    let take = |at: usize| match given.take_tcp_listener(at) {
        Ok(Some(listener)) => Ok(listener),
        Ok(None) => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("socket {at} is gone"))),
        Err(error) => {
            Err(io::Error::new(error.kind(), format!("socket {at}: {error}; a server needs ListenStream= of TCP")))
        }
    };
    (0..count).map(take).collect()
}
