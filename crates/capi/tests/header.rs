//! The headers are made of the library's source: change both together.

use std::path::Path;

/// `MAKE_HEADERS=1 cargo test --workspace --test header` writes them.
const WRITES: &str = "MAKE_HEADERS";

#[test]
fn libdiskside_h_is_what_the_source_says() {
    let sources =
        ["error", "session", "function", "file", "options", "request", "prepared", "traversal", "kernel", "result"];
    check("libdiskside.h", "cbindgen.toml", &sources);
}

#[test]
fn lambda_io_h_is_what_the_source_says() {
    check("lambda_io.h", "cbindgen-lambda.toml", &["lambda"]);
}

fn check(header: &str, config: &str, sources: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join(config)).expect("the settings are good");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources {
        builder = builder.with_src(root.join("src").join(source).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().expect("the source is understood").write(&mut made);
    let made = String::from_utf8(made).expect("the header is text");
    let path = root.join("include").join(header);
    if std::env::var_os(WRITES).is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let kept = std::fs::read_to_string(&path).expect("the header is there");
    assert!(kept == made, "{header} is not what the source says; run {WRITES}=1 cargo test --workspace --test header");
}
