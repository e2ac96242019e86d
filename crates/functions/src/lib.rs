//! The shipped functions, compiled from source and embedded.

#![forbid(unsafe_code)]

pub mod clang;

/// A function that every target has.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name, also the name of its program.
    pub name: &'static str,
    /// The kind of that: `read`, `write`, `lambda`, `lambda_io`, `traverse` or `kernel`.
    pub kind: &'static str,
    /// The eBPF object that holds it, perhaps among others.
    pub object: &'static [u8],
    /// Its source, relative to the repository's root.
    pub source: &'static str,
}

/// All shipped functions, by name.
#[must_use]
pub fn shipped() -> &'static [Shipped] {
    static SHIPPED: &[Shipped] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));
    SHIPPED
}
