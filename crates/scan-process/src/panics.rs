//! Panics: a damaged file makes decoders panic, and what they say is told.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The result of `work`, or what it said when it panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| SAID.set(panic.to_string().replace('\n', " "))));
    });
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| SAID.take())
}
