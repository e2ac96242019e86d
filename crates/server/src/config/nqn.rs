//! NVMe Qualified Names: the check of one, and the name of a subsystem that is given none.

use diskside_nvme::{NQN_LEN_MAX, Nqn};

/// Checks an NVMe Qualified Name (Base 4.5): `nqn.yyyy-mm.reverse.domain[:name]`, at most 223 bytes.
pub fn check_nqn(nqn: &str) -> Result<(), String> {
    let shown = nqn.escape_debug();
    if nqn.len() > NQN_LEN_MAX {
        return Err(format!("the NQN has {} bytes; at most {NQN_LEN_MAX}", nqn.len()));
    }
    let month = nqn.strip_prefix("nqn.").and_then(|rest| rest.split_once('.'));
    let dated = month.is_some_and(|(date, domain)| {
        let date = date.as_bytes();
        let digit = |at: usize| date[at].is_ascii_digit();
        date.len() == 7
            && (0..4).all(digit)
            && date[4] == b'-'
            && (5..7).all(digit)
            && !domain.is_empty()
            && !domain.starts_with(':')
    });
    if !dated || Nqn::new(nqn).is_err() {
        return Err(format!("`{shown}` is not an NQN; write nqn.YYYY-MM.reverse.domain:name"));
    }
    Ok(())
}

/// The subsystem's name when none is given: one per machine name, so that two machines do not look like
/// two paths to the same volumes.
pub(super) fn default_nqn() -> String {
    let uname = rustix::system::uname();
    let host: String = uname
        .nodename()
        .to_string_lossy()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
        .take(64)
        .collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    format!("nqn.2026-11.io.diskside:{host}")
}
