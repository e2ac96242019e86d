//! To be read with the parent module.
