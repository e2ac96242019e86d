//! Standard input and output that were closed when the process began (`<&-`, `>&-`).
//!
//! Before `main`, the standard library opens `/dev/null` in the place of closed ones, so what is written there is lost without an
//! error. So they are looked at before the standard library does that.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

static INPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);
static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    for (descriptor, was_closed) in [(libc::STDIN_FILENO, &INPUT_WAS_CLOSED), (libc::STDOUT_FILENO, &OUTPUT_WAS_CLOSED)]
    {
        // SAFETY: F_GETFD takes no argument, and a number that is not a descriptor is an error.
        was_closed.store(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0, Ordering::Relaxed);
    }
}

// SAFETY: the loader calls each entry of this section once, before main, as a function of this type or one with arguments that it
// does not look at. It allocates nothing and needs nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Whether standard input was closed when the process began.
#[must_use]
pub fn input_was_closed() -> bool {
    INPUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// The error of a program whose standard output was closed, with the remedy.
pub const OUTPUT_IS_CLOSED: &str = "standard output is closed: to discard it, send it to /dev/null";

/// Whether standard output was closed when the process began.
#[must_use]
pub fn output_was_closed() -> bool {
    OUTPUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Has reading closed standard input, and writing to closed standard output, fail. For programs, at their start.
///
/// # Errors
/// `/dev/null` or `/dev/full` cannot be opened.
pub fn fail_where_closed() -> io::Result<()> {
    if input_was_closed() {
        // The standard library takes EBADF for success, and a directory cannot be read for another reason.
        replace(libc::STDIN_FILENO, &std::fs::File::open("/")?)?;
    }
    if output_was_closed() {
        replace(libc::STDOUT_FILENO, &std::fs::File::options().write(true).open("/dev/full")?)?;
    }
    Ok(())
}

fn replace(standard: libc::c_int, by: &std::fs::File) -> io::Result<()> {
    // SAFETY: both are descriptors, and nobody of this process owns a standard one.
    super::checked(unsafe { libc::dup2(by.as_raw_fd(), standard) }).map(drop)
}
