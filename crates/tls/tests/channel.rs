//! Both sides of a channel in memory: made, used, and what becomes of it when somebody interferes.

#[allow(dead_code, unreachable_pub, reason = "fuzzers use it as well")]
mod support;

use std::collections::HashMap;

use diskside_nvme::Nqn;
use diskside_nvme::auth::{Derivation, Hash, IdentityVersion, Names, TlsPsk, TlsSecret};
use diskside_tls::{
    Alert, CONTROL_RECORDS_MAX, Content, Handshake, HandshakeError, Hello, HelloError, Look, Lookout, Next,
    RECORD_LEN_MAX, RecordError, Records, Secrets,
};
use proptest::prelude::*;
use support::Peer;

fn names(host: &str) -> Names {
    Names { host: Nqn::new(host).unwrap(), subsystem: Nqn::new("nqn.2026-01.test:subsystem").unwrap() }
}

fn secret(hash: Hash, byte: u8) -> TlsSecret {
    TlsSecret::new(&vec![byte; hash.len_bytes()], Some(hash)).unwrap()
}

fn psk(hash: Hash) -> TlsPsk {
    secret(hash, 7).psk(&names("nqn.2026-01.test:host"), IdentityVersion::V1, Derivation::Standard).unwrap()
}

fn look(bytes: &[u8]) -> Result<Hello, HelloError> {
    match Lookout::default().look(bytes)? {
        Look::Hello(hello) => Ok(hello),
        Look::Incomplete => panic!("the hello is whole"),
    }
}

/// What a host says first.
fn hello(psk: &TlsPsk) -> (Handshake, Vec<u8>) {
    let mut host = Handshake::host(psk.clone()).unwrap();
    let first = host.step(&[]).unwrap().output;
    (host, first)
}

/// A handshake to its end, a few bytes at a time; what the server refuses comes back.
fn shake(host: TlsPsk, server: TlsPsk, bite: usize) -> Result<(Records, Records), HandshakeError> {
    agree(host, server, bite).map(|[host, server]| (Records::new(host), Records::new(server)))
}

/// The same, with what the host and the server then have.
fn agree(host: TlsPsk, server: TlsPsk, bite: usize) -> Result<[Secrets; 2], HandshakeError> {
    let mut sides = [Handshake::host(host).unwrap(), Handshake::server(server).unwrap()];
    let mut channels = [None, None];
    let mut outputs = [sides[0].step(&[])?.output, Vec::new()];
    while channels.iter().any(Option::is_none) {
        for side in 0..2 {
            let input = std::mem::take(&mut outputs[1 - side]);
            for bite in input.chunks(bite) {
                assert!(channels[side].is_none(), "nothing is said behind the handshake");
                let step = sides[side].step(bite)?;
                outputs[side].extend(step.output);
                if let Some(done) = step.done {
                    assert!(done.rest.is_empty());
                    channels[side] = Some(done.secrets);
                }
            }
        }
    }
    Ok(channels.map(Option::unwrap))
}

/// One side after a handshake, and a peer that seals any record with the key of the other side.
fn with_peer(hash: Hash, side: Side) -> (Records, Peer) {
    let mut secrets = agree(psk(hash), psk(hash), usize::MAX).unwrap().map(Some);
    let secrets = secrets[side as usize].take().unwrap();
    let peer = Peer::new(hash, &secrets.theirs);
    (Records::new(secrets), peer)
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Host = 0,
    Server = 1,
}

fn channel(hash: Hash) -> (Records, Records) {
    shake(psk(hash), psk(hash), usize::MAX).unwrap()
}

fn seal(channel: &mut Records, pieces: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = channel.seal(&mut out);
    pieces.iter().for_each(|piece| writer.put(piece));
    writer.finish();
    out
}

/// All data in `bytes`, which come in chunks of `chunk` bytes.
fn open(channel: &mut Records, bytes: &[u8], chunk: usize) -> Result<Vec<u8>, RecordError> {
    let (mut data, mut held) = (Vec::new(), Vec::new());
    let mut output = vec![0; RECORD_LEN_MAX + Records::OUTPUT_SPARE];
    for chunk in bytes.chunks(chunk) {
        held.extend_from_slice(chunk);
        while let Next::Record { taken, content } = channel.open(&held, &mut output)? {
            held.drain(..taken);
            if let Content::Data(len) = content {
                data.extend_from_slice(&output[..len]);
            }
        }
    }
    assert!(held.is_empty());
    Ok(data)
}

#[test]
fn data_goes_both_ways_with_both_suites_however_it_is_cut() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        for bite in [1, 100, usize::MAX] {
            let (mut host, mut server) = shake(psk(hash), psk(hash), bite).unwrap();
            let data: Vec<u8> = (0..100_000_u32).map(|index| index as u8).collect();
            let sealed = seal(&mut host, &[&data[..5], &data[5..40_000], &[], &data[40_000..]]);
            assert_eq!(sealed.len(), data.len() + data.len().div_ceil(RECORD_LEN_MAX) * 22);
            assert_eq!(open(&mut server, &sealed, bite.min(4096)).unwrap(), data);
            let mut sealed = Vec::new();
            let mut writer = server.seal(&mut sealed);
            writer.put(b"head");
            writer.put_with(data.len(), |part, out| out.extend_from_slice(&data[part]));
            writer.finish();
            assert_eq!(open(&mut host, &sealed, 1000).unwrap(), [b"head", &data[..]].concat());
        }
    }
}

#[test]
fn the_hosts_first_words_say_which_of_the_known_keys_it_has() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        let (old, new) = (secret(hash, 1), secret(hash, 2));
        let of = names("nqn.2026-01.test:host");
        let mut known: HashMap<String, Vec<TlsPsk>> = HashMap::new();
        for psk in [&old, &new].into_iter().flat_map(|secret| secret.psks(&of)) {
            known.entry(psk.identity.clone()).or_default().push(psk);
        }
        for secret in [&old, &new] {
            for psk in secret.psks(&of) {
                let (_, first) = hello(&psk);
                let chosen = look(&first).unwrap();
                let chosen = chosen.choose(|identity| &known[identity]).unwrap();
                assert!(chosen.identity == psk.identity && chosen.key == psk.key);
                let mut lookout = Lookout::default();
                for len in 0..first.len() {
                    assert!(matches!(lookout.look(&first[..len]), Ok(Look::Incomplete)), "{len}");
                }
                assert!(matches!(lookout.look(&first), Ok(Look::Hello(_))));
            }
        }
    }
}

#[test]
fn who_is_not_known_is_told_so() {
    let (_, first) = hello(&psk(Hash::Sha256));
    let hello = look(&first).unwrap();
    let error = hello.choose(|_| &[]).unwrap_err();
    assert!(matches!(&error, HelloError::UnknownIdentity(identity) if identity.starts_with("NVMe1R01 nqn.2026-01")));
    assert_eq!(error.alert(), Alert::UNKNOWN_PSK_IDENTITY);
    let other = TlsPsk {
        key: secret(Hash::Sha256, 9)
            .psk(&names("nqn.2026-01.test:host"), IdentityVersion::V1, Derivation::Standard)
            .unwrap()
            .key,
        ..psk(Hash::Sha256)
    };
    let error = hello.choose(|_| std::slice::from_ref(&other)).unwrap_err();
    assert!(matches!(error, HelloError::WrongKey(_)));
    assert_eq!(error.alert(), Alert::DECRYPT_ERROR);
}

#[test]
fn a_hello_in_many_records_is_one() {
    let psk = psk(Hash::Sha256);
    let (mut host, first) = hello(&psk);
    let cut: Vec<u8> =
        first[5..].chunks(50).flat_map(|part| [&[22, 3, 1, 0, part.len() as u8], part].concat()).collect();
    look(&cut).unwrap().choose(|_| std::slice::from_ref(&psk)).unwrap();
    let mut server = Handshake::server(psk).unwrap();
    let answer = server.step(&cut).unwrap();
    assert!(host.step(&answer.output).unwrap().done.is_some());
}

/// All that had come was read again with each piece: a host that said its first words byte by byte, in records of a byte,
/// took the square of their length of the reactor.
#[test]
fn what_comes_in_pieces_is_looked_at_once_and_in_few_of_them() {
    let psk = psk(Hash::Sha256);
    let (_, first) = hello(&psk);
    let record = |part: &[u8]| [&[22, 3, 1, 0, part.len() as u8], part].concat();
    let mut cut: Vec<u8> = first[5..].chunks(50).flat_map(record).collect();
    let mut lookout = Lookout::default();
    for at in 0..cut.len() {
        assert!(matches!(lookout.look(&cut[..at]), Ok(Look::Incomplete)));
        // What was seen to be a whole record is not looked at again.
        cut[..at / 55 * 55].fill(0);
    }
    let Ok(Look::Hello(hello)) = lookout.look(&cut) else { panic!("it is whole") };
    hello.choose(|_| std::slice::from_ref(&psk)).unwrap();
    let tiny: Vec<u8> = first[5..].chunks(1).flat_map(record).collect();
    assert_eq!(look(&tiny).unwrap_err(), HelloError::TooManyRecords);
    assert_eq!(look(&tiny).unwrap_err().alert(), Alert::RECORD_OVERFLOW);
    // It is not waited for what will be too much.
    let long = [&[22, 3, 1, 64, 0, 1, 0, 62, 0][..], &[0; 16_375], &[22, 3, 1, 0, 200, 0]].concat();
    assert!(matches!(Lookout::default().look(&long), Err(HelloError::Malformed(_) | HelloError::TooLong)));
}

/// Each key of each identity took a MAC of the whole message, however many there were: some milliseconds for a message that
/// costs nothing.
#[test]
fn so_many_keys_are_tried_and_each_identity_once() {
    let right = psk(Hash::Sha256);
    let wrong = |byte: u8| TlsPsk { key: vec![byte; 32].into(), ..right.clone() };
    let (_, first) = hello(&right);
    let hello = look(&first).unwrap();
    let known = |before: u8| (0..before).map(wrong).chain([right.clone()]).collect::<Vec<_>>();
    // Eight keys, each in two derivations.
    let (few, many) = (known(15), known(200));
    assert!(hello.choose(|_| &few).is_ok());
    assert!(matches!(hello.choose(|_| &many), Err(HelloError::WrongKey(_))));
    // The list of identities, twice the same: all lengths around it grow.
    let identity = right.identity.as_bytes();
    let at = first.windows(identity.len()).position(|window| window == identity).unwrap();
    let (entry, proof) = (identity.len() + 6, 33);
    let mut doubled = first.clone();
    let offered = first[at - 2..at - 2 + entry].to_vec();
    let proved = first[first.len() - proof..].to_vec();
    doubled.splice(at - 2..at - 2, offered);
    doubled.extend_from_slice(&proved);
    let grow = |bytes: &mut Vec<u8>, at: usize, by: usize| {
        let value = u16::from_be_bytes([bytes[at], bytes[at + 1]]) as usize + by;
        bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
    };
    let proofs_at = doubled.len() - 2 * proof - 2;
    let extensions = 5 + 4 + 34 + 1 + usize::from(first[43]) + 2;
    let extensions = extensions + usize::from(first[extensions - 1]) + 2;
    grow(&mut doubled, proofs_at, proof);
    for at in [3, 7, extensions, at - 6] {
        grow(&mut doubled, at, entry + proof);
    }
    grow(&mut doubled, at - 4, entry);
    assert_eq!(look(&doubled).unwrap_err(), HelloError::Malformed("one identity twice"));
}

#[test]
fn first_words_that_are_no_hello_are_refused_with_the_reason() {
    let (_, first) = hello(&psk(Hash::Sha256));
    let changed = |at: usize, byte: u8| {
        let mut changed = first.clone();
        changed[at] = byte;
        look(&changed).unwrap_err()
    };
    assert_eq!(changed(0, 23), HelloError::NotTls);
    assert_eq!(changed(1, 2), HelloError::NotTls);
    assert!(matches!(changed(5, 2), HelloError::Malformed(_)));
    assert_eq!(changed(6, 1), HelloError::TooLong);
    assert!(matches!(look(&[22, 3, 1, 0, 0]), Err(HelloError::Malformed(_))));
    assert_eq!(look(&[0; 8]).unwrap_err(), HelloError::NotTls);
    // It says more at once than it may.
    let double = [&first[..], &first].concat();
    look(&double).unwrap();
    let mut merged = first.clone();
    merged.extend_from_slice(b"more");
    merged[3..5].copy_from_slice(&((first.len() - 5 + 4) as u16).to_be_bytes());
    assert!(matches!(look(&merged), Err(HelloError::Malformed(_))));
    // Without the extension that offers keys, which is the last.
    let kept = first.windows(2).rposition(|pair| pair == [0, 41]).unwrap();
    let mut without = first[..kept].to_vec();
    let removed = first.len() - kept;
    let subtract = |bytes: &mut [u8]| {
        let value = u16::from_be_bytes([bytes[0], bytes[1]]) - removed as u16;
        bytes.copy_from_slice(&value.to_be_bytes());
    };
    subtract(&mut without[3..5]);
    subtract(&mut without[7..9]);
    let extensions = 5 + 4 + 34 + 1 + usize::from(without[43]) + 2;
    let extensions = extensions + usize::from(without[extensions - 1]) + 2;
    subtract(&mut without[extensions..extensions + 2]);
    assert_eq!(look(&without).unwrap_err(), HelloError::NoKey);
}

#[test]
fn another_key_makes_no_channel() {
    let right = psk(Hash::Sha256);
    let wrong = TlsPsk { key: vec![3; 32].into(), ..right.clone() };
    let error = shake(right.clone(), wrong, usize::MAX).expect_err("the proof does not fit");
    assert!(error.output.starts_with(&[21, 3]), "the host is told: {error}");
    let other = TlsPsk { identity: "NVMe1R01 others".into(), ..right.clone() };
    assert!(shake(right.clone(), other, usize::MAX).is_err());
    let longer = psk(Hash::Sha384);
    assert!(shake(right, longer, usize::MAX).is_err());
}

#[test]
fn the_host_hears_why_the_server_refuses() {
    let (mut host, _) = hello(&psk(Hash::Sha256));
    let error = host.step(&Alert::UNKNOWN_PSK_IDENTITY.to_plain_record()).unwrap_err();
    assert_eq!(error.theirs, Some(Alert::UNKNOWN_PSK_IDENTITY));
    let (mut host, _) = hello(&psk(Hash::Sha256));
    assert!(host.step(b"\x00\x03\x00\x00\x00HTTP or whatever").is_err());
}

#[test]
fn new_keys_are_taken_and_given() {
    let (mut host, mut server) = channel(Hash::Sha384);
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    host.update_keys(true, &mut asked);
    asked.extend(seal(&mut host, &[b"with the new key"]));
    assert_eq!(open(&mut server, &asked, 7).unwrap(), b"with the new key");
    answered.extend(seal(&mut server, &[b"and back"]));
    assert_eq!(open(&mut host, &answered, 7).unwrap(), b"and back");
    assert_eq!(server.count().0, 1, "it was given new keys before that");
    let more = seal(&mut host, &[b"more"]);
    assert_eq!(open(&mut server, &more, 7).unwrap(), b"more");
    assert_eq!((host.count(), server.count()), ((2, 1), (1, 2)), "an answer asks for nothing");
}

/// Each of them was answered at once, also to who reads nothing: memory without a bound, for 27 bytes a time. One byte of data
/// had the count of records without data begin again.
#[test]
fn who_asks_for_new_keys_often_gets_them_once_and_not_for_ever() {
    let (mut host, mut server) = channel(Hash::Sha256);
    let mut asked = Vec::new();
    (0..20).for_each(|_| host.update_keys(true, &mut asked));
    assert_eq!(open(&mut server, &asked, 1000).unwrap(), b"");
    let answered = seal(&mut server, &[b"data"]);
    assert!(answered.len() < 100, "{}", answered.len());
    assert_eq!(open(&mut host, &answered, 1000).unwrap(), b"data");

    let (mut host, mut server) = channel(Hash::Sha256);
    let mut bytes = Vec::new();
    for _ in 0..=CONTROL_RECORDS_MAX {
        host.update_keys(true, &mut bytes);
        bytes.extend(seal(&mut host, &[b"x"]));
    }
    assert_eq!(open(&mut server, &bytes, 1000), Err(RecordError::NoData));

    // Who moves data may have new keys from time to time.
    let (mut host, mut server) = channel(Hash::Sha256);
    for _ in 0..2 * CONTROL_RECORDS_MAX {
        let mut bytes = Vec::new();
        host.update_keys(true, &mut bytes);
        bytes.extend(seal(&mut host, &[&[7; 1 << 16]]));
        assert_eq!(open(&mut server, &bytes, 1 << 17).unwrap().len(), 1 << 16);
    }
}

#[test]
fn the_end_is_announced_once_and_nothing_follows() {
    let (mut host, mut server) = channel(Hash::Sha256);
    let mut bytes = Vec::new();
    host.close(Alert::CLOSE_NOTIFY, &mut bytes);
    let mut output = vec![0; RECORD_LEN_MAX + Records::OUTPUT_SPARE];
    assert!(matches!(server.open(&bytes, &mut output), Ok(Next::Record { content: Content::Closed, .. })));
    let more = seal(&mut host, &[b"more"]);
    assert_eq!(open(&mut server, &more, 100), Err(RecordError::AfterEnd));

    let (mut host, mut server) = channel(Hash::Sha256);
    let mut bytes = Vec::new();
    server.close(Alert::BAD_RECORD_MAC, &mut bytes);
    let error = open(&mut host, &bytes, 100).unwrap_err();
    assert_eq!(error, RecordError::Peer(Alert::BAD_RECORD_MAC));
    assert_eq!(error.alert(), None);
}

#[test]
fn records_that_cannot_be_end_the_channel() {
    for (record, error) in [
        (&[22, 3, 3, 0, 20][..], RecordError::Type(22)),
        (&[20, 3, 3, 0, 1], RecordError::Type(20)),
        (&[0, 3, 3, 0, 1], RecordError::Type(0)),
        (&[23, 3, 3, 0, 16], RecordError::TooShort(16)),
        (&[23, 3, 3, 0, 0], RecordError::TooShort(0)),
        (&[23, 3, 3, 0x41, 0x01], RecordError::TooLong(16_641)),
        (&[23, 3, 3, 0xff, 0xff], RecordError::TooLong(65_535)),
    ] {
        let (_, mut server) = channel(Hash::Sha256);
        assert_eq!(open(&mut server, record, 100), Err(error));
        assert!(error.alert().is_some());
    }
    let (mut host, mut server) = channel(Hash::Sha256);
    let record = seal(&mut host, &[b"data"]);
    assert_eq!(open(&mut server, &record, 100).unwrap(), b"data");
    assert_eq!(open(&mut server, &record, 100), Err(RecordError::Forged), "a record comes once");
}

#[test]
fn who_sends_records_without_data_is_given_up() {
    let (mut host, mut server) = channel(Hash::Sha256);
    let mut bytes = Vec::new();
    for _ in 0..CONTROL_RECORDS_MAX {
        host.update_keys(false, &mut bytes);
    }
    bytes.extend(seal(&mut host, &[b"data"]));
    assert_eq!(open(&mut server, &bytes, 100).unwrap(), b"data");
    let mut bytes = Vec::new();
    for _ in 0..=CONTROL_RECORDS_MAX {
        host.update_keys(false, &mut bytes);
    }
    assert_eq!(open(&mut server, &bytes, 100), Err(RecordError::NoData));
}

const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// A message of a handshake.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = (body.len() as u32).to_be_bytes();
    [&[kind, high, middle, low], body].concat()
}

/// NewSessionTicket.
fn ticket(len: usize) -> Vec<u8> {
    message(4, &vec![7; len])
}

/// Records with these contents, with a record of data before them and one after them.
fn between_data(peer: &mut Peer, contents: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    peer.seal(DATA, b"before", 0, &mut bytes);
    contents.iter().for_each(|content| peer.seal(HANDSHAKE, content, 3, &mut bytes));
    peer.seal(DATA, b" and after", 0, &mut bytes);
    bytes
}

/// TLS 1.3 has no second handshake (RFC 8446, 4.1.2). Tests tried records of a type that does not occur, but no message of a
/// handshake under the key of the channel.
#[test]
fn a_second_handshake_is_refused() {
    let (_, first) = hello(&psk(Hash::Sha256));
    let client_hello = &first[5..];
    // HelloRequest, ClientHello, ServerHello, EncryptedExtensions, Certificate, CertificateRequest, Finished.
    let messages = [message(0, &[]), client_hello.to_vec()]
        .into_iter()
        .chain([2, 8, 11, 13, 20].map(|kind| message(kind, &[9; 32])));
    for renegotiation in messages {
        let behind_a_ticket = [ticket(40), renegotiation.clone()].concat();
        let [start, rest] = [&renegotiation[..3], &renegotiation[3..]];
        for contents in [&[&renegotiation[..]][..], &[&behind_a_ticket], &[start, rest]] {
            for side in [Side::Host, Side::Server] {
                let (mut channel, mut peer) = with_peer(Hash::Sha256, side);
                let bytes = between_data(&mut peer, contents);
                let error = open(&mut channel, &bytes, 100).unwrap_err();
                assert_eq!(error, RecordError::Message(renegotiation[0]), "{side:?}");
                assert_eq!(error.alert(), Some(Alert::UNEXPECTED_MESSAGE));
            }
        }
    }
    // In the clear, as its first words were.
    let (_, mut server) = channel(Hash::Sha256);
    assert_eq!(open(&mut server, &first, 100), Err(RecordError::Type(HANDSHAKE)));
    // The peer hears why.
    let (mut host, mut server) = channel(Hash::Sha256);
    let mut bytes = Vec::new();
    server.close(RecordError::Message(1).alert().unwrap(), &mut bytes);
    assert_eq!(open(&mut host, &bytes, 100), Err(RecordError::Peer(Alert::UNEXPECTED_MESSAGE)));
}

/// Servers send tickets after the handshake without being asked, and nobody here wants one. No test said what becomes of the data
/// around them.
#[test]
fn tickets_are_skipped_however_they_are_cut() {
    let several = [ticket(200), ticket(0), ticket(1)].concat();
    let long = ticket(40_000);
    let one = ticket(20);
    let mut cuts: Vec<Vec<&[u8]>> = vec![vec![&one], vec![&several], vec![&one, &one], long.chunks(1 << 14).collect()];
    cuts.extend((1..several.len()).map(|at| vec![&several[..at], &several[at..]]));
    cuts.push(several.chunks(9).collect());
    for hash in [Hash::Sha256, Hash::Sha384] {
        for contents in &cuts {
            let (mut host, mut peer) = with_peer(hash, Side::Host);
            let bytes = between_data(&mut peer, contents);
            assert_eq!(open(&mut host, &bytes, 1000).unwrap(), b"before and after", "{hash} {contents:?}");
        }
    }
    // Data must not come in the middle of one (RFC 8446, 5.1), and one that is longer than any is refused at its start.
    for (contents, follows) in [(&one[..10], true), (&ticket(1 << 17)[..100], false)] {
        let (mut host, mut peer) = with_peer(Hash::Sha256, Side::Host);
        let mut bytes = Vec::new();
        peer.seal(HANDSHAKE, contents, 0, &mut bytes);
        if follows {
            peer.seal(DATA, b"data", 0, &mut bytes);
        }
        let error = open(&mut host, &bytes, 1000).unwrap_err();
        assert_eq!((error, error.alert()), (RecordError::Malformed, Some(Alert::DECODE_ERROR)));
    }
}

/// A peer could have this side open tickets for ever. The limit was tested with new keys alone.
#[test]
fn a_peer_that_sends_tickets_without_data_is_given_up() {
    let (whole, pieces) = (ticket(30), ticket(CONTROL_RECORDS_MAX as usize));
    for records in [vec![&whole[..]; 1 + CONTROL_RECORDS_MAX as usize], pieces.chunks(1).collect()] {
        let most = &records[..CONTROL_RECORDS_MAX as usize];
        let (mut host, mut peer) = with_peer(Hash::Sha256, Side::Host);
        let mut bytes = Vec::new();
        most.iter().for_each(|content| peer.seal(HANDSHAKE, content, 0, &mut bytes));
        assert_eq!(open(&mut host, &bytes, 100).unwrap(), b"", "so many are taken");
        let mut bytes = Vec::new();
        peer.seal(HANDSHAKE, records[most.len()], 0, &mut bytes);
        let error = open(&mut host, &bytes, 100).unwrap_err();
        assert_eq!((error, error.alert()), (RecordError::NoData, Some(Alert::UNEXPECTED_MESSAGE)));
    }
}

proptest! {
    #[test]
    fn whatever_is_changed_is_noticed(
        lens in proptest::collection::vec(1_usize..40_000, 1..4),
        chunk in 1_usize..20_000,
        at in any::<proptest::sample::Index>(),
        change in 1_u8..,
    ) {
        let records = |ours: u8, theirs: u8| {
            let of = |byte| vec![byte; 32].into();
            Records::new(Secrets { hash: Hash::Sha256, ours: of(ours), theirs: of(theirs) })
        };
        let (mut host, mut server, mut other) = (records(1, 2), records(2, 1), records(2, 1));
        let data: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|index| (index / 3) as u8).collect();
        let (mut bytes, mut rest) = (Vec::new(), &data[..]);
        for len in lens {
            let (now, later) = rest.split_at(len);
            bytes.extend(seal(&mut host, &[now]));
            rest = later;
        }
        let mut changed = bytes.clone();
        // Every byte of a record's head is authenticated, too.
        changed[at.index(bytes.len())] ^= change;
        prop_assert_eq!(open(&mut server, &bytes, chunk).unwrap(), &data[..]);
        let mut output = vec![0; RECORD_LEN_MAX + Records::OUTPUT_SPARE];
        let (mut taken_bytes, mut clean) = (0, Vec::new());
        let ended = loop {
            match other.open(&changed[taken_bytes..], &mut output) {
                Ok(Next::Record { taken, content: Content::Data(len) }) => {
                    taken_bytes += taken;
                    clean.extend_from_slice(&output[..len]);
                }
                Ok(Next::Record { .. }) => prop_assert!(false, "nothing but data was sent"),
                Ok(Next::Incomplete(_)) => break taken_bytes < changed.len(),
                Err(_) => break true,
            }
        };
        prop_assert!(ended && data.starts_with(&clean), "what came before the change is whole, and nothing behind it");
    }
}
