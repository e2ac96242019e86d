//! Traversals: what a step is given, in which order steps run, and what a hostile program cannot do.

use diskside_engine::traverse::{
    MemoryList, Step, TraverseError, TraverseFault, TraverseFunction, TraverseRead, TraverseRequest, TraverseSource,
};
use diskside_engine::{Engine, LoadError, OnMiss, TierChoice, Traversal, TraverseLimits, Turns};
use diskside_sbpf::activation::Tier;
use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::Kind;
use diskside_sbpf::machine::CancelToken;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn traversals(kind: Kind, text: &str, limits: TraverseLimits) -> [Traversal; 2] {
    let engine = Engine::new(diskside_sbpf::helpers::standard());
    let assembly = assemble(text).expect("the test's program assembles");
    let image = Arc::new(assembly.into_image(kind, engine.helpers()).expect("it links"));
    let function = TraverseFunction::from_image(&image, None, engine.helpers()).expect("it verifies");
    [Tier::Interpreter, Tier::Cranelift]
        .map(|tier| engine.traversal(&function, TierChoice::Only(tier), limits).expect("it runs"))
}

const NODES: [u64; 8] = [3 * 8, 7, 0, 5 * 8, 0, u64::MAX, 0, 0];

fn file() -> Vec<u8> {
    NODES.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn read(offset: u64, len: u64) -> TraverseRead {
    TraverseRead { file: 0, offset, len, cookie: 0 }
}

fn run(traversal: &mut Traversal, first: &[TraverseRead], cap: usize) -> Result<Vec<u8>, TraverseError> {
    let file = file();
    let files: &[&[u8]] = &[&file, &file[..8]];
    let request = TraverseRequest { first, files: &[64, 8], input: &[1, 2, 3], scratch_cap: cap, deadline: None };
    traversal.run(&request, &mut MemoryList(files)).map(<[u8]>::to_vec)
}

/// Runs in both tiers and gives what both say.
fn outcome(text: &str, limits: TraverseLimits) -> String {
    let [a, b] = traversals(Kind::Traverse, text, limits).map(|mut t| match run(&mut t, &[read(0, 8)], 64) {
        Ok(result) => format!("{result:?}"),
        Err(error) => error.to_string(),
    });
    assert_eq!(a, b, "both tiers say the same");
    a
}

/// Asks for 8 bytes at the offset that was read; done at `u64::MAX`, with the number of hops.
const FOLLOW: &str = "
    ldxdw %r2, [%r1+8]
    ldxdw %r3, [%r2]
    jeq %r3, -1, done
    stxdw [%r1+80], %r3
    stdw [%r1+88], 8
    stw [%r1+96], 0
    stw [%r1+72], 1
    mov %r0, 0
    exit
    done:
    ldxdw %r4, [%r1+48]
    ldxw %r5, [%r1+36]
    stxdw [%r4], %r5
    stdw [%r1+64], 8
    mov %r0, 1
    exit";

#[test]
fn pointers_are_followed_to_the_end() {
    assert_eq!(outcome(FOLLOW, TraverseLimits::default()), "[2, 0, 0, 0, 0, 0, 0, 0]");
}

#[test]
fn a_traversal_can_be_started_again_and_sees_nothing_of_the_one_before() {
    // Gives scratch back as it finds it, then fills it.
    let text = "
        ldxdw %r4, [%r1+48]
        ldxdw %r5, [%r4+8]
        stxdw [%r4], %r5
        stdw [%r4+8], -1
        stdw [%r1+64], 8
        mov %r0, 1
        exit";
    for mut t in traversals(Kind::Traverse, text, TraverseLimits::default()) {
        for _ in 0..3 {
            assert_eq!(run(&mut t, &[read(0, 8)], 64).expect("it ends"), [0; 8]);
        }
    }
}

/// What the header promises about each member.
#[test]
fn a_step_is_told_where_it_is() {
    // Copies size, flags, data_len, offset, file, hop, cookie, nfiles and scratch_cap.
    let text = "
        ldxdw %r4, [%r1+48]
        ldxdw %r5, [%r1]
        stxdw [%r4], %r5
        ldxdw %r5, [%r1+16]
        stxdw [%r4+8], %r5
        ldxdw %r5, [%r1+24]
        stxdw [%r4+16], %r5
        ldxdw %r5, [%r1+32]
        stxdw [%r4+24], %r5
        ldxdw %r5, [%r1+40]
        stxdw [%r4+32], %r5
        ldxdw %r5, [%r1+56]
        stxdw [%r4+40], %r5
        stdw [%r1+64], 48
        mov %r0, 1
        exit";
    for mut t in traversals(Kind::Traverse, text, TraverseLimits::default()) {
        let first = [TraverseRead { file: 1, offset: 2, len: 5, cookie: 77 }];
        let result = run(&mut t, &first, 100).expect("it ends");
        let words: Vec<u64> = result.chunks(8).map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes"))).collect();
        assert_eq!(words, [464, 5, 2, 1, 77 | 2 << 32, 100]);
    }
}

/// Several reads at once: one call each, in the order asked, whatever they bring.
#[test]
fn steps_run_in_the_order_in_which_reads_were_asked_for() {
    // The first step asks for cookies 7, 6, 5; each next one writes its cookie behind the last. The
    // step of 7 asks for 9, which comes after 5.
    let text = "
        ldxdw %r4, [%r1+48]
        ldxw %r5, [%r1+40]
        jne %r5, 0, later
        stb [%r4], 0
        stw [%r1+72], 3
        stdw [%r1+80], 0
        stdw [%r1+88], 8
        stw [%r1+100], 7
        stdw [%r1+104], 8
        stdw [%r1+112], 8
        stw [%r1+124], 6
        stdw [%r1+128], 16
        stdw [%r1+136], 8
        stw [%r1+148], 5
        mov %r0, 0
        exit
        later:
        ldxdw %r6, [%r4]
        add %r6, 1
        stxdw [%r4], %r6
        and %r6, 15
        mov %r7, %r4
        add %r7, %r6
        stxb [%r7+7], %r5
        stdw [%r1+64], 16
        mov %r0, 0
        jne %r5, 7, out
        stw [%r1+72], 1
        stw [%r1+100], 9
        out:
        jne %r5, 9, end
        mov %r0, 1
        end:
        exit";
    for mut t in traversals(Kind::Traverse, text, TraverseLimits::default()) {
        let result = run(&mut t, &[], 16).expect("it ends");
        assert_eq!(result[8..12], [7, 6, 5, 9]);
        assert_eq!(t.hops(), 5);
        assert_eq!(t.read_bytes(), 32);
    }
}

/// The first step asks for what `body` writes to `next[0]`: offset r2, length r3, file r4.
fn ask(offset: i64, len: i64, file: i64) -> String {
    format!(
        "mov %r2, {offset}
         mov %r3, {len}
         mov %r4, {file}
         stxdw [%r1+80], %r2
         stxdw [%r1+88], %r3
         stxw [%r1+96], %r4
         stw [%r1+72], 1
         mov %r0, 0
         exit"
    )
}

#[test]
fn a_hostile_step_is_told_what_it_did_and_where() {
    let limits = TraverseLimits { hops_max: 10, read_bytes_max: 200, read_len_max: 50, ..TraverseLimits::default() };
    for (text, says) in [
        (ask(0, 8, 0), "traverse/traverse, hop 10: is not done after 10 hops, the limit"),
        (ask(0, 50, 0), "traverse/traverse, hop 3: asks for more than 200 bytes in all, the limit"),
        (ask(0, 51, 0), "traverse/traverse, hop 0: asks for 51 bytes in one read, the limit is 50"),
        (ask(0, -1, 0), "traverse/traverse, hop 0: asks for 18446744073709551615 bytes in one read, the limit is 50"),
        (ask(5, 0, 0), "traverse/traverse, hop 0: asks for 0 bytes at offset 5 of file 0"),
        (ask(60, 5, 0), "traverse/traverse, hop 0: asks for 5 bytes at offset 60 of file 0, which is 64 bytes long"),
        (
            ask(-4, 8, 0),
            "traverse/traverse, hop 0: asks for 8 bytes at offset 18446744073709551612 of file 0, which is 64 bytes long",
        ),
        (ask(0, 9, 1), "traverse/traverse, hop 0: asks for 9 bytes at offset 0 of file 1, which is 8 bytes long"),
        (ask(0, 8, 2), "traverse/traverse, hop 0: asks for file 2, and the request lists 2"),
        (ask(0, 8, -1), "traverse/traverse, hop 0: asks for file 4294967295, and the request lists 2"),
        (
            "stw [%r1+72], 17\n mov %r0, 0\n exit".into(),
            "traverse/traverse, hop 0: asks for 17 reads at once, at most 16 can be asked for",
        ),
        ("mov %r0, 0\n exit".into(), "traverse/traverse, hop 0: is not done and asks for no read"),
        ("mov %r0, 2\n exit".into(), "traverse/traverse, hop 0: returned 2, where 0 asks for reads and 1 is done"),
        ("mov %r0, -5\n exit".into(), "traverse/traverse, hop 0: returned -5: Input/output error (os error 5)"),
        (
            "lddw %r0, 0x8000000000000000\n exit".into(),
            "traverse/traverse, hop 0: returned -9223372036854775808: this is no errno",
        ),
        (
            "stdw [%r1+64], 65\n mov %r0, 1\n exit".into(),
            "traverse/traverse, hop 0: its result is 65 bytes of a scratch that is 64 bytes long",
        ),
        (
            "ldxdw %r4, [%r1+48]\n stb [%r4+64], 1\n mov %r0, 1\n exit".into(),
            "traverse/traverse, hop 0: stopped at instruction 1: out-of-bounds write of 1 bytes of scratch at offset 64, which is 64 bytes long",
        ),
        (
            "ldxdw %r4, [%r1+8]\n ldxdw %r4, [%r4+1]\n mov %r0, 1\n exit".into(),
            "traverse/traverse, hop 0: stopped at instruction 1: out-of-bounds read of 8 bytes of input at offset 1, which is 8 bytes long",
        ),
        (
            "again: ja again\n exit".into(),
            "traverse/traverse, hop 0: stopped at instruction 0: the budget of loop iterations is used up",
        ),
    ] {
        assert_eq!(outcome(&text, limits), says, "{text}");
    }
}

/// A step that writes `next[n]` with an n of its own can reach all of the context, and nothing else:
/// pointers that it destroys are only pointers.
#[test]
fn a_context_that_was_written_over_is_set_again() {
    let text = "
        ldxdw %r5, [%r1+8]
        ldxdw %r6, [%r5]
        and %r6, 0
        mov %r7, %r1
        add %r7, %r6
        stdw [%r7+8], 1
        stdw [%r7+48], 1
        stdw [%r7+32], -1
        stdw [%r7+40], -1
        ldxw %r0, [%r1+36]
        stw [%r1+72], 1
        stdw [%r1+88], 8
        jsgt %r0, 0, bad
        ja ask
        bad: mov %r0, 0
        ask: mov %r0, 0
        exit";
    let limits = TraverseLimits { hops_max: 3, ..TraverseLimits::default() };
    assert_eq!(outcome(text, limits), "traverse/traverse, hop 3: is not done after 3 hops, the limit");
}

#[test]
fn budgets_are_per_step_and_in_all() {
    // 100 edges a step, then the same read again.
    let text = "
        mov %r5, 100
        again: sub %r5, 1
        jne %r5, 0, again
        stw [%r1+72], 1
        stdw [%r1+88], 8
        mov %r0, 0
        exit";
    let limits = TraverseLimits { step_edges_max: 98, ..TraverseLimits::default() };
    assert!(outcome(text, limits).starts_with("traverse/traverse, hop 0: stopped"), "{}", outcome(text, limits));
    let limits = TraverseLimits { step_edges_max: 99, edges_max: 250, ..TraverseLimits::default() };
    assert!(outcome(text, limits).starts_with("traverse/traverse, hop 2: stopped"), "{}", outcome(text, limits));
}

#[test]
fn outstanding_reads_are_bounded() {
    let mut text = String::from("stw [%r1+72], 16\n mov %r0, 0\n");
    for i in 0..16 {
        text += &format!("stdw [%r1+{}], 8\n", 88 + 24 * i);
    }
    let limits = TraverseLimits { reads_outstanding_max: 40, ..TraverseLimits::default() };
    assert_eq!(
        outcome(&(text + "exit"), limits),
        "traverse/traverse, hop 2: asks for more than 40 reads that are outstanding at a time, the limit"
    );
}

#[test]
fn requests_that_cannot_be_are_refused() {
    for mut t in traversals(Kind::Traverse, FOLLOW, TraverseLimits { scratch_cap_max: 64, ..TraverseLimits::default() })
    {
        let says = |r: Result<Vec<u8>, TraverseError>| r.expect_err("it is refused").to_string();
        assert!(says(run(&mut t, &[read(0, 8)], 65)).contains("scratch has at most 64 bytes"));
        assert!(says(run(&mut t, &[read(0, 8)], 2)).contains("3 bytes of input and 2 bytes of scratch"));
        assert!(says(run(&mut t, &[read(64, 1)], 8)).contains("hop 0: asks for 1 bytes at offset 64"));
        assert_eq!(run(&mut t, &[read(0, 8)], 64).expect("and it can be started again").len(), 8);
    }
}

struct Broken;

impl TraverseSource for Broken {
    fn read(&mut self, read: &TraverseRead) -> std::io::Result<&[u8]> {
        const EIGHT: [u8; 8] = [16, 0, 0, 0, 0, 0, 0, 0];
        if read.offset == 16 { Err(std::io::Error::other("bad sector")) } else { Ok(&EIGHT) }
    }
}

#[test]
fn a_read_that_fails_names_the_hop_that_asked() {
    for mut t in traversals(Kind::Traverse, FOLLOW, TraverseLimits::default()) {
        let request =
            TraverseRequest { first: &[read(0, 8)], files: &[64], input: &[], scratch_cap: 8, deadline: None };
        let error = t.run(&request, &mut Broken).expect_err("the second read fails");
        assert_eq!(error.to_string(), "traverse/traverse, hop 0: reading 8 bytes at offset 16 of file 0: bad sector");
    }
}

#[test]
fn time_runs_out_between_steps_and_within_them() {
    for text in [ask(0, 8, 0), "again: ja again\n exit".into()] {
        let limits = TraverseLimits {
            hops_max: u32::MAX,
            read_bytes_max: u64::MAX,
            step_edges_max: u64::MAX,
            edges_max: u64::MAX,
            ..TraverseLimits::default()
        };
        for mut t in traversals(Kind::Traverse, &text, limits) {
            let deadline = Some(Instant::now() + Duration::from_millis(5));
            let request = TraverseRequest { first: &[read(0, 8)], files: &[64], input: &[], scratch_cap: 8, deadline };
            let file = file();
            let error = t.run(&request, &mut MemoryList(&[&file])).expect_err("it never ends");
            assert!(matches!(error.fault, TraverseFault::Deadline), "{error}");
        }
    }
}

/// A traversal could not be cancelled.
#[test]
fn a_traversal_is_cancelled_between_steps() {
    struct Cancels(CancelToken, u32);
    impl TraverseSource for Cancels {
        fn read(&mut self, _: &TraverseRead) -> std::io::Result<&[u8]> {
            self.1 += 1;
            if self.1 == 3 {
                self.0.cancel();
            }
            Ok(&[0; 8])
        }
    }
    for mut t in traversals(Kind::Traverse, &ask(0, 8, 0), TraverseLimits::default()) {
        let cancel = CancelToken::new();
        t.stop_with(cancel.clone());
        let deadline = Some(Instant::now() + Duration::from_secs(3600));
        let request = TraverseRequest { first: &[read(0, 8)], files: &[64], input: &[], scratch_cap: 8, deadline };
        let error = t.run(&request, &mut Cancels(cancel, 0)).expect_err("it is cancelled");
        assert!(matches!(error.fault, TraverseFault::Cancelled), "{error}");
        assert_eq!(error.hop, 3, "behind the third step");
    }
}

/// What a driver does that reads in its own way.
#[test]
fn the_machine_gives_reads_and_takes_bytes() {
    for mut t in traversals(Kind::Traverse, FOLLOW, TraverseLimits::default()) {
        let request =
            TraverseRequest { first: &[read(0, 8)], files: &[64], input: &[], scratch_cap: 8, deadline: None };
        assert_eq!(t.start(&request).expect("starts"), Step::Read);
        assert_eq!(t.take_read(), Some(read(0, 8)));
        assert_eq!(t.take_read(), None);
        assert_eq!(t.feed(&24u64.to_le_bytes()).expect("goes on"), Step::Read);
        assert_eq!(t.take_read(), Some(read(24, 8)));
        assert_eq!(t.feed(&u64::MAX.to_le_bytes()).expect("ends"), Step::Done);
        assert_eq!(t.result(), 1u64.to_le_bytes());
    }
}

/// XRP's convention: `done`, or the reads up to the first of size 0; what it returns is an error.
#[test]
fn xrp_programs_run() {
    let follow = "
        ldxdw %r2, [%r1]
        ldxdw %r3, [%r2]
        jeq %r3, -1, done
        stxdw [%r1+24], %r3
        stdw [%r1+152], 8
        mov32 %r0, 0
        exit
        done:
        ldxdw %r4, [%r1+8]
        ldxw %r5, [%r1+344]
        add %r5, 9
        stxdw [%r4], %r5
        stw [%r1+16], 1
        mov32 %r0, 0
        exit";
    for mut t in traversals(Kind::Xrp, follow, TraverseLimits::default()) {
        assert_eq!(run(&mut t, &[read(0, 8)], 16).expect("it ends"), [9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(t.hops(), 3);
    }
    for (text, says) in [
        ("mov %r0, 0\n exit", "is not done and asks for no read"),
        ("mov %r0, 22\n exit", "returned -22: Invalid argument (os error 22)"),
        ("mov %r0, -22\n exit", "returned -22: Invalid argument (os error 22)"),
        (
            "stdw [%r1+152], 8\n stw [%r1+280], -1\n mov %r0, 0\n exit",
            "asks for file 4294967295, and the request lists 2",
        ),
    ] {
        for mut t in traversals(Kind::Xrp, text, TraverseLimits::default()) {
            let error = run(&mut t, &[read(0, 8)], 16).expect_err("it fails");
            assert_eq!(error.to_string(), format!("xrp/xrp, hop 0: {says}"));
        }
    }
}

#[test]
fn what_does_not_traverse_is_refused() {
    let engine = Engine::new(diskside_sbpf::helpers::standard());
    let assembly = assemble("mov %r0, 0\n exit").expect("assembles");
    let image = Arc::new(assembly.into_image(Kind::Read, engine.helpers()).expect("links"));
    let error = TraverseFunction::from_image(&image, None, engine.helpers()).expect_err("it is of kind read");
    assert!(matches!(error, LoadError::NoTraversal { kind: "read", .. }), "{error}");
}

/// Counts what a traversal does in its turns, and knows whether it has one.
#[derive(Debug, Default)]
struct Counted {
    has_turn: Mutex<bool>,
    taken: AtomicU32,
    paused: AtomicU32,
    away: AtomicU32,
}

impl Turns for Counted {
    fn take(&self, work: &mut dyn FnMut()) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        *self.has_turn.lock().unwrap() = true;
        work();
        *self.has_turn.lock().unwrap() = false;
    }

    fn pause(&self) {
        assert!(*self.has_turn.lock().unwrap());
        self.paused.fetch_add(1, Ordering::Relaxed);
    }

    fn away(&self, wait: &mut dyn FnMut()) {
        self.away.fetch_add(1, Ordering::Relaxed);
        *self.has_turn.lock().unwrap() = false;
        wait();
        *self.has_turn.lock().unwrap() = true;
    }
}

/// A file for which a traversal may have to wait, and then has no turn.
struct Slow(Vec<u8>, Arc<Counted>);

impl TraverseSource for Slow {
    fn read(&mut self, read: &TraverseRead) -> std::io::Result<&[u8]> {
        assert!(!*self.1.has_turn.lock().unwrap(), "others compute meanwhile");
        Ok(&self.0[read.offset as usize..][..read.len as usize])
    }
}

/// Traversals took no turns: sixteen of one host computed beside the functions of all others, whatever its share was. Now
/// one that a thread runs waits for its turn, and gives others theirs in long steps and while it reads.
#[test]
fn a_traversal_computes_in_turns() {
    let spin = "
        mov %r2, 0
        again:
        add %r2, 1
        jlt %r2, 30000, again";
    let engine = Engine::new(diskside_sbpf::helpers::standard());
    let assembly = assemble(&format!("{spin}{FOLLOW}")).unwrap();
    let image = Arc::new(assembly.into_image(Kind::Traverse, engine.helpers()).unwrap());
    let function = TraverseFunction::from_image(&image, None, engine.helpers()).unwrap();
    for tier in [Tier::Interpreter, Tier::Cranelift] {
        let code = engine.code().get(function.program(), TierChoice::Only(tier), OnMiss::CallingThread).unwrap();
        let turns = Arc::new(Counted::default());
        let limits = TraverseLimits::default();
        let mut traversal = Traversal::in_turns(&function, code, limits, Arc::clone(&turns) as Arc<dyn Turns>);
        let first = [read(0, 8)];
        let request = TraverseRequest { first: &first, files: &[64], input: &[], scratch_cap: 64, deadline: None };
        let result = traversal.run(&request, &mut Slow(file(), Arc::clone(&turns))).unwrap();
        assert_eq!(result, [2, 0, 0, 0, 0, 0, 0, 0]);
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        assert_eq!((count(&turns.taken), count(&turns.away)), (1, 3), "one turn, three reads");
        assert!(count(&turns.paused) >= 3, "each step is long: {}", count(&turns.paused));
    }
}
