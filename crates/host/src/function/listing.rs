//! Lists that a target gives page by page: its exports, and entries of a directory.
//!
//! A target says itself where a list continues, and when it is over. One that never does must not fill this host's
//! memory or keep its caller for ever: entries and bytes are bounded, and a page has to lead on from where it was asked
//! for.

use diskside_wire::file::{DirEntry, Export, FoundFile};

use super::error::FunctionError;
use super::file::{FileInfo, Found, Listed, ListedExport};

/// How much of a list is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListBounds {
    /// Entries.
    pub(super) entries_max: usize,
    /// Bytes as they come.
    pub(super) bytes_max: usize,
}

impl Default for ListBounds {
    /// More than the directories have that one would want as a list in memory.
    fn default() -> Self {
        Self { entries_max: 1 << 20, bytes_max: 256 << 20 }
    }
}

/// An entry of a list, as a page has it.
pub(super) trait Entry: Sized {
    /// Entries of such a list, in words.
    const WHAT: &'static str;

    /// The entries of a page, each with where the list continues behind it.
    fn parse(page: &[u8]) -> impl Iterator<Item = Result<(u64, Self), FunctionError>>;
}

/// All of a list: `page` asks for what follows a cursor. `of` names the target, and the list, in errors.
pub(super) fn gather<T: Entry>(
    of: &str,
    bounds: ListBounds,
    mut page: impl FnMut(u64) -> Result<Vec<u8>, FunctionError>,
) -> Result<Vec<T>, FunctionError> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let mut cursor = 0;
    loop {
        let came = page(cursor)?;
        if came.is_empty() {
            return Ok(entries);
        }
        bytes += came.len();
        let asked = cursor;
        for entry in T::parse(&came) {
            let (next, entry) = entry?;
            cursor = next;
            entries.push(entry);
            if entries.len() > bounds.entries_max {
                return Err(too_long(of, format!("more than {} {}", bounds.entries_max, T::WHAT)));
            }
        }
        if bytes > bounds.bytes_max {
            return Err(too_long(of, format!("{} in more than {} bytes", T::WHAT, bounds.bytes_max)));
        }
        if cursor == asked {
            let problem = format!("after cursor {asked} it goes on at the same cursor: it would never end");
            return Err(FunctionError::Malformed { what: "list", problem });
        }
    }
}

/// All of a search: `page` asks for what follows a path.
pub(super) fn search(
    of: &str,
    bounds: ListBounds,
    mut page: impl FnMut(&[u8]) -> Result<Vec<u8>, FunctionError>,
) -> Result<Vec<Found>, FunctionError> {
    let (mut found, mut bytes, mut pages, mut after) = (Vec::new(), 0, 0, Vec::new());
    loop {
        let came = page(&after)?;
        if came.is_empty() {
            return Ok(found);
        }
        (bytes, pages) = (bytes + came.len(), pages + 1);
        for one in FoundFile::parse_all(&came) {
            let FoundFile { kind, is_mark, attributes, path } = one.map_err(|e| malformed("search", &e))?;
            // The order is part of what a target promises, so that a search that leads nowhere is found.
            if !path.split(|&b| b == b'/').gt(after.split(|&b| b == b'/')) && !after.is_empty() {
                let path = String::from_utf8_lossy(path);
                let problem = format!("{path} comes behind {}: it would never end", String::from_utf8_lossy(&after));
                return Err(FunctionError::Malformed { what: "search", problem });
            }
            after = path.to_vec();
            if !is_mark {
                found.push(Found { path: path.to_vec(), kind, info: attributes.as_ref().map(FileInfo::new) });
            }
            if found.len() > bounds.entries_max {
                return Err(too_long(of, format!("more than {} files", bounds.entries_max)));
            }
        }
        if bytes > bounds.bytes_max || pages > PAGES_MAX {
            return Err(too_long(of, format!("files in more than {} bytes or {PAGES_MAX} pages", bounds.bytes_max)));
        }
    }
}

/// Pages of a search, of which many may hold nothing but a mark.
const PAGES_MAX: usize = 100_000;

fn too_long(of: &str, what: String) -> FunctionError {
    FunctionError::ListTooLong { of: of.to_owned(), what }
}

impl Entry for Listed {
    const WHAT: &'static str = "entries";

    fn parse(page: &[u8]) -> impl Iterator<Item = Result<(u64, Self), FunctionError>> {
        DirEntry::parse_all(page).map(|entry| {
            let DirEntry { cursor, kind, attributes, name, .. } = entry.map_err(|e| malformed("listing", &e))?;
            let info = attributes.as_ref().map(FileInfo::new);
            Ok((cursor, Self { name: name.to_vec(), kind, info }))
        })
    }
}

impl Entry for ListedExport {
    const WHAT: &'static str = "exports";

    fn parse(page: &[u8]) -> impl Iterator<Item = Result<(u64, Self), FunctionError>> {
        Export::parse_all(page).map(|export| {
            let Export { cursor, read_only, uid, gid, name } = export.map_err(|e| malformed("list of exports", &e))?;
            let name = String::from_utf8_lossy(name).into_owned();
            Ok((cursor, Self { name, read_only, owner: (uid, gid) }))
        })
    }
}

fn malformed(what: &'static str, problem: &impl ToString) -> FunctionError {
    FunctionError::Malformed { what, problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_wire::file::FileKind;

    const TARGET: &str = "127.0.0.1:4420: data/big";
    const BOUNDS: ListBounds = ListBounds { entries_max: 1000, bytes_max: 64 << 10 };

    fn entry(cursor: u64, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        DirEntry { cursor, inode: 1, kind: FileKind::File, attributes: None, name: name.as_bytes() }.encode(&mut bytes);
        bytes
    }

    /// Lists what `page` gives after each cursor; also how often it was asked.
    fn list(page: impl Fn(u64) -> Vec<u8>) -> (Result<Vec<Listed>, FunctionError>, usize) {
        let mut asked = 0;
        let listed = gather(TARGET, BOUNDS, |cursor| {
            asked += 1;
            Ok(page(cursor))
        });
        (listed, asked)
    }

    #[test]
    fn pages_become_one_list() {
        let page = |cursor: u64| match cursor {
            0 => [entry(700, "a"), entry(30, "b")].concat(),
            30 => entry(9, "c"),
            9 => Vec::new(),
            other => panic!("nobody gave the cursor {other}"),
        };
        let (listed, asked) = list(page);
        let names: Vec<_> = listed.unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!((names, asked), (vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()], 3));
    }

    /// A target that listed files without end once kept its host listing until there was no memory left.
    #[test]
    fn a_list_without_end_is_an_error_that_names_the_target() {
        let (listed, asked) = list(|cursor| entry(cursor + 1, "again"));
        let told = listed.unwrap_err().to_string();
        assert_eq!(told, "127.0.0.1:4420: data/big: it lists more than 1000 entries; perhaps without end");
        assert_eq!(asked, 1001);
        // Few entries of long names.
        let name = "n".repeat(4000);
        let (listed, asked) = list(|cursor| entry(cursor + 1, &name));
        let told = listed.unwrap_err().to_string();
        assert!(told.contains("data/big: it lists entries in more than 65536 bytes"), "{told}");
        assert_eq!(asked, 17);
    }

    #[test]
    fn a_page_that_leads_nowhere_is_found_at_once() {
        let (listed, asked) = list(|cursor| if cursor == 0 { entry(5, "a") } else { entry(5, "b") });
        let told = listed.unwrap_err().to_string();
        assert!(told.contains("cursor 5") && told.contains("never end"), "{told}");
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_list_as_long_as_allowed_is_taken() {
        let page = |cursor: u64| if cursor == 1000 { Vec::new() } else { entry(cursor + 1, "x") };
        assert_eq!(list(page).0.unwrap().len(), 1000);
    }
}
