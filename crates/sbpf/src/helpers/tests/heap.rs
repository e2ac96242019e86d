//! `ds_alloc`, `ds_alloc_aligned`, `ds_free`.

use super::*;
use proptest::prelude::*;

const HEAP: u64 = RegionId::HEAP.base();

#[test]
fn addresses_are_the_same_in_every_run() {
    let run = || {
        let mut host = Host::new();
        let a = host.call("ds_alloc", &[100]).unwrap();
        let b = host.call("ds_alloc", &[1]).unwrap();
        host.call("ds_free", &[a]).unwrap();
        let c = host.call("ds_alloc", &[64]).unwrap();
        let d = host.call("ds_alloc_aligned", &[4096, 10]).unwrap();
        [a, b, c, d]
    };
    assert_eq!(run(), [HEAP, HEAP + 128, HEAP, HEAP + 4096]);
    assert_eq!(run(), run());
}

#[test]
fn memory_is_zero_also_when_it_was_used_before() {
    let mut host = Host::new();
    let a = host.call("ds_alloc", &[200]).unwrap();
    host.call("ds_memset", &[a, 0xff, 200]).unwrap();
    host.call("ds_free", &[a]).unwrap();
    let b = host.call("ds_alloc", &[200]).unwrap();
    assert_eq!(a, b);
    assert_eq!(host.machine.bytes(b, 200).unwrap(), [0; 200]);
    host.call("ds_memset", &[b, 0xff, 200]).unwrap();
    host.machine.heap.clear();
    host.machine.map_heap();
    let c = host.call("ds_alloc", &[200]).unwrap();
    assert_eq!(c, HEAP);
    assert_eq!(host.machine.bytes(c, 200).unwrap(), [0; 200]);
}

#[test]
fn the_quota_holds_and_freed_memory_comes_back() {
    let mut host = Host::with(256, Box::new(NoEnvironment));
    let a = host.call("ds_alloc", &[192]).unwrap();
    assert_eq!(host.call("ds_alloc", &[65]), Ok(0), "128 bytes are not left");
    let b = host.call("ds_alloc", &[64]).unwrap();
    assert_eq!(host.call("ds_alloc", &[1]), Ok(0));
    host.call("ds_free", &[a]).unwrap();
    host.call("ds_free", &[b]).unwrap();
    assert_eq!(host.call("ds_alloc", &[256]), Ok(HEAP), "neighbours become one");
    assert_eq!(host.machine.heap.used_bytes(), 256);
}

#[test]
fn absurd_sizes_give_null() {
    let mut host = Host::new();
    for len in [0, u64::MAX, u64::MAX - 63, 1 << 40, 1 << 63] {
        assert_eq!(host.call("ds_alloc", &[len]), Ok(0), "{len:#x}");
        assert_eq!(host.call("ds_alloc_aligned", &[1 << 20, len]), Ok(0), "{len:#x}");
    }
    let mut none = Host::with(0, Box::new(NoEnvironment));
    assert_eq!(none.call("ds_alloc", &[1]), Ok(0));
}

#[test]
fn misuse_is_refused_with_a_reason() {
    let mut host = Host::new();
    let a = host.call("ds_alloc", &[128]).unwrap();
    let again = "the pointer was freed before, or never given out";
    for (pointer, reason) in [
        (INPUT, "the pointer is not from ds_alloc"),
        (u64::MAX, "the pointer is not from ds_alloc"),
        (1, "the pointer is not from ds_alloc"),
        (a + 64, "the pointer is inside an allocation, not at its start"),
        (a + 1, "the pointer is inside an allocation, not at its start"),
        (a + 128, again),
    ] {
        assert_eq!(why(host.call("ds_free", &[pointer])), (TrapKind::Helper, reason), "{pointer:#x}");
    }
    assert_eq!(host.call("ds_free", &[0]), Ok(0));
    assert_eq!(host.call("ds_free", &[a]), Ok(0));
    assert_eq!(why(host.call("ds_free", &[a])), (TrapKind::Helper, again));
    for align in [0, 3, 1 << 21, u64::MAX] {
        assert_eq!(
            why(host.call("ds_alloc_aligned", &[align, 8])),
            (TrapKind::Helper, "the alignment is not a power of two up to 1 MiB")
        );
    }
}

#[test]
fn what_was_not_given_out_is_not_mapped() {
    let mut host = Host::new();
    assert_eq!(host.call("ds_memset", &[HEAP, 1, 1]).unwrap_err().kind, TrapKind::Unmapped);
    let a = host.call("ds_alloc", &[64]).unwrap();
    assert_eq!(host.call("ds_memset", &[a, 1, 64]), Ok(a));
    let trap = host.call("ds_memset", &[a, 1, 65]).unwrap_err();
    assert_eq!((trap.kind, trap.region, trap.bound), (TrapKind::OutOfBounds, Some(RegionId::HEAP), 64));
}

/// The cost does not depend on what earlier calls left behind.
#[test]
fn cost_is_that_of_zeroing_everything() {
    let mut host = Host::new();
    let mut costs = Vec::new();
    for _ in 0..2 {
        let before = host.machine.edges_left();
        let a = host.call("ds_alloc", &[100_000]).unwrap();
        costs.push(before - host.machine.edges_left());
        host.call("ds_free", &[a]).unwrap();
    }
    assert_eq!(costs, [1 + 1563, 1 + 1563]);
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { len: u64, align_log2: u32 },
    Free(proptest::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1u64..3000, 0u32..13).prop_map(|(len, align_log2)| Step::Alloc { len, align_log2 }),
        2 => any::<proptest::sample::Index>().prop_map(Step::Free),
    ]
}

proptest! {
    /// Live allocations never overlap, keep their bytes, are aligned, zeroed and within the quota;
    /// when all are freed, the whole quota is available again.
    #[test]
    fn allocations_keep_apart(steps in proptest::collection::vec(step(), 0..120)) {
        let quota = 64 << 10;
        let mut host = Host::with(quota, Box::new(NoEnvironment));
        let mut live: Vec<(u64, u64, u8)> = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Alloc { len, align_log2 } => {
                    let align = 1u64 << align_log2;
                    let at = host.call("ds_alloc_aligned", &[align, len]).unwrap();
                    if at == 0 {
                        continue;
                    }
                    prop_assert_eq!(at % align.max(64), 0);
                    prop_assert!(at - HEAP + len <= quota);
                    for &(other, other_len, _) in &live {
                        prop_assert!(at + len <= other || other + other_len <= at);
                    }
                    prop_assert!(host.machine.bytes(at, len).unwrap().iter().all(|&b| b == 0));
                    let mark = n as u8 | 1;
                    host.call("ds_memset", &[at, u64::from(mark), len]).unwrap();
                    live.push((at, len, mark));
                }
                Step::Free(which) if !live.is_empty() => {
                    let (at, len, mark) = live.swap_remove(which.index(live.len()));
                    prop_assert!(host.machine.bytes(at, len).unwrap().iter().all(|&b| b == mark));
                    prop_assert_eq!(host.call("ds_free", &[at]), Ok(0));
                }
                Step::Free(_) => {}
            }
        }
        for (at, ..) in live {
            host.call("ds_free", &[at]).unwrap();
        }
        prop_assert_eq!(host.machine.heap.used_bytes(), 0);
        prop_assert_eq!(host.call("ds_alloc", &[quota]), Ok(HEAP));
    }
}
