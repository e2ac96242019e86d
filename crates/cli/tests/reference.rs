//! The page of commands is what the commands say of themselves.

mod common;

use std::path::PathBuf;

use common::command;

/// `MAKE_PAGES=1` writes it.
#[test]
fn the_page_of_commands_is_that_of_the_commands() {
    let output = command(&["manual", "--markdown"]).output().expect("diskside runs");
    assert!(output.status.success(), "{output:?}");
    let made = String::from_utf8(output.stdout).expect("text");
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("MAKE_PAGES").is_some() {
        std::fs::write(&page, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&page).expect("the page is there");
    assert!(made == kept, "docs/commands.md is old: MAKE_PAGES=1 cargo test -p diskside-cli --test reference");
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pages = dir.path().join("share/man/man1");
    let output = command(&["manual", pages.to_str().expect("text")]).output().expect("diskside runs");
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    for page in ["diskside.1", "diskside-run.1", "diskside-serve.1", "diskside-key-new.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.contains(".SH NAME") && text.contains(".SH OPTIONS"), "{page}: {text}");
    }
    let nowhere = command(&["manual", "/dev/null/man"]).output().expect("diskside runs");
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(nowhere.status.code() == Some(4) && said.contains("/dev/null/man"), "{said}");
}
