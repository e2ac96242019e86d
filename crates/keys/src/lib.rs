//! Keys of hosts and servers: made, kept in files that nobody else can read, and handed over.
//!
//! A server keeps one key in a file of its own ([`read_secret`]). A host keeps its name and its key together
//! ([`HostKey`]), because a key is worth something with the name alone that the server knows it by. A file that others
//! may read or write is refused: its content is not secret any more.
//!
//! With a third kind ([`SigningKey`]) programs are signed.

#![forbid(unsafe_code)]

mod file;
mod host;
mod invitation;
mod signature;

pub use file::{KeyFileError, Trouble, read_secret, read_tls_secret, write_secret, write_tls_secret};
pub use host::{HostKey, Introduction, KEY_VARIABLE, KeySource, Kind, default_path, server_path};
pub use invitation::{INVITATION_LEN_MAX, Invitation};
pub use signature::{BadSignature, Signer, SigningKey, signer_of};

use std::time::Instant;

use diskside_nvme::Nqn;
use diskside_nvme::auth::{Done, Exponents, Hash, Secret, TlsSecret, Work};
use zeroize::Zeroizing;

/// Fills `bytes` with what nobody can guess.
pub fn random(bytes: &mut [u8]) {
    // It fails where the kernel has no such call, which io_uring is younger than.
    getrandom::fill(bytes).expect("the kernel gives random bytes");
}

/// Computes what authenticating takes, on the calling thread.
pub fn compute(work: Work) -> Done {
    work.run(&mut random)
}

/// The same at a server, whose challenges share exponents for some seconds.
pub fn compute_with(exponents: &mut Exponents, work: Work) -> Done {
    work.run_with(exponents, Instant::now(), &mut random)
}

/// A new key of 32 bytes, which any hash function and any version of nvme-cli takes.
pub fn new_secret() -> Secret {
    let mut bytes = Zeroizing::new([0; 32]);
    random(&mut *bytes);
    Secret::new(&*bytes, Some(Hash::Sha256)).expect("32 bytes are a key")
}

/// A new key of TLS of 32 bytes, which every version of Linux's tools takes; those of Debian 13 fail with longer ones.
pub fn new_tls_secret() -> TlsSecret {
    let mut bytes = Zeroizing::new([0; 32]);
    random(&mut *bytes);
    TlsSecret::new(&*bytes, Some(Hash::Sha256)).expect("32 bytes are a key")
}

/// A new name of a host: that of a random UUID (RFC 9562, version 4).
pub fn new_nqn() -> Nqn {
    let mut id = [0; 16];
    random(&mut id);
    id[6] = 0x40 | id[6] & 0x0f;
    id[8] = 0x80 | id[8] & 0x3f;
    let mut text = String::from("nqn.2014-08.org.nvmexpress:uuid:");
    for (index, byte) in id.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Nqn::new(&text).expect("the name of a UUID is well formed")
}
