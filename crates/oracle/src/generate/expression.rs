//! Expressions of C over 64-bit numbers without undefined behaviour.

use fastrand::Rng;

/// One over these variables.
pub(super) fn expression(variables: &[&str], depth: u32, rng: &mut Rng) -> String {
    if depth == 0 || rng.u8(..6) == 0 {
        return match rng.u8(..4) {
            0 => {
                let bits = rng.u32(1..40);
                format!("{}ull", rng.u64(1..1 << bits))
            }
            _ => variables[rng.usize(..variables.len())].to_owned(),
        };
    }
    let a = expression(variables, depth - 1, rng);
    let b = expression(variables, depth - 1, rng);
    match rng.u8(..11) {
        0 | 1 => format!("({a} + {b})"),
        2 => format!("({a} - {b})"),
        3 => format!("({a} * {b})"),
        4 => format!("({a} ^ {b})"),
        5 => format!("({a} & ({b} | 255))"),
        6 => format!("({a} | {b})"),
        7 => format!("({a} >> ({b} & 31))"),
        8 => format!("({a} << ({b} & 7))"),
        9 => format!("({a} / ({b} | 1))"),
        _ => format!("({a} > {b} ? {a} : {b} + 1)"),
    }
}
