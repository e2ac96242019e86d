//! Entry points for fuzzers: any bytes may come, and nothing may panic.

use std::time::{Duration, Instant};

use diskside_nvme::auth;
use diskside_nvme::controller::{BlockSize, Connection, State};
use diskside_nvme::host::{self, Login};
use diskside_nvme::pdu::{Decoder, Digests, Role, Step};
use diskside_nvme::{Nqn, Transmit};

use super::medium::Fault;
use super::memory::Memory;
use super::pair::{SUBSYSTEM, Target, bytes_of, identity, random};

/// A decoder takes any bytes, in pieces of any size, to the same end.
pub fn decoder(bytes: &[u8]) {
    let Some((&[choice, split], stream)) = bytes.split_first_chunk::<2>() else { return };
    let role = if choice & 1 == 0 { Role::Controller } else { Role::Host };
    let negotiated = choice & 2 != 0;
    let digests = Digests { header: choice & 4 != 0, data: choice & 8 != 0 };
    let decode = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut decoder = Decoder::new(role, 8192, 128 << 10);
        if negotiated {
            decoder.negotiated(digests);
        }
        let mut headers = Vec::new();
        let mut data_len = 0;
        for mut input in pieces {
            loop {
                match decoder.step(&mut input) {
                    Ok(Step::Starved) => break,
                    Ok(Step::Header(header)) => headers.push(format!("{header:?}")),
                    Ok(Step::Data(data)) => data_len += data.len(),
                    Ok(Step::End { intact }) => headers.push(format!("end {intact}")),
                    Err(error) => headers.push(format!("{error}")),
                }
            }
            assert!(input.is_empty(), "a starved decoder has taken everything");
        }
        (headers, data_len)
    };
    let whole = decode(&mut std::iter::once(stream));
    let pieces = decode(&mut stream.chunks(usize::from(split).max(1)));
    assert_eq!(whole, pieces, "it does not matter how a stream is split");
}

/// A controller takes any bytes from a host. All it holds comes back when the connection ends.
pub fn controller(bytes: &[u8]) {
    let Some((&[choice, split], stream)) = bytes.split_first_chunk::<2>() else { return };
    let mut target = Target::new();
    target.add(1, 64, BlockSize::B512);
    if choice & 1 != 0 {
        target.memory = Memory::with_pool(2);
    }
    let now = Instant::now();
    let mut connection = target.accept(now);
    let mut transmit = Transmit::new();
    for piece in stream.chunks(usize::from(split).max(1) * 16) {
        let mut rest = piece;
        for round in 0.. {
            let taken = connection.handle_bytes(now, rest, &mut target.memory);
            rest = &rest[taken..];
            let mut busy = false;
            while let Some(request) = connection.poll_request() {
                busy = true;
                let tag = request.tag;
                let fault = if choice & 2 != 0 && round % 3 == 1 { Fault::Io } else { Fault::None };
                if let Some(answer) = target.media.carry_out(request, &mut target.memory, fault) {
                    connection.complete(now, tag, answer, &mut target.memory);
                }
            }
            connection.handle_buffers(now, &mut target.memory);
            connection.handle_wake(now);
            while connection.poll_transmit(&mut transmit) {
                busy = true;
                bytes_of(&mut transmit, &mut target.memory, true);
                connection.handle_transmitted(&mut transmit);
            }
            if rest.is_empty() && !busy {
                break;
            }
            assert!(taken > 0 || busy || round == 0, "the connection stands still before {} bytes", rest.len());
            if taken == 0 && !busy {
                break;
            }
        }
        assert!(connection.commands_outstanding() <= 128, "no more commands than the queue has entries");
        if connection.state() == State::Closed {
            break;
        }
    }
    if let Some(at) = connection.poll_timeout() {
        connection.handle_timeout(at);
    }
    finish(connection, &mut target);
}

fn finish(mut connection: Connection, target: &mut Target) {
    connection.handle_close(&mut target.memory);
    assert!(connection.poll_request().is_none(), "nothing is asked for after the end");
    assert_eq!(target.memory.in_use(), 0, "all buffers came back");
    assert!(target.subsystem.controllers().is_empty(), "no controller is left");
}

/// A host takes any bytes from a controller, and ends in good order.
pub fn host(bytes: &[u8]) {
    let Some((&[choice, split], stream)) = bytes.split_first_chunk::<2>() else { return };
    let now = Instant::now();
    let mut memory = Memory::default();
    let mut admin = host::Admin::new(
        host::AdminConfig {
            host: identity(),
            subsystem: Nqn::new(SUBSYSTEM).expect("it is one"),
            io_queues: 1,
            io_queue_entries: 8,
            keep_alive_ms: 5000,
            header_digest: choice & 1 != 0,
            data_digest: choice & 2 != 0,
            connect_timeout: Duration::from_secs(1),
            login: Login::Never,
            command_timeout: Duration::from_secs(1),
        },
        now,
    );
    let mut transmit = Transmit::new();
    for piece in stream.chunks(usize::from(split).max(1) * 16) {
        admin.handle_bytes(now, piece, &mut memory);
        while admin.poll_event().is_some() {}
        while admin.poll_transmit(&mut transmit) {
            bytes_of(&mut transmit, &mut memory, false);
            admin.handle_transmitted(&mut transmit);
        }
    }
    let mut at = now;
    for _ in 0..10 {
        let Some(next) = admin.poll_timeout() else { break };
        at = at.max(next);
        admin.handle_timeout(at);
    }
    admin.handle_close();
    let mut closed = 0;
    while let Some(event) = admin.poll_event() {
        closed += usize::from(matches!(event, host::AdminEvent::Closed(_)));
    }
    assert_eq!(closed, 1, "the end is told once");
}

/// Messages of authentication, of either side, in any order, and the text of a key: nobody gets in without the key.
pub fn authentication(bytes: &[u8]) {
    use auth::{Received, Sent, Step};
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(secret) = auth::Secret::parse(text)
    {
        let again = auth::Secret::parse(&secret.to_text()).expect("it was made of a key");
        assert!(again.is(&secret), "a key's text is the key");
    }
    let Some((&choice, mut rest)) = bytes.split_first() else { return };
    let names = auth::Names { host: identity().nqn, subsystem: Nqn::new(SUBSYSTEM).expect("it is one") };
    let key = |seed| auth::Secret::new(&[seed; 32], None).expect("32 bytes are a key");
    let (group, two_way) = (if choice & 1 == 0 { auth::Group::Null } else { auth::Group::Ffdhe2048 }, choice & 2 != 0);
    let accepted = auth::Accepted { hashes: auth::Hash::ALL.to_vec(), groups: vec![group] };
    let keys = auth::HostKeys { keys: vec![key(1)], controller_key: Some(key(2)), ..Default::default() };
    let concatenate = choice & 4 != 0;
    let concatenation = if concatenate { auth::Concatenation::Required } else { auth::Concatenation::IfAsked };
    let mut controller = auth::Controller::new(names.clone(), keys, accepted.clone()).concatenating(concatenation);
    let controller_key = two_way.then(|| key(2));
    let mut host = auth::Host::new(names, auth::Credentials { key: key(3), controller_key, accepted, concatenate }, 0);
    host.sent();
    // Each message behind its length.
    while let Some((&len, behind)) = rest.split_first() {
        let message = &behind[..behind.len().min(usize::from(len) * 4)];
        rest = &behind[message.len()..];
        match controller.sent(message) {
            Sent::Compute(work) => assert!(controller.computed(work.run(&mut random))),
            Sent::Authenticated => panic!("nobody has the key"),
            Sent::Taken | Sent::Failed | Sent::OutOfTurn => {}
        }
        match controller.received(4096) {
            Received::Authenticated(_) => panic!("nobody has the key"),
            Received::Message(said) | Received::Failed(said) => {
                auth::message::ControllerMessage::parse(&said).expect("the controller says what can be understood");
            }
            Received::OutOfTurn | Received::TooLong => {}
        }
        let mut step = host.received(message);
        while let Step::Send(_) | Step::Compute(_) = step {
            step = match step {
                Step::Compute(work) => host.computed(work.run(&mut random)),
                Step::Send(said) => {
                    auth::message::HostMessage::parse(&said).expect("the host says what can be understood");
                    host.sent()
                }
                over => over,
            };
        }
        assert!(!two_way || !matches!(step, Step::Authenticated), "nobody has the controller's key");
    }
}
