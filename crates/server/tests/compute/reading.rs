//! How functions and hosts read exported files: what is asked for and no more, through the page cache or past it.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use diskside_io::readahead::open_direct;
use diskside_server::config::{ExportSpec, FileAccess};
use diskside_sys::cache::residency;
use diskside_wire::file::{FileFlags, FileHandle, FileRequest};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionRequest, Outcome};
use rustix::fs::{Advice, fadvise};

use crate::client::{Client, locally, start};
use crate::common::{builder, pattern};

const MIB: u64 = 1 << 20;

/// A file of 8 MiB and a bit on a file system that has `O_DIRECT`; `None` where the build's directory is on none.
fn cold_file() -> Option<(tempfile::TempDir, Vec<u8>)> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes = pattern(8 * MIB as usize + 104, 5);
    std::fs::write(dir.path().join("x"), &bytes).unwrap();
    let file = File::open(dir.path().join("x")).unwrap();
    file.sync_all().unwrap();
    open_direct(&file).ok()?;
    drop_cached(dir.path());
    Some((dir, bytes))
}

fn drop_cached(dir: &Path) {
    let file = File::open(dir.join("x")).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    assert!(!is_cached(dir, 0..8 * MIB), "nobody else reads it");
}

/// Whether half of it is.
fn is_cached(dir: &Path, range: Range<u64>) -> bool {
    let pages = (range.end - range.start) / 4096;
    residency(File::open(dir.join("x")).unwrap(), range).unwrap().cached >= pages / 2
}

fn part(client: &mut Client, file: FileHandle, offset: u64, len: u64) -> FunctionRequest {
    let endpoint = Endpoint { generation: file.generation, ..Endpoint::new(EndpointKind::File(file.id), offset, len) };
    FunctionRequest { sources: vec![endpoint], ..client.over("stats64", &[], 0) }
}

/// A kernel that reads ahead by megabytes made each part of a file as slow as all that lies behind it.
#[test]
fn a_part_of_a_file_is_read_and_nothing_behind_it() {
    let Some((dir, bytes)) = cold_file() else { return };
    let running = start(builder().export(ExportSpec::new("data", dir.path()).writable()));
    let mut client = Client::connect(&running);
    let file = client.open("data/x", FileFlags::READ);
    let request = part(&mut client, file, MIB, MIB);
    let wanted = locally("stats64", &[], &bytes[MIB as usize..2 * MIB as usize]);
    assert_eq!(client.result(&request), wanted);
    assert!(is_cached(dir.path(), MIB..2 * MIB), "kept for the next call");
    assert!(!is_cached(dir.path(), 2 * MIB..8 * MIB));

    // A host that reads two pieces in a row finds the third one there, and no more.
    drop_cached(dir.path());
    for offset in [0, 256 << 10] {
        let (read, _) = client.file(FileRequest::Read { file, offset, len: 256 << 10 });
        assert!(read == bytes[offset as usize..offset as usize + (256 << 10)]);
    }
    assert!(!is_cached(dir.path(), 2 * MIB..8 * MIB));
}

#[test]
fn an_export_says_whether_functions_read_past_the_page_cache() {
    for (access, is_kept) in [(FileAccess::Auto, true), (FileAccess::Buffered, true), (FileAccess::Direct, false)] {
        let Some((dir, bytes)) = cold_file() else { return };
        let running = start(builder().export(ExportSpec { access, ..ExportSpec::new("data", dir.path()).writable() }));
        let mut client = Client::connect(&running);
        let file = client.open("data/x", FileFlags::READ);
        // Blocks of the disk, an end within one, and a start within one.
        for (offset, len) in [(0, Endpoint::TO_END), (8, 3 * MIB + 16)] {
            let request = part(&mut client, file, offset, len);
            let range = offset as usize..bytes.len().min(len.saturating_add(offset) as usize);
            assert_eq!(client.result(&request), locally("stats64", &[], &bytes[range]), "{access:?}");
            assert_eq!(is_cached(dir.path(), 0..8 * MIB), is_kept, "{access:?}");
        }
        // What is written is seen, wherever it is at the moment.
        let words = vec![7; 64 << 10];
        let flags = FileFlags::READ_WRITE;
        let writer = client.open("data/x", flags);
        client.file(FileRequest::Write { file: writer, offset: MIB, data: &words, flags: FileFlags::NONE });
        let request = part(&mut client, file, MIB, 64 << 10);
        assert_eq!(client.result(&request), locally("stats64", &[], &words), "{access:?}");
        let (_, trailer) = client.run(&request);
        assert_eq!(trailer.outcome, Outcome::Ok);
    }
}
