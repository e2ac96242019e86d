//! A handshake by OpenSSL, on memory: bytes in, bytes out, and at its end the traffic secrets.

mod library;

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use diskside_nvme::auth::{Hash, TlsPsk};
use zeroize::Zeroizing;

use self::library::{Bio, Context, Digest, FindSession, KeyLog, Library, Session, Ssl, UseSession};
pub use self::library::{Unavailable, is_available};
use crate::schedule::Secrets;

/// Which side this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Server,
}

/// One handshake.
pub(crate) struct Machine {
    library: &'static Library,
    ssl: NonNull<Ssl>,
    /// Owned by `ssl`: what came, and what is to be sent.
    input: NonNull<Bio>,
    output: NonNull<Bio>,
    /// Ours, and known to OpenSSL's callbacks, which use it only while a method of ours calls OpenSSL.
    notes: NonNull<Notes>,
    side: Side,
}

// SAFETY: OpenSSL's objects may be used by any thread, by one at a time; `Machine` is used through `&mut`. OpenSSL itself guards
// what they share with others, the context.
unsafe impl Send for Machine {}

/// The data that callbacks are given, and their findings.
struct Notes {
    psk: TlsPsk,
    /// The secrets of the data that the host sends, and of the data that the server sends.
    host: Option<Zeroizing<Vec<u8>>>,
    server: Option<Zeroizing<Vec<u8>>>,
}

/// How far a handshake is.
pub(crate) enum Progress {
    NeedsMore,
    Done(Secrets),
    /// It failed: why, and the alert that the other side sent, if it did.
    Failed {
        why: String,
        theirs: Option<u8>,
    },
}

impl Machine {
    pub(crate) fn new(side: Side, psk: TlsPsk) -> Result<Self, Unavailable> {
        let library = Library::get()?;
        let context = context(side)?;
        let failed = || Unavailable::Setup("no connection can be made");
        let suite = if psk.hash == Hash::Sha256 { c"TLS_AES_128_GCM_SHA256" } else { c"TLS_AES_256_GCM_SHA384" };
        // SAFETY: the context lives for ever. Objects made here are freed in `drop`, or below where there is none yet: the two
        // BIOs belong to the connection once they are set.
        unsafe {
            let ssl = NonNull::new((library.SSL_new)(context.context)).ok_or_else(failed)?;
            let bio = || NonNull::new((library.BIO_new)((library.BIO_s_mem)()));
            let (Some(input), output) = (bio(), bio()) else {
                (library.SSL_free)(ssl.as_ptr());
                return Err(failed());
            };
            let Some(output) = output else {
                (library.BIO_free)(input.as_ptr());
                (library.SSL_free)(ssl.as_ptr());
                return Err(failed());
            };
            (library.SSL_set_bio)(ssl.as_ptr(), input.as_ptr(), output.as_ptr());
            let notes = Box::new(Notes { psk, host: None, server: None });
            let notes = NonNull::from(Box::leak(notes));
            let machine = Self { library, ssl, input, output, notes, side };
            let is_set = (library.SSL_set_ex_data)(ssl.as_ptr(), context.index, notes.as_ptr().cast());
            if is_set != 1 || (library.SSL_set_ciphersuites)(ssl.as_ptr(), suite.as_ptr()) != 1 {
                return Err(failed());
            }
            match side {
                Side::Host => (library.SSL_set_connect_state)(ssl.as_ptr()),
                Side::Server => (library.SSL_set_accept_state)(ssl.as_ptr()),
            }
            Ok(machine)
        }
    }

    /// Takes what came, goes as far as it gets, and appends what is to be sent.
    pub(crate) fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Progress {
        let Self { library, ssl, .. } = *self;
        self.write(input);
        // SAFETY: the connection is alive, and its callbacks find the notes, which are.
        let (result, error) = unsafe {
            (library.ERR_clear_error)();
            let result = (library.SSL_do_handshake)(ssl.as_ptr());
            (result, (library.SSL_get_error)(ssl.as_ptr(), result))
        };
        read(library, self.output, out);
        if result == 1 {
            return self.finish();
        }
        if error == WANT_READ {
            return Progress::NeedsMore;
        }
        let mut first = None;
        // SAFETY: the queue of errors is this thread's; reasons are strings that live for ever.
        let (why, theirs) = unsafe {
            loop {
                match (library.ERR_get_error)() {
                    0 => break,
                    code => drop(first.get_or_insert(code)),
                }
            }
            let code = first.unwrap_or(0);
            let reason = (library.ERR_reason_error_string)(code);
            let why = match reason.is_null() {
                true => format!("OpenSSL's error {code:x}"),
                false => CStr::from_ptr(reason).to_string_lossy().into_owned(),
            };
            (why, alert_of(code))
        };
        Progress::Failed { why, theirs }
    }

    /// Whether a server has said all that it has to say.
    pub(crate) fn has_answered(&self) -> bool {
        // SAFETY: no callback runs now, so nobody else uses the notes.
        self.side == Side::Server && unsafe { self.notes.as_ref() }.server.is_some()
    }

    /// The bytes behind the handshake: they are sealed already.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        read(self.library, self.input, &mut rest);
        rest
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK_LEN) {
            // SAFETY: `chunk` is as long as is said. Memory takes all of it.
            let written =
                unsafe { (self.library.BIO_write)(self.input.as_ptr(), chunk.as_ptr().cast(), chunk.len() as c_int) };
            assert_eq!(written, chunk.len() as c_int, "memory takes what it is given, or there is none");
        }
    }

    fn finish(&mut self) -> Progress {
        // SAFETY: no callback runs now, so nobody else uses the notes; and the connection is alive.
        let (notes, reused) = unsafe { (self.notes.as_mut(), (self.library.SSL_session_reused)(self.ssl.as_ptr())) };
        let failed = |why: &str| Progress::Failed { why: why.into(), theirs: None };
        if reused != 1 {
            return failed("the other side did not use the key");
        }
        let (Some(host), Some(server)) = (notes.host.take(), notes.server.take()) else {
            return failed("OpenSSL did not give the keys of the channel");
        };
        let (ours, theirs) = if self.side == Side::Host { (host, server) } else { (server, host) };
        Progress::Done(Secrets { hash: notes.psk.hash, ours, theirs })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: both are ours; the connection, which frees its BIOs, is the last that knew the notes.
        unsafe {
            (self.library.SSL_free)(self.ssl.as_ptr());
            drop(Box::from_raw(self.notes.as_ptr()));
        }
    }
}

/// Appends all that is in a BIO.
fn read(library: &Library, bio: NonNull<Bio>, out: &mut Vec<u8>) {
    let mut chunk = Zeroizing::new([0_u8; CHUNK_LEN]);
    loop {
        // SAFETY: `chunk` has room for as many bytes as are asked for.
        let len = unsafe { (library.BIO_read)(bio.as_ptr(), chunk.as_mut_ptr().cast(), CHUNK_LEN as c_int) };
        match usize::try_from(len) {
            Ok(len @ 1..) => out.extend_from_slice(&chunk[..len]),
            _ => return,
        }
    }
}

/// The data that all handshakes of a side share, and the number under which a connection keeps its notes.
#[derive(Clone, Copy)]
struct Common {
    context: *mut Context,
    index: c_int,
}

// SAFETY: a context may be used by several threads; nothing changes it any more.
unsafe impl Send for Common {}
// SAFETY: as above.
unsafe impl Sync for Common {}

fn context(side: Side) -> Result<Common, Unavailable> {
    static CONTEXTS: [OnceLock<Result<Common, Unavailable>>; 2] = [OnceLock::new(), OnceLock::new()];
    CONTEXTS[side as usize].get_or_init(|| make_context(side)).clone()
}

fn make_context(side: Side) -> Result<Common, Unavailable> {
    let library = Library::get()?;
    let index = index(library)?;
    // SAFETY: a new context, which nobody else knows yet and which is never freed. The numbers of controls and options, and
    // what each takes, are those of OpenSSL 3's headers.
    unsafe {
        let context = (library.SSL_CTX_new)((library.TLS_method)());
        if context.is_null() {
            return Err(Unavailable::Setup("no context can be made"));
        }
        let control =
            |command, number, pointer: *mut c_void| (library.SSL_CTX_ctrl)(context, command, number, pointer) == 1;
        let groups = GROUPS.as_ptr().cast_mut().cast();
        let is_set = control(SET_MIN_PROTO_VERSION, TLS_1_3, ptr::null_mut())
            && control(SET_MAX_PROTO_VERSION, TLS_1_3, ptr::null_mut())
            && control(SET_GROUPS_LIST, 0, groups)
            && (library.SSL_CTX_set_num_tickets)(context, 0) == 1;
        if !is_set {
            return Err(Unavailable::Setup("it does not know TLS 1.3 as it is needed"));
        }
        // The mode before this does not matter.
        (library.SSL_CTX_ctrl)(context, SET_SESS_CACHE_MODE, 0, ptr::null_mut());
        (library.SSL_CTX_set_options)(context, CIPHER_SERVER_PREFERENCE | NO_RENEGOTIATION);
        (library.SSL_CTX_clear_options)(context, ENABLE_MIDDLEBOX_COMPAT | ALLOW_NO_DHE_KEX);
        // No certificate is as good as a key: there is nobody whose signature would be trusted.
        (library.SSL_CTX_set_verify)(context, VERIFY_PEER, None);
        (library.SSL_CTX_set_keylog_callback)(context, Some(note_secret as KeyLog));
        match side {
            Side::Host => {
                (library.SSL_CTX_set_psk_use_session_callback)(context, Some(use_session as UseSession));
            }
            Side::Server => {
                // There is no certificate to ask for.
                (library.SSL_CTX_set_verify)(context, 0, None);
                (library.SSL_CTX_set_psk_find_session_callback)(context, Some(find_session as FindSession));
            }
        }
        Ok(Common { context, index })
    }
}

fn index(library: &Library) -> Result<c_int, Unavailable> {
    static INDEX: OnceLock<c_int> = OnceLock::new();
    // SAFETY: a number for what connections keep; nothing is to be called for it.
    let index = *INDEX.get_or_init(|| unsafe {
        (library.CRYPTO_get_ex_new_index)(EX_INDEX_SSL, 0, ptr::null_mut(), ptr::null(), ptr::null(), ptr::null())
    });
    if index >= 0 { Ok(index) } else { Err(Unavailable::Setup("it has no room for what is kept of connections")) }
}

/// The notes of a connection.
///
/// # Safety
/// `ssl` is a connection of a [`Machine`], during a call of the machine's; what is returned is gone after it.
unsafe fn notes<'a>(ssl: *const Ssl) -> Option<(&'static Library, &'a mut Notes)> {
    let library = Library::get().ok()?;
    let index = index(library).ok()?;
    // SAFETY: under this index is what `Machine::new` put there, or nothing; nobody else uses it now, as the caller says.
    let notes = unsafe { (library.SSL_get_ex_data)(ssl, index).cast::<Notes>().as_mut()? };
    Some((library, notes))
}

/// The key as OpenSSL wants it.
///
/// # Safety
/// `ssl` is a connection.
unsafe fn session(library: &Library, ssl: *mut Ssl, psk: &TlsPsk) -> *mut Session {
    let suite: [c_uchar; 2] = if psk.hash == Hash::Sha256 { [0x13, 0x01] } else { [0x13, 0x02] };
    // SAFETY: a new session, which is OpenSSL's from here on or freed; the key is as long as is said, and is copied.
    unsafe {
        let session = (library.SSL_SESSION_new)();
        let cipher = (library.SSL_CIPHER_find)(ssl, suite.as_ptr());
        if session.is_null() || cipher.is_null() {
            if !session.is_null() {
                (library.SSL_SESSION_free)(session);
            }
            return ptr::null_mut();
        }
        let is_set = (library.SSL_SESSION_set1_master_key)(session, psk.key.as_ptr(), psk.key.len()) == 1
            && (library.SSL_SESSION_set_cipher)(session, cipher) == 1
            && (library.SSL_SESSION_set_protocol_version)(session, TLS_1_3 as c_int) == 1;
        if is_set {
            return session;
        }
        (library.SSL_SESSION_free)(session);
        ptr::null_mut()
    }
}

/// The host's key.
///
/// # Safety
/// OpenSSL calls it, during a handshake of a [`Machine`].
unsafe extern "C" fn use_session(
    ssl: *mut Ssl,
    _: *const Digest,
    identity: *mut *const c_uchar,
    identity_len: *mut usize,
    found: *mut *mut Session,
) -> c_int {
    // SAFETY: as the caller says; the three places to write to are OpenSSL's. The identity stays where it is as long as the
    // connection lives.
    unsafe {
        let Some((library, notes)) = notes(ssl) else { return 0 };
        let session = session(library, ssl, &notes.psk);
        if session.is_null() {
            return 0;
        }
        *identity = notes.psk.identity.as_ptr();
        *identity_len = notes.psk.identity.len();
        *found = session;
        1
    }
}

/// The server's key for an identity: there is one, that of the host's which was chosen.
///
/// # Safety
/// As of [`use_session`].
unsafe extern "C" fn find_session(
    ssl: *mut Ssl,
    identity: *const c_uchar,
    identity_len: usize,
    found: *mut *mut Session,
) -> c_int {
    // SAFETY: as the caller says; the identity is as long as OpenSSL says, and the place to write to is its.
    unsafe {
        *found = ptr::null_mut();
        let Some((library, notes)) = notes(ssl) else { return 0 };
        if identity.is_null() || std::slice::from_raw_parts(identity, identity_len) != notes.psk.identity.as_bytes() {
            return 1;
        }
        *found = session(library, ssl, &notes.psk);
        c_int::from(!(*found).is_null())
    }
}

/// A secret of the handshake, as a line of text.
///
/// # Safety
/// As of [`use_session`].
unsafe extern "C" fn note_secret(ssl: *const Ssl, line: *const c_char) {
    // SAFETY: as the caller says; the line is a string of C.
    let (Some((_, notes)), line) = (unsafe { (notes(ssl), CStr::from_ptr(line)) }) else { return };
    let Ok(line) = line.to_str() else { return };
    let mut words = line.split(' ');
    let place = match words.next() {
        Some("CLIENT_TRAFFIC_SECRET_0") => &mut notes.host,
        Some("SERVER_TRAFFIC_SECRET_0") => &mut notes.server,
        _ => return,
    };
    *place = words.nth(1).and_then(|text| from_hex(text, notes.psk.hash.len_bytes()));
}

fn from_hex(text: &str, len: usize) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks_exact(2);
    let bytes = pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect::<Option<Vec<u8>>>();
    bytes.map(Zeroizing::new).filter(|bytes| bytes.len() == len && text.len() == 2 * len)
}

/// The alert that the other side sent, if that is what an error says (`SSL_AD_REASON_OFFSET`).
fn alert_of(code: std::ffi::c_ulong) -> Option<u8> {
    let (library, reason) = ((code >> 23) & 0xff, code & 0x7f_ffff);
    if library != LIB_SSL { None } else { reason.checked_sub(1000).and_then(|alert| u8::try_from(alert).ok()) }
}

/// The cheapest first: it is what a server takes of those that a host offers.
const GROUPS: &CStr = c"X25519:P-256:P-384";
const CHUNK_LEN: usize = 4096;

const TLS_1_3: std::ffi::c_long = 0x0304;
const WANT_READ: c_int = 2;
const VERIFY_PEER: c_int = 1;
const EX_INDEX_SSL: c_int = 0;
const LIB_SSL: std::ffi::c_ulong = 20;
const SET_SESS_CACHE_MODE: c_int = 44;
const SET_GROUPS_LIST: c_int = 92;
const SET_MIN_PROTO_VERSION: c_int = 123;
const SET_MAX_PROTO_VERSION: c_int = 124;
const ALLOW_NO_DHE_KEX: u64 = 1 << 10;
const ENABLE_MIDDLEBOX_COMPAT: u64 = 1 << 20;
const CIPHER_SERVER_PREFERENCE: u64 = 1 << 22;
const NO_RENEGOTIATION: u64 = 1 << 30;
