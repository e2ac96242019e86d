//! Helpers and traps that other systems call by number or by another name.

use super::Kind;

/// Number of lambda-IO's first helper.
const LAMBDA_FIRST: i32 = 156;

/// lambda-IO's helpers in the order of their numbers.
const LAMBDA_HELPERS: [&str; 7] =
    ["ds_memcpy", "ds_alloc", "ds_free", "ds_lambda_mem_read", "ds_lambda_mem_write", "ds_memcmp", "ds_memset"];

/// The helper that a kind's programs call by this number.
pub(super) fn helper_by_number(kind: Kind, number: i32) -> Option<&'static str> {
    if !matches!(kind, Kind::Lambda | Kind::LambdaIo) {
        return None;
    }
    let index = usize::try_from(number.checked_sub(LAMBDA_FIRST)?).ok()?;
    LAMBDA_HELPERS.get(index).copied()
}

/// The helper behind a symbol: the C library's memory functions, which compilers call unasked.
pub(super) fn helper_by_symbol(symbol: &str) -> &str {
    match symbol {
        "memcpy" => "ds_memcpy",
        "memmove" => "ds_memmove",
        "memset" => "ds_memset",
        "memcmp" => "ds_memcmp",
        other => other,
    }
}

/// True for symbols that a compiler leaves undefined on purpose: calling one is a trap. clang from
/// version 21 puts such a call where a program's behaviour is undefined.
pub(super) fn is_trap(symbol: &str) -> bool {
    symbol == "__bpf_trap"
}
