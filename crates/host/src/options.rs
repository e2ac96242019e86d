//! How a host connects.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use diskside_io::socket::SocketOptions;
use diskside_keys::KeySource;
use diskside_nvme::Nqn;
use diskside_nvme::host::HostIdentity;

use crate::error::HostError;
use crate::url::{PORT_DEFAULT, Url};

/// How a [`Connection`](crate::Connection) is made and kept.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The host's identity; see [`host_identity`].
    pub identity: HostIdentity,
    /// Where the key is with which it authenticates. The key's name goes before that of `identity`.
    pub key: KeySource,
    /// I/O queue pairs, each a TCP connection with a thread; 1 to 128. One deep queue moves more
    /// than many shallow ones; more than one help when a single core cannot keep up.
    pub io_queues: u16,
    /// Commands that one queue has in flight; 1 to 1,023. The controller may grant less.
    pub queue_depth: u16,
    /// Requests that may wait for one queue; submitting sleeps while that many do.
    pub staging_max: usize,
    /// The controller ends the association when it hears nothing for this long, and the host gives up a controller that does
    /// not answer Keep Alive for so long, however long commands may take; zero: neither.
    pub keep_alive: Duration,
    /// Protect PDU headers by a CRC32C.
    pub header_digest: bool,
    /// Protect data by a CRC32C.
    pub data_digest: bool,
    /// How long each step of connecting may take.
    pub connect_timeout: Duration,
    /// How long a command may take before it is aborted, and again before the connection is given up.
    pub command_timeout: Duration,
    /// The first pause before connecting again; each further one is twice as long.
    pub reconnect_delay_min: Duration,
    /// The longest pause before connecting again.
    pub reconnect_delay_max: Duration,
    /// How long to try to connect again before all requests fail; zero: do not try.
    pub loss_timeout: Duration,
    /// How often one request is sent again after losses and transient errors.
    pub retries_max: u8,
    /// How long a queue's thread polls at most before it sleeps; less while that does not pay.
    pub spin: Duration,
    /// How the sockets are set up.
    pub socket: SocketOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            identity: host_identity(),
            key: KeySource::Usual,
            io_queues: 1,
            queue_depth: 128,
            staging_max: 4096,
            keep_alive: Duration::from_secs(10),
            header_digest: false,
            data_digest: false,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(30),
            reconnect_delay_min: Duration::from_millis(50),
            reconnect_delay_max: Duration::from_secs(5),
            loss_timeout: Duration::from_secs(60),
            retries_max: 5,
            spin: Duration::from_micros(100),
            socket: SocketOptions::default(),
        }
    }
}

/// The name by which the user keeps a key for the server of a URL, if no key is found by the name in the URL: one server has several
/// names.
pub(crate) fn other_name(url: &Url, key: &KeySource) -> Option<String> {
    let here = url.addresses(PORT_DEFAULT).unwrap_or_default();
    let is_same = |name: &String| {
        let other = format!("nvme-tcp://{name}").parse::<Url>().ok();
        let addresses = other.and_then(|other| other.addresses(PORT_DEFAULT).ok()).unwrap_or_default();
        addresses.iter().any(|address| here.contains(address))
    };
    key.other_servers(&url.server(PORT_DEFAULT)).into_iter().find(is_same)
}

impl ConnectOptions {
    /// With the key that the user keeps for this server, if there is one.
    pub(crate) fn for_server(&self, url: &Url) -> Self {
        Self { key: self.key.for_server(&url.server(PORT_DEFAULT)), ..self.clone() }
    }

    /// The name by which the user keeps a key for the server of `url`, if none is found by the name in the URL, and none is named.
    /// Looks the names up.
    pub fn other_name(&self, url: &Url) -> Option<String> {
        other_name(url, &self.for_server(url).key)
    }

    pub(crate) fn check(&self) -> Result<(), HostError> {
        let rules = [
            ((1..=128).contains(&self.io_queues), "io_queues must be from 1 to 128"),
            ((1..=1023).contains(&self.queue_depth), "queue_depth must be from 1 to 1023"),
            (self.staging_max > 0, "staging_max must be at least 1"),
            (!self.connect_timeout.is_zero(), "connect_timeout must not be zero"),
            (!self.command_timeout.is_zero(), "command_timeout must not be zero"),
            (!self.reconnect_delay_min.is_zero(), "reconnect_delay_min must not be zero"),
            (self.reconnect_delay_min <= self.reconnect_delay_max, "reconnect_delay_min exceeds reconnect_delay_max"),
            (self.identity.id != [0; 16], "the host identifier must not be zero"),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err(HostError::Options(rule)))
    }
}

/// The identity of this machine to NVMe targets: nvme-cli's `/etc/nvme/hostnqn` and `hostid`, else a name derived from
/// `/etc/machine-id` (which itself is not revealed), else a random one.
pub fn host_identity() -> HostIdentity {
    // Once: a random one stays the same.
    static IDENTITY: LazyLock<HostIdentity> = LazyLock::new(find_identity);
    IDENTITY.clone()
}

fn find_identity() -> HostIdentity {
    let configured = || {
        let name = std::fs::read_to_string("/etc/nvme/hostnqn").ok()?;
        let id = std::fs::read_to_string("/etc/nvme/hostid").ok()?;
        Some(HostIdentity { nqn: Nqn::new(name.trim()).ok()?, id: parse_uuid(id.trim())? })
    };
    configured().unwrap_or_else(|| {
        let machine = std::fs::read_to_string("/etc/machine-id").ok();
        let id = uuid(machine.as_deref().map(str::trim).filter(|id| !id.is_empty()));
        HostIdentity { nqn: nqn_of_uuid(id), id }
    })
}

/// What the names of UUIDs begin with.
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// A version 8 UUID (RFC 9562: free form), the same for the same seed.
fn uuid(seed: Option<&str>) -> [u8; 16] {
    // FNV-1a, twice: names need to differ, not to resist anyone.
    let mut id = [0; 16];
    match seed {
        Some(seed) => {
            for (half, basis) in id.chunks_exact_mut(8).zip([0xcbf2_9ce4_8422_2325_u64, 0x8422_2325_cbf2_9ce4]) {
                let hash = "diskside:"
                    .bytes()
                    .chain(seed.bytes())
                    .fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
                half.copy_from_slice(&hash.to_be_bytes());
            }
        }
        None => {
            for (index, half) in id.chunks_exact_mut(8).enumerate() {
                half.copy_from_slice(&RandomState::new().hash_one(index).to_be_bytes());
            }
        }
    }
    id[6] = 0x80 | id[6] & 0x0f;
    id[8] = 0x80 | id[8] & 0x3f;
    id
}

fn nqn_of_uuid(id: [u8; 16]) -> Nqn {
    let mut text = String::from(UUID_PREFIX);
    for (index, byte) in id.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Nqn::new(&text).expect("the name of a UUID is well formed")
}

/// The identifier that belongs to a name made of a UUID, as NVMe's tools derive it.
pub(crate) fn id_of_nqn(nqn: &Nqn) -> Option<[u8; 16]> {
    parse_uuid(nqn.as_str().strip_prefix(UUID_PREFIX)?)
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    (id != [0; 16]).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_always_has_the_same_name_and_hides_its_identifier() {
        let id = uuid(Some("0123456789abcdef0123456789abcdef"));
        assert_eq!(id, uuid(Some("0123456789abcdef0123456789abcdef")));
        assert_ne!(id, uuid(Some("1123456789abcdef0123456789abcdef")));
        assert_ne!(uuid(None), uuid(None));
        let name = nqn_of_uuid(id);
        assert_eq!(parse_uuid(name.as_str().rsplit(':').next().unwrap()), Some(id));
        assert!(!name.as_str().contains("0123456789"));
    }

    #[test]
    fn options_out_of_bounds_are_refused_by_name() {
        assert!(ConnectOptions::default().check().is_ok());
        for (options, name) in [
            (ConnectOptions { io_queues: 0, ..ConnectOptions::default() }, "io_queues"),
            (ConnectOptions { queue_depth: 1024, ..ConnectOptions::default() }, "queue_depth"),
            (ConnectOptions { staging_max: 0, ..ConnectOptions::default() }, "staging_max"),
            (ConnectOptions { command_timeout: Duration::ZERO, ..ConnectOptions::default() }, "command_timeout"),
        ] {
            assert!(options.check().unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn what_is_no_uuid_is_not_taken_for_one() {
        for text in [
            "",
            "00000000-0000-0000-0000-000000000000",
            "0123",
            "é123456789abcdef0123456789abcde",
            "g".repeat(32).as_str(),
        ] {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }
}
