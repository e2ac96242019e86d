//! The header is made of the library's source: change both together.

use std::path::Path;

/// `MAKE_HEADERS=1 cargo test --workspace --test header` writes it.
const WRITES: &str = "MAKE_HEADERS";

#[test]
fn cs_h_is_what_the_source_says() {
    let sources = [
        "status",
        "numbers",
        "types",
        "discovery",
        "access",
        "memory",
        "storage",
        "queue",
        "program",
        "batch",
        "event",
        "manage",
        "refused",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("the settings are good");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources {
        builder = builder.with_src(root.join("src").join(source).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().expect("the source is understood").write(&mut made);
    let made = String::from_utf8(made).expect("the header is text");
    let path = root.join("include/cs.h");
    if std::env::var_os(WRITES).is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let kept = std::fs::read_to_string(&path).expect("the header is there");
    assert!(kept == made, "cs.h is not what the source says; run {WRITES}=1 cargo test --workspace --test header");
}
