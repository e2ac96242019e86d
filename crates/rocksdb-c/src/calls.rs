//! The calls.

use diskside::ExportUrl;
use diskside::host::Url;
use diskside_rocksdb::reads::{Local, Tried};
use diskside_rocksdb::{ConnectOptions, Database, Family, Mode, Options, Reads, Scope, Snapshot, Store};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// `ds_rocksdb`.
pub(crate) struct Handle(Reads);

/// `struct ds_rocksdb_read`.
#[repr(C)]
pub(crate) struct Read {
    value: *mut c_char,
    value_len: usize,
    local: u64,
    began_ns: u64,
}

/// `struct ds_rocksdb_counters`.
#[repr(C)]
pub(crate) struct Counters {
    in_memory: u64,
    at_server: u64,
    plain: u64,
    sampled: u64,
    fallbacks: u64,
}

const ERROR: c_int = -1;
const FOUND: c_int = 0;
const ABSENT: c_int = 1;
const LOCAL: c_int = 2;
/// `DS_ROCKSDB_ALWAYS`.
const ALWAYS: u32 = 1;

unsafe extern "C" {
    fn malloc(len: usize) -> *mut c_void;
}

/// Memory of `malloc`, which callers free.
fn given(bytes: &[u8]) -> *mut c_char {
    // SAFETY: takes any length; what it gives is as long as is copied.
    unsafe {
        let memory: *mut u8 = malloc(bytes.len().max(1)).cast();
        assert!(!memory.is_null(), "there is no memory");
        ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
        memory.cast()
    }
}

/// Runs it, and writes what is wrong to `error`.
///
/// # Safety
/// `error` must be NULL or have room for a pointer.
unsafe fn guarded<T>(error: *mut *mut c_char, otherwise: T, call: impl FnOnce() -> Result<T, String>) -> T {
    let done =
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("diskside: it failed, see its log".to_owned()));
    done.unwrap_or_else(|why| {
        if !error.is_null() {
            let text = [why.replace('\0', "?").as_bytes(), b"\0"].concat();
            // SAFETY: the caller's promise.
            unsafe { *error = given(&text) };
        }
        otherwise
    })
}

/// # Safety
/// It must be NULL or a string.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
}

/// # Safety
/// There must be so many bytes.
unsafe fn bytes<'a>(at: *const c_char, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise; none may be nowhere.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at.cast(), len) } }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ds_rocksdb_wrap(
    db: *mut c_void,
    directory: *const c_char,
    url: *const c_char,
    values_bytes: u64,
    flags: u32,
    error: *mut *mut c_char,
) -> *mut Handle {
    // SAFETY: the caller's promises.
    unsafe {
        guarded(error, ptr::null_mut(), || {
            let connect = ConnectOptions::default();
            let directory = text(directory).map(|text| Path::new(OsStr::from_bytes(text.to_bytes())));
            let url = text(url).map(|url| url.to_str().map_err(|_| "the URL is not UTF-8".to_owned())).transpose()?;
            let store = match (directory, url) {
                (_, Some(url)) if url.starts_with("diskside") => {
                    let url: ExportUrl = url.parse().map_err(|e| format!("{url}: {e}"))?;
                    Store::exported(&url, &connect)
                }
                (Some(directory), Some(url)) => {
                    let url: Url = url.parse().map_err(|e| format!("{url}: {e}"))?;
                    Store::on_volume(directory, &url, &connect)
                }
                (Some(directory), None) => Store::mounted(directory, &connect),
                (None, _) => return Err("neither a directory nor a URL of an export is told".to_owned()),
            };
            if db.is_null() {
                return Err("the database is NULL".to_owned());
            }
            let mut options = Options::default();
            options.values_bytes = values_bytes;
            match flags {
                0 => {}
                ALWAYS => (options.mode, options.sampled) = (Mode::Server, 0),
                other => return Err(format!("flags {other} are not known")),
            }
            let database = Arc::new(Database::over(db));
            let reads = Reads::new(database, store.map_err(|error| error.to_string())?, options);
            Ok(Box::into_raw(Box::new(Handle(reads))))
        })
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ds_rocksdb_unwrap(reads: *mut Handle) {
    if !reads.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            guarded(ptr::null_mut(), (), || {
                drop(Box::from_raw(reads));
                Ok(())
            });
        }
    }
}

/// Calls with the scope of a read.
///
/// # Safety
/// As the header says of the family and the snapshot.
unsafe fn with_scope<T>(
    reads: &Reads,
    family: *mut c_void,
    snapshot: *const c_void,
    sequence: u64,
    call: impl FnOnce(&Scope<'_>) -> T,
) -> T {
    // SAFETY: the caller's promise.
    unsafe {
        let family = (!family.is_null()).then(|| Family::over(reads.database(), family));
        let snapshot = (!snapshot.is_null()).then(|| Snapshot::over(snapshot, sequence));
        call(&Scope { family, snapshot: snapshot.as_ref() })
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ds_rocksdb_try_get(
    reads: *mut Handle,
    family: *mut c_void,
    snapshot: *const c_void,
    sequence: u64,
    key: *const c_char,
    key_len: usize,
    read: *mut Read,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        guarded(error, ERROR, || {
            let (reads, key) = (&(*reads).0, bytes(key, key_len));
            *read = Read { value: ptr::null_mut(), value_len: 0, local: 0, began_ns: 0 };
            let tried = with_scope(reads, family, snapshot, sequence, |scope| reads.try_get(scope, key));
            Ok(match tried.map_err(|error| error.to_string())? {
                Tried::Known(Some(value)) => {
                    (*read).value = given(&value);
                    (*read).value_len = value.len();
                    FOUND
                }
                Tried::Known(None) => ABSENT,
                Tried::Local(local) => {
                    ((*read).local, (*read).began_ns) = reads.local_to_numbers(local);
                    LOCAL
                }
            })
        })
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ds_rocksdb_was_local(
    reads: *mut Handle,
    read: *const Read,
    key: *const c_char,
    key_len: usize,
    value_len: usize,
) {
    // SAFETY: the caller's promises.
    unsafe {
        guarded(ptr::null_mut(), (), || {
            let reads = &(*reads).0;
            let local: Option<Local> = reads.local_of_numbers((*read).local, (*read).began_ns);
            if let Some(local) = local {
                reads.was_local(local, bytes(key, key_len), value_len);
            }
            Ok(())
        });
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ds_rocksdb_get(
    reads: *mut Handle,
    family: *mut c_void,
    key: *const c_char,
    key_len: usize,
    value_len: *mut usize,
    error: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: the caller's promises.
    unsafe {
        guarded(error, ptr::null_mut(), || {
            let (reads, key) = (&(*reads).0, bytes(key, key_len));
            let value = with_scope(reads, family, ptr::null(), 0, |scope| reads.get_in(scope, key));
            let value = value.map_err(|error| error.to_string())?;
            *value_len = value.as_ref().map_or(0, Vec::len);
            Ok(value.map_or(ptr::null_mut(), |value| given(&value)))
        })
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ds_rocksdb_multi_get(
    reads: *mut Handle,
    family: *mut c_void,
    snapshot: *const c_void,
    sequence: u64,
    count: usize,
    keys: *const *const c_char,
    key_lens: *const usize,
    values: *mut *mut c_char,
    value_lens: *mut usize,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe {
        guarded(error, ERROR, || {
            let reads = &(*reads).0;
            let keys: Vec<&[u8]> = (0..count).map(|i| bytes(*keys.add(i), *key_lens.add(i))).collect();
            let found = with_scope(reads, family, snapshot, sequence, |scope| reads.multi_get_in(scope, &keys));
            for (i, value) in found.map_err(|error| error.to_string())?.into_iter().enumerate() {
                *value_lens.add(i) = value.as_ref().map_or(0, Vec::len);
                *values.add(i) = value.map_or(ptr::null_mut(), |value| given(&value));
            }
            Ok(FOUND)
        })
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ds_rocksdb_get_counters(reads: *mut Handle, counters: *mut Counters) {
    // SAFETY: the caller's promises.
    unsafe {
        guarded(ptr::null_mut(), (), || {
            let found = (*reads).0.counters();
            let fallbacks = found.fallbacks.values().sum();
            let (in_memory, at_server) = (found.in_memory, found.at_server);
            *counters = Counters { in_memory, at_server, plain: found.plain, sampled: found.sampled, fallbacks };
            Ok(())
        });
    }
}
