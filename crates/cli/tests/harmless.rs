//! Messages that contain the names and texts of others.

mod common;

use common::diskside;

/// A file that was called so could clear a terminal, or have it say anything, as soon as a command failed over it.
#[test]
fn names_in_messages_cannot_steer_a_terminal() {
    let dir = tempfile::tempdir().expect("a directory");
    let evil = dir.path().join("a\u{1b}[2J\r\u{7}\u{9b}b.bin").display().to_string();
    let told = r"a\x1b[2J\x0d\x07\x9bb.bin";
    let server = common::Server::start("");
    server.file("n", &[0; 8]);
    for args in [
        &["run", "stats64", &evil][..],
        &["run", &format!("{evil}.bpf.c"), "/dev/null"],
        &["cp", &evil, "-"],
        &["cp", &server.at("n"), &format!("{evil}/x")],
        &["run", "stats64", &server.at("n"), "--out", &format!("{evil}/x")],
        &["inspect", &evil],
    ] {
        let (code, _, said) = diskside(args);
        assert!(code != 0 && said.contains(told), "{args:?}: {said:?}");
        assert!(said.chars().all(|c| !c.is_control() || c == '\n'), "{args:?}: {said:?}");
    }
    let (code, _, said) = diskside(&["run", "stats64", &server.at("n"), &format!("--{evil}")]);
    assert!(code == 2 && said.contains(r"\x0d\x9bb.bin' found"), "{said:?}");
    assert!(said.chars().all(|c| !c.is_control() || c == '\n'), "{said:?}");
    std::fs::write(&evil, b"\x1f\x8bgarbage").expect("written");
    let (code, _, said) = diskside(&["run", "wc", &evil, "--explain"]);
    assert!(code == 0 && said.contains(told) && !said.contains('\u{1b}'), "{said:?}");
}
