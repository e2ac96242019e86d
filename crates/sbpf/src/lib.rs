//! The sandbox: image, verifier, checked IR, interpreter, regions and helper declarations.
//!
//! An object becomes an [`image::Image`]; [`verify`](verify::verify) decides whether a program of it
//! may run; [`ir`] makes every check, charge and call explicit; the interpreter runs that, and the
//! compilers in other crates translate it. Only memory is touched here: what helpers do to the world
//! comes in by [`machine::Environment`] and [`files::Files`].

pub mod activation;
pub mod asm;
mod cancel;
pub mod disasm;
pub mod files;
pub mod float;
pub mod helpers;
pub mod image;
pub mod insn;
pub mod interp;
pub mod ir;
pub mod machine;
pub mod opt;
pub mod region;
pub mod trap;
pub mod verify;
pub mod work;
