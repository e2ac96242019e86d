//! Names that stay the same after a restart, and that no other bytes have: not those of another machine or server.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use diskside_volume::{Source, VolumeSpec};

/// The UUID of a volume that names none (RFC 9562, version 8): made from the machine, the subsystem, the volume's name, and
/// where its bytes are. Hosts take two volumes with one UUID for one disk behind two paths, and write now here, now there.
pub(super) fn volume_uuid(nqn: &str, spec: &VolumeSpec) -> [u8; 16] {
    let place = match spec.source() {
        Ok(Source::Path(path) | Source::Lossy(path)) => absolute(&path),
        Ok(Source::Object(url)) => url,
        // Empty at every start: no host may take it for one that it knows.
        Ok(Source::Memory(_)) | Err(_) => format!("memory {:016x}", RandomState::new().hash_one(0)),
    };
    uuid_of(&[machine_id().as_str(), nqn, &spec.name, &place])
}

/// The UUID of a namespace of the server's own.
pub(super) fn namespace_uuid(nqn: &str, name: &str) -> [u8; 16] {
    uuid_of(&[machine_id().as_str(), nqn, name])
}

/// Where the controller identifiers of this start begin: hosts refuse a second controller with one that they know, so two servers
/// with one NQN should not both begin at 1.
pub(super) fn last_controller_id() -> u16 {
    (RandomState::new().hash_one(0) % 0x8000) as u16
}

/// The same for all links that lead there.
fn absolute(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}

fn uuid_of(parts: &[&str]) -> [u8; 16] {
    let seed = parts.join("\0");
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash(FIRST_BASIS, &seed).to_be_bytes());
    uuid[8..].copy_from_slice(&hash(SECOND_BASIS, &seed).to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// The serial number of the subsystem.
pub(super) fn serial(nqn: &str) -> String {
    format!("{:016X}", hash(FIRST_BASIS, &[machine_id().as_str(), nqn].join("\0")))
}

fn machine_id() -> String {
    // A machine without one (some containers) is told apart by its name in the default NQN.
    std::fs::read_to_string("/etc/machine-id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// FNV-1a with a final mix (that of MurmurHash3), so that similar names differ in all bits.
fn hash(basis: u64, text: &str) -> u64 {
    let mut hash = text.bytes().fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

const FIRST_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const SECOND_BASIS: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two servers of one machine, whose default NQN is the same, each had a volume `data`: a host took their images for one disk, and
    /// read another's bytes when one of them had gone. A volume in memory came back empty, and hosts continued with it.
    #[test]
    fn volumes_with_other_bytes_have_other_uuids() {
        let uuid = |nqn: &str, volume: &str| volume_uuid(nqn, &volume.parse().unwrap());
        let known = uuid("nqn.2026-11.org.example:a", "data=/srv/a.img");
        assert_eq!(known, uuid("nqn.2026-11.org.example:a", "data=/srv/a.img,rw"));
        assert_ne!(known, uuid("nqn.2026-11.org.example:a", "datb=/srv/a.img"));
        assert_ne!(known, uuid("nqn.2026-11.org.example:b", "data=/srv/a.img"));
        assert_ne!(known, uuid("nqn.2026-11.org.example:a", "data=/srv/b.img"));
        let memory = || uuid("nqn.2026-11.org.example:a", "data=mem:1MiB");
        assert_ne!(memory(), memory());
        assert_eq!((known[6] >> 4, known[8] >> 6), (8, 2));
        assert_eq!(serial("nqn.2026-11.org.example:a").len(), 16);
    }
}
