//! Which interface of the kernel rings use: io_uring, or where that is denied or too old, epoll and threads.

use std::fmt;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use io_uring::{EnterFlags, Probe, opcode};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::config::RingConfig;
use super::uring::build;

/// Selects the interface by hand: `io_uring` or `posix`.
pub(super) const VARIABLE: &str = "DISKSIDE_IO";
/// What the kernel's administrator says about io_uring.
const SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// Which interface of the kernel the rings of this process use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// One io_uring for each ring.
    IoUring,
    /// Sockets by epoll, files by `preadv2` and some threads; and why.
    Posix(String),
}

impl Interface {
    /// Its short name, which `DISKSIDE_IO` takes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Posix(_) => "posix",
        }
    }

    /// Whether `DISKSIDE_IO` asks for it, and not the kernel's refusal of another one.
    pub fn is_asked_for(&self) -> bool {
        wanted().as_deref() == Some(self.name())
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IoUring => f.write_str("io_uring"),
            Self::Posix(why) => write!(f, "epoll and threads instead of io_uring, which is slower: {why}"),
        }
    }
}

/// The interface that this process uses: chosen once, when it is first needed.
///
/// # Errors
/// The environment variable `DISKSIDE_IO` asks for what is not there.
pub fn interface() -> io::Result<&'static Interface> {
    static CHOSEN: OnceLock<Result<Interface, (io::ErrorKind, String)>> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| choose(wanted().as_deref(), probe));
    chosen.as_ref().map_err(|(kind, error)| io::Error::new(*kind, error.clone()))
}

/// Whether `DISKSIDE_IO` names an interface, be it there or not. Asks the kernel for nothing.
///
/// # Errors
/// It does not, and which it can name.
pub fn check_variable() -> io::Result<()> {
    check(wanted().as_deref()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn wanted() -> Option<String> {
    std::env::var_os(VARIABLE).map(|wanted| wanted.to_string_lossy().into_owned())
}

fn check(wanted: Option<&str>) -> Result<(), String> {
    match wanted {
        None | Some("" | "io_uring" | "posix") => Ok(()),
        Some(other) => Err(format!("{VARIABLE} is \"{}\"; it can be io_uring or posix", other.escape_debug())),
    }
}

fn choose(wanted: Option<&str>, probe: impl Fn() -> io::Result<()>) -> Result<Interface, (io::ErrorKind, String)> {
    check(wanted).map_err(|error| (io::ErrorKind::InvalidInput, error))?;
    match wanted {
        Some("io_uring") => match probe() {
            Err(error) if is_for_good(&error) => Err((error.kind(), format!("{VARIABLE} is io_uring, but {error}"))),
            _ => Ok(Interface::IoUring),
        },
        Some("posix") => Ok(Interface::Posix(format!("{VARIABLE} asks for it"))),
        _ => Ok(match probe() {
            Err(error) if is_for_good(&error) => Interface::Posix(error.to_string()),
            // A shortage of descriptors is reported when a ring is made.
            _ => Interface::IoUring,
        }),
    }
}

/// Whether io_uring is denied to this process, too old, or needs more locked memory than the process may have.
fn is_for_good(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, OutOfMemory, PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | Unsupported | InvalidInput | OutOfMemory)
}

/// Rings of a small server need so much, 130 KiB each: with a lower limit of locked memory the first ones could be made, and the
/// process would end with one of the others. Linux 6.14 and later count all memory of rings; before, it was only registered memory.
const LOCKED_MIN: u64 = 1 << 20;
/// A ring with so many entries has more memory than that in each of its two parts, so no lower limit has room for it if the limit
/// holds for rings of this process. Rings that do fit would not tell, and keep their memory for a while after they are closed.
const BEYOND_ENTRIES: u32 = 16 << 10;

/// Tries what every ring needs: the three system calls, and the operations.
fn probe() -> io::Result<()> {
    let config = RingConfig { entries: 4, spin: Duration::ZERO, ..RingConfig::default() };
    let uring = build(&config, true).map_err(|error| explained("io_uring_setup", &error))?;
    let mut known = Probe::new();
    uring.submitter().register_probe(&mut known).map_err(|error| explained("io_uring_register", &error))?;
    has_all(|code| known.is_supported(code))?;
    let flags = EnterFlags::GETEVENTS.bits();
    // SAFETY: no argument is passed, and nothing is submitted.
    let entered = unsafe { uring.submitter().enter::<libc::sigset_t>(0, 0, flags, None) };
    entered.map_err(|error| explained("io_uring_enter", &error))?;
    if locked_max().is_some_and(|bytes| bytes < LOCKED_MIN) {
        let beyond = build(&RingConfig { entries: BEYOND_ENTRIES, ..config }, true);
        beyond.map_err(|error| explained("io_uring_setup", &error))?;
    }
    Ok(())
}

/// Whether a kernel has all operations; the error names one that it lacks.
fn has_all(is_supported: impl Fn(u8) -> bool) -> io::Result<()> {
    match NEEDED.iter().find(|(_, code)| !is_supported(*code)) {
        None => Ok(()),
        Some((name, _)) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, format!("this kernel's io_uring has no {name}")))
        }
    }
}

/// How much memory this process may lock; `None` without a limit.
fn locked_max() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// The operations of rings: a kernel that lacks one of them is too old, and no ring takes any other.
pub(super) const NEEDED: [(&str, u8); 13] = [
    ("read", opcode::Read::CODE),
    ("write", opcode::Write::CODE),
    ("fixed read", opcode::ReadFixed::CODE),
    ("fixed write", opcode::WriteFixed::CODE),
    ("fsync", opcode::Fsync::CODE),
    ("fallocate", opcode::Fallocate::CODE),
    ("accept", opcode::Accept::CODE),
    ("receive", opcode::RecvMulti::CODE),
    ("sendmsg", opcode::SendMsg::CODE),
    ("connect", opcode::Connect::CODE),
    ("poll", opcode::PollAdd::CODE),
    ("cancel", opcode::AsyncCancel::CODE),
    ("no operation", opcode::Nop::CODE),
];

/// The error of one of io_uring's system calls, with what it means.
pub(super) fn explained(call: &str, error: &io::Error) -> io::Error {
    let errno = Errno::from_io_error(error);
    // A process that is confined may not be able to read it.
    let switch = std::fs::read_to_string(SYSCTL).unwrap_or_default();
    let why = match (errno, switch.trim()) {
        (Some(Errno::PERM), "2") => "; kernel.io_uring_disabled is 2",
        (Some(Errno::PERM), "1") => "; kernel.io_uring_disabled is 1, which leaves io_uring to one group of users",
        (Some(Errno::PERM), "") => "; kernel.io_uring_disabled or seccomp denies it, as container engines do",
        (Some(Errno::PERM | Errno::ACCESS), _) => "; it is denied, as container engines do (seccomp)",
        (Some(Errno::NOSYS), _) => "; this kernel has no io_uring, or a container denies it (seccomp)",
        (Some(Errno::NOMEM), _) => &too_little(locked_max()),
        (Some(Errno::INVAL), _) => "; Linux 6.1 or newer is needed",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{call}: {error}{why}"))
}

fn too_little(locked_max: Option<u64>) -> String {
    match locked_max {
        None => "; the machine or the control group has too little memory".into(),
        Some(bytes) => format!(
            "; RLIMIT_MEMLOCK, {} KiB, is too low for rings: raise it (ulimit -l, or LimitMEMLOCK= in a unit)",
            bytes >> 10
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_used_unless_somebody_asks_for_something_else() {
        let there = || Ok(());
        let denied = || Err(io::Error::new(io::ErrorKind::PermissionDenied, "denied"));
        assert_eq!(choose(None, there), Ok(Interface::IoUring));
        assert_eq!(choose(None, denied), Ok(Interface::Posix("denied".into())));
        assert_eq!(choose(Some(""), denied), Ok(Interface::Posix("denied".into())));
        assert_eq!(choose(Some("posix"), there).unwrap().name(), "posix");
        assert_eq!(choose(Some("io_uring"), there), Ok(Interface::IoUring));
        let error = choose(Some("io_uring"), denied).unwrap_err();
        let said = "DISKSIDE_IO is io_uring, but denied".into();
        assert_eq!(error, (io::ErrorKind::PermissionDenied, said), "what is asked for is not replaced");
        let (kind, error) = choose(Some("epoll"), there).unwrap_err();
        assert_eq!(kind, io::ErrorKind::InvalidInput);
        assert_eq!(error, "DISKSIDE_IO is \"epoll\"; it can be io_uring or posix");
    }

    /// With `ulimit -l 64` every server and every run over a file ended with an error: Linux 6.14 and later count all memory of rings.
    #[test]
    fn a_limit_of_locked_memory_without_room_for_rings_is_as_if_they_were_denied() {
        let no_room = || Err(explained("io_uring_setup", &io::Error::from(Errno::NOMEM)));
        let Ok(Interface::Posix(why)) = choose(None, no_room) else { panic!("rings would fail later") };
        assert!(why.starts_with("io_uring_setup: Cannot allocate memory"), "{why}");
        let (_, error) = choose(Some("io_uring"), no_room).unwrap_err();
        assert!(error.starts_with("DISKSIDE_IO is io_uring, but io_uring_setup: Cannot"), "{error}");
        assert!(too_little(Some(64 << 10)).contains("RLIMIT_MEMLOCK, 64 KiB, is too low"));
        assert!(!too_little(None).contains("RLIMIT"));
    }

    #[test]
    fn a_kernel_that_lacks_one_operation_is_too_old_and_the_reason_names_it() {
        assert!(has_all(|_| true).is_ok());
        for (name, lacking) in NEEDED {
            let lacks = || has_all(|code| code != lacking);
            let why = format!("this kernel's io_uring has no {name}");
            assert_eq!(choose(None, lacks), Ok(Interface::Posix(why.clone())));
            let error = (io::ErrorKind::Unsupported, format!("DISKSIDE_IO is io_uring, but {why}"));
            assert_eq!(choose(Some("io_uring"), lacks), Err(error));
        }
    }

    #[test]
    fn a_shortage_does_not_change_the_interface() {
        let short = || Err(io::Error::from(Errno::MFILE));
        assert_eq!(choose(None, short), Ok(Interface::IoUring), "the ring that is made next says it");
    }
}
