//! The helpers of a target, described: behind their names on the capabilities page.

use super::field::FieldError;
use super::log::CapabilityPage;

/// A helper that a target offers to functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperEntry {
    /// Name by which functions call it.
    pub name: String,
    /// Version of its meaning, from 1.
    pub version: u16,
    /// The cost of a call, in a word: `inline`, `fixed` or `linear`; or a word of a later target.
    pub cost: String,
    /// Its C prototype.
    pub prototype: String,
    /// One line of help.
    pub doc: String,
}

impl CapabilityPage {
    /// The whole page, with all that there is to say of the helpers.
    pub fn encode_described(mut self, helpers: &[HelperEntry]) -> Vec<u8> {
        let lines: Vec<String> = helpers.iter().map(HelperEntry::to_line).collect();
        let described = lines.join("\n");
        self.described_len.set(described.len() as u32);
        let mut bytes = self.encode_parts(helpers.iter().map(|helper| &*helper.name));
        bytes.extend_from_slice(described.as_bytes());
        bytes
    }

    /// Bytes of the whole page, which begins with these, what is said of the helpers included.
    pub fn len_described(&self) -> usize {
        self.len() + self.described_len.get() as usize
    }

    /// Parses what a page says of the helpers, by their names where it says no more.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode_described(bytes: &[u8]) -> Result<Vec<HelperEntry>, FieldError> {
        let (page, names) = Self::decode(bytes)?;
        let lines = bytes.get(page.len()..page.len_described());
        let lines = lines.ok_or(FieldError::new(120, "what is said of the helpers goes beyond the end"))?;
        let lines = String::from_utf8_lossy(lines);
        let mut lines = lines.split('\n');
        Ok(names.into_iter().map(|name| HelperEntry::of_line(name, lines.next().unwrap_or_default())).collect())
    }
}

impl HelperEntry {
    fn to_line(&self) -> String {
        format!("{}\t{}\t{}\t{}", self.version, self.cost, self.prototype, self.doc)
    }

    /// Anything else that a later target says is not known here; a field that the line lacks is empty.
    fn of_line(name: String, line: &str) -> Self {
        let mut fields = line.split('\t').map(str::to_owned);
        let mut next = || fields.next().unwrap_or_default();
        let version = next().parse().unwrap_or(1);
        Self { name, version, cost: next(), prototype: next(), doc: next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helpers() -> Vec<HelperEntry> {
        let helper = |name: &str, version, cost: &str, prototype: &str, doc: &str| HelperEntry {
            name: name.into(),
            version,
            cost: cost.into(),
            prototype: prototype.into(),
            doc: doc.into(),
        };
        vec![
            helper("ds_now", 1, "fixed", "__u64 ds_now(void)", "A clock."),
            helper("ds_find2", 2, "linear", "__s64 ds_find2(const void *hay, __u64 len)", ""),
        ]
    }

    #[test]
    fn what_is_said_of_the_helpers_stands_behind_their_names_byte_for_byte() {
        let bytes = CapabilityPage::new().encode_described(&helpers());
        let described =
            "1\tfixed\t__u64 ds_now(void)\tA clock.\n2\tlinear\t__s64 ds_find2(const void *hay, __u64 len)\t";
        assert_eq!(bytes[..4], [1, 0, 128, 0]);
        assert_eq!(bytes[120..128], [described.len() as u8, 0, 0, 0, 15, 0, 0, 0]);
        assert_eq!(bytes[128..143], *b"ds_now\nds_find2");
        assert_eq!(bytes[143..], *described.as_bytes());
        assert_eq!(CapabilityPage::decode_described(&bytes).unwrap(), helpers());
        let (page, names) = CapabilityPage::decode(&bytes).unwrap();
        assert_eq!((page.len(), page.len_described(), names.len()), (143, bytes.len(), 2));
        // A reader that wants the names alone reads no further.
        assert_eq!(CapabilityPage::decode(&bytes[..143]).unwrap().1, names);
        assert_eq!(page.encode(names.iter().map(String::as_str))[120..124], [0; 4], "none is said where none follows");
    }

    #[test]
    fn pages_that_say_less_more_or_nonsense_are_read_as_far_as_they_go() {
        let names = CapabilityPage::new().encode(["ds_now", "ds_find2"]);
        let plain = CapabilityPage::decode_described(&names).unwrap();
        assert_eq!((plain[1].name.as_str(), plain[1].version, plain[1].prototype.as_str()), ("ds_find2", 1, ""));
        let mut bytes = CapabilityPage::new().encode_described(&helpers());
        let cut = CapabilityPage::decode_described(&bytes[..bytes.len() - 1]).unwrap_err();
        assert_eq!(cut, FieldError::new(120, "what is said of the helpers goes beyond the end"));
        let more = b"7\tcheap\tvoid f(void)\tIt is.\tand more\n9";
        bytes.truncate(143);
        bytes.extend_from_slice(more);
        bytes[120] = more.len() as u8;
        let told = CapabilityPage::decode_described(&bytes).unwrap();
        assert_eq!((told[0].version, told[0].cost.as_str(), told[0].doc.as_str()), (7, "cheap", "It is."));
        assert_eq!((told[1].version, told[1].cost.as_str()), (9, ""));
    }
}
