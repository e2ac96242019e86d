//! Byte for byte as `docs/wire-files.md` has it, and nothing else is taken.

use std::mem::offset_of;

use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::answer::RecordHeader;
use super::header::Header;
use super::*;

const HANDLE: FileHandle = FileHandle { id: 0x0403_0201, generation: 0x1817_1615_1413_1211 };

#[test]
fn every_field_stands_where_the_document_says() {
    macro_rules! offsets {
        ($($type:ident { $($field:ident: $offset:expr),* $(,)? })*) => {
            $($(assert_eq!(offset_of!($type, $field), $offset, concat!(stringify!($type), ".", stringify!($field)));)*)*
        };
    }
    offsets! {
        Header {
            version: 0, op: 2, flags: 4, handle: 8, mode: 12, generation: 16, offset: 24, len: 32, path_len: 36,
            new_path_len: 38, data_len: 40,
        }
        FileAttributes {
            version: 0, inode: 8, device: 16, size: 24, allocated: 32, mode: 40, links: 44, uid: 48, gid: 52,
            modified: 56, changed: 72, block_len: 88, flags: 92,
        }
        FileTime { seconds: 0, nanoseconds: 8 }
        OpenedFile { created: 4, attributes: 16 }
        RecordHeader { cursor: 0, number: 8, len: 16, name_len: 18, kind: 20, flags: 21 }
    }
    let opened = OpenedFile::new(HANDLE, true, FileAttributes::zeroed());
    let bytes = opened.as_bytes();
    assert_eq!(bytes[..16], [1, 2, 3, 4, 1, 0, 0, 0, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    assert_eq!(opened.handle(), HANDLE);
}

type Case = (FileRequest<'static>, &'static [(usize, &'static [u8])], &'static [u8]);

/// Each request with the bytes that differ from a header of zeroes, and what follows it.
fn requests() -> Vec<Case> {
    const H: (usize, &[u8]) = (8, &[1, 2, 3, 4]);
    const G: (usize, &[u8]) = (16, &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    let dir = Some(HANDLE);
    vec![
        (FileRequest::ListExports { cursor: 7, len_max: 8 }, &[(2, &[1]), (24, &[7]), (32, &[8])], b""),
        (
            FileRequest::Lookup { dir: None, path: b"data/x", flags: FileFlags::READ | FileFlags::NO_FOLLOW },
            &[(2, &[2]), (4, &[0b1001]), (36, &[6])],
            b"data/x",
        ),
        (FileRequest::Lookup { dir, path: b"", flags: FileFlags::DIRECTORY }, &[(2, &[2]), (4, &[4]), H, G], b""),
        (
            FileRequest::Stat { base: dir, path: b"x", flags: FileFlags::NO_FOLLOW },
            &[(2, &[3]), (4, &[8]), H, G, (36, &[1])],
            b"x",
        ),
        (
            FileRequest::List { base: dir, path: b"x", cursor: 0x0102, len_max: 0x0304, flags: FileFlags::ATTRIBUTES },
            &[(2, &[4]), (5, &[4]), H, G, (24, &[2, 1]), (32, &[4, 3]), (36, &[1])],
            b"x",
        ),
        (FileRequest::Read { file: HANDLE, offset: 5, len: 6 }, &[(2, &[5]), H, G, (24, &[5]), (32, &[6])], b""),
        (
            FileRequest::Write { file: HANDLE, offset: 5, data: b"data\0", flags: FileFlags::DURABLE },
            &[(2, &[6]), (4, &[0x40]), H, G, (24, &[5]), (40, &[5])],
            b"data\0",
        ),
        (
            FileRequest::Write { file: HANDLE, offset: 0, data: b"", flags: FileFlags::APPEND },
            &[(2, &[6]), (4, &[0x80]), H, G],
            b"",
        ),
        (
            FileRequest::Create {
                dir,
                path: b"x",
                mode: 0o640,
                flags: FileFlags::WRITE | FileFlags::EXCLUSIVE | FileFlags::TRUNCATE,
            },
            &[(2, &[7]), (4, &[0b11_0010]), H, (12, &[0xa0, 1]), G, (36, &[1])],
            b"x",
        ),
        (
            FileRequest::Create {
                dir: None,
                path: b"e/x",
                mode: 0o666,
                flags: FileFlags::READ_WRITE | FileFlags::UNNAMED,
            },
            &[(2, &[7]), (4, &[0b11, 0b1000]), (12, &[0xb6, 1]), (36, &[3])],
            b"e/x",
        ),
        (FileRequest::Truncate { file: HANDLE, len: 0x1_0000_0001 }, &[(2, &[8]), H, G, (24, &[1, 0, 0, 0, 1])], b""),
        (
            FileRequest::Rename { dir, from: b"ab", to: b"cde", flags: FileFlags::NO_REPLACE },
            &[(2, &[9]), (5, &[1]), H, G, (36, &[2]), (38, &[3])],
            b"abcde",
        ),
        (FileRequest::Unlink { dir: None, path: b"e/x" }, &[(2, &[10]), (36, &[3])], b"e/x"),
        (
            FileRequest::MakeDirectory { dir: None, path: b"e/x", mode: 0o777 },
            &[(2, &[11]), (12, &[0xff, 1]), (36, &[3])],
            b"e/x",
        ),
        (FileRequest::RemoveDirectory { dir: None, path: b"e/x" }, &[(2, &[12]), (36, &[3])], b"e/x"),
        (FileRequest::Sync { file: HANDLE, flags: FileFlags::DATA_ONLY }, &[(2, &[13]), (5, &[2]), H, G], b""),
        (FileRequest::Sync { file: HANDLE, flags: FileFlags::DROP_CACHED }, &[(2, &[13]), (5, &[0x20]), H, G], b""),
        (FileRequest::Close { file: HANDLE }, &[(2, &[14]), H, G], b""),
        (FileRequest::Publish { file: HANDLE }, &[(2, &[15]), H, G], b""),
        (
            FileRequest::Find { dir: None, pattern: b"e/*", after: b"", len_max: 4096, flags: FileFlags::NONE },
            &[(2, &[16]), (32, &[0, 16]), (36, &[3])],
            b"e/*",
        ),
        (
            FileRequest::Find {
                dir,
                pattern: b"*",
                after: b"a/b",
                len_max: 1,
                flags: FileFlags::RECURSIVE | FileFlags::ATTRIBUTES,
            },
            &[(2, &[16]), (5, &[0b1_0100]), H, G, (32, &[1]), (36, &[1]), (38, &[3])],
            b"*a/b",
        ),
    ]
}

#[test]
fn requests_are_encoded_byte_for_byte() {
    for (request, fields, rest) in requests() {
        let mut want = vec![0; 64];
        want[0] = 1;
        for (at, bytes) in fields {
            want[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        want.extend_from_slice(rest);
        assert_eq!(request.to_bytes(), want, "{request:?}");
        assert_eq!(FileRequest::parse(&want), Ok(request));
        assert_eq!(FileOp::from_number(want[2]), Some(request.op()));
    }
    assert_eq!(FileOp::from_number(0), None);
    assert_eq!(FileOp::from_number(17), None);
}

#[test]
fn what_an_operation_does_not_use_must_be_zero() {
    // Bytes that no operation uses, or not with the value that is put there, with the field that the error names.
    let never = [(0, 0), (1, 0), (3, 3), (7, 4), (15, 12), (44, 44), (63, 44)];
    for (request, ..) in requests() {
        for (at, field) in never {
            let mut bytes = request.to_bytes();
            bytes[at] = 0x80;
            let error = FileRequest::parse(&bytes).unwrap_err();
            assert_eq!(error.at, field, "{request:?} with byte {at} changed: {error}");
        }
        let bytes = request.to_bytes();
        for len in 0..bytes.len() {
            assert!(FileRequest::parse(&bytes[..len]).is_err(), "{request:?} cut to {len} bytes");
        }
        assert!(FileRequest::parse(&[&bytes[..], b"x"].concat()).is_err(), "{request:?} with a byte too many");
    }
}

#[test]
fn each_fault_is_named_with_its_place() {
    let change = |request: FileRequest<'_>, at: usize, value: u8| {
        let mut bytes = request.to_bytes();
        bytes[at] = value;
        FileRequest::parse(&bytes).unwrap_err().to_string()
    };
    let close = FileRequest::Close { file: HANDLE };
    let lookup = FileRequest::Lookup { dir: None, path: b"a/b", flags: FileFlags::READ };
    let append = FileRequest::Write { file: HANDLE, offset: 0, data: b"x", flags: FileFlags::APPEND };
    let exports = FileRequest::ListExports { cursor: 0, len_max: 64 };
    let flags = FileFlags::WRITE | FileFlags::UNNAMED;
    let unnamed = FileRequest::Create { dir: None, path: b"a/b", mode: 0, flags };
    let cases = [
        (change(unnamed, 4, 1), "byte 4: a file without a name is new, and opened for writing"),
        (change(unnamed, 4, 0b10_0010), "byte 4: a file without a name is new, and opened for writing"),
        (change(close, 0, 2), "byte 0: the version is not 1"),
        (change(close, 2, 99), "byte 2: an unknown operation"),
        (change(close, 4, 1), "byte 4: a flag that this operation does not have"),
        (change(exports, 8, 1), "byte 8: a handle where none belongs, or none where one does"),
        (change(close, 12, 1), "byte 12: a mode where none belongs"),
        (change(lookup, 16, 1), "byte 16: a generation without a handle"),
        (change(close, 24, 1), "byte 24: an offset where none belongs"),
        (change(append, 24, 1), "byte 24: an offset where the file's end is meant"),
        (change(close, 32, 1), "byte 32: a length where none belongs"),
        (change(close, 36, 1), "byte 36: a path where none belongs, or none where one does"),
        (change(lookup, 36, 0), "byte 36: a path where none belongs, or none where one does"),
        (change(lookup, 37, 0x10), "byte 36: the path is longer than 4,095 bytes"),
        (change(lookup, 38, 1), "byte 38: a new path where none belongs, or none where one does"),
        (change(close, 40, 1), "byte 40: data where none belongs"),
        (change(lookup, 36, 2), "byte 64: the paths and data are not as long as the header says"),
        (change(lookup, 65, 0), "byte 65: a NUL in a path"),
    ];
    for (got, want) in cases {
        assert_eq!(got, format!("file request, {want}"));
    }
}

#[test]
fn records_are_encoded_byte_for_byte() {
    let mut attributes = FileAttributes::zeroed();
    attributes.size.set(9);
    attributes.mode.set(0o100_644);
    let entries = [
        DirEntry { cursor: 0x0201, inode: 3, kind: FileKind::Directory, attributes: None, name: b"logs" },
        DirEntry { cursor: 4, inode: 5, kind: FileKind::File, attributes: Some(attributes), name: b"a" },
    ];
    let mut bytes = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut bytes));
    assert_eq!(bytes.len(), 32 + 160);
    assert_eq!(bytes[..24], [1, 2, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 32, 0, 4, 0, 2, 0, 0, 0]);
    assert_eq!(bytes[24..32], *b"logs\0\0\0\0");
    assert_eq!(bytes[48..56], [160, 0, 1, 0, 1, 1, 0, 0]);
    assert_eq!(DirEntry::parse_all(&bytes).collect::<Result<Vec<_>, _>>(), Ok(entries.to_vec()));
    assert_eq!(attributes.kind(), FileKind::File);

    let export = Export { cursor: 1, read_only: true, uid: 0x0403_0201, gid: 0x0807_0605, name: b"data" };
    let mut bytes = Vec::new();
    export.encode(&mut bytes);
    assert_eq!(bytes, b"\x01\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x20\0\x04\0\x02\x01\0\0data\0\0\0\0");
    assert_eq!(Export::parse_all(&bytes).collect::<Result<Vec<_>, _>>(), Ok(vec![export]));

    let found = [
        FoundFile { kind: FileKind::File, is_mark: false, attributes: Some(attributes), path: b"e/a/b" },
        FoundFile { kind: FileKind::Directory, is_mark: true, attributes: None, path: b"e/c" },
    ];
    let mut bytes = Vec::new();
    found.iter().for_each(|found| found.encode(&mut bytes));
    assert_eq!(bytes[160..], *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x20\0\x03\0\x02\x02\0\0e/c\0\0\0\0\0");
    assert_eq!(FoundFile::parse_all(&bytes).collect::<Result<Vec<_>, _>>(), Ok(found.to_vec()));
    bytes[160 + 24] = 0;
    let error = FoundFile::parse_all(&bytes).nth(1).unwrap().unwrap_err();
    assert_eq!((error.at, error.what), (160, "a path is empty or has a NUL in it"));
}

#[test]
fn hostile_records_end_the_listing_with_an_error() {
    let entry = DirEntry { cursor: 1, inode: 2, kind: FileKind::File, attributes: None, name: b"name" };
    let mut good = Vec::new();
    entry.encode(&mut good);
    let changed = |changes: &[(usize, u8)]| {
        let mut bytes = [&good[..], &good[..]].concat();
        changes.iter().for_each(|(at, value)| bytes[32 + at] = *value);
        let mut records = DirEntry::parse_all(&bytes);
        assert_eq!(records.next(), Some(Ok(entry)));
        let error = records.next().unwrap().unwrap_err();
        assert_eq!((error.at, records.next()), (32, None));
        error.what
    };
    assert_eq!(changed(&[(16, 0)]), "a record's length is wrong", "which would never end");
    assert_eq!(changed(&[(16, 33)]), "a record's length is wrong");
    assert_eq!(changed(&[(16, 40)]), "the last record is cut off");
    assert_eq!(changed(&[(18, 9)]), "a name is longer than its record");
    assert_eq!(changed(&[(21, 1)]), "no room for attributes");
    assert_eq!(changed(&[(18, 0)]), "a name is empty or has a NUL or / in it");
    assert_eq!(changed(&[(25, b'/')]), "a name is empty or has a NUL or / in it", "a name never leads elsewhere");
    assert_eq!(changed(&[(18, 2), (24, b'.'), (25, b'.')]), "a name is . or .., which leads elsewhere");
    assert_eq!(changed(&[(18, 1), (24, b'.')]), "a name is . or .., which leads elsewhere");
    // A record may be 64 KiB long. A name that filled it was taken, and encoding it again wrote a record whose
    // length did not fit its field. Names are at most as long as paths: a longer one could not be asked for.
    let longest = vec![b'n'; PATH_LEN_MAX];
    let mut bytes = Vec::new();
    DirEntry { name: &longest, ..entry }.encode(&mut bytes);
    assert_eq!(DirEntry::parse_all(&bytes).next().unwrap().unwrap().name, longest);
    let mut longer = [&good[..24], &vec![b'n'; 65_528 - 24][..]].concat();
    longer[16..20].copy_from_slice(&[0xf8, 0xff, 0, 0x10]);
    assert_eq!(DirEntry::parse_all(&longer).next().unwrap().unwrap_err().what, "a name is longer than a path");
    let cut = DirEntry::parse_all(&good[..20]).next().unwrap().unwrap_err();
    assert_eq!(cut.what, "the last record is cut off");
}

proptest! {
    #[test]
    fn whatever_is_taken_is_encoded_the_same(
        mut bytes in proptest::collection::vec(any::<u8>(), 64..128), op in 1u8..17, plausible: bool,
    ) {
        // Half of the header as a peer might send it, so that some requests are taken.
        (bytes[0], bytes[1], bytes[2], bytes[3]) = (1, 0, op, 0);
        bytes[44..64].fill(0);
        if plausible {
            bytes[4..44].fill(0);
            bytes[8] = 1;
            let rest = bytes.len() - 64;
            bytes[if op == FileOp::Write as u8 { 40 } else { 36 }] = rest as u8;
        }
        if let Ok(request) = FileRequest::parse(&bytes) {
            prop_assert_eq!(request.to_bytes(), bytes);
        }
    }

    #[test]
    fn records_of_any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        prop_assert!(DirEntry::parse_all(&bytes).count() <= bytes.len() / 24 + 1);
        prop_assert!(Export::parse_all(&bytes).count() <= bytes.len() / 24 + 1);
        let _ = OpenedFile::read_from_prefix(&bytes);
    }
}
