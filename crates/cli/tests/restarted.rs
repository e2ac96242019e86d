//! Commands whose server is started again while they read from it.

mod common;

use std::io::Read as _;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, SystemTime};

use common::{Server, command, numbers, said};

const MIB: usize = 1 << 20;
/// Far more than a pipe holds and a copy reads ahead.
const LEN: usize = 48 * MIB;

/// Runs a command whose server is started again when the first of its output has come.
fn across_a_restart(args: &[&str], between: impl Fn(&Path)) -> (Output, Vec<u8>, Vec<u8>, String) {
    let mut server = Server::start("");
    let bytes = numbers(LEN as u64 / 8);
    let path = server.file("n", &bytes);
    // Old enough that its version tells every change.
    let file = std::fs::File::options().write(true).open(&path).expect("there");
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("set");
    let url = server.at("n");
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "URL" { url.as_str() } else { *arg }).collect();
    let mut child = command(&args).spawn().expect("diskside runs");
    let mut out = child.stdout.take().expect("piped");
    let mut copied = vec![0; MIB];
    out.read_exact(&mut copied).expect("the first bytes come");
    server.process.kill();
    between(&path);
    let address = server.target().strip_prefix("diskside://").expect("a URL").to_owned();
    let _again = Server::listening(&address, &server.dir, "", &[]);
    out.read_to_end(&mut copied).expect("read");
    let ended = child.wait_with_output().expect("it ends");
    (ended, copied, bytes, url)
}

/// `cp` and `cat` ended with "Stale file handle" when a server was started again; a run went on. The file is the same, so all of
/// them do.
#[test]
fn a_copy_goes_on_when_its_server_is_started_again() {
    for args in [&["cp", "URL", "-"][..], &["cat", "URL"]] {
        let (ended, copied, bytes, _) = across_a_restart(args, |_| ());
        assert!(ended.status.success(), "{args:?}: {}", said(&ended));
        assert!(copied == bytes, "{args:?}: {} bytes of {LEN}", copied.len());
    }
}

/// What came before is of a version that is no more.
#[test]
fn a_copy_does_not_go_on_when_the_file_is_another_one_by_then() {
    let why = "another version of the file is there now, as it was replaced or its server started anew: what was read before does not \
               belong to it; begin again";
    for args in [&["cp", "URL", "-"][..], &["cat", "URL"]] {
        let (ended, copied, bytes, url) = across_a_restart(args, |path| {
            use std::os::unix::fs::FileExt as _;
            let file = std::fs::File::options().write(true).open(path).expect("there");
            file.write_all_at(&[0xEE; 8], LEN as u64 - 8).expect("written");
        });
        assert_eq!(ended.status.code(), Some(4), "{args:?}");
        let told = said(&ended);
        let of = if args[0] == "cp" { format!("{url} to -") } else { url };
        assert!(told.starts_with(&format!("diskside: {of}: reading the source at byte ")), "{args:?}: {told}");
        assert!(told.ends_with(&format!(": {why}\n")), "{args:?}: {told}");
        assert!(bytes.starts_with(&copied) && copied.len() < LEN, "{args:?}: {}", copied.len());
    }
}

/// A server that was gone for good was a "controller" that "could not be reached again in time", after thirty silent seconds.
#[test]
fn a_server_that_does_not_come_back_is_named_and_so_are_the_wait_and_its_option() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut server = Server::of(dir.path(), "", &[]);
    server.file("lines", "a line of text\n".repeat(LEN / 15).as_bytes());
    let (url, address) = (server.at("lines"), server.target().strip_prefix("diskside://").expect("a URL").to_owned());
    for args in [&["cp", &url, "-"][..], &["run", "grep", "--arg", "pattern=text", "--where", "device", &url]] {
        let mut child = command(&[args, &["--loss-timeout-ms", "2500"]].concat()).spawn().expect("diskside runs");
        let mut out = child.stdout.take().expect("piped");
        out.read_exact(&mut vec![0; MIB]).expect("the first bytes come");
        server.process.kill();
        out.read_to_end(&mut Vec::new()).expect("read");
        let ended = child.wait_with_output().expect("it ends");
        let told = said(&ended);
        assert_eq!(ended.status.code(), Some(4), "{args:?}: {told}");
        let waits = format!("WARN the server {address} has been away for ");
        assert!(told.contains(&waits), "{args:?}: {told}");
        let last = told.lines().last().expect("a line");
        let why = format!(
            ": the server {address} was lost, and was not back within 2.5 s (--loss-timeout-ms): cannot connect to {address}: \
             Connection refused (os error 111): no server listens there; start one there (diskside serve --listen), or check \
             the host and the port"
        );
        assert!(last.starts_with("diskside: ") && last.ends_with(&why), "{args:?}: {told}");
        assert!(!told.contains("controller"), "{args:?}: {told}");
        server = Server::listening(&address, dir.path(), "", &[]);
    }
}
