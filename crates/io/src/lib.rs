//! Asynchronous I/O: rings, buffers, and instances with submit, poll and block_on.
