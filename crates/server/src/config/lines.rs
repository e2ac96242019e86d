//! The line of a file that an error is about.

use super::ConfigError;

impl ConfigError {
    /// The same error with the line of the file at `origin`, whose contents are `text`: of the field that it names, or where the
    /// table of that field begins. Without it where the field is not in the file, but in a flag.
    #[must_use]
    pub fn in_file(self, origin: &str, text: &str) -> Self {
        match self {
            Self::Value { field, what } => match line_of(text, &field) {
                Some(line) => Self::Parse { origin: origin.to_owned(), line, what: format!("{field}: {what}") },
                None => Self::Value { field, what },
            },
            other => other,
        }
    }
}

/// `listen`, `limits.transfer`, ``export `data` ``, or the kind of a table alone, such as `grant`, or `grant 3` of several.
fn line_of(text: &str, field: &str) -> Option<usize> {
    let numbered = field.rsplit_once(' ').and_then(|(kind, number)| Some((kind, number.parse::<usize>().ok()?)));
    if let Some((kind, number)) = numbered {
        let heads = (1..).zip(text.lines()).filter(|(_, line)| table_of(line.trim()) == Some(kind));
        return heads.map(|(line, _)| line).nth(number.checked_sub(1)?);
    }
    let (path, name) = match field.split_once('`') {
        Some((kind, name)) => (kind.trim(), Some(name.split('`').next().unwrap_or_default())),
        None => (field, None),
    };
    let (table, key) = match path.split_once('.') {
        Some((table, key)) if name.is_none() => (table, Some(key)),
        _ => (path, None),
    };
    let mut section = "";
    let mut begins = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if let Some(head) = table_of(line) {
            section = head;
            if section == table && name.is_none() {
                begins = begins.or(Some(number));
            }
            continue;
        }
        let Some((left, right)) = line.split_once('=') else { continue };
        let left = left.trim();
        let is_it = match (name, key) {
            (Some(name), _) => section == table && left == "name" && quoted(right) == Some(name),
            (None, Some(key)) => section == table && left == key,
            (None, None) => section.is_empty() && left == table,
        };
        if is_it {
            return Some(number);
        }
    }
    begins
}

/// The table that a line begins.
fn table_of(line: &str) -> Option<&str> {
    line.starts_with('[').then(|| line.split(']').next().unwrap_or_default().trim_start_matches('[').trim())
}

fn quoted(text: &str) -> Option<&str> {
    let text = text.trim();
    let mark = text.chars().next().filter(|mark| "\"'".contains(*mark))?;
    text[1..].split(mark).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
listen = [\"127.0.0.1:1\"]
nqn = \"nonsense\" # = here

[limits]
transfer = \"5KiB\"

[[export]]
name = 'one'
path = \"/srv\"
[[export]]
path = \"/srv\"
name = \"two\"
[[grant]]
to = [\"ann\"]
";

    #[test]
    fn a_field_is_found_where_it_is_written() {
        for (field, line) in [
            ("nqn", Some(2)),
            ("limits.transfer", Some(5)),
            ("limits.memory", Some(4)),
            ("export `one`", Some(8)),
            ("export `two`", Some(12)),
            ("export `three`", None),
            ("grant", Some(13)),
            ("grant 1", Some(13)),
            ("export 2", Some(10)),
            ("grant 2", None),
            ("grant 0", None),
            ("reactors", None),
        ] {
            assert_eq!(line_of(FILE, field), line, "{field}");
        }
    }
}
