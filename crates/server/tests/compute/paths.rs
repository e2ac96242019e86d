//! Files by their paths: any number of them as sources of one call, and lists that are none.

use std::path::Path;

use crate::client::{Client, locally, runs, start};
use crate::common::{builder, pattern};
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::ExportSpec;
use diskside_wire::file::{FileFlags, FileRequest};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, Placement, Trailer,
};

use crate::client::COMPUTE;

fn target(dir: &Path) -> Running {
    start(builder().export(ExportSpec::new("data", dir).writable()).export(ExportSpec::new("more", dir).writable()))
}

fn list(paths: &[&str]) -> Vec<u8> {
    paths.iter().flat_map(|path| [&(path.len() as u16).to_le_bytes()[..], path.as_bytes()].concat()).collect()
}

impl Client {
    fn by_paths(&mut self, name: &str) -> FunctionRequest {
        let sources = vec![Endpoint::whole(EndpointKind::Paths)];
        FunctionRequest { sources, ..self.over(name, &[], 0) }
    }

    /// Sends a request and, in pieces of so many bytes, the list behind it.
    fn run_list(&mut self, request: &FunctionRequest, list: &[u8], piece: usize) -> (Vec<u8>, Trailer) {
        let (tag, bytes) = (self.tag(), request.encode());
        let kind = if request.sinks.is_empty() { FunctionKind::Read } else { FunctionKind::Write };
        let first = Sqe::function_send(COMPUTE, kind, tag, 0, bytes.len() as u32).with_first();
        self.queue.command(first, Some(&bytes), 0).ok();
        let mut at = bytes.len() as u64;
        for part in list.chunks(piece) {
            let sqe = Sqe::function_send(COMPUTE, kind, tag, at, part.len() as u32);
            self.queue.command(sqe, Some(part), 0).ok();
            at += part.len() as u64;
        }
        let end = Sqe::function_send(COMPUTE, kind, tag, at, 0).with_last();
        self.queue.command(end, Some(&[]), 0).ok();
        self.finish(tag)
    }
}

/// Files of several lengths: empty, short, and longer than what is read before it is their turn.
fn fill(dir: &Path) -> (Vec<String>, Vec<u8>) {
    let (mut paths, mut all) = (Vec::new(), Vec::new());
    for number in 0..300_usize {
        let bytes = pattern(if number % 50 == 49 { 400_000 } else { number % 7 * 800 }, number as u64);
        std::fs::write(dir.join(format!("f{number}")), &bytes).unwrap();
        let export = if number % 90 < 60 { "data" } else { "more" };
        paths.push(format!("{export}/f{number}"));
        all.extend_from_slice(&bytes);
    }
    (paths, all)
}

#[test]
fn any_number_of_files_are_the_sources_of_one_call() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    let (paths, all) = fill(dir.path());
    let list = list(&paths.iter().map(String::as_str).collect::<Vec<_>>());
    let mut client = Client::connect(&running);
    let request = client.by_paths("stats64");
    for piece in [1 << 16, 100] {
        let (result, trailer) = client.run_list(&request, &list, piece);
        assert_eq!(trailer.outcome, Outcome::Ok, "{}", trailer.message);
        assert_eq!(result, locally("stats64", &[], &all));
        assert_eq!(trailer.media_read, all.len() as u64);
    }
    // With the request, in one Send.
    let (tag, bytes) = (client.tag(), [request.encode(), list].concat());
    let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, bytes.len() as u32).with_first().with_last();
    client.queue.command(sqe, Some(&bytes), 0).ok();
    assert_eq!(client.finish(tag).0, locally("stats64", &[], &all));
}

#[test]
fn no_files_at_all_are_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    let mut client = Client::connect(&running);
    let request = client.by_paths("stats64");
    let (result, trailer) = client.run_list(&request, &[], 1);
    assert_eq!((result.len(), trailer.outcome), (0, Outcome::Ok), "{}", trailer.message);
}

#[test]
fn a_list_that_is_none_and_files_that_cannot_be_read_end_the_call_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    std::fs::write(dir.path().join("a"), pattern(64, 1)).unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", dir.path().join("out")).unwrap();
    let mut client = Client::connect(&running);
    let request = client.by_paths("stats64");
    let cut = &list(&["data/a", "data/a"])[..13];
    for (list, told) in [
        (cut.to_vec(), "the list of paths ends within one"),
        (vec![7], "the list of paths ends within one"),
        (vec![0, 0], "a path has 1 to 4095 bytes, not 0"),
        (vec![0xff, 0xff], "a path has 1 to 4095 bytes, not 65535"),
        (list(&["data/a\0"]), "a NUL in a path"),
        (list(&["data/a", "data/b"]), "cannot open data/b: No such file or directory (os error 2)"),
        (list(&["data/a", "nowhere/b"]), "cannot open nowhere/b: No such file or directory (os error 2)"),
        (list(&["data/out"]), "cannot open data/out: Invalid cross-device link (os error 18)"),
        (list(&["data/../a"]), "cannot open data/../a: Invalid cross-device link (os error 18)"),
        (list(&["data/d"]), "data/d is a directory"),
        (list(&["data"]), "data is a directory"),
    ] {
        let (_, trailer) = client.run_list(&request, &list, 1 << 16);
        assert_ne!(trailer.outcome, Outcome::Ok, "{told}");
        assert!(trailer.message.contains(told), "{}", trailer.message);
    }
    // Nothing of it stays behind.
    assert_eq!(client.run_list(&request, &list(&["data/a"]), 3).0, locally("stats64", &[], &pattern(64, 1)));
}

#[test]
fn a_file_that_the_call_changes_is_no_source_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = target(dir.path());
    for name in ["a", "b"] {
        std::fs::write(dir.path().join(name), runs(4096)).unwrap();
    }
    let mut client = Client::connect(&running);
    for placement in [Placement::Append, Placement::InPlace, Placement::Replace] {
        let file = client.open("data/b", FileFlags::READ | FileFlags::WRITE);
        let sink = Endpoint { generation: file.generation, placement, ..Endpoint::whole(EndpointKind::File(file.id)) };
        let request = FunctionRequest { sinks: vec![sink], ..client.by_paths("bitmap") };
        let request = FunctionRequest { kind: FunctionKind::Write, ..request };
        let (_, trailer) = client.run_list(&request, &list(&["more/b", "data/a"]), 100);
        let told = trailer.message.contains("cannot open more/b: it is where the output of this call goes");
        assert_eq!(told, placement != Placement::Replace, "{placement:?}: {}", trailer.message);
        client.file(FileRequest::Close { file });
    }
}
