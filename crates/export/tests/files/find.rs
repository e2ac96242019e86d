//! Patterns beneath an export, page by page.

use diskside_export::ExportSpec;
use diskside_wire::file::{FileAttributes, FileFlags, FileKind, FileRequest, FoundFile};
use rustix::io::Errno;

use crate::host::Host;

/// A path, what it is, and its length if attributes came.
type Row = (String, FileKind, Option<u64>);

/// All that a pattern means, in so many bytes a time, and how many pages that were.
fn find(host: &Host, pattern: &str, flags: FileFlags, len_max: u32) -> (Vec<Row>, usize) {
    let (mut rows, mut after, mut pages) = (Vec::new(), Vec::new(), 0);
    loop {
        let request = FileRequest::Find { dir: None, pattern: pattern.as_bytes(), after: &after, len_max, flags };
        let reply = host.ask(request);
        assert!(reply.result.len() <= len_max as usize);
        let count = reply.returned.unwrap_or_else(|error| panic!("{pattern}: {error}"));
        let page = FoundFile::parse_all(&reply.result).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(page.len() as u64, count);
        let Some(last) = page.last() else { return (rows, pages) };
        (after, pages) = (last.path.to_vec(), pages + 1);
        for found in page.into_iter().filter(|found| !found.is_mark) {
            let len = found.attributes.as_ref().map(|attributes: &FileAttributes| attributes.size.get());
            rows.push((String::from_utf8(found.path.to_vec()).unwrap(), found.kind, len));
        }
    }
}

fn paths(host: &Host, pattern: &str, flags: FileFlags) -> Vec<String> {
    let (rows, _) = find(host, pattern, flags, 1 << 20);
    for len_max in [60, 100, 4096] {
        assert_eq!(find(host, pattern, flags, len_max).0, rows, "{pattern} in pages of {len_max} bytes");
    }
    rows.into_iter().map(|(path, ..)| path).collect()
}

fn tree() -> Host {
    let host = Host::new();
    for directory in ["a", "a/b", "a-b", ".h"] {
        std::fs::create_dir(host.path().join(directory)).unwrap();
    }
    for file in ["a/x.log", "a/b/y.log", "a-b/z.log", ".h/h.log", "top.log", "[t]op.log"] {
        host.file(file, file);
    }
    std::os::unix::fs::symlink("a", host.path().join("link")).unwrap();
    std::os::unix::fs::symlink("top.log", host.path().join("to.log")).unwrap();
    std::os::unix::fs::symlink("/etc", host.path().join("etc")).unwrap();
    host
}

#[test]
fn a_pattern_is_found_in_order_whatever_the_pages() {
    let host = tree();
    let none = FileFlags::NONE;
    assert_eq!(
        paths(&host, "data/**/*.log", none),
        ["data/[t]op.log", "data/a/b/y.log", "data/a/x.log", "data/a-b/z.log", "data/to.log", "data/top.log",]
    );
    assert_eq!(paths(&host, "data/*/x.log", none), ["data/a/x.log"]);
    assert_eq!(paths(&host, "data/link/*", none), ["data/link/b", "data/link/x.log"]);
    assert_eq!(paths(&host, "data/.h/*", none), ["data/.h/h.log"]);
    assert_eq!(paths(&host, "data/[t]op.log", none), ["data/[t]op.log"], "what has that name comes first");
    assert_eq!(paths(&host, "data/[t]o?.log", none), ["data/top.log"]);
    assert_eq!(paths(&host, "data/*.txt", none), [""; 0]);
    assert_eq!(
        paths(&host, "data", FileFlags::RECURSIVE),
        ["data/.h/h.log", "data/[t]op.log", "data/a/b/y.log", "data/a/x.log", "data/a-b/z.log", "data/top.log",]
    );
    // A directory of an array may be full of links: with `LINKS`, the answer has their targets.
    let (rows, _) = find(&host, "data", FileFlags::RECURSIVE | FileFlags::LINKS, 4096);
    let links = rows.into_iter().filter(|(path, ..)| ["data/etc", "data/link", "data/to.log"].contains(&&path[..]));
    assert_eq!(
        links.collect::<Vec<_>>(),
        [
            ("data/etc".into(), FileKind::Symlink, None),
            ("data/link".into(), FileKind::Directory, None),
            ("data/to.log".into(), FileKind::File, None),
        ]
    );
    // What leads out is a link to nothing.
    assert_eq!(find(&host, "data/e*", none, 4096).0, [("data/etc".into(), FileKind::Symlink, None)]);
    assert_eq!(paths(&host, "data/etc/*", none), [""; 0]);
    assert_eq!(paths(&host, "data/../*", none), [""; 0]);
}

#[test]
fn attributes_come_with_what_is_found_and_links_are_what_they_lead_to() {
    let host = tree();
    let (rows, _) = find(&host, "data/t*", FileFlags::ATTRIBUTES, 4096);
    assert_eq!(
        rows,
        [("data/to.log".into(), FileKind::File, Some(7)), ("data/top.log".into(), FileKind::File, Some(7))]
    );
    let (rows, _) = find(&host, "data/?", FileFlags::ATTRIBUTES, 4096);
    assert!(matches!(&rows[..], [(_, FileKind::Directory, Some(_))]));
}

#[test]
fn a_search_starts_from_a_directory_too() {
    let host = tree();
    let dir = Some(host.open("data/a", FileFlags::DIRECTORY));
    let request = |after| FileRequest::Find { dir, pattern: b"*", after, len_max: 4096, flags: FileFlags::NONE };
    let reply = host.ask(request(b""));
    let names = FoundFile::parse_all(&reply.result).map(|found| found.unwrap().path.to_vec()).collect::<Vec<_>>();
    assert_eq!(names, [b"b".to_vec(), b"x.log".to_vec()]);
    assert_eq!(host.try_ask(request(b"b")), Ok(1));
    assert_eq!(host.try_ask(request(b"x.log")), Ok(0));
}

/// A host that looks for little in very much does not keep a thread of the export: the search continues in another
/// command.
#[test]
fn a_search_that_looks_at_much_and_finds_little_goes_on_in_further_commands() {
    let host = Host::new();
    for directory in 0..5 {
        let path = host.path().join(format!("d{directory}"));
        std::fs::create_dir(&path).unwrap();
        // Names are looked at; they need no files of their own.
        std::fs::write(path.join("first"), "x").unwrap();
        for name in 0..60_000 {
            std::fs::hard_link(path.join("first"), path.join(format!("n{name}"))).unwrap();
        }
    }
    host.file("d4/wanted", "x");
    let (rows, pages) = find(&host, "data/*/wanted?", FileFlags::NONE, 1 << 20);
    assert_eq!((rows.len(), pages), (0, 1), "no more than 200,000 names at a time");
    let (rows, pages) = find(&host, "data/d*/*anted", FileFlags::NONE, 1 << 20);
    assert_eq!(rows, [("data/d4/wanted".into(), FileKind::File, None)]);
    assert_eq!(pages, 2);
}

#[test]
fn what_cannot_be_searched_says_why() {
    let host = tree();
    let ask = |pattern: &[u8], after: &[u8], len_max| {
        let request = FileRequest::Find { dir: None, pattern, after, len_max, flags: FileFlags::NONE };
        host.try_ask(request).unwrap_err()
    };
    let (invalid, missing) = (Errno::INVAL.raw_os_error(), Errno::NOENT.raw_os_error());
    assert_eq!(ask(b"other/*", b"", 4096), (missing, "find: there is no export `other`".into()));
    assert_eq!(ask(b"data/*", b"", 31).0, invalid, "no room for one record");
    let told = "find data/*: the path to go on behind is in another export";
    assert_eq!(ask(b"data/*", b"other/x", 4096), (invalid, told.into()));
    let told = "find data/[x: \"[x\" is no pattern of a name: unclosed character class; missing ']'";
    assert_eq!(ask(b"data/[x", b"", 4096), (invalid, told.into()));
    let long = [b"data/".to_vec(), b"*".repeat(256)].concat();
    assert!(ask(&long, b"", 4096).1.ends_with("a name with wildcards has at most 255 bytes, not 256"));
}

#[test]
fn a_directory_that_may_not_be_listed_is_an_error_and_not_left_out() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = Host::with(|spec: ExportSpec| ExportSpec { uid: Some(65_534), gid: Some(65_534), ..spec });
    std::fs::set_permissions(host.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir(host.path().join("closed")).unwrap();
    std::fs::set_permissions(host.path().join("closed"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let request =
        FileRequest::Find { dir: None, pattern: b"data/**/x", after: b"", len_max: 4096, flags: FileFlags::NONE };
    let told = "find data/**/x: listing data/closed: Permission denied (os error 13)";
    assert_eq!(host.try_ask(request), Err((Errno::ACCESS.raw_os_error(), told.into())));
}
