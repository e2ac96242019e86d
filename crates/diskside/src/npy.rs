//! Files of NumPy's format `.npy`: a header that says what the array is, and behind it the elements.
//!
//! The format is that of `numpy.lib.format`, versions 1 to 3. Its header is a Python dictionary of three keys, of which only
//! what NumPy itself writes is understood.

/// The first bytes of a file.
pub(crate) const MAGIC: [u8; 6] = *b"\x93NUMPY";
/// The longest header that is read: that of an array of some hundred named fields.
pub(crate) const HEADER_LEN_MAX: usize = 64 << 10;

/// Instead of a text, `descr` is a list of fields.
const STRUCTURED: &str = "it holds a structured array: save one field of it, or elements of bytes, as by a.view('V8')";

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Npy {
    /// Where the elements begin.
    pub(crate) data_start: u64,
    /// Bytes of all elements.
    pub(crate) data_len: u64,
    pub(crate) shape: Vec<u64>,
    pub(crate) element: Element,
    /// The first index runs fastest in memory.
    pub(crate) is_fortran: bool,
}

/// The type of an array's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    /// As the header has it, such as `<f8`.
    pub(crate) descr: String,
    /// NumPy's letter: `i`, `u`, `f`, `c`, `b`, `S`, `U`, `V`, `m` or `M`.
    pub(crate) kind: char,
    pub(crate) len_bytes: u64,
    pub(crate) is_big_endian: bool,
}

/// The meaning of the first bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// It is not of this format.
    Other,
    /// The header is this many bytes, more than there are.
    Longer(usize),
    Npy(Npy),
}

/// Reads a header from the first bytes of a file.
///
/// # Errors
/// The magic is there, and what follows is not a header.
pub(crate) fn head(bytes: &[u8]) -> Result<Head, String> {
    let Some(rest) = bytes.strip_prefix(&MAGIC[..]) else { return Ok(Head::Other) };
    let (text_start, text_len) = match rest {
        [1, _, a, b, ..] => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        [1..=3, ..] | [] => return Err("it ends in its NumPy header".to_owned()),
        [version, ..] => return Err(format!("its NumPy format has version {version}, and 1 to 3 are known")),
    };
    let data_start = text_start + text_len;
    if data_start > HEADER_LEN_MAX {
        return Err(format!("its NumPy header has {data_start} bytes, and at most {HEADER_LEN_MAX} are read"));
    }
    match bytes.get(text_start..data_start) {
        None => Ok(Head::Longer(data_start)),
        Some(text) => parse(text, data_start as u64).map(Head::Npy),
    }
}

fn parse(text: &[u8], data_start: u64) -> Result<Npy, String> {
    let text = std::str::from_utf8(text).map_err(|_| "its NumPy header is no text".to_owned())?;
    let mut literal = Literal { rest: text };
    let (mut descr, mut is_fortran, mut shape) = (None, None, None);
    literal.expect('{')?;
    while !literal.takes('}') {
        let key = literal.string()?;
        literal.expect(':')?;
        match key {
            "descr" => descr = Some(literal.string().map_err(|_| STRUCTURED.to_owned())?),
            "fortran_order" => is_fortran = Some(literal.boolean()?),
            "shape" => shape = Some(literal.tuple()?),
            other => return Err(format!("its NumPy header has a key `{}`, which is not known", shown(other))),
        }
        if !literal.takes(',') && !literal.rest.trim_start().starts_with('}') {
            return Err(literal.wrong());
        }
    }
    let missing = |key: &str| format!("its NumPy header has no `{key}`");
    let element = element(descr.ok_or_else(|| missing("descr"))?)?;
    let shape = shape.ok_or_else(|| missing("shape"))?;
    let is_fortran = is_fortran.ok_or_else(|| missing("fortran_order"))?;
    let data_len = shape.iter().try_fold(element.len_bytes, |len, count| len.checked_mul(*count));
    let data_len = data_len.filter(|len| data_start.checked_add(*len).is_some());
    let data_len = data_len.ok_or("its NumPy header says more elements than a file can hold")?;
    Ok(Npy { data_start, data_len, shape, element, is_fortran })
}

fn element(descr: &str) -> Result<Element, String> {
    let unknown = || format!("its NumPy header has elements `{}`, which are not known", shown(descr));
    let mut letters = descr.chars();
    let order = letters.next().ok_or_else(unknown)?;
    let kind = letters.next().ok_or_else(unknown)?;
    if kind == 'O' {
        return Err("it holds Python objects, which are pickled: save an array of numbers".to_owned());
    }
    let digits = letters.as_str();
    // A time has its unit behind its length: `<M8[ns]`.
    let digits = if matches!(kind, 'm' | 'M') { digits.split('[').next().unwrap_or(digits) } else { digits };
    let count: u64 = digits.parse().map_err(|_| unknown())?;
    if !"<>|=".contains(order) || !"iufcbSUVmM".contains(kind) {
        return Err(unknown());
    }
    // Of text the count is that of characters.
    let len_bytes = if kind == 'U' { count.checked_mul(4).ok_or_else(unknown)? } else { count };
    Ok(Element { descr: descr.to_owned(), kind, len_bytes, is_big_endian: order == '>' && len_bytes > 1 })
}

/// The rest of a Python literal.
struct Literal<'t> {
    rest: &'t str,
}

impl<'t> Literal<'t> {
    fn takes(&mut self, mark: char) -> bool {
        let rest = self.rest.trim_start();
        let taken = rest.strip_prefix(mark);
        self.rest = taken.unwrap_or(rest);
        taken.is_some()
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        if self.takes(mark) { Ok(()) } else { Err(self.wrong()) }
    }

    fn string(&mut self) -> Result<&'t str, String> {
        let quote = if self.takes('\'') { '\'' } else { self.expect('"').map(|()| '"')? };
        let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.wrong())?;
        self.rest = rest;
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, String> {
        let rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.wrong())
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        let mut numbers = Vec::new();
        self.expect('(')?;
        while !self.takes(')') {
            let rest = self.rest.trim_start();
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            numbers.push(rest[..end].parse().map_err(|_| self.wrong())?);
            // Python 2 wrote long integers so.
            self.rest = rest[end..].strip_prefix('L').unwrap_or(&rest[end..]);
            if !self.takes(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(numbers)
    }

    fn wrong(&self) -> String {
        match self.rest.trim() {
            "" => "its NumPy header ends too early".to_owned(),
            rest => format!("its NumPy header is not understood from `{}` on", shown(rest)),
        }
    }
}

/// As an error repeats it: not longer than a line.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let len = text.len() as u32;
        let len = if version == 1 { len.to_le_bytes()[..2].to_vec() } else { len.to_le_bytes().to_vec() };
        [&MAGIC[..], &[version, 0], &len, text.as_bytes(), b"data"].concat()
    }

    fn array(text: &str) -> Result<Npy, String> {
        match head(&file(1, text))? {
            Head::Npy(npy) => Ok(npy),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn headers_that_numpy_writes_are_understood() {
        let text = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }          \n";
        for version in 1..=3 {
            let Ok(Head::Npy(npy)) = head(&file(version, text)) else { panic!("version {version}") };
            let data_start = text.len() as u64 + if version == 1 { 10 } else { 12 };
            let element = Element { descr: "<f8".into(), kind: 'f', len_bytes: 8, is_big_endian: false };
            let expected = Npy { data_start, data_len: 96, shape: vec![3, 4], element, is_fortran: false };
            assert_eq!(npy, expected);
        }
        let npy = array("{'descr':\"|u1\",'fortran_order':True,'shape':(7,)}").unwrap();
        assert_eq!((npy.data_len, npy.shape, npy.is_fortran, npy.element.is_big_endian), (7, vec![7], true, false));
        let npy = array("{'shape': (), 'descr': '>M8[ns]', 'fortran_order': False}").unwrap();
        assert_eq!((npy.data_len, npy.element.kind, npy.element.is_big_endian), (8, 'M', true));
        assert_eq!(array("{'descr': '<U3', 'fortran_order': False, 'shape': (2L,)}").unwrap().data_len, 24);
        assert_eq!(array("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 5)}").unwrap().data_len, 0);
    }

    #[test]
    fn what_is_no_header_says_why() {
        for (text, why) in [
            ("", "ends too early"),
            ("{'descr': '<i4', 'fortran_order': False}", "has no `shape`"),
            ("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", "a structured array"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "Python objects"),
            ("{'descr': '<i4', 'fortran_order': 1, 'shape': (1,)}", "not understood from `1, 'shape'"),
            ("{'descr': '<i4', 'fortran_order': False, 'shape': (1,-2)}", "not understood from `-2)}`"),
            ("{'descr': '<q4', 'fortran_order': False, 'shape': (1,)}", "elements `<q4`"),
            ("{'descr': '<i4', 'more': 1}", "a key `more`"),
            ("{'descr': '<i8', 'fortran_order': False, 'shape': (9223372036854775807, 4)}", "more elements"),
            ("{'descr': '<i8' 'shape'", "not understood from `'shape'`"),
            ("((((((((((((((((", "not understood from `((("),
        ] {
            let told = array(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
        assert_eq!(head(b"text"), Ok(Head::Other));
        assert_eq!(head(b"\x93NUMP"), Ok(Head::Other));
        assert_eq!(head(b"\x93NUMPY\x01\0\x76\0{'des"), Ok(Head::Longer(128)));
        assert!(head(b"\x93NUMPY\x09\0\x76\0").unwrap_err().contains("version 9"));
        assert!(head(b"\x93NUMPY\x02\0\0\0\0\x10").unwrap_err().contains("at most 65536"));
        assert!(head(b"\x93NUMPY\x01\0").unwrap_err().contains("ends in its NumPy header"));
    }
}
