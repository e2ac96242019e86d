//! Asking DNS for SRV records: a question and its answer, over UDP, or over TCP where the answer is long.

use super::order::{Record, random};
use super::{NAMESERVER, RESOLV_CONF, ServiceFailure};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The port of DNS.
const PORT: u16 = 53;
/// How long one server is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often all servers are asked.
const ROUNDS: usize = 2;
/// Bytes of an answer over UDP. Queries announce no more than DNS has without extensions; some servers send more all
/// the same.
const DATAGRAM_LEN_MAX: usize = 4096;

/// The servers to ask: the one of the environment, or those of the system.
pub(super) fn servers() -> Result<Vec<SocketAddr>, ServiceFailure> {
    let found = match std::env::var(NAMESERVER) {
        Ok(text) => vec![address(&text).ok_or(ServiceFailure::NotAnAddress(text))?],
        Err(_) => system_servers(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default()),
    };
    if found.is_empty() { Err(ServiceFailure::NoServer) } else { Ok(found) }
}

fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, PORT)))
}

/// As resolv.conf(5) names them.
pub(super) fn system_servers(text: &str) -> Vec<SocketAddr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|rest| address(rest.split_whitespace().next()?)).collect()
}

/// The SRV records of a name, of the first server that has an answer.
pub(super) fn service(name: &str, servers: &[SocketAddr]) -> Result<Vec<Record>, ServiceFailure> {
    let mut failure = ServiceFailure::NoServer;
    for server in (0..ROUNDS).flat_map(|_| servers) {
        match ask(name, *server) {
            Err(error @ (ServiceFailure::Silent(..) | ServiceFailure::Refused(_))) => failure = error,
            answer => return answer,
        }
    }
    Err(failure)
}

fn ask(name: &str, server: SocketAddr) -> Result<Vec<Record>, ServiceFailure> {
    let id = random(u16::MAX.into()) as u16;
    let question = question(name, id)?;
    let silent = |error| ServiceFailure::Silent(server, error);
    let answer = over_udp(&question, id, server).map_err(silent)?;
    if let Some(records) = records(&answer, name)? {
        return Ok(records);
    }
    let answer = over_tcp(&question, server).map_err(silent)?;
    records(&answer, name)?.ok_or(ServiceFailure::Malformed)
}

fn question(name: &str, id: u16) -> Result<Vec<u8>, ServiceFailure> {
    let name = Name::new(name).map_err(|_| ServiceFailure::Name)?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(name, QTYPE::TYPE(TYPE::SRV), QCLASS::CLASS(CLASS::IN), false));
    packet.build_bytes_vec().map_err(|_| ServiceFailure::Name)
}

fn over_udp(question: &[u8], id: u16, server: SocketAddr) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // Datagrams of others are not received.
    socket.connect(server)?;
    socket.send(question)?;
    let end = Instant::now() + PATIENCE;
    let mut answer = vec![0; DATAGRAM_LEN_MAX];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let len = socket.recv(&mut answer).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        // One to an earlier question, or of somebody who guesses.
        if answer[..len].starts_with(&id.to_be_bytes()) {
            answer.truncate(len);
            return Ok(answer);
        }
    }
}

/// RFC 1035, 4.2.2: each message has its length in front.
fn over_tcp(question: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&[&(question.len() as u16).to_be_bytes(), question].concat())?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut answer = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// The records of an answer; `None`: it was too long, and ends early.
fn records(answer: &[u8], name: &str) -> Result<Option<Vec<Record>>, ServiceFailure> {
    let packet = Packet::parse(answer).map_err(|_| ServiceFailure::Malformed)?;
    let is_of = |asked: &Question<'_>| asked.qname.to_string().eq_ignore_ascii_case(name);
    if !packet.has_flags(PacketFlag::RESPONSE) || !packet.questions.iter().all(is_of) {
        return Err(ServiceFailure::Malformed);
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Ok(None);
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Ok(Some(Vec::new())),
        code => return Err(ServiceFailure::Refused(format!("{code:?}"))),
    }
    let record = |rdata: &RData<'_>| match rdata {
        RData::SRV(record) => Some(Record {
            priority: record.priority,
            weight: record.weight,
            port: record.port,
            host: record.target.to_string().trim_end_matches('.').to_owned(),
        }),
        _ => None,
    };
    Ok(Some(packet.answers.iter().filter_map(|answer| record(&answer.rdata)).collect()))
}
