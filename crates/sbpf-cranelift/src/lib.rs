//! The Cranelift tier: compiles the sandbox's checked IR to machine code.
