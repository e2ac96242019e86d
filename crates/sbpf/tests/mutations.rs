//! Mutations of objects: an error or an image that holds together, no panic and no large allocation.

mod elf_writer;

use diskside_sbpf::disasm::listing;
use diskside_sbpf::helpers::{HelperSet, standard};
use diskside_sbpf::image::{DATA_LEN_MAX, Image, Kind, LoadOptions};
use elf_writer::{ALLOC, GLOBAL, GLOBAL_FUNC, Object, PROGBITS, R_64_32, R_64_64, R_ABS64, UNDEFINED, WEAK, WRITE};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that are allocated, so that the tests see allocations out of proportion.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all work is done by the system allocator; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// As many as a debug build does in some seconds. The fuzzers do more.
const MUTATIONS: usize = 4000;

/// One program: `r0 = 0; r0 = 0; exit`.
fn plain_object() -> Vec<u8> {
    let mut o = Object::default();
    let code = o.code("read/good", &[0xb7, 0xb7, 0x95]);
    o.symbol("good", GLOBAL_FUNC, code, 0, 24);
    o.to_bytes()
}

/// One program that takes an address and calls a helper, and data that points to itself.
fn relocated_object() -> Vec<u8> {
    let mut o = Object::default();
    let slots = [0x0118, 0, 0xffff_ffff_0000_1085, 0x95];
    let code = o.code("read/code", &slots);
    o.symbol("code", GLOBAL_FUNC, code, 0, 8 * slots.len() as u64);
    let data = o.section(".data", PROGBITS, ALLOC | WRITE, &[0; 64]);
    let symbol = o.symbol("cell", GLOBAL, data, 8, 8);
    let helper = o.symbol("ds_popcount", WEAK, UNDEFINED, 0, 0);
    o.relocate(code, &[(0, symbol, R_64_64), (16, helper, R_64_32)]);
    o.relocate(data, &[(16, symbol, R_ABS64)]);
    o.to_bytes()
}

/// A generator of numbers that is the same in each run (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn mutate(random: &mut Random, original: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            3 => {
                // A whole aligned word, as sizes and offsets are.
                let at = at & !3;
                let word = [0, 1, 8, u32::MAX, 0x7fff_ffff, random.next() as u32][random.below(6)];
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            4 => {
                let from = random.below(bytes.len());
                let len = random.below(32).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + len, at);
            }
            _ if random.below(8) == 0 => bytes.truncate(at + 1),
            _ => bytes[at] = bytes[at].wrapping_add(8),
        }
    }
    bytes
}

/// Mutations of real objects and of small ones: an error or an image that holds
/// together, within memory in proportion.
#[test]
fn mutations_neither_panic_nor_eat_memory() {
    let seeds = [
        include_bytes!("objects/link.o").to_vec(),
        include_bytes!("objects/args.o").to_vec(),
        include_bytes!("objects/note.o").to_vec(),
        plain_object(),
        relocated_object(),
    ];
    let helpers = Arc::new(standard());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut loaded, mut refused) = (0u32, 0u32);
    for _ in 0..MUTATIONS {
        let which = random.below(seeds.len());
        let bytes = mutate(&mut random, &seeds[which]);
        let kind = [None, Some(Kind::Raw), Some(Kind::LambdaIo)][random.below(3)];
        let before = IN_USE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let result = Image::load(&bytes, &helpers, LoadOptions { kind });
        let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
        assert!(peak < 4 * DATA_LEN_MAX, "{peak} bytes for {}", bytes.len());
        match result {
            Ok(image) => {
                loaded += 1;
                check_image(image, &helpers);
            }
            Err(e) => {
                refused += 1;
                assert!(e.to_string().len() < 64 << 10, "a readable error");
            }
        }
    }
    assert!(loaded > 20 && refused > 20, "{loaded} loaded, {refused} refused");
}

/// Checks the conditions that later stages rely on, and that they take it without a panic.
fn check_image(image: Image, helpers: &Arc<HelperSet>) {
    let mut next = 0;
    for (index, f) in image.functions.iter().enumerate() {
        assert!(f.start == next && f.end > f.start, "functions cover the code");
        next = f.end;
        let _ = listing(&image, index);
    }
    assert_eq!(next, image.code.len());
    assert!(image.programs.iter().all(|p| p.function < image.functions.len()));
    assert!(image.lines.iter().all(|l| l.insn < image.code.len()));
    let image = Arc::new(image);
    for program in 0..image.programs.len() {
        let _ = diskside_sbpf::verify::verify(&image, program, helpers);
    }
}
