//! Hosts whose bytes take much longer than their number says.

mod common;
#[path = "support/sealed.rs"]
mod sealed;

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use common::{NQN, Queue, builder, pattern, start, tcp};
use diskside_keys::write_tls_secret;
use diskside_nvme::Nqn;
use diskside_nvme::auth::{Derivation, Hash, IdentityVersion, Names, TlsSecret};
use diskside_nvme::wire::{CONTROLLER_ID_DYNAMIC, Cc, Sqe, property};
use diskside_server::config::{HostSpec, KeyFile, VolumeSpec};
use sealed::Sealed;

const ANN: &str = "nqn.2026-11.org.example:ann";

/// A wire of which a test has a part. While it holds bytes back, each is a record of its own.
#[derive(Clone)]
struct Shared(Arc<Mutex<(Sealed, Option<Vec<u8>>)>>);

impl Read for Shared {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.lock().unwrap().0.read(into)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (sealed, held) = &mut *self.0.lock().unwrap();
        match held {
            None => sealed.write(bytes),
            Some(held) => {
                sealed.seal_each(bytes, held);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reactor dealt in one turn with all that had come, up to 2 MiB, also if that was a hundred thousand records of one byte: for 50 ms
/// it did nothing for other hosts, again and again. Now a host's records have a little of each turn.
#[test]
fn little_records_take_little_of_each_turn() {
    const WRITES: u64 = 12;
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("ann");
    let secret = TlsSecret::new(&[7; 32], Some(Hash::Sha256)).unwrap();
    write_tls_secret(&key, &secret).unwrap();
    let ann =
        HostSpec { name: "ann".into(), nqn: ANN.into(), tls_keys: vec![KeyFile::new(&key)], ..HostSpec::default() };
    let running = start(builder().host(ann).volume(VolumeSpec::new("data", "mem:16MiB").writable()));
    let names = Names { host: Nqn::new(ANN).unwrap(), subsystem: Nqn::new(NQN).unwrap() };
    let queue = || {
        let psk = secret.psk(&names, IdentityVersion::V1, Derivation::Standard).unwrap();
        let sealed = Sealed::make(tcp(running.handle().local_addresses()[0]), psk).expect("the server takes the key");
        let wire = Shared(Arc::new(Mutex::new((sealed, None))));
        (Queue::negotiate(Box::new(wire.clone())).unwrap(), wire)
    };
    let (mut admin, _) = queue();
    let id = admin.connect(NQN, ANN, 0, 32, CONTROLLER_ID_DYNAMIC, 0).unwrap();
    let cc = Cc::default().with_enable(1).with_iosqes(6).with_iocqes(4);
    admin.command(Sqe::property_set(property::CC, false, cc.0.into()), None, 0).ok();
    let (mut io, wire) = queue();
    io.connect(NQN, ANN, 1, 64, id, 0).unwrap();

    wire.0.lock().unwrap().1 = Some(Vec::new());
    let data = |number| pattern(8192, number);
    let cids: Vec<u16> =
        (0..WRITES).map(|number| io.post(Sqe::write(1, 2 * number, 2), Some(&data(number)), 0).unwrap()).collect();
    let held = wire.0.lock().unwrap().1.take().unwrap();
    let mut stream = wire.0.lock().unwrap().0.stream.try_clone().unwrap();
    let turns = || running.handle().stats().reactors[0].turns;
    let before = turns();
    stream.write_all(&held).unwrap();
    for cid in cids {
        assert!(io.wait(cid).unwrap().status.is_success());
    }
    let took = turns() - before;
    assert!(took > 30, "{} records took {took} turns", WRITES * 8264);
    for number in 0..WRITES {
        assert_eq!(io.read(1, 2 * number, 2).ok(), data(number), "{number}");
    }
}
