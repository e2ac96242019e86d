//! SQLite's interface for extensions, as far as it is used here (`sqlite3ext.h`, `sqlite3.h`; SQLite only ever appends to it).
//!
//! The VFS `diskside` opens databases whose names are URLs of exports; all other files are those of the default VFS. Nothing
//! unwinds into SQLite: a panic becomes an error.

use super::failure::{self, Failure};
use super::open::{self, Database};
use super::options::Options;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;

const OK: c_int = 0;
const ERROR: c_int = 1;
const NOMEM: c_int = 7;
const READONLY: c_int = 8;
const NOTFOUND: c_int = 12;
const CANTOPEN: c_int = 14;
const IOERR_READ: c_int = 10 | 1 << 8;
const IOERR_SHORT_READ: c_int = 10 | 2 << 8;
const OK_LOAD_PERMANENTLY: c_int = 1 << 8;
const OPEN_READONLY: c_int = 1;
const OPEN_MAIN_DB: c_int = 0x100;
/// The file does not change while it is open: SQLite takes no locks, and looks for no journal.
const IOCAP_IMMUTABLE: c_int = 0x2000;
const FCNTL_VFSNAME: c_int = 12;
const FCNTL_PRAGMA: c_int = 14;
const UTF8: c_int = 1;
/// The first version that keeps an extension loaded when the connection that loaded it is closed.
const VERSION_MIN: c_int = 3_014_000;
const NAME: &CStr = c"diskside";
const PATH_LEN_MAX: c_int = 8192;

/// The beginning of `sqlite3_api_routines`: pointers to functions.
#[repr(C)]
pub(crate) struct Api([*const c_void; 193]);

/// Positions of functions in it.
mod position {
    pub(super) const LIBVERSION_NUMBER: usize = 67;
    pub(super) const MALLOC: usize = 68;
    pub(super) const RESULT_NULL: usize = 84;
    pub(super) const RESULT_TEXT: usize = 85;
    pub(super) const VFS_FIND: usize = 141;
    pub(super) const VFS_REGISTER: usize = 142;
    pub(super) const CREATE_FUNCTION_V2: usize = 162;
    pub(super) const LOG: usize = 167;
    pub(super) const URI_PARAMETER: usize = 189;
    pub(super) const AUTO_EXTENSION: usize = 192;
}

type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
type ResultText = unsafe extern "C" fn(*mut c_void, *const c_char, c_int, isize);
type Function = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void);
type CreateFunction = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    c_int,
    c_int,
    *mut c_void,
    Option<Function>,
    *const c_void,
    *const c_void,
    *const c_void,
) -> c_int;
type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;
type Entry = unsafe extern "C" fn(*mut c_void, *mut *mut c_char, *const Api) -> c_int;

#[repr(C)]
struct Vfs {
    version: c_int,
    file_len: c_int,
    path_len_max: c_int,
    next: *mut Vfs,
    name: *const c_char,
    data: *mut c_void,
    open: unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    delete: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int,
    access: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int,
    full_path: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int,
    dl_open: unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void,
    dl_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char),
    dl_symbol: unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> *mut c_void,
    dl_close: unsafe extern "C" fn(*mut Vfs, *mut c_void),
    randomness: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    sleep: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    current_time: unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int,
    last_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
}

/// An open database of an export. Other files are larger, and the default VFS knows how they are laid out.
#[repr(C)]
struct File {
    methods: *const Methods,
    database: *mut Database,
}

#[repr(C)]
struct Methods {
    version: c_int,
    close: unsafe extern "C" fn(*mut File) -> c_int,
    read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int,
    write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int,
    truncate: unsafe extern "C" fn(*mut File, i64) -> c_int,
    sync: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    len: unsafe extern "C" fn(*mut File, *mut i64) -> c_int,
    lock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    unlock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    is_reserved: unsafe extern "C" fn(*mut File, *mut c_int) -> c_int,
    control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int,
    sector_len: unsafe extern "C" fn(*mut File) -> c_int,
    characteristics: unsafe extern "C" fn(*mut File) -> c_int,
}

static METHODS: Methods = Methods {
    version: 1,
    close,
    read,
    write,
    truncate,
    sync,
    len,
    lock,
    unlock: lock,
    is_reserved,
    control,
    sector_len,
    characteristics,
};

/// The SQLite that loaded this, which is one in a process.
struct Host {
    api: *const Api,
    default: *mut Vfs,
}

// SAFETY: SQLite's functions, and those of a VFS, are called from any thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

static HOST: OnceLock<Host> = OnceLock::new();

impl Host {
    /// # Safety
    /// `F` is the type of the function at this position of the API.
    unsafe fn call<F: Copy>(&self, position: usize) -> F {
        // SAFETY: the API is there as long as SQLite is; `F` is a pointer to a function, as the caller promises.
        unsafe { function(self.api, position) }
    }

    /// Text in memory that SQLite frees; NULL: there is none left.
    fn text(&self, text: &str) -> *mut c_char {
        let bytes = [text.replace('\0', "?").as_bytes(), b"\0"].concat();
        let Ok(len) = c_int::try_from(bytes.len()) else { return ptr::null_mut() };
        // SAFETY: the memory is as long as what is copied there.
        unsafe {
            let memory: *mut u8 = self.call::<Malloc>(position::MALLOC)(len).cast();
            if !memory.is_null() {
                ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
            }
            memory.cast()
        }
    }

    /// Tells of a failure in the ways there are: SQLite's log, and `diskside_error()`.
    fn told(&self, code: c_int, failure: &Failure) -> c_int {
        failure.note();
        let text = CString::new(failure.to_string().replace('\0', "?")).unwrap_or_default();
        // SAFETY: the format takes one string.
        unsafe { self.call::<Log>(position::LOG)(code, c"diskside: %s".as_ptr(), text.as_ptr()) };
        code
    }
}

/// # Safety
/// The API is valid, and `F` is the type of the function at this position.
unsafe fn function<F: Copy>(api: *const Api, position: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the caller's promises.
    unsafe { std::mem::transmute_copy(&(&(*api).0)[position]) }
}

fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// # Safety
/// NULL, or a string.
unsafe fn url<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    let scheme = text.split_once("://")?.0;
    scheme.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("diskside")).then_some(text)
}

/// The entry point that SQLite derives from the name of the file.
///
/// # Safety
/// As SQLite calls it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sqlite3_disksidesqlite_init(
    connection: *mut c_void,
    error: *mut *mut c_char,
    api: *const Api,
) -> c_int {
    // SAFETY: the caller's promises.
    unsafe { sqlite3_diskside_init(connection, error, api) }
}

/// Registers the VFS, once, and the function `diskside_error()` of this connection and all that are opened later.
///
/// # Safety
/// As SQLite calls it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sqlite3_diskside_init(
    connection: *mut c_void,
    error: *mut *mut c_char,
    api: *const Api,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: an API has these functions since long before the least version.
        let version = unsafe { function::<unsafe extern "C" fn() -> c_int>(api, position::LIBVERSION_NUMBER)() };
        let host = HOST.get_or_init(|| {
            // SAFETY: the default VFS of SQLite stays.
            let find = unsafe { function::<unsafe extern "C" fn(*const c_char) -> *mut Vfs>(api, position::VFS_FIND) };
            // SAFETY: NULL means the default VFS.
            Host { api, default: unsafe { find(ptr::null()) } }
        });
        let why = if version < VERSION_MIN {
            "diskside needs SQLite 3.14 or newer"
        } else if host.api != api {
            "another SQLite of this process has loaded diskside"
        } else if host.default.is_null() {
            "there is no default VFS"
        } else {
            static REGISTERED: OnceLock<c_int> = OnceLock::new();
            let registered = *REGISTERED.get_or_init(|| register(host));
            // SAFETY: SQLite's own connection and API.
            let added = unsafe { add_function(connection, ptr::null_mut(), api) };
            if registered == OK && added == OK {
                return OK_LOAD_PERMANENTLY;
            }
            "SQLite does not register the VFS or the function of diskside"
        };
        if !error.is_null() {
            // SAFETY: a place for a message that SQLite frees.
            unsafe { *error = host.text(why) };
        }
        ERROR
    })
}

fn register(host: &'static Host) -> c_int {
    // SAFETY: the default VFS is there, as was looked before.
    let file_len = unsafe { (*host.default).file_len }.max(size_of::<File>() as c_int);
    // SQLite keeps it as long as there is a process.
    let vfs = Box::leak(Box::new(Vfs {
        version: 1,
        file_len,
        path_len_max: PATH_LEN_MAX,
        next: ptr::null_mut(),
        name: NAME.as_ptr(),
        data: ptr::null_mut(),
        open,
        delete,
        access,
        full_path,
        dl_open,
        dl_error,
        dl_symbol,
        dl_close,
        randomness,
        sleep,
        current_time,
        last_error,
    }));
    // SAFETY: the types of SQLite's functions; what is handed over stays.
    unsafe {
        let registered = host.call::<unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>(position::VFS_REGISTER)(vfs, 0);
        let entry: Entry = add_function;
        let added = host.call::<unsafe extern "C" fn(Entry) -> c_int>(position::AUTO_EXTENSION)(entry);
        if registered == OK { added } else { registered }
    }
}

/// # Safety
/// As SQLite calls the entry of an extension.
unsafe extern "C" fn add_function(connection: *mut c_void, _: *mut *mut c_char, api: *const Api) -> c_int {
    guarded(ERROR, || {
        let Some(host) = HOST.get().filter(|host| host.api == api || api.is_null()) else { return OK };
        let (name, none) = (c"diskside_error".as_ptr(), ptr::null());
        // SAFETY: the type of SQLite's function; the name is copied.
        unsafe {
            let create = host.call::<CreateFunction>(position::CREATE_FUNCTION_V2);
            create(connection, name, 0, UTF8, ptr::null_mut(), Some(error_text), none, none, none)
        }
    })
}

/// # Safety
/// As SQLite calls a function.
unsafe extern "C" fn error_text(context: *mut c_void, _: c_int, _: *mut c_void) {
    /// SQLite's mark of text that it has to copy.
    const TRANSIENT: isize = -1;
    guarded((), || {
        let Some(host) = HOST.get() else { return };
        let text = failure::last().and_then(|text| CString::new(text.replace('\0', "?")).ok());
        // SAFETY: the types of SQLite's functions; the text is copied.
        unsafe {
            match text {
                Some(text) => host.call::<ResultText>(position::RESULT_TEXT)(context, text.as_ptr(), -1, TRANSIENT),
                None => host.call::<unsafe extern "C" fn(*mut c_void)>(position::RESULT_NULL)(context),
            }
        }
    });
}

/// # Safety
/// As SQLite calls a VFS: `name` is NULL or lives as long as the file, which is long enough for the VFS.
unsafe extern "C" fn open(
    _: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    guarded(CANTOPEN, || {
        let Some(host) = HOST.get() else { return CANTOPEN };
        // SAFETY: SQLite's names are NULL or strings.
        let Some(url) = (unsafe { url(name) }) else {
            // SAFETY: the default VFS is called as this one is.
            return unsafe { ((*host.default).open)(host.default, name, file, flags, out_flags) };
        };
        // SAFETY: the file has memory; without methods SQLite does not close it.
        unsafe { (*file).methods = ptr::null() };
        if flags & OPEN_MAIN_DB == 0 {
            return CANTOPEN;
        }
        let parameter = |asked: &str| {
            let asked = CString::new(asked).ok()?;
            // SAFETY: the name is that of a database, behind which SQLite keeps the parameters of its URI.
            let value = unsafe { host.call::<UriParameter>(position::URI_PARAMETER)(name, asked.as_ptr()) };
            // SAFETY: NULL or a string.
            (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
        };
        let options = Options::of(parameter).map_err(|why| Failure::of(url, &why));
        match options.and_then(|options| open::open(url, &options)) {
            Err(failure) => host.told(CANTOPEN, &failure),
            Ok(database) => {
                // SAFETY: the file has memory for this; the flags have a place or none.
                unsafe {
                    *file = File { methods: &METHODS, database: Box::into_raw(Box::new(database)) };
                    if !out_flags.is_null() {
                        *out_flags = flags & !0b111 | OPEN_READONLY;
                    }
                }
                OK
            }
        }
    })
}

/// # Safety
/// As SQLite calls a VFS.
unsafe extern "C" fn delete(_: *mut Vfs, name: *const c_char, sync: c_int) -> c_int {
    let Some(host) = HOST.get() else { return ERROR };
    // SAFETY: a string; the default VFS is called as this one is.
    unsafe { if url(name).is_some() { READONLY } else { ((*host.default).delete)(host.default, name, sync) } }
}

/// # Safety
/// As SQLite calls a VFS.
unsafe extern "C" fn access(_: *mut Vfs, name: *const c_char, flags: c_int, found: *mut c_int) -> c_int {
    let Some(host) = HOST.get() else { return ERROR };
    // SAFETY: a string, and a place for a number; the default VFS is called as this one is.
    unsafe {
        if url(name).is_none() {
            return ((*host.default).access)(host.default, name, flags, found);
        }
        // The files beside a database were looked at when it was opened.
        *found = 0;
    }
    OK
}

/// # Safety
/// As SQLite calls a VFS: there is room for `len` bytes.
unsafe extern "C" fn full_path(_: *mut Vfs, name: *const c_char, len: c_int, out: *mut c_char) -> c_int {
    let Some(host) = HOST.get() else { return CANTOPEN };
    // SAFETY: a string, and room; the default VFS is called as this one is.
    unsafe {
        let Some(url) = url(name) else { return ((*host.default).full_path)(host.default, name, len, out) };
        if url.len() >= len.max(0) as usize {
            return CANTOPEN;
        }
        ptr::copy_nonoverlapping(name, out, url.len() + 1);
    }
    OK
}

/// Functions that are those of the default VFS.
macro_rules! as_by_default {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty = $otherwise:expr)?;)*) => {
        $(
            /// # Safety
            /// As SQLite calls a VFS.
            unsafe extern "C" fn $name(_: *mut Vfs, $($argument: $type),*) $(-> $result)? {
                let Some(host) = HOST.get() else { return $($otherwise)? };
                // SAFETY: the default VFS is called as this one is.
                unsafe { ((*host.default).$name)(host.default, $($argument),*) }
            }
        )*
    };
}

as_by_default! {
    dl_open(name: *const c_char) -> *mut c_void = ptr::null_mut();
    dl_error(len: c_int, out: *mut c_char);
    dl_symbol(library: *mut c_void, name: *const c_char) -> *mut c_void = ptr::null_mut();
    dl_close(library: *mut c_void);
    randomness(len: c_int, out: *mut c_char) -> c_int = 0;
    sleep(microseconds: c_int) -> c_int = 0;
    current_time(out: *mut f64) -> c_int = ERROR;
}

/// # Safety
/// As SQLite calls a VFS: there is room for `len` bytes, or none.
unsafe extern "C" fn last_error(_: *mut Vfs, len: c_int, out: *mut c_char) -> c_int {
    guarded(0, || {
        let text = failure::last().unwrap_or_default();
        if len > 0 && !out.is_null() {
            let count = text.floor_char_boundary(len as usize - 1);
            // SAFETY: the text and its end are at most `len` bytes.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr().cast(), out, count);
                *out.add(count) = 0;
            }
        }
        if text.is_empty() { 0 } else { libc::EIO }
    })
}

/// # Safety
/// The file was opened by this VFS.
unsafe fn database<'a>(file: *mut File) -> &'a mut Database {
    // SAFETY: the caller's promise; SQLite uses a file on one thread at a time.
    unsafe { &mut *(*file).database }
}

/// # Safety
/// As SQLite calls a file, once.
unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: it was made when the file was opened, and is not used again.
    guarded(OK, || unsafe {
        drop(Box::from_raw((*file).database));
        (*file).methods = ptr::null();
        OK
    })
}

/// # Safety
/// As SQLite calls a file: there is room for `len` bytes.
unsafe extern "C" fn read(file: *mut File, out: *mut c_void, len: c_int, offset: i64) -> c_int {
    guarded(IOERR_READ, || {
        let (Some(host), Ok(len), Ok(offset)) = (HOST.get(), usize::try_from(len), u64::try_from(offset)) else {
            return IOERR_READ;
        };
        // SAFETY: an open file, and room that SQLite has: zeroes make it bytes.
        let (database, buffer) = unsafe {
            ptr::write_bytes(out.cast::<u8>(), 0, len);
            (database(file), std::slice::from_raw_parts_mut(out.cast::<u8>(), len))
        };
        match database.read_at(offset, buffer) {
            Ok(count) if count == len => OK,
            Ok(_) => IOERR_SHORT_READ,
            Err(failure) => host.told(IOERR_READ, &failure),
        }
    })
}

unsafe extern "C" fn write(_: *mut File, _: *const c_void, _: c_int, _: i64) -> c_int {
    READONLY
}

unsafe extern "C" fn truncate(_: *mut File, _: i64) -> c_int {
    READONLY
}

unsafe extern "C" fn sync(_: *mut File, _: c_int) -> c_int {
    OK
}

/// # Safety
/// As SQLite calls a file.
unsafe extern "C" fn len(file: *mut File, out: *mut i64) -> c_int {
    // SAFETY: an open file, and a place for a number.
    unsafe { *out = i64::try_from(database(file).len_bytes()).unwrap_or(i64::MAX) };
    OK
}

unsafe extern "C" fn lock(_: *mut File, _: c_int) -> c_int {
    OK
}

/// # Safety
/// As SQLite calls a file.
unsafe extern "C" fn is_reserved(_: *mut File, out: *mut c_int) -> c_int {
    // SAFETY: a place for a number.
    unsafe { *out = 0 };
    OK
}

/// # Safety
/// As SQLite calls a file.
unsafe extern "C" fn control(file: *mut File, what: c_int, argument: *mut c_void) -> c_int {
    guarded(NOTFOUND, || {
        let Some(host) = HOST.get() else { return NOTFOUND };
        let out: *mut *mut c_char = argument.cast();
        let text = match what {
            FCNTL_VFSNAME => "diskside".to_owned(),
            // SAFETY: three strings: a place for the answer, the name, and a value or NULL.
            FCNTL_PRAGMA => match unsafe { CStr::from_ptr(*out.add(1)) }.to_bytes().to_ascii_lowercase().as_slice() {
                // SAFETY: an open file.
                b"diskside_stats" => unsafe { database(file) }.statistics().to_string(),
                _ => return NOTFOUND,
            },
            _ => return NOTFOUND,
        };
        let text = host.text(&text);
        // SAFETY: a place for text that SQLite frees.
        unsafe { *out = text };
        if text.is_null() { NOMEM } else { OK }
    })
}

unsafe extern "C" fn sector_len(_: *mut File) -> c_int {
    4096
}

unsafe extern "C" fn characteristics(_: *mut File) -> c_int {
    IOCAP_IMMUTABLE
}
