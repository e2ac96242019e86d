//! What a Diskside program sees: the C header and its layout-checked Rust mirror.

#![forbid(unsafe_code)]
