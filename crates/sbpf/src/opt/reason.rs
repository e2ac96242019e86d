//! Why accesses keep their checks, in words, and what to write instead.

pub(super) const REGION: &str = "the region of the pointer is not known";
pub(super) const NOT_LINEAR: &str = "the address is not a linear function of the trip";
pub(super) const UNBOUNDED: &str = "the address comes from data that nothing bounds";
pub(super) const BEYOND_REGION: &str = "data may say a place beyond the end of the region";
pub(super) const BEYOND_ARRAY: &str = "the index comes from data, and may be larger than the array on the stack";
pub(super) const STEP: &str = "the address moves by what is read, which nothing bounds";
pub(super) const TOO_MANY: &str = "too many different addresses in this loop";

/// The code to write instead, where one of these was the reason.
#[must_use]
pub fn instead(why: &str) -> Option<&'static str> {
    let advice = [
        (REGION, "use pointers made of the function's own (`in`, `out`, `args`), not ones that were read"),
        (
            NOT_LINEAR,
            "let an index or a pointer go from trip to trip by a fixed step; a place that data say is checked each time",
        ),
        (UNBOUNDED, "bound the index before the access, by a comparison with a constant or by `&`"),
        (BEYOND_REGION, "compare the index with the number of elements before the access"),
        (BEYOND_ARRAY, "compare the index with the number of elements before the access"),
        (STEP, "compare what was read with a constant before the pointer moves by it"),
        (TOO_MANY, "split the loop, or put what it walks over side by side into one structure"),
    ];
    advice.into_iter().find(|(reason, _)| why.ends_with(reason)).map(|(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_advice() {
        for reason in [REGION, NOT_LINEAR, UNBOUNDED, BEYOND_REGION, BEYOND_ARRAY, STEP, TOO_MANY] {
            let advice = instead(&format!("insn 7: {reason}")).expect("advice");
            assert!(!advice.is_empty() && advice != reason);
        }
        assert_eq!(instead("control enters the loop in the middle"), None);
    }
}
