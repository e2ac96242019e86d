//! Paths of hosts as keys of objects.

use rustix::io::Errno;
use twox_hash::XxHash3_64;

/// The path that `rest` means from `base`, without `.`, `..` and empty names: no key of an object has these.
pub(super) fn resolve(base: &str, rest: &[u8]) -> Result<String, Errno> {
    if rest.first() == Some(&b'/') {
        return Err(Errno::XDEV);
    }
    // Keys are UTF-8.
    let rest = std::str::from_utf8(rest).map_err(|_| Errno::NOENT)?;
    let mut names: Vec<&str> = base.split('/').filter(|name| !name.is_empty()).collect();
    for name in rest.split('/') {
        match name {
            "" | "." => {}
            // It leads out of the export.
            ".." => drop(names.pop().ok_or(Errno::XDEV)?),
            name => names.push(name),
        }
    }
    Ok(names.join("/"))
}

/// The path of a name in a directory.
pub(super) fn below(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// The number of the file at a path.
pub(super) fn number(path: &str) -> u64 {
    XxHash3_64::oneshot(path.as_bytes()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_the_url() {
        for (base, rest, resolved) in [
            ("", "", Ok("")),
            ("a", "", Ok("a")),
            ("a", "b/c", Ok("a/b/c")),
            ("a", "./b//c/", Ok("a/b/c")),
            ("a/b", "../c", Ok("a/c")),
            ("a", "../..", Err(Errno::XDEV)),
            ("", "..", Err(Errno::XDEV)),
            ("", "a/../../b", Err(Errno::XDEV)),
            ("", "/etc/passwd", Err(Errno::XDEV)),
            ("", "...", Ok("...")),
        ] {
            assert_eq!(resolve(base, rest.as_bytes()), resolved.map(str::to_owned), "{base} {rest}");
        }
        assert_eq!(resolve("", b"\xff"), Err(Errno::NOENT));
    }
}
