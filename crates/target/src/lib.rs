//! The storage side: media, namespaces and the reactor that drives the controller machine.

#![forbid(unsafe_code)]
