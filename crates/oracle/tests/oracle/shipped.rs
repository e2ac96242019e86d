//! The shipped functions, by the files in `cases/shipped`: a function without one fails.

use diskside_oracle::case::{Case, Origin};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases/shipped");

fn cases() -> Vec<Case> {
    crate::cases(DIRECTORY)
}

#[test]
fn each_shipped_function_has_cases() {
    let names: Vec<String> = cases()
        .into_iter()
        .filter_map(|case| match case.origin {
            Origin::Shipped(name) => Some(name),
            Origin::Source(..) | Origin::Generated(..) => None,
        })
        .collect();
    // Traversals and kernels run over no bytes.
    let runs = |name: &str| !["kv_", "sst_", "wt_", "ndp_"].iter().any(|of| name.starts_with(of));
    for function in diskside::library::shipped().filter(|function| runs(function.name)) {
        assert!(
            names.iter().any(|name| name == function.name),
            "{} has no cases: write some to {DIRECTORY}/{}.case, as CONTRIBUTING.md says",
            function.name,
            function.name
        );
    }
}

#[test]
fn a_shipped_function_gives_the_same_everywhere() {
    let cases = cases();
    let failures = crate::check_all(&cases);
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}
