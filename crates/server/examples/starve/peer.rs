//! A host of the benchmark: a controller and an I/O queue, over TLS.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use diskside_keys::read_tls_secret;
use diskside_nvme::Nqn;
use diskside_nvme::auth::{Derivation, Hash, IdentityVersion, Names, TlsPsk, TlsSecret};
use diskside_nvme::wire::{CONTROLLER_ID_DYNAMIC, Cc, Sqe, property};
use diskside_wire::function::{FunctionCommand, FunctionKind, FunctionRequest};

use crate::Failure;
use crate::client::COMPUTE;
use crate::common::Queue;
use crate::sealed::Sealed;

/// Namespace IDs of the volumes: of what is read, and of lines.
pub(crate) const MEMORY: u32 = 1;
pub(crate) const TEXT: u32 = 2;
/// A peer that the target does not answer has lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the target is, and its hosts' keys by their names.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    nqn: String,
    secrets: BTreeMap<String, TlsSecret>,
}

/// A controller of a host, and one I/O queue.
pub(crate) struct Peer {
    place: Place,
    name: String,
    pub(crate) admin: Queue,
    pub(crate) queue: Queue,
    controller: u16,
    last_tag: u64,
}

/// The index of a shipped program.
pub(crate) fn shipped(name: &str) -> u16 {
    let at = diskside_functions::shipped().iter().position(|shipped| shipped.name == name);
    at.expect("it is one that comes with the target") as u16
}

impl Place {
    /// `keys` has a file for each host.
    pub(crate) fn new(address: SocketAddr, nqn: &str, keys: &Path) -> Result<Self, Failure> {
        let mut secrets = BTreeMap::new();
        for entry in std::fs::read_dir(keys)? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|name| format!("{}: not UTF-8", name.display()))?;
            secrets.insert(name, read_tls_secret(&entry.path(), None)?);
        }
        Ok(Self { address, nqn: nqn.to_owned(), secrets })
    }

    /// The same with a key that the target does not know.
    pub(crate) fn with_wrong_key(&self) -> Self {
        let wrong = TlsSecret::new(&[0x5a; 32], Some(Hash::Sha256)).expect("32 bytes are a key");
        let secrets = self.secrets.keys().map(|name| (name.clone(), wrong.clone())).collect();
        Self { secrets, ..self.clone() }
    }

    pub(crate) fn socket(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn psk(&self, name: &str) -> Result<TlsPsk, Failure> {
        let names = Names { host: Nqn::new(&host_nqn(name))?, subsystem: Nqn::new(&self.nqn)? };
        let secret = self.secrets.get(name).ok_or_else(|| format!("there is no key of `{name}`"))?;
        let psk = secret.psk(&names, IdentityVersion::V1, Derivation::Standard);
        psk.ok_or_else(|| "the names are too long for a key".into())
    }

    /// A secure channel of a host.
    pub(crate) fn channel(&self, name: &str) -> Result<Sealed, Failure> {
        let psk = self.psk(name)?;
        Sealed::make(self.socket()?, psk).ok_or_else(|| "the target made no secure channel".into())
    }

    fn queue(&self, name: &str, id: u16, entries: u16, controller: u16) -> Result<(Queue, u16), Failure> {
        let mut queue = Queue::negotiate(Box::new(self.channel(name)?))?;
        let connected = queue.connect(&self.nqn, &host_nqn(name), id, entries, controller, 0);
        let controller = connected.map_err(|status| format!("Connect: {status}"))?;
        Ok((queue, controller))
    }
}

fn host_nqn(name: &str) -> String {
    format!("nqn.2026-11.io.diskside:bench:{name}")
}

impl Peer {
    pub(crate) fn connect(place: &Place, name: &str) -> Result<Self, Failure> {
        let (mut admin, controller) = place.queue(name, 0, 32, CONTROLLER_ID_DYNAMIC)?;
        let cc = Cc::default().with_enable(1).with_css(6).with_iosqes(6).with_iocqes(4);
        run(&mut admin, Sqe::property_set(property::CC, false, cc.0.into()), None, 0)?;
        let (queue, _) = place.queue(name, 1, 64, controller)?;
        Ok(Self { place: place.clone(), name: name.to_owned(), admin, queue, controller, last_tag: 0 })
    }

    /// One more I/O queue.
    pub(crate) fn io_queue(&self, id: u16) -> Result<Queue, Failure> {
        Ok(self.place.queue(&self.name, id, 32, self.controller)?.0)
    }

    pub(crate) fn command(&mut self, sqe: Sqe, out: Option<&[u8]>, in_len: usize) -> Result<u64, Failure> {
        run(&mut self.queue, sqe, out, in_len)
    }

    pub(crate) fn write(&mut self, nsid: u32, lba: u64, bytes: &[u8]) -> Result<u64, Failure> {
        self.command(Sqe::write(nsid, lba, (bytes.len() / 4096) as u32), Some(bytes), 0)
    }

    /// Sends a request, and waits for nothing of it.
    pub(crate) fn send(&mut self, kind: FunctionKind, request: &FunctionRequest) -> Result<u64, Failure> {
        self.last_tag += 1;
        let bytes = request.encode();
        let sqe = Sqe::function_send(COMPUTE, kind, self.last_tag, 0, bytes.len() as u32).with_first().with_last();
        self.command(sqe, Some(&bytes), 0)
    }

    pub(crate) fn prepare(&mut self, request: &FunctionRequest) -> Result<u32, Failure> {
        Ok(self.send(FunctionKind::Prepare, request)? as u32)
    }

    /// Sends a request, and reads its result.
    pub(crate) fn result(&mut self, request: &FunctionRequest) -> Result<u64, Failure> {
        self.send(request.kind, request)?;
        self.command(Sqe::function_receive(COMPUTE, self.last_tag, 0, 64 << 10, 60_000), None, 64 << 10)
    }
}

/// The result of a command that ends well.
pub(crate) fn run(queue: &mut Queue, sqe: Sqe, out: Option<&[u8]>, in_len: usize) -> Result<u64, Failure> {
    let cid = queue.post(sqe, out, in_len)?;
    let answer = queue.wait(cid)?;
    match answer.status.is_success() {
        true => Ok(answer.result),
        false => Err(format!("a command failed: {}", answer.status).into()),
    }
}
