//! Where a request stands, and why it failed.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Where a request stands. The errors are classes; the [`Cause`] keeps what was really reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Waiting in a staging queue.
    PreSubmission,
    /// With the kernel or the peer.
    InFlight,
    /// Done.
    Success,
    /// The medium or the path to it failed (`EIO` and its kin).
    IoError(Cause),
    /// Not allowed (`EACCES`, `EPERM`, `EROFS`).
    AccessDenied(Cause),
    /// The descriptor is closed, or not open for this (`EBADF`).
    BadDescriptor(Cause),
    /// No room (`ENOSPC`, `EDQUOT`, `EFBIG`).
    OutOfSpace(Cause),
    /// Any other error.
    Other(Cause),
}

/// What exactly was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An error of this system.
    Errno(Errno),
    /// A status of a remote device.
    Remote {
        /// The device's number for it.
        code: u16,
        /// The specification's name for it.
        name: &'static str,
        /// What there is to do, where the name alone does not tell.
        remedy: Option<&'static str>,
    },
    /// The back end ended, or the path to it was lost; the text says which.
    Lost(&'static str),
    /// The back end does not take such a request; the text says why.
    Refused(&'static str),
}

impl Status {
    /// The class of an error of this system.
    pub fn from_errno(errno: Errno) -> Self {
        let cause = Cause::Errno(errno);
        match errno {
            Errno::IO | Errno::NXIO | Errno::NODEV | Errno::TIMEDOUT => Self::IoError(cause),
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::AccessDenied(cause),
            Errno::BADF => Self::BadDescriptor(cause),
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::OutOfSpace(cause),
            _ => Self::Other(cause),
        }
    }

    /// The back end ended, or the path to it was lost.
    pub fn lost(what: &'static str) -> Self {
        Self::IoError(Cause::Lost(what))
    }

    /// The back end does not take such a request.
    pub fn refused(why: &'static str) -> Self {
        Self::Other(Cause::Refused(why))
    }

    /// Whether the request has ended.
    pub fn is_done(self) -> bool {
        !matches!(self, Self::PreSubmission | Self::InFlight)
    }

    /// What exactly was reported, for the errors.
    pub fn cause(self) -> Option<Cause> {
        match self {
            Self::PreSubmission | Self::InFlight | Self::Success => None,
            Self::IoError(cause)
            | Self::AccessDenied(cause)
            | Self::BadDescriptor(cause)
            | Self::OutOfSpace(cause)
            | Self::Other(cause) => Some(cause),
        }
    }

    /// The errors as an [`io::Error`] (with its OS error where the cause is an errno).
    pub fn to_result(self) -> io::Result<()> {
        match self.cause() {
            None => Ok(()),
            Some(Cause::Errno(errno)) => Err(errno.into()),
            Some(Cause::Lost(what)) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, what)),
            Some(Cause::Refused(why)) => Err(io::Error::new(io::ErrorKind::InvalidInput, why)),
            Some(Cause::Remote { .. }) => {
                let kind = match self {
                    Self::AccessDenied(_) => io::ErrorKind::PermissionDenied,
                    Self::OutOfSpace(_) => io::ErrorKind::StorageFull,
                    _ => io::ErrorKind::Other,
                };
                Err(io::Error::new(kind, self.to_string()))
            }
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self {
            Self::PreSubmission => "waiting to be submitted",
            Self::InFlight => "in flight",
            Self::Success => "success",
            Self::IoError(_) => "I/O error",
            Self::AccessDenied(_) => "access denied",
            Self::BadDescriptor(_) => "bad descriptor",
            Self::OutOfSpace(_) => "out of space",
            Self::Other(_) => "error",
        };
        match self.cause() {
            None => f.write_str(class),
            Some(cause) => write!(f, "{class}: {cause}"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => errno.fmt(f),
            Self::Remote { code, name, remedy: None } => write!(f, "{name} (status {code:#x})"),
            Self::Remote { code, name, remedy: Some(what) } => write!(f, "{name} (status {code:#x}): {what}"),
            Self::Lost(text) | Self::Refused(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_keeps_its_errno() {
        for (errno, class) in [
            (Errno::IO, "I/O error"),
            (Errno::ROFS, "access denied"),
            (Errno::BADF, "bad descriptor"),
            (Errno::DQUOT, "out of space"),
            (Errno::INVAL, "error"),
        ] {
            let status = Status::from_errno(errno);
            assert!(status.to_string().starts_with(class), "{status}");
            assert_eq!(status.cause(), Some(Cause::Errno(errno)));
            assert_eq!(status.to_result().unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
            assert!(status.is_done());
        }
    }

    #[test]
    fn a_remote_status_keeps_its_name() {
        let status = Status::OutOfSpace(Cause::Remote { code: 0x81, name: "Capacity Exceeded", remedy: None });
        assert_eq!(status.to_string(), "out of space: Capacity Exceeded (status 0x81)");
        assert_eq!(status.to_result().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
