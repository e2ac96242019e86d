//! Programs by grammar, run on random inputs in every tier: results, memory, traps and budgets agree.
//!
//! The generator takes its choices from the fuzzer's bytes; when they are used up, it continues with pseudo-random
//! ones. Generator and runner are those of the Cranelift tier's test.
#![no_main]

#[allow(dead_code, reason = "the fuzzer uses a part of what the test uses")]
#[path = "../../crates/sbpf-cranelift/tests/differential"]
mod differential {
    pub(crate) mod forms;
    pub(crate) mod generate;
    pub(crate) mod rng;
    pub(crate) mod run;
}

use differential::{forms, generate, rng, run};
use diskside_sbpf::helpers::{HelperSet, standard};
use libfuzzer_sys::fuzz_target;
use rng::Rng;
use run::{Input, Subject};
use std::sync::{Arc, LazyLock};

static HELPERS: LazyLock<Arc<HelperSet>> = LazyLock::new(|| Arc::new(standard()));

mod harness {
    /// A panic ends the fuzzer, which reports it.
    pub(crate) fn last_panic() -> String {
        "it panicked".to_owned()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut rng = Rng::from_bytes(bytes.to_vec());
    let source = generate::generate(&mut rng, &HELPERS);
    let Ok(subject) = Subject::new(&source, &HELPERS) else { return };
    for _ in 0..3 {
        let input = Input::random(&mut rng, false);
        if let Err(what) = subject.run(&input) {
            panic!("{what}\n{}\n{input:?}", source.lines.join("\n"));
        }
    }
});
