//! The interface in C: that of users, and that of `glue.c`. Nothing unwinds into WiredTiger: a panic becomes an error.

use crate::controls;
use crate::failure::{self, Failure};
use crate::file::DataFile;
use crate::search::{Ended, Outcome, Thread};
use crate::slot::{Policy, Slot};
use crate::space::{CHANGES, OpenHow, Space, SpaceOptions};
use crate::stats::{self, FALLBACKS, STATS};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

const CREATE: c_uint = 1;
const EXCLUSIVE: c_uint = 2;
const READONLY: c_uint = 4;
const DURABLE: c_uint = 8;
const DATA: c_uint = 16;
const DIRECTORY: c_uint = 32;
/// `DSW_NAME_LEN`.
const NAME_LEN: usize = 1024;

/// `struct dsw_config`.
#[repr(C)]
pub(crate) struct Config {
    connection: *const c_void,
    url: *const c_char,
    home: *const c_char,
    url_len: usize,
    timeout_s: c_uint,
    takeover: bool,
    make_directory: bool,
    push: bool,
    unlogged: bool,
    late: bool,
}

/// `struct dsw_names`.
#[repr(C)]
pub(crate) struct Names {
    name: *mut *mut c_char,
    count: u32,
}

unsafe extern "C" {
    fn dswc_init(connection: *mut c_void, config: *mut c_void) -> c_int;
    fn dswc_search(cursor: *mut c_void) -> c_int;
    fn dswc_truncate(
        session: *mut c_void,
        uri: *const c_char,
        start: *mut c_void,
        stop: *mut c_void,
        config: *const c_char,
    ) -> c_int;
    fn dswc_file_of(session: *mut c_void, uri: *const c_char, pushed: bool, name: *mut c_char) -> c_int;
    fn dswc_connection(session: *mut c_void) -> *const c_void;
}

/// The databases that are open, by their connections' addresses.
static OPEN: RwLock<Vec<(usize, Weak<Space>)>> = RwLock::new(Vec::new());

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
    static RESOLVED: RefCell<Resolved> = RefCell::default();
}

/// The table that a thread named last.
#[derive(Default)]
struct Resolved {
    change: u64,
    connection: usize,
    uri: CString,
    slot: Option<Arc<Slot>>,
}

fn guarded(run: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failure.note(),
        Err(_) => Failure::new(libc::EIO, "diskside", &"the library failed; this is a bug of it").note(),
    }
}

fn invalid(why: &str) -> Failure {
    Failure::new(libc::EINVAL, "diskside", &why)
}

/// # Safety
/// `text` is a string that lives long enough, or null.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: not null, and a string by this function's contract.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| invalid("a name is not UTF-8"))
}

/// # Safety
/// `space` comes from `dsw_open`, and was not closed.
unsafe fn space_of<'a>(space: *mut c_void) -> &'a Arc<Space> {
    // SAFETY: by this function's contract.
    unsafe { &*space.cast::<Arc<Space>>() }
}

/// # Safety
/// `file` comes from `dsw_open_file`, and was not closed.
unsafe fn file_of<'a>(file: *mut c_void) -> &'a Arc<DataFile> {
    // SAFETY: by this function's contract.
    unsafe { &*file.cast::<Arc<DataFile>>() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_open(config: *const Config, space: *mut *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: glue.c gives a whole structure, whose url has that many bytes and whose home is a string or null.
        let (config, home) = unsafe { (&*config, text((*config).home)?) };
        if config.url.is_null() || config.url_len == 0 {
            return Err(invalid("give the database's place: config={url=\"diskside://SERVER/EXPORT/DIRECTORY\"}"));
        }
        // SAFETY: as above.
        let url = unsafe { std::slice::from_raw_parts(config.url.cast::<u8>(), config.url_len) };
        let url = std::str::from_utf8(url).map_err(|_| invalid("the url is not UTF-8"))?;
        let options = SpaceOptions {
            home: home.to_owned(),
            timeout: Duration::from_secs(config.timeout_s.into()),
            takeover: config.takeover,
            make_directory: config.make_directory,
            may_push: config.push,
        };
        controls::set(config.unlogged, config.late);
        let opened = Space::open(url, options)?;
        let mut open = OPEN.write().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, space)| space.strong_count() > 0);
        open.push((config.connection as usize, Arc::downgrade(&opened)));
        CHANGES.fetch_add(1, Ordering::SeqCst);
        // SAFETY: glue.c gives room for a pointer.
        unsafe { *space = Box::into_raw(Box::new(opened)).cast() };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_close(space: *mut c_void) {
    guarded(|| {
        // SAFETY: it comes from `dsw_open`, and glue.c closes it once.
        drop(unsafe { Box::from_raw(space.cast::<Arc<Space>>()) });
        CHANGES.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn dsw_error() -> *const c_char {
    failure::last()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_list(
    space: *mut c_void,
    directory: *const c_char,
    prefix: *const c_char,
    single: bool,
    names: *mut Names,
) -> c_int {
    guarded(|| {
        // SAFETY: glue.c passes WiredTiger's strings, a space that is open and a structure of its own.
        let (space, directory, prefix) = unsafe { (space_of(space), text(directory)?, text(prefix)?) };
        let mut found = space.list(directory, prefix)?;
        found.truncate(if single { 1 } else { usize::MAX });
        // SAFETY: malloc takes any length; each string is copied with its NUL into room that was checked.
        unsafe {
            let list = libc::calloc(found.len().max(1), size_of::<*mut c_char>()).cast::<*mut c_char>();
            if list.is_null() {
                return Err(Failure::new(libc::ENOMEM, directory, &"too many names"));
            }
            (*names).name = list;
            for name in found {
                let Ok(name) = CString::new(name) else { continue };
                *list.add((*names).count as usize) = libc::strdup(name.as_ptr());
                (*names).count += 1;
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_exists(space: *mut c_void, name: *const c_char, exists: *mut bool) -> c_int {
    guarded(|| {
        // SAFETY: as for dsw_list.
        let (space, name) = unsafe { (space_of(space), text(name)?) };
        let found = space.len_of(name)?.is_some();
        // SAFETY: WiredTiger gives room for it.
        unsafe { *exists = found };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_size(space: *mut c_void, name: *const c_char, size: *mut i64) -> c_int {
    guarded(|| {
        // SAFETY: as for dsw_list.
        let (space, name) = unsafe { (space_of(space), text(name)?) };
        let len = space.len_of(name)?.ok_or_else(|| Failure::new(libc::ENOENT, name, &"there is no such file"))?;
        // SAFETY: glue.c gives room for it.
        unsafe { *size = len as i64 };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_remove(space: *mut c_void, name: *const c_char, durable: bool) -> c_int {
    guarded(|| {
        // SAFETY: as for dsw_list.
        let (space, name) = unsafe { (space_of(space), text(name)?) };
        space.remove(name, durable)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_rename(space: *mut c_void, from: *const c_char, to: *const c_char, durable: bool) -> c_int {
    guarded(|| {
        // SAFETY: as for dsw_list.
        let (space, from, to) = unsafe { (space_of(space), text(from)?, text(to)?) };
        space.rename(from, to, durable)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_open_file(
    space: *mut c_void,
    name: *const c_char,
    flags: c_uint,
    file: *mut *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: as for dsw_list.
        let (space, name) = unsafe { (space_of(space), text(name)?) };
        let has = |flag| flags & flag != 0;
        let how = OpenHow {
            is_created: has(CREATE),
            is_exclusive: has(EXCLUSIVE),
            is_readonly: has(READONLY),
            is_durable: has(DURABLE),
            is_data: has(DATA),
            is_directory: has(DIRECTORY),
        };
        let opened = Arc::new(space.open_file(name, how)?);
        // SAFETY: glue.c gives room for a pointer.
        unsafe { *file = Box::into_raw(Box::new(opened)).cast() };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_close_file(file: *mut c_void) {
    guarded(|| {
        // SAFETY: it comes from `dsw_open_file`, and glue.c closes it once.
        let file = unsafe { Box::from_raw(file.cast::<Arc<DataFile>>()) };
        file.space.lock(&file.name, false)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_lock(file: *mut c_void, lock: bool) -> c_int {
    guarded(|| {
        // SAFETY: glue.c passes a file that is open.
        let file = unsafe { file_of(file) };
        file.space.lock(&file.name, lock)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_read(file: *mut c_void, offset: u64, len: usize, to: *mut c_void) -> c_int {
    let mut refused = false;
    let error = guarded(|| {
        // SAFETY: glue.c passes a file that is open, and WiredTiger a buffer of `len` bytes, which it does not look at meanwhile.
        let (file, to) = unsafe {
            ptr::write_bytes(to.cast::<u8>(), 0, len);
            (file_of(file), std::slice::from_raw_parts_mut(to.cast::<u8>(), len))
        };
        let outcome = THREAD.with_borrow_mut(|thread| thread.read(file, offset, to))?;
        refused = outcome == Outcome::Refused;
        Ok(())
    });
    if refused { 1 } else { error }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_write(file: *mut c_void, offset: u64, len: usize, from: *const c_void) -> c_int {
    guarded(|| {
        // SAFETY: glue.c passes a file that is open, and WiredTiger a buffer of `len` bytes.
        let (file, from) = unsafe { (file_of(file), std::slice::from_raw_parts(from.cast::<u8>(), len)) };
        file.write(offset, from)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_file_size(file: *mut c_void, size: *mut i64) -> c_int {
    guarded(|| {
        // SAFETY: glue.c passes a file that is open, and room for a number.
        unsafe { *size = file_of(file).len_bytes() as i64 };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_truncate_file(file: *mut c_void, len: u64) -> c_int {
    // SAFETY: glue.c passes a file that is open.
    guarded(|| unsafe { file_of(file) }.truncate(len))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_sync(file: *mut c_void) -> c_int {
    // SAFETY: glue.c passes a file that is open.
    guarded(|| unsafe { file_of(file) }.sync())
}

/// The decisions about the table that a URI names. The thread's last one is remembered.
///
/// # Safety
/// `uri` is a string; `session` is one of the connection, or null if the URI is that of a file.
unsafe fn slot_of(session: *mut c_void, connection: *const c_void, uri: *const c_char) -> Result<Arc<Slot>, Failure> {
    if uri.is_null() {
        return Err(invalid("a table is named by its URI"));
    }
    // SAFETY: not null, and a string by this function's contract.
    let uri = unsafe { CStr::from_ptr(uri) };
    let change = CHANGES.load(Ordering::Relaxed);
    let known = RESOLVED.with_borrow(|resolved| {
        let is_known = resolved.change == change && resolved.connection == connection as usize;
        resolved.slot.clone().filter(|_| is_known && resolved.uri.as_c_str() == uri)
    });
    if let Some(slot) = known {
        return Ok(slot);
    }
    let name = match uri.to_bytes().strip_prefix(b"file:") {
        Some(name) => String::from_utf8(name.to_vec()).map_err(|_| invalid("a URI is not UTF-8"))?,
        // SAFETY: by this function's contract.
        None => unsafe { file_below(session, connection, uri, false) }?,
    };
    let slot = find_slot(connection as usize, &name)?;
    let resolved =
        Resolved { change, connection: connection as usize, uri: uri.to_owned(), slot: Some(Arc::clone(&slot)) };
    RESOLVED.with_borrow_mut(|known| *known = resolved);
    Ok(slot)
}

/// The file of a table, as WiredTiger's metadata names it; with `pushed` one whose keys the server can look up.
///
/// # Safety
/// `session` is one of the connection.
unsafe fn file_below(
    session: *mut c_void,
    connection: *const c_void,
    uri: &CStr,
    pushed: bool,
) -> Result<String, Failure> {
    // Others than this library's have no decisions.
    find_space(connection as usize).ok_or_else(|| foreign(&uri.to_string_lossy()))?;
    let mut name: [c_char; NAME_LEN] = [0; NAME_LEN];
    // SAFETY: a session by this function's contract, a string, and room for a name; the string in it ends with a NUL.
    let (error, name) = unsafe {
        let error = dswc_file_of(session, uri.as_ptr(), pushed, name.as_mut_ptr());
        (error, CStr::from_ptr(name.as_ptr()))
    };
    match error {
        0 => name.to_str().map(str::to_owned).map_err(|_| invalid("a name is not UTF-8")),
        error => Err(failure::last_as(error)),
    }
}

fn foreign(uri: &str) -> Failure {
    Failure::new(libc::ENOENT, uri, &"this connection was not opened with this library")
}

fn find_space(connection: usize) -> Option<Arc<Space>> {
    let open = OPEN.read().unwrap_or_else(PoisonError::into_inner);
    open.iter().filter(|(at, _)| *at == connection).find_map(|(_, space)| space.upgrade())
}

fn find_slot(connection: usize, name: &str) -> Result<Arc<Slot>, Failure> {
    let space = find_space(connection).ok_or_else(|| foreign(name))?;
    if let Some(slot) = space.known_slot(name) {
        return Ok(slot);
    }
    match space.len_of(name)? {
        Some(_) => Ok(space.slot(name)),
        None => Err(Failure::new(libc::ENOENT, name, &"the database has no such file")),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_hint(
    session: *mut c_void,
    connection: *const c_void,
    uri: *const c_char,
    key: *const c_void,
    key_len: usize,
    ahead: c_uint,
    may_push: bool,
) -> c_int {
    guarded(|| {
        let key = match key_len {
            0 => &[],
            // SAFETY: the caller gives so many bytes.
            _ => unsafe { std::slice::from_raw_parts(key.cast::<u8>(), key_len) },
        };
        // SAFETY: the caller gives a session and a string.
        let slot = unsafe { slot_of(session, connection, uri) }?;
        THREAD.with_borrow_mut(|thread| thread.hint(&slot, key, ahead, may_push));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_hint_end(value: *mut *const c_void, value_len: *mut usize) -> c_int {
    THREAD.with_borrow_mut(|thread| match thread.answer() {
        Ended::NotAnswered => 0,
        Ended::Again => 2,
        Ended::Absent => 1,
        Ended::Value(bytes) => {
            // SAFETY: glue.c gives room for both.
            unsafe { (*value, *value_len) = (bytes.as_ptr().cast(), bytes.len()) };
            1
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_policy(
    session: *mut c_void,
    connection: *const c_void,
    uri: *const c_char,
    policy: c_int,
    sample_percent: c_uint,
) -> c_int {
    guarded(|| {
        let policy = match policy {
            0 => Policy::Off,
            1 => Policy::Path,
            2 => Policy::Push,
            _ => return Err(invalid("a policy is DS_WT_OFF, DS_WT_PATH or DS_WT_PUSH")),
        };
        if sample_percent > 100 {
            return Err(invalid("a sample is 0 to 100 percent"));
        }
        let may_push = find_space(connection as usize).is_some_and(|space| space.options.may_push);
        if policy == Policy::Push && !may_push {
            return Err(invalid("DS_WT_PUSH needs WiredTiger 10 or newer, or push_old=true"));
        }
        if policy == Policy::Push && !uri.is_null() {
            // SAFETY: the caller gives a session and a string.
            unsafe { file_below(session, connection, CStr::from_ptr(uri), true) }?;
        }
        // SAFETY: the caller gives a session and a string.
        let slot = unsafe { slot_of(session, connection, uri) }?;
        if policy == Policy::Push && slot.truncated.load(Ordering::Acquire) {
            return Err(invalid("ranges of the table were truncated: DS_WT_PUSH could give deleted values"));
        }
        slot.sample_percent.store(sample_percent, Ordering::Relaxed);
        slot.set_policy(policy);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_truncated(connection: *const c_void, file: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: glue.c gives a string.
        let name = unsafe { text(file)? };
        find_slot(connection as usize, name)?.truncated.store(true, Ordering::SeqCst);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dsw_refuse(uri: *const c_char, why: *const c_char) {
    guarded(|| {
        // SAFETY: glue.c gives strings.
        let (uri, why) = unsafe { (text(uri)?, text(why)?) };
        Err(Failure::new(libc::EINVAL, uri, &why))
    });
}

/// The entry point of the extension.
#[unsafe(no_mangle)]
unsafe extern "C" fn diskside_wiredtiger(connection: *mut c_void, config: *mut c_void) -> c_int {
    // SAFETY: WiredTiger passes what an extension's entry point takes.
    unsafe { dswc_init(connection, config) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ds_wt_hint(session: *mut c_void, uri: *const c_char, key: *const c_void, key_len: usize) -> c_int {
    // SAFETY: the caller gives a session, a string and a key.
    unsafe { dsw_hint(session, dswc_connection(session), uri, key, key_len, 0, false) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ds_wt_hint_scan(
    session: *mut c_void,
    uri: *const c_char,
    key: *const c_void,
    key_len: usize,
    leaves: c_uint,
) -> c_int {
    // SAFETY: the caller gives a session, a string and a key.
    unsafe { dsw_hint(session, dswc_connection(session), uri, key, key_len, leaves.max(1), false) }
}

#[unsafe(no_mangle)]
extern "C" fn ds_wt_hint_end(_session: *mut c_void) -> c_int {
    THREAD.with_borrow_mut(Thread::end);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ds_wt_search(cursor: *mut c_void) -> c_int {
    // SAFETY: the caller gives a cursor.
    unsafe { dswc_search(cursor) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ds_wt_policy(
    session: *mut c_void,
    uri: *const c_char,
    policy: c_int,
    sample_percent: c_uint,
) -> c_int {
    // SAFETY: the caller gives a session and a string.
    unsafe { dsw_policy(session, dswc_connection(session), uri, policy, sample_percent) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ds_wt_truncate(
    session: *mut c_void,
    uri: *const c_char,
    start: *mut c_void,
    stop: *mut c_void,
    config: *const c_char,
) -> c_int {
    // SAFETY: the caller gives what WT_SESSION::truncate takes.
    unsafe { dswc_truncate(session, uri, start, stop, config) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ds_wt_stats(stats: *mut [u64; 12 + FALLBACKS]) -> c_int {
    // SAFETY: the caller gives a whole structure, which is so many numbers.
    unsafe { *stats = STATS.snapshot() };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ds_wt_fallback_name(index: c_uint) -> *const c_char {
    static NAMES: std::sync::OnceLock<Vec<CString>> = std::sync::OnceLock::new();
    let all = || (0..FALLBACKS).map_while(stats::name).map(|name| CString::new(name).unwrap_or_default()).collect();
    NAMES.get_or_init(all).get(index as usize).map_or(ptr::null(), |name| name.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn ds_wt_error() -> *const c_char {
    failure::last()
}
