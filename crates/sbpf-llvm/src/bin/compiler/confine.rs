//! The rights that the child gives up before it reads anything.

use diskside_child::Limits;

/// Address space, LLVM's own libraries among it, and processor time.
const LIMITS: Limits = Limits { memory_len: 2 << 30, cpu_seconds: Some(15) };

/// Sets the limits and shuts the door: see [`diskside_child::confine()`].
pub(crate) fn confine() -> Result<(), String> {
    diskside_child::confine(LIMITS)
}
