//! What a file keeps when it is written again.

mod common;

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use common::{Dir, NOBODY, as_nobody, mode, read, set_mode, write};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use rustix::process::geteuid;

const ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// An access control list as Linux keeps it: this user may do that, the mask is as wide.
fn acl(user: u32, may: u16) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, may, id) in
        [(1u16, 6u16, u32::MAX), (2, may, user), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(may.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn attribute(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 4096];
    let len = getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// Whether the file system has such attributes.
fn has_set(path: &Path, name: &str, value: &[u8]) -> bool {
    match setxattr(path, name, value, XattrFlags::empty()) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP) => {
            eprintln!("not tested: {name} cannot be set at {}", path.display());
            false
        }
        Err(errno) => panic!("{name}: {errno}"),
    }
}

#[test]
fn mode_attributes_and_acl_stay() {
    let dir = Dir::new();
    for (name, bits) in [("narrow", 0o600), ("wide", 0o666), ("program", 0o755), ("read-only", 0o444)] {
        if name == "read-only" && !geteuid().is_root() {
            continue;
        }
        let path = dir.file(name, b"old", bits);
        write(&path, b"new").expect("it is ours");
        assert_eq!((read(&path).as_str(), mode(&path)), ("new", bits), "{name}");
    }
    let path = dir.file("x", b"old", 0o640);
    let (value, list) = (vec![7; 300], acl(NOBODY, 4));
    if !has_set(&path, "user.origin", &value) || !has_set(&path, ACL, &list) {
        return;
    }
    let before = (std::fs::metadata(&path).expect("it is there").ino(), mode(&path));
    write(&path, b"new").expect("it is ours");
    assert_eq!((attribute(&path, "user.origin"), attribute(&path, ACL)), (Ok(value), Ok(list)));
    let after = std::fs::metadata(&path).expect("it is there").ino();
    assert_eq!((after != before.0, mode(&path)), (true, before.1), "a new file has them");
}

/// A new file in a directory with a default list has that list. One that replaces another one must not.
#[test]
fn a_directorys_default_list_is_for_new_files_only() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("sub")).expect("made");
    let old = dir.file("sub/old", b"old", 0o600);
    if !has_set(&dir.path("sub"), DEFAULT_ACL, &acl(NOBODY, 6)) {
        return;
    }
    write(&old, b"new").expect("it is ours");
    assert_eq!((attribute(&old, ACL), mode(&old)), (Err(Errno::NODATA), 0o600));
    let (new, usual) = (dir.path("sub/new"), dir.path("sub/usual"));
    write(&new, b"new").expect("it is new");
    std::fs::write(&usual, b"new").expect("it is new");
    assert_eq!((attribute(&new, ACL), mode(&new)), (attribute(&usual, ACL), mode(&usual)));
    assert!(attribute(&new, ACL).is_ok());
}

#[test]
fn a_new_content_has_no_rights_of_the_old_one() {
    let dir = Dir::new();
    let path = dir.file("x", b"old", 0o6755);
    write(&path, b"new").expect("it is ours");
    assert_eq!((read(&path).as_str(), mode(&path)), ("new", 0o755));
}

/// A file with two names had two contents after one of them was written.
#[test]
fn all_names_of_a_file_keep_meaning_it() {
    let dir = Dir::new();
    let path = dir.file("x", b"old, and longer than the new one", 0o640);
    std::fs::hard_link(&path, dir.path("y")).expect("made");
    let before = std::fs::metadata(&path).expect("it is there").ino();
    for content in ["new", "newer, and again longer", ""] {
        write(&path, content.as_bytes()).expect("it is ours");
        assert_eq!((read(&path), read(&dir.path("y"))), (content.to_owned(), content.to_owned()));
    }
    let after = std::fs::metadata(&path).expect("it is there");
    assert_eq!((after.ino(), after.nlink(), mode(&path)), (before, 2, 0o640));
    assert_eq!(dir.names(), ["x", "y"]);
}

#[test]
fn root_gives_a_file_back_to_its_owner() {
    if !geteuid().is_root() {
        return eprintln!("not tested: only root can give files away");
    }
    let dir = Dir::new();
    let path = dir.file("x", b"old", 0o660);
    chown(&path, Some(NOBODY), Some(NOBODY)).expect("we are root");
    let before = std::fs::metadata(&path).expect("it is there").ino();
    write(&path, b"new").expect("we are root");
    let after = std::fs::metadata(&path).expect("it is there");
    assert_eq!((after.uid(), after.gid(), mode(&path), after.ino() != before), (NOBODY, NOBODY, 0o660, true));
}

#[test]
fn who_cannot_give_it_its_owner_writes_it_in_place() {
    let dir = Dir::new().open_to_all(0o777);
    let path = dir.file("x", b"old content", 0o666);
    let before = std::fs::metadata(&path).expect("it is there");
    let Some(written) = as_nobody(|| write(&path, b"new")) else { return };
    written.expect("everybody may write it");
    let after = std::fs::metadata(&path).expect("it is there");
    assert_eq!((after.ino(), after.uid(), mode(&path)), (before.ino(), before.uid(), 0o666));
    assert_eq!((read(&path).as_str(), dir.names()), ("new", vec!["x".to_owned()]));
}

#[test]
fn who_cannot_make_files_there_writes_it_in_place() {
    let dir = Dir::new().open_to_all(0o755);
    let own = dir.file("own", b"old content", 0o600);
    if geteuid().is_root() {
        chown(&own, Some(NOBODY), Some(NOBODY)).expect("we are root");
    }
    dir.file("foreign", b"old", 0o644);
    let refused = |name| write(&dir.path(name), b"new").expect_err("it is refused").to_string();
    let Some((written, foreign, new)) = as_nobody(|| (write(&own, b"new"), refused("foreign"), refused("new"))) else {
        return;
    };
    written.expect("it is theirs");
    assert_eq!((read(&own).as_str(), mode(&own)), ("new", 0o600));
    assert!(
        foreign.ends_with(
            "foreign: Permission denied (os error 13): this user may not write the file; change its mode, or choose another"
        ),
        "{foreign}"
    );
    assert!(
        new.ends_with(
            "new: Permission denied (os error 13): this user may not make files in that directory; choose another"
        ),
        "{new}"
    );
    assert_eq!((dir.names(), read(&dir.path("foreign"))), (vec!["foreign".to_owned(), "own".to_owned()], "old".into()));
}

/// In a directory like /tmp others' files can be written, but not replaced: the new file was refused its name at the very end.
#[test]
fn a_file_of_another_in_a_sticky_directory_is_written_in_place() {
    let dir = Dir::new().open_to_all(0o1777);
    let path = dir.file("x", b"old", 0o666);
    let owner = NOBODY - 1;
    if geteuid().is_root() {
        chown(&path, Some(owner), Some(NOBODY)).expect("we are root");
    }
    set_mode(&path, 0o666);
    let Some(written) = as_nobody(|| write(&path, b"new")) else { return };
    written.expect("everybody may write it");
    let after = std::fs::metadata(&path).expect("it is there");
    assert_eq!((read(&path).as_str(), after.uid(), dir.names()), ("new", owner, vec!["x".to_owned()]));
}
