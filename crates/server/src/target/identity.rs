//! Names that stay the same after a restart, and that two machines do not share.

/// The UUID of a volume that has none of its own (RFC 9562, version 8): made from the machine, the subsystem and
/// the volume's name. Hosts tell volumes apart by it, so that two machines which serve the same names must differ.
pub(super) fn volume_uuid(nqn: &str, name: &str) -> [u8; 16] {
    let seed = [machine_id().as_str(), nqn, name].join("\0");
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

    #[test]
    fn names_that_differ_give_uuids_that_differ_and_stay() {
        let uuid = volume_uuid("nqn.2026-11.org.example:a", "data");
        assert_eq!(uuid, volume_uuid("nqn.2026-11.org.example:a", "data"));
        assert_ne!(uuid, volume_uuid("nqn.2026-11.org.example:a", "datb"));
        assert_ne!(uuid, volume_uuid("nqn.2026-11.org.example:b", "data"));
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (8, 2));
        assert_eq!(serial("nqn.2026-11.org.example:a").len(), 16);
    }
}
