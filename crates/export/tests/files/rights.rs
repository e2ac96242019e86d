//! Exports to which a host has no right are absent for it, also when the right is taken away while it has files open.

use std::collections::BTreeMap;

use diskside_export::{ExportSpec, Exports, FileReply, FileSession};
use diskside_rights::{GrantSpec, Grants, HostQuota, HostRights, Mode, RightsTable};
use diskside_wire::file::{Export, FileFlags, FileRequest, OpenedFile};
use rustix::io::Errno;
use std::sync::mpsc;
use zerocopy::FromBytes as _;

const HOST: &str = "nqn.2026-11.org.example:a";

fn grants(exports: &[(&str, Mode)]) -> Grants {
    let exports: BTreeMap<_, _> = exports.iter().map(|(name, mode)| ((*name).to_owned(), *mode)).collect();
    Grants::new(&[GrantSpec { to: vec![HOST.into()], exports, ..GrantSpec::default() }], []).unwrap()
}

fn ask(session: &FileSession, request: FileRequest<'_>) -> FileReply {
    let (sender, receiver) = mpsc::channel();
    session.submit(request.to_bytes(), 4096, move |reply| sender.send(reply).unwrap()).unwrap();
    receiver.recv().unwrap()
}

fn errno(reply: FileReply) -> Option<Errno> {
    reply.returned.err().map(|error| error.errno)
}

#[test]
fn exports_without_a_grant_are_not_there_and_those_that_are_read_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let export = |name: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("f"), b"bytes").unwrap();
        ExportSpec::new(name, path).writable()
    };
    let exports = Exports::open(&[export("secret"), export("read"), export("write")]).unwrap();
    let table = RightsTable::new(grants(&[("read", Mode::Read), ("write", Mode::ReadWrite)]));
    let session = exports.session_with(HostRights::of(&table, HOST), HostQuota::unlimited());
    let list = |session: &FileSession| {
        let reply = ask(session, FileRequest::ListExports { cursor: 0, len_max: 4096 });
        String::from_utf8_lossy(&reply.result).into_owned()
    };
    let listed = list(&session);
    assert!(!listed.contains("secret") && listed.contains("read") && listed.contains("write"), "{listed}");
    assert!(list(&exports.session()).contains("secret"), "others see it");

    let lookup = |path, flags| FileRequest::Lookup { dir: None, path, flags };
    let not_there = ask(&session, lookup(b"secret/f", FileFlags::READ)).returned.unwrap_err();
    let never_was = ask(&session, lookup(b"never1/f", FileFlags::READ)).returned.unwrap_err();
    assert_eq!(not_there.errno, never_was.errno);
    assert_eq!(not_there.message.replace("secret", "never1"), never_was.message);
    assert!(ask(&session, lookup(b"read/f", FileFlags::READ)).returned.is_ok());
    assert_eq!(errno(ask(&session, lookup(b"read/f", FileFlags::WRITE))), Some(Errno::ROFS));
    assert_eq!(errno(ask(&session, FileRequest::Unlink { dir: None, path: b"read/f" })), Some(Errno::ROFS));
    let rename = FileRequest::Rename { dir: None, from: b"write/f", to: b"read/g", flags: FileFlags::NONE };
    assert!(ask(&session, rename).returned.is_err());

    // Rights that are taken away hold for what is open.
    let opened = ask(&session, lookup(b"write/f", FileFlags::READ | FileFlags::WRITE));
    let file = OpenedFile::read_from_prefix(&opened.result).unwrap().0.handle();
    let write = FileRequest::Write { file, offset: 0, data: b"B", flags: FileFlags::NONE };
    assert!(ask(&session, write).returned.is_ok());
    table.set(grants(&[("write", Mode::Read)]));
    assert_eq!(errno(ask(&session, write)), Some(Errno::ROFS));
    assert_eq!(ask(&session, FileRequest::Read { file, offset: 0, len: 5 }).result, b"Bytes");
    table.set(grants(&[("read", Mode::Read)]));
    assert_eq!(errno(ask(&session, FileRequest::Read { file, offset: 0, len: 5 })), Some(Errno::STALE));
    assert!(ask(&session, FileRequest::Close { file }).returned.is_ok(), "what it has open it can close");
}

/// The cursor of the one export that a host could see was 2: so there was one before it. A number of the place in the list also
/// left exports out when others were gone at the next page.
#[test]
fn cursors_tell_nothing_of_other_exports_and_stay_right_when_exports_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let specs = |names: &[&str]| names.iter().map(|name| ExportSpec::new(*name, dir.path())).collect::<Vec<_>>();
    let exports = Exports::open(&specs(&["secret", "a", "b", "hidden", "c"])).unwrap();
    let granted = ["a", "b", "c", "d"].map(|name| (name, Mode::Read));
    let table = RightsTable::new(grants(&granted));
    let session = exports.session_with(HostRights::of(&table, HOST), HostQuota::unlimited());
    let page = |cursor, len_max| {
        let listed = ask(&session, FileRequest::ListExports { cursor, len_max });
        let records = Export::parse_all(&listed.result).map(Result::unwrap);
        records.map(|export| (export.cursor, String::from_utf8_lossy(export.name).into_owned())).collect::<Vec<_>>()
    };
    let named =
        |list: &[(u64, &str)]| list.iter().map(|(cursor, name)| (*cursor, (*name).to_owned())).collect::<Vec<_>>();
    assert_eq!(page(0, 4096), named(&[(1, "a"), (2, "b"), (3, "c")]));
    assert_eq!(page(0, 40), named(&[(1, "a")]));
    exports.replace(exports.prepare(&specs(&["d", "b", "c", "secret"])).unwrap());
    assert_eq!(page(1, 4096), named(&[(2, "b"), (3, "c"), (4, "d")]), "each that is there, once");
    table.set(grants(&granted[2..]));
    assert_eq!(page(0, 4096), named(&[(3, "c"), (4, "d")]));
    exports.replace(exports.prepare(&specs(&["a", "c", "d"])).unwrap());
    table.set(grants(&granted));
    assert_eq!(page(0, 4096), named(&[(1, "a"), (3, "c"), (4, "d")]), "it has the number that it had");
}
