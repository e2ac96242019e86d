//! Files that are written whole: for output of functions, copies, and what the program keeps for itself.
//!
//! | What has the name | What happens |
//! |---|---|
//! | nothing | the file appears when it is whole, with the mode of any new file |
//! | a symbolic link | it is followed, and stays; the link of a missing file makes that file |
//! | a regular file | a new file takes its name when it is whole, and has its mode, owner, group, ACL and extended attributes |
//! | the same, with several names, or with attributes or in a directory that this user cannot reproduce | its content is overwritten when the new one is whole |
//! | a FIFO, a device, a descriptor of this process | it is opened and written as the bytes come |
//! | a directory, a socket | an error |
//!
//! Until it is whole a file has no name (`O_TMPFILE`), or a random one where the file system has no such files. So nothing is
//! left when a process is killed, and no file of a user is ever taken for a temporary one.
//!
//! [`OutFile`] does this for paths of this machine. Its parts serve code that resolves names in another way, as an
//! export does beneath its root: [`Name::follow`] and [`Unnamed`].

#![forbid(unsafe_code)]

mod attributes;
mod descriptor;
mod destination;
mod error;
mod name;
mod overwrite;
mod private;
mod unnamed;

pub use attributes::{OWNER_ATTRIBUTE, keep_attributes, reset_attributes};
pub use destination::{Destination, OutFile};
pub use error::WriteError;
pub use name::{Found, Name};
pub use private::write_private;
pub use unnamed::{BeforeSuccession, Published, Succession, Unnamed};
