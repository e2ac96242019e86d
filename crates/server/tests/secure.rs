//! Hosts that come over TLS to a target on real sockets.

mod common;
#[path = "support/sealed.rs"]
mod sealed;

use common::{Controller, NQN, Queue, builder, pattern, start, tcp};
use diskside_keys::write_tls_secret;
use diskside_nvme::auth::{Derivation, Hash, IdentityVersion, Names, TlsSecret};
use diskside_nvme::wire::{CONTROLLER_ID_DYNAMIC, Cc, Sqe, property};
use diskside_nvme::{Nqn, Status};
use diskside_server::config::{HostSpec, KeyFile, Requirement, VolumeSpec};
use sealed::Sealed;

const ANN: &str = "nqn.2026-11.org.example:ann";
const TLS_AES_256_GCM_SHA384: u16 = 0x1302;

/// A key of 48 bytes has a cipher suite of its own, whose keys and digests have other lengths. Tests of targets had keys of 32 bytes
/// alone.
#[test]
fn a_host_with_a_key_of_48_bytes_reads_and_writes_over_tls_and_not_without() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("ann");
    let secret = |byte| TlsSecret::new(&[byte; 48], Some(Hash::Sha384)).unwrap();
    write_tls_secret(&key, &secret(7)).unwrap();
    assert!(std::fs::read_to_string(&key).unwrap().starts_with("NVMeTLSkey-1:02:"));
    let ann =
        HostSpec { name: "ann".into(), nqn: ANN.into(), tls_keys: vec![KeyFile::new(&key)], ..HostSpec::default() };
    let names = Names { host: Nqn::new(ANN).unwrap(), subsystem: Nqn::new(NQN).unwrap() };
    for require in [Requirement::Auth, Requirement::Tls] {
        let builder = builder().host(ann.clone()).security(|security| security.require = require);
        let running = start(builder.volume(VolumeSpec::new("data", "mem:16MiB").writable()));
        let address = running.handle().local_addresses()[0];
        for version in [IdentityVersion::V1, IdentityVersion::V0] {
            let psk = |byte| secret(byte).psk(&names, version, Derivation::Standard).unwrap();
            let queue = || {
                let sealed = Sealed::make(tcp(address), psk(7)).expect("the server takes the key");
                assert_eq!(sealed.cipher_suite, TLS_AES_256_GCM_SHA384);
                Queue::negotiate(Box::new(sealed)).unwrap()
            };
            let mut admin = queue();
            let id = admin.connect(NQN, ANN, 0, 32, CONTROLLER_ID_DYNAMIC, 0).unwrap();
            let cc = Cc::default().with_enable(1).with_iosqes(6).with_iocqes(4);
            admin.command(Sqe::property_set(property::CC, false, cc.0.into()), None, 0).ok();
            let mut io = queue();
            io.connect(NQN, ANN, 1, 64, id, 0).unwrap();
            // In a capsule, and in more than one record.
            let (small, large) = (pattern(4096, version as u64), pattern(96 * 4096, 2 + version as u64));
            io.write(1, 3, &small).ok();
            io.write(1, 100, &large).ok();
            assert_eq!((io.read(1, 3, 1).ok(), io.read(1, 100, 96).ok()), (small, large));
            assert!(Sealed::make(tcp(address), psk(8)).is_none(), "another key");
        }
        match require {
            Requirement::Tls => assert!(Queue::negotiate(Box::new(tcp(address))).is_err(), "it is not answered"),
            _ => {
                let refused = Controller::connect_as(running.handle(), ANN, 0).err();
                assert_eq!(refused, Some(Status::CONNECT_INVALID_HOST.dnr()));
            }
        }
    }
}
