//! The sandbox: image, verifier, checked IR, interpreter, regions and helper declarations.
