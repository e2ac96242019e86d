//! Names in exports: directories that are made, and files and directories that get other names.

mod common;

use common::{Server, diskside, good};
use std::os::unix::fs::PermissionsExt as _;

/// What a command says that fails.
fn refused(code: i32, args: &[&str]) -> String {
    let (exit, out, said) = diskside(args);
    assert_eq!((exit, &out[..]), (code, &b""[..]), "{args:?}: {said}");
    said
}

#[test]
fn directories_are_made_one_or_with_those_above() {
    let server = Server::start("");
    let at = |name: &str| server.at(name);
    assert_eq!(good(&["mkdir", &at("a"), &at("a/b")]), "");
    assert!(server.dir.join("a/b").is_dir());
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    let mode = server.dir.join("a").metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o777 & !umask.bits(), "as mkdir(1) makes them");
    let told = format!("diskside: {}: make directory data/a: File exists (os error 17)\n", at("a"));
    assert_eq!(refused(4, &["mkdir", &at("a")]), told);
    let said = refused(4, &["mkdir", &at("x/y")]);
    assert!(said.starts_with(&format!("diskside: {}: make directory data/x/y: No such file or", at("x/y"))), "{said}");
    good(&["mkdir", "--parents", &at("x/y/z"), &at("x/y"), &at("a")]);
    assert!(server.dir.join("x/y/z").is_dir());
    server.file("file", b"");
    let said = refused(4, &["mkdir", "--parents", &at("file/below")]);
    assert!(said.contains("File exists") || said.contains("Not a directory"), "{said}");
    let said = refused(2, &["mkdir", server.target()]);
    assert!(said.contains("names no export"), "{said}");
}

#[test]
fn names_change_within_an_export_alone() {
    let server = Server::start("");
    let at = |name: &str| server.at(name);
    server.file("one", b"1");
    server.file("two", b"2");
    std::fs::create_dir(server.dir.join("dir")).expect("made");
    good(&["mv", &at("one"), &at("uno")]);
    assert!(!server.dir.join("one").exists() && std::fs::read(server.dir.join("uno")).expect("there") == b"1");
    let told = format!("diskside: {}: rename data/uno to data/two: File exists (os error 17)\n", at("two"));
    assert_eq!(refused(4, &["mv", "--no-clobber", &at("uno"), &at("two")]), told);
    good(&["mv", &at("uno"), &at("two")]);
    assert_eq!(std::fs::read(server.dir.join("two")).expect("there"), b"1");
    good(&["mv", &at("two"), &at("dir")]);
    good(&["mv", &at("dir"), &at("renamed")]);
    assert_eq!(std::fs::read(server.dir.join("renamed/two")).expect("there"), b"1");
    let said = refused(4, &["mv", &at("missing"), &at("x")]);
    assert!(said.contains("missing: rename data/missing to data/x: No such file or directory"), "{said}");
    let other = Server::start("");
    let told = format!(
        "diskside: {} and {} are not in one export, and only names change: copy it (diskside cp), and remove it (diskside rm)\n",
        at("renamed/two"),
        other.at("two")
    );
    assert_eq!(refused(2, &["mv", &at("renamed/two"), &other.at("two")]), told);
    let said = refused(2, &["mv", &at("renamed/two"), &at("*")]);
    assert!(said.contains("is a pattern, and names no file to write"), "{said}");
}

/// `..`, links that lead out, and an export without `rw`.
#[test]
fn no_name_outside_the_export_is_made_or_changed_and_none_in_one_that_is_read_only() {
    let server = Server::start("");
    let outside = tempfile::tempdir().expect("a directory");
    std::fs::write(outside.path().join("secret"), b"x").expect("written");
    std::os::unix::fs::symlink(outside.path(), server.dir.join("out")).expect("made");
    server.file("mine", b"m");
    let at = |name: &str| server.at(name);
    let leads_out =
        ["the path leads out of the export, or into another mount", "Invalid cross-device link (os error 18)"];
    for args in [
        &["mkdir", &at("../made")][..],
        &["mkdir", &at("./../made")],
        &["mkdir", &at("out/made")],
        &["mkdir", "--parents", &at("out/made/below")],
        &["mv", &at("mine"), &at("../mine")],
        &["mv", &at("mine"), &at("out/mine")],
        &["mv", &at("out/secret"), &at("secret")],
        &["rm", &at("out/secret")],
        &["rm", "--dir", &at("../made")],
    ] {
        let said = refused(4, args);
        assert!(leads_out.iter().any(|told| said.contains(told)), "{args:?}: {said}");
    }
    let names = |dir: &std::path::Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).expect("there").map(|e| e.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(outside.path()), ["secret"]);
    assert_eq!(names(&server.dir), ["mine", "out"]);

    let fixed = Server::start(",ro");
    fixed.file("mine", b"m");
    for args in [
        &["mkdir", &fixed.at("made")][..],
        &["mkdir", "--parents", &fixed.at("made/below")],
        &["mv", &fixed.at("mine"), &fixed.at("other")],
        &["rm", &fixed.at("mine")],
        &["rm", "--dir", &fixed.at("mine")],
    ] {
        let said = refused(4, args);
        assert!(said.contains("the export is read-only; serve it with `,rw`"), "{args:?}: {said}");
    }
    assert_eq!(names(&fixed.dir), ["mine"]);
}
