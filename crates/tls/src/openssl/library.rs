//! OpenSSL's functions, found when they are first needed.
//!
//! They are not linked: what has no use for TLS must run where there is no OpenSSL, and one build of the library and of the
//! Python package for all distributions. The names and types are those of OpenSSL 3, which promises to keep them.

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

/// OpenSSL's types, of which nobody here looks inside.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub(super) struct $name {
            private: [u8; 0],
        }
    )*};
}

opaque! { Method Context Ssl Session Cipher Bio BioMethod Digest }

/// `SSL_psk_use_session_cb_func`.
pub(super) type UseSession =
    unsafe extern "C" fn(*mut Ssl, *const Digest, *mut *const c_uchar, *mut usize, *mut *mut Session) -> c_int;
/// `SSL_psk_find_session_cb_func`.
pub(super) type FindSession = unsafe extern "C" fn(*mut Ssl, *const c_uchar, usize, *mut *mut Session) -> c_int;
/// `SSL_CTX_keylog_cb_func`.
pub(super) type KeyLog = unsafe extern "C" fn(*const Ssl, *const c_char);
type VerifyCallback = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
/// `CRYPTO_EX_new` and its like, which nobody here needs.
type Unused = *const c_void;

macro_rules! functions {
    ($(fn $name:ident($($type:ty),*) $(-> $result:ty)?;)*) => {
        /// OpenSSL's functions by name.
        #[expect(non_snake_case, reason = "they have OpenSSL's names")]
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Library {
            /// # Safety
            /// `find` gives the functions of OpenSSL 3 that have these names.
            unsafe fn of(find: impl Fn(&CStr) -> Option<*mut c_void>) -> Result<Self, Unavailable> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("it ends with its zero");
                        let found = find(name).ok_or(Unavailable::Function(stringify!($name)))?;
                        // SAFETY: the type is that of the function of this name in OpenSSL 3's headers, as the caller says.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) $(-> $result)?>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    fn OPENSSL_init_ssl(u64, *const c_void) -> c_int;
    fn TLS_method() -> *const Method;
    fn SSL_CTX_new(*const Method) -> *mut Context;
    fn SSL_CTX_ctrl(*mut Context, c_int, c_long, *mut c_void) -> c_long;
    fn SSL_CTX_set_options(*mut Context, u64) -> u64;
    fn SSL_CTX_clear_options(*mut Context, u64) -> u64;
    fn SSL_CTX_set_num_tickets(*mut Context, usize) -> c_int;
    fn SSL_CTX_set_verify(*mut Context, c_int, Option<VerifyCallback>);
    fn SSL_CTX_set_keylog_callback(*mut Context, Option<KeyLog>);
    fn SSL_CTX_set_psk_use_session_callback(*mut Context, Option<UseSession>);
    fn SSL_CTX_set_psk_find_session_callback(*mut Context, Option<FindSession>);
    fn SSL_new(*mut Context) -> *mut Ssl;
    fn SSL_free(*mut Ssl);
    fn SSL_set_bio(*mut Ssl, *mut Bio, *mut Bio);
    fn SSL_set_ciphersuites(*mut Ssl, *const c_char) -> c_int;
    fn SSL_set_accept_state(*mut Ssl);
    fn SSL_set_connect_state(*mut Ssl);
    fn SSL_do_handshake(*mut Ssl) -> c_int;
    fn SSL_get_error(*const Ssl, c_int) -> c_int;
    fn SSL_session_reused(*const Ssl) -> c_int;
    fn SSL_set_ex_data(*mut Ssl, c_int, *mut c_void) -> c_int;
    fn SSL_get_ex_data(*const Ssl, c_int) -> *mut c_void;
    fn SSL_SESSION_new() -> *mut Session;
    fn SSL_SESSION_free(*mut Session);
    fn SSL_SESSION_set1_master_key(*mut Session, *const c_uchar, usize) -> c_int;
    fn SSL_SESSION_set_cipher(*mut Session, *const Cipher) -> c_int;
    fn SSL_SESSION_set_protocol_version(*mut Session, c_int) -> c_int;
    fn SSL_CIPHER_find(*mut Ssl, *const c_uchar) -> *const Cipher;
    fn CRYPTO_get_ex_new_index(c_int, c_long, *mut c_void, Unused, Unused, Unused) -> c_int;
    fn BIO_new(*const BioMethod) -> *mut Bio;
    fn BIO_free(*mut Bio) -> c_int;
    fn BIO_s_mem() -> *const BioMethod;
    fn BIO_read(*mut Bio, *mut c_void, c_int) -> c_int;
    fn BIO_write(*mut Bio, *const c_void, c_int) -> c_int;
    fn ERR_get_error() -> c_ulong;
    fn ERR_clear_error();
    fn ERR_reason_error_string(c_ulong) -> *const c_char;
    fn OpenSSL_version_num() -> c_ulong;
}

/// Why there is no TLS here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// There is no OpenSSL 3.
    #[error("TLS needs OpenSSL 3, and {0}; install it (Debian and Ubuntu: libssl3, Fedora: openssl-libs)")]
    Library(String),
    /// It is another one.
    #[error("TLS needs OpenSSL 3, and the one that is installed has no function {0}")]
    Function(&'static str),
    /// It does not do what it should.
    #[error("OpenSSL cannot be set up: {0}")]
    Setup(&'static str),
}

/// Whether TLS can be used here. Loads what it needs, if that was not loaded.
pub fn is_available() -> Result<(), Unavailable> {
    Library::get().map(|_| ())
}

impl Library {
    pub(super) fn get() -> Result<&'static Self, Unavailable> {
        static LIBRARY: OnceLock<Result<Library, Unavailable>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, Unavailable> {
        let ssl = open(c"libssl.so.3")?;
        // The one that libssl itself needs, so it is there already.
        let crypto = open(c"libcrypto.so.3")?;
        let find = |name: &CStr| {
            // SAFETY: both are handles of libraries that stay loaded, and `name` is a string of C.
            let mut found = [ssl, crypto].into_iter().map(|library| unsafe { libc::dlsym(library, name.as_ptr()) });
            found.find(|address| !address.is_null())
        };
        // SAFETY: libssl.so.3 and libcrypto.so.3 are OpenSSL 3, whatever its minor version.
        let library = unsafe { Self::of(find)? };
        // SAFETY: it may be called at any time; no settings are given.
        if unsafe { (library.OPENSSL_init_ssl)(NO_ATEXIT, std::ptr::null()) } != 1 {
            return Err(Unavailable::Setup("it does not start"));
        }
        // SAFETY: as above.
        let version = unsafe { (library.OpenSSL_version_num)() };
        tracing::debug!(version = format!("{version:08x}"), "OpenSSL is loaded");
        Ok(library)
    }
}

fn open(name: &CStr) -> Result<*mut c_void, Unavailable> {
    // SAFETY: `name` is a string of C; OpenSSL's initialisers do nothing that others see.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: what it gives is a string of C, valid until this thread's next call, or none.
    let error = unsafe { libc::dlerror() };
    let why = match error.is_null() {
        true => format!("{} cannot be loaded", name.to_string_lossy()),
        // SAFETY: as above.
        false => unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned(),
    };
    Err(Unavailable::Library(why))
}

/// `OPENSSL_INIT_NO_ATEXIT`: what it holds goes with the process. Cleaning up at its end would take it from threads that
/// still run.
const NO_ATEXIT: u64 = 0x0008_0000;

const _: () = assert!(size_of::<c_uint>() == 4);
