//! Instructions that this program is made of and a processor may not have.

/// Those of the level x86-64-v2 that this processor lacks, but for CMPXCHG16B, which is not used; none elsewhere.
#[cfg(target_arch = "x86_64")]
pub fn missing_instructions() -> Vec<&'static str> {
    // `is_x86_feature_detected` says yes to all that the compiler was allowed to use.
    missing_of(std::arch::x86_64::__cpuid(1).ecx)
}

/// None: only x86-64 is built for a level above the first.
#[cfg(not(target_arch = "x86_64"))]
pub fn missing_instructions() -> Vec<&'static str> {
    Vec::new()
}

/// By the register ECX of CPUID's leaf 1.
#[cfg(any(target_arch = "x86_64", test))]
fn missing_of(features: u32) -> Vec<&'static str> {
    const NEEDED: [(u32, &str); 5] = [(0, "SSE3"), (9, "SSSE3"), (19, "SSE4.1"), (20, "SSE4.2"), (23, "POPCNT")];
    NEEDED.iter().filter(|(bit, _)| features & 1 << bit == 0).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_processor_lacks_the_second_level() {
        // A Core 2 of 2006.
        assert_eq!(missing_of(1 | 1 << 9), ["SSE4.1", "SSE4.2", "POPCNT"]);
        assert_eq!(missing_of(u32::MAX), [""; 0]);
        assert_eq!(missing_instructions(), [""; 0], "of the processor that runs this");
    }
}
