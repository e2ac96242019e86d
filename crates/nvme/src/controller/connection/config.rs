//! The settings of a connection, and where the key of its secure channel is from.

use std::net::IpAddr;
use std::time::Duration;

/// The settings of a connection, given when it is made.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// The address of this machine to which the host connected, if it is known: the discovery log gives it to the host.
    pub local_address: Option<IpAddr>,
    /// The number of the listener through which the host came: controllers that it makes have the
    /// [state](super::super::Subsystem::set_path_states) of that path. `None`: a path that is always there.
    pub listener: Option<u16>,
    /// The most data bytes of one H2CData PDU (MAXH2CDATA); a multiple of 4, at least 4,096.
    pub h2c_data_len_max: u32,
    /// The most bytes that one R2T asks for; a multiple of 4.
    pub r2t_len_max: u32,
    /// How long a peer may take to send ICReq and Connect.
    pub connect_timeout: Duration,
    /// How long a host may take to authenticate, each time.
    pub authentication_timeout: Duration,
    /// The peer is part of this process: it need neither be known nor authenticate.
    pub trusted: bool,
    /// Whether header digests are used when the host asks for them.
    pub allow_header_digest: bool,
    /// Whether data digests are used when the host asks for them.
    pub allow_data_digest: bool,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            local_address: None,
            listener: None,
            h2c_data_len_max: 128 << 10,
            r2t_len_max: 1 << 20,
            connect_timeout: Duration::from_secs(10),
            authentication_timeout: Duration::from_secs(30),
            trusted: false,
            allow_header_digest: true,
            allow_data_digest: true,
        }
    }
}

/// Where the key of a secure channel is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// It is one of the host's.
    Known,
    /// An authentication made it (secure channel concatenation).
    Generated,
}
