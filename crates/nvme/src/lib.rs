//! NVMe over TCP as data: wire structures, PDUs, and the host's and the controller's state machines, without I/O.

#![forbid(unsafe_code)]
