//! A DNS server on this machine answers.

use super::order::Record;
use super::resolve::{service, system_servers};
use super::*;
use simple_dns::rdata::{RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};

const NAME: &str = "_diskside._tcp.logs.example.org";

/// What a server says to a question.
struct Says {
    code: RCODE,
    records: &'static [(u16, u16, u16, &'static str)],
    /// Over UDP the answer is too long.
    long: bool,
}

fn answer(question: &[u8], says: &Says, is_cut: bool) -> Vec<u8> {
    let asked = Packet::parse(question).unwrap();
    let mut packet = Packet::new_reply(asked.id());
    packet.questions = asked.questions.clone();
    *packet.rcode_mut() = says.code;
    if is_cut {
        packet.set_flags(PacketFlag::TRUNCATION);
    }
    for &(priority, weight, port, target) in says.records.iter().filter(|_| !is_cut) {
        let srv = SRV { priority, weight, port, target: Name::new(target).unwrap() };
        let name = asked.questions[0].qname.clone();
        packet.answers.push(ResourceRecord::new(name, CLASS::IN, 60, RData::SRV(srv)));
    }
    packet.build_bytes_vec().unwrap()
}

/// A server on both transports. Before each answer over UDP there is one that belongs to no question.
fn dns(says: Says) -> SocketAddr {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = udp.local_addr().unwrap();
    // A port that is free for UDP is so for TCP, too, or another one is taken.
    let Ok(tcp) = TcpListener::bind(address) else { return dns(says) };
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((len, from)) = udp.recv_from(&mut question) {
            let mut other = answer(&question[..len], &says, false);
            other[0] ^= 0xFF;
            udp.send_to(&other, from).unwrap();
            udp.send_to(&answer(&question[..len], &says, says.long), from).unwrap();
            if says.long {
                let (mut stream, _) = tcp.accept().unwrap();
                let mut len = [0; 2];
                stream.read_exact(&mut len).unwrap();
                let mut question = vec![0; u16::from_be_bytes(len).into()];
                stream.read_exact(&mut question).unwrap();
                let answer = answer(&question, &says, false);
                stream.write_all(&(answer.len() as u16).to_be_bytes()).unwrap();
                stream.write_all(&answer).unwrap();
            }
        }
    });
    address
}

const TWO: &[(u16, u16, u16, &str)] = &[(10, 5, 4420, "a.example.org"), (20, 0, 4421, "b.example.org")];

fn record(priority: u16, weight: u16, port: u16, host: &str) -> Record {
    Record { priority, weight, port, host: host.to_owned() }
}

#[test]
fn records_are_found_in_short_and_in_long_answers() {
    for long in [false, true] {
        let server = dns(Says { code: RCODE::NoError, records: TWO, long });
        let found = service(NAME, &[server]).unwrap();
        assert_eq!(found, [record(10, 5, 4420, "a.example.org"), record(20, 0, 4421, "b.example.org")], "long: {long}");
    }
}

#[test]
fn a_server_that_fails_or_is_not_there_is_passed_over() {
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let broken = dns(Says { code: RCODE::ServerFailure, records: &[], long: false });
    let good = dns(Says { code: RCODE::NoError, records: TWO, long: false });
    assert_eq!(service(NAME, &[gone, broken, good]).unwrap().len(), 2);
    let error = service(NAME, &[gone, broken]).unwrap_err();
    assert!(matches!(error, ServiceFailure::Refused(_)), "{error}");
    assert!(matches!(service(NAME, &[gone]).unwrap_err(), ServiceFailure::Silent(at, _) if at == gone));
}

#[test]
fn a_name_that_is_not_there_has_no_records() {
    let server = dns(Says { code: RCODE::NameError, records: &[], long: false });
    assert_eq!(service(NAME, &[server]).unwrap(), []);
    let long = "a".repeat(64);
    assert!(matches!(service(&long, &[server]).unwrap_err(), ServiceFailure::Name));
}

#[test]
fn a_service_that_says_so_is_not_available() {
    let server = dns(Says { code: RCODE::NoError, records: &[(0, 0, 0, "")], long: false });
    assert_eq!(service(NAME, &[server]).unwrap(), [record(0, 0, 0, "")]);
}

#[test]
fn servers_of_the_system_are_those_of_its_file() {
    let text = "search example.org\n# nameserver 1.1.1.1\nnameserver 10.0.0.53\n nameserver  fe80::1\nnameserver x\nnameserver\n";
    let found = system_servers(text);
    assert_eq!(found, ["10.0.0.53:53".parse().unwrap(), "[fe80::1]:53".parse::<SocketAddr>().unwrap()]);
}
