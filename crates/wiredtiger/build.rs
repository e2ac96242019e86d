//! Compiles the part of the extension that knows WiredTiger's structures.

fn main() {
    println!("cargo::rerun-if-changed=src/glue.c");
    println!("cargo::rerun-if-changed=src/glue.h");
    println!("cargo::rerun-if-changed=include/diskside_wiredtiger.h");
    println!("cargo::rerun-if-env-changed=DISKSIDE_WIREDTIGER_INCLUDE");
    // Threads of the library's connections may still run when WiredTiger closes it.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    #[cfg(feature = "libwiredtiger")]
    compile();
}

#[cfg(feature = "libwiredtiger")]
fn compile() {
    let mut build = cc::Build::new();
    build.file("src/glue.c").include("include").std("gnu11").warnings(true).flag_if_supported("-Wno-unused-parameter");
    if let Ok(include) = std::env::var("DISKSIDE_WIREDTIGER_INCLUDE") {
        build.include(include);
    }
    if std::env::var_os("CARGO_FEATURE_CONTROLS").is_some() {
        build.define("DSW_CONTROLS", None);
    }
    build.compile("diskside_wiredtiger_glue");
}
