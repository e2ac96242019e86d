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
        std::panic::set_hook(Box::new(|panic| {
            let at = panic.location().map_or(String::new(), |at| format!(" at {}:{}", file_name(at.file()), at.line()));
            let why = panic.payload_as_str().unwrap_or("a panic").replace('\n', " ");
            SAID.set(format!("panicked{at}: {why}"));
        }));
    });
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| SAID.take())
}

/// Directories are those of the machine that built the program.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_names_its_file_without_directories() {
        let told = caught(|| panic!("two\nlines")).unwrap_err();
        assert_eq!(told, format!("panicked at panics.rs:{}: two lines", line!() - 1));
        assert_eq!(file_name("/root/registry/parquet-60.1.0/src/file/reader.rs"), "reader.rs");
        assert_eq!(caught(|| 1), Ok(1));
    }
}
