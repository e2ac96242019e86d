//! A plain host for tests: blocking, one command or a few at a time, every PDU spelt out.

#![allow(dead_code, unreachable_pub, reason = "each test is a crate of its own and uses its part")]

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Wake, Waker};
use std::time::Duration;

use diskside_nvme::Status;
use diskside_nvme::wire::{
    C2hData, CONTROLLER_ID_DYNAMIC, Cc, CommonHeader, ConnectData, Cqe, Direction, H2cData, IcReq, IcResp, PduKind,
    R2t, Sgl, Sqe, admin_opcode, direction, pdu_flags, property,
};
use diskside_server::config::VolumeSpec;
use diskside_server::link::{LoopEnd, LoopRead, LoopWriteError};
use diskside_server::{Handle, Running, Target, TargetBuilder};
use zerocopy::{FromBytes, IntoBytes};

pub const NQN: &str = "nqn.2026-11.org.example:target";
pub const HOST: &str = "nqn.2026-11.org.example:host";
const IN_CAPSULE_LEN: usize = 8192;

/// A running target with one volume of memory, of 4-KiB blocks.
pub fn memory_target(mib: u64) -> Running {
    start(builder().volume(VolumeSpec::new("data", format!("mem:{mib}MiB")).writable()))
}

pub fn builder() -> TargetBuilder {
    Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().unwrap()])
}

pub fn start(builder: TargetBuilder) -> Running {
    builder.build().unwrap().start().unwrap()
}

/// What carries a queue's bytes.
pub trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// One queue pair.
pub struct Queue {
    pub wire: Box<dyn Wire>,
    next_cid: u16,
    /// Data to send when asked for, and data that came, by command.
    outgoing: HashMap<u16, Vec<u8>>,
    incoming: HashMap<u16, Vec<u8>>,
    done: HashMap<u16, Answer>,
    pub h2c_data_max: usize,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: Status,
    pub result: u64,
    pub data: Vec<u8>,
}

impl Answer {
    #[track_caller]
    pub fn ok(self) -> Vec<u8> {
        assert!(self.status.is_success(), "{}", self.status);
        self.data
    }

    /// Type, code and whether it may be sent again: a host decides by these.
    #[track_caller]
    pub fn fails_with(self, status: Status) {
        assert_eq!(self.status, status);
    }
}

/// An admin queue of an enabled controller.
pub struct Controller {
    pub admin: Queue,
    pub id: u16,
    address: Option<SocketAddr>,
    handle: Handle,
    host: String,
}

impl Controller {
    pub fn connect(running: &Running) -> Self {
        Self::connect_as(running.handle(), HOST, 0).unwrap()
    }

    pub fn connect_as(handle: &Handle, host: &str, keep_alive_ms: u32) -> Result<Self, Status> {
        let address = handle.local_addresses()[0];
        let wire = Box::new(tcp(address));
        Self::over(wire, handle, Some(address), host, keep_alive_ms)
    }

    /// Through the listener of this number.
    pub fn through(running: &Running, listener: usize) -> Self {
        let address = running.handle().local_addresses()[listener];
        Self::over(Box::new(tcp(address)), running.handle(), Some(address), HOST, 0).unwrap()
    }

    pub fn connect_loop(running: &Running) -> Self {
        let wire = Box::new(LoopWire::new(running.handle().connect_loop().unwrap()));
        Self::over(wire, running.handle(), None, HOST, 0).unwrap()
    }

    fn over(
        wire: Box<dyn Wire>,
        handle: &Handle,
        address: Option<SocketAddr>,
        host: &str,
        keep_alive_ms: u32,
    ) -> Result<Self, Status> {
        Self::of(handle.nqn(), wire, handle, address, host, keep_alive_ms)
    }

    /// A controller of the discovery service.
    pub fn discovery(running: &Running, host: &str) -> Self {
        let (handle, nqn) = (running.handle(), diskside_nvme::DISCOVERY_NQN);
        let address = handle.local_addresses()[0];
        Self::of(nqn, Box::new(tcp(address)), handle, Some(address), host, 0).unwrap()
    }

    fn of(
        nqn: &str,
        wire: Box<dyn Wire>,
        handle: &Handle,
        address: Option<SocketAddr>,
        host: &str,
        keep_alive_ms: u32,
    ) -> Result<Self, Status> {
        let mut admin = Queue::negotiate(wire).unwrap();
        let id = admin.connect(nqn, host, 0, 32, CONTROLLER_ID_DYNAMIC, keep_alive_ms)?;
        let mut controller = Self { admin, id, address, handle: handle.clone(), host: host.to_owned() };
        controller.enable(0);
        Ok(controller)
    }

    /// Enables the controller with the NVM command set alone (0), or with all that it supports (6).
    pub fn enable(&mut self, command_sets: u32) {
        let cc = Cc::default().with_enable(1).with_css(command_sets).with_iosqes(6).with_iocqes(4);
        self.admin.command(Sqe::property_set(property::CC, false, cc.0.into()), None, 0).ok();
    }

    pub fn io_queue(&self, queue_id: u16, entries: u16) -> Queue {
        let wire: Box<dyn Wire> = match self.address {
            Some(address) => Box::new(tcp(address)),
            None => Box::new(LoopWire::new(self.handle.connect_loop().unwrap())),
        };
        let mut queue = Queue::negotiate(wire).unwrap();
        queue.connect(self.handle.nqn(), &self.host, queue_id, entries, self.id, 0).unwrap();
        queue
    }
}

pub fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

impl Queue {
    /// ICReq and ICResp.
    pub fn negotiate(wire: Box<dyn Wire>) -> io::Result<Self> {
        let mut queue = Self {
            wire,
            next_cid: 0,
            outgoing: HashMap::new(),
            incoming: HashMap::new(),
            done: HashMap::new(),
            h2c_data_max: 0,
        };
        queue.wire.write_all(IcReq::new(false, false).as_bytes())?;
        let (kind, header, _) = queue.read_pdu()?;
        assert_eq!(kind, PduKind::IcResp);
        queue.h2c_data_max = IcResp::read_from_bytes(&header).unwrap().h2c_data_max.get() as usize;
        Ok(queue)
    }

    pub fn connect(
        &mut self,
        nqn: &str,
        host: &str,
        queue_id: u16,
        entries: u16,
        controller_id: u16,
        keep_alive_ms: u32,
    ) -> Result<u16, Status> {
        let mut host_id = [7; 16];
        host_id[0] = host.len() as u8;
        let data = ConnectData::new(host_id, controller_id, padded(nqn), padded(host));
        let sqe = Sqe::connect(queue_id, entries, true, keep_alive_ms);
        let answer = self.command(sqe, Some(data.as_bytes()), 0);
        if answer.status.is_success() { Ok(answer.result as u16) } else { Err(answer.status) }
    }

    pub fn command(&mut self, sqe: Sqe, out: Option<&[u8]>, in_len: usize) -> Answer {
        let cid = self.post(sqe, out, in_len).unwrap();
        self.wait(cid).unwrap()
    }

    /// Sends a command and returns its identifier.
    pub fn post(&mut self, mut sqe: Sqe, out: Option<&[u8]>, in_len: usize) -> io::Result<u16> {
        let cid = self.next_cid;
        self.next_cid = (cid + 1) % 4096;
        sqe.set_cid(cid);
        let mut header = CommonHeader::new(PduKind::CapsuleCmd);
        let mut bytes = Vec::new();
        let in_capsule = out.filter(|out| out.len() <= IN_CAPSULE_LEN);
        match (in_capsule, out) {
            (Some(data), _) => {
                sqe.set_sgl(Sgl::in_capsule(data.len() as u32));
                header.data_offset = 72;
                header.len.set(72 + data.len() as u32);
            }
            (None, Some(data)) => {
                sqe.set_sgl(Sgl::transport(data.len() as u32));
                self.outgoing.insert(cid, data.to_vec());
            }
            (None, None) => sqe.set_sgl(Sgl::transport(in_len as u32)),
        }
        assert!(out.is_none() || sqe.opcode() == admin_opcode::FABRICS || direction(sqe.opcode()) != Direction::ToHost);
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(sqe.as_bytes());
        bytes.extend_from_slice(in_capsule.unwrap_or_default());
        self.incoming.insert(cid, vec![0; in_len]);
        self.wire.write_all(&bytes)?;
        Ok(cid)
    }

    /// The identifier of the next command.
    pub fn next_is(&mut self, cid: u16) {
        self.next_cid = cid;
    }

    /// Reads until this command has ended.
    pub fn wait(&mut self, cid: u16) -> io::Result<Answer> {
        loop {
            if let Some(answer) = self.done.remove(&cid) {
                return Ok(answer);
            }
            self.step()?;
        }
    }

    /// Whether the command has not ended, as far as was read.
    pub fn is_open(&self, cid: u16) -> bool {
        !self.done.contains_key(&cid)
    }

    /// Takes one PDU.
    pub fn step(&mut self) -> io::Result<()> {
        let (kind, header, data) = self.read_pdu()?;
        match kind {
            PduKind::CapsuleResp => {
                let cqe = Cqe::read_from_bytes(&header[8..]).unwrap();
                self.end(cqe.cid(), cqe.status(), cqe.result());
            }
            PduKind::C2hData => {
                let c2h = C2hData::read_from_bytes(&header).unwrap();
                let (cid, at) = (c2h.cccid.get(), c2h.offset.get() as usize);
                self.incoming.get_mut(&cid).unwrap()[at..at + data.len()].copy_from_slice(&data);
                if c2h.common.flags & pdu_flags::SUCCESS != 0 {
                    self.end(cid, Status::SUCCESS, 0);
                }
            }
            PduKind::R2t => {
                let r2t = R2t::read_from_bytes(&header).unwrap();
                let (cid, start, len) = (r2t.cccid.get(), r2t.offset.get() as usize, r2t.len.get() as usize);
                let data = self.outgoing[&cid][start..start + len].to_vec();
                for (index, part) in data.chunks(self.h2c_data_max).enumerate() {
                    let at = start + index * self.h2c_data_max;
                    let mut h2c = H2cData::new(cid, r2t.ttag.get(), at as u32, part.len() as u32);
                    h2c.common.data_offset = 24;
                    h2c.common.len.set(24 + part.len() as u32);
                    if at + part.len() == start + len {
                        h2c.common.flags |= pdu_flags::LAST;
                    }
                    self.wire.write_all(&[h2c.as_bytes(), part].concat())?;
                }
            }
            other => return Err(io::Error::other(format!("{other:?}"))),
        }
        Ok(())
    }

    /// Reads a whole PDU: kind, header, data.
    pub fn read_pdu(&mut self) -> io::Result<(PduKind, Vec<u8>, Vec<u8>)> {
        let mut common = [0; 8];
        self.wire.read_exact(&mut common)?;
        let common = CommonHeader::read_from_bytes(&common).unwrap();
        let mut bytes = common.as_bytes().to_vec();
        bytes.resize(common.len.get() as usize, 0);
        self.wire.read_exact(&mut bytes[8..])?;
        let data = bytes.split_off(common.header_len.into());
        Ok((PduKind::from_byte(common.kind).unwrap(), bytes, data))
    }

    fn end(&mut self, cid: u16, status: Status, result: u64) {
        let data = self.incoming.remove(&cid).unwrap();
        self.outgoing.remove(&cid);
        self.done.insert(cid, Answer { status, result, data });
    }

    // Commands of 4-KiB blocks.

    pub fn read(&mut self, nsid: u32, lba: u64, blocks: u32) -> Answer {
        self.command(Sqe::read(nsid, lba, blocks), None, blocks as usize * 4096)
    }

    pub fn write(&mut self, nsid: u32, lba: u64, data: &[u8]) -> Answer {
        self.command(Sqe::write(nsid, lba, (data.len() / 4096) as u32), Some(data), 0)
    }

    pub fn flush(&mut self, nsid: u32) -> Answer {
        self.command(Sqe::flush(nsid), None, 0)
    }
}

/// `len` bytes that differ by seed and position.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn padded(nqn: &str) -> [u8; 256] {
    let mut bytes = [0; 256];
    bytes[..nqn.len()].copy_from_slice(nqn.as_bytes());
    bytes
}

/// A loop's end as a blocking stream.
struct LoopWire {
    end: LoopEnd,
    read: Vec<u8>,
    woken: mpsc::Receiver<()>,
}

struct Signal(mpsc::Sender<()>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

impl LoopWire {
    fn new(end: LoopEnd) -> Self {
        let (sender, woken) = mpsc::channel();
        end.set_waker(Waker::from(Arc::new(Signal(sender))));
        Self { end, read: Vec::new(), woken }
    }

    fn sleep(&self) -> io::Result<()> {
        self.woken.recv_timeout(Duration::from_secs(20)).map_err(|_| ErrorKind::TimedOut.into())
    }
}

impl Read for LoopWire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read.is_empty() {
            match self.end.read() {
                LoopRead::Bytes(bytes) => self.read = bytes,
                LoopRead::Closed => return Ok(0),
                LoopRead::Empty => self.sleep()?,
            }
        }
        let len = into.len().min(self.read.len());
        into[..len].copy_from_slice(&self.read[..len]);
        self.read.drain(..len);
        Ok(len)
    }
}

impl Write for LoopWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut left = bytes.to_vec();
        loop {
            match self.end.write(left) {
                Ok(()) => return Ok(bytes.len()),
                Err(LoopWriteError::Full(bytes)) => left = bytes,
                Err(LoopWriteError::Closed(_)) => return Err(ErrorKind::BrokenPipe.into()),
            }
            self.sleep()?;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
