//! Requests to a cache, in the format in which Twitter published those of its caches (<https://github.com/twitter/cache-trace>):
//! lines of `timestamp,anonymized key,key size,value size,client id,operation,TTL`.

use crate::Failure;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::io::BufRead;

/// Longer ones are taken for mistakes: memcached's keys have at most 250 bytes, and its values usually 1 MiB.
const KEY_LEN_MAX: u32 = 64 << 10;
const VALUE_LEN_MAX: u32 = 64 << 20;
/// So many of the lines that cannot be read are named.
const NAMED_MAX: usize = 10;
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    /// A read, and a write of what came of it.
    Change,
    Delete,
}

impl Kind {
    fn of(operation: &[u8]) -> Option<Self> {
        Some(match operation {
            b"get" | b"gets" => Self::Read,
            b"set" | b"add" | b"replace" | b"cas" => Self::Write,
            b"append" | b"prepend" | b"incr" | b"decr" => Self::Change,
            b"delete" => Self::Delete,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// Its place in the list of keys.
    pub(crate) key: u32,
    pub(crate) value_len: u32,
}

/// A key, and what the trace expects of it at its beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    /// As it is in the trace, with zeros behind it up to the size that the trace gives.
    pub(crate) bytes: Vec<u8>,
    /// The length of the value that the first request reads; `None`: it writes one, or finds none.
    pub(crate) at_first: Option<u32>,
    /// How many requests are for it.
    pub(crate) requests: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) keys: Vec<Key>,
    pub(crate) requests: Vec<Request>,
    pub(crate) bad: BadLines,
}

/// Lines that cannot be read: how many there are, and the first ones.
#[derive(Debug, Default)]
pub(crate) struct BadLines {
    pub(crate) count: u64,
    pub(crate) first: Vec<BadLine>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BadLine {
    /// From 1 on.
    pub(crate) number: u64,
    pub(crate) why: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.why)
    }
}

impl fmt::Display for BadLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<String> = self.first.iter().map(ToString::to_string).collect();
        f.write_str(&named.join("\n"))?;
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\nand {more} lines more"),
        }
    }
}

/// The parts of a line that are used.
#[derive(PartialEq, Eq, Debug)]
struct Line<'a> {
    key: &'a [u8],
    key_len: u32,
    value_len: u32,
    kind: Kind,
}

impl<'a> Line<'a> {
    fn of(text: &'a [u8]) -> Result<Self, String> {
        // Keys may have commas in them: the fields behind the key are counted from the end.
        let mut fields = text.rsplitn(6, |byte| *byte == b',');
        let missing = || format!("it has {} fields, not 7", text.split(|byte| *byte == b',').count());
        let mut next = || fields.next().ok_or_else(missing);
        let (ttl, operation, client) = (next()?, next()?, next()?);
        let (value_len, key_len, rest) = (next()?, next()?, next()?);
        let comma = rest.iter().position(|byte| *byte == b',').ok_or_else(missing)?;
        let (time, key) = (&rest[..comma], &rest[comma + 1..]);
        number("timestamp", time, u64::MAX)?;
        number("TTL", ttl, u64::MAX)?;
        if client.is_empty() {
            return Err("it has no client id".to_owned());
        }
        let key_len = number("key size", key_len, KEY_LEN_MAX.into())? as u32;
        if key.is_empty() || key.contains(&0) || key.len() > KEY_LEN_MAX as usize {
            return Err("its key is empty, has zero bytes, or is too long".to_owned());
        }
        let value_len = number("value size", value_len, VALUE_LEN_MAX.into())? as u32;
        let unknown = || format!("unknown operation `{}`", shown(operation));
        Ok(Self { key, key_len, value_len, kind: Kind::of(operation).ok_or_else(unknown)? })
    }
}

fn number(name: &str, text: &[u8], max: u64) -> Result<u64, String> {
    // A sign is not a part of a number here, though `parse` takes one.
    let is_plain = text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| is_plain).and_then(|text| text.parse().ok());
    match number {
        None => Err(format!("the {name} `{}` is not a number", shown(text))),
        Some(number) if number > max => Err(format!("the {name} {number} is more than {max}")),
        Some(number) => Ok(number),
    }
}

/// Text as it can be printed, if it is long its beginning.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(40)]).escape_debug().to_string()
}

impl Trace {
    /// Reads at most so many lines. Unless bad ones are skipped, they are an error that names them.
    pub(crate) fn read(mut from: impl BufRead, lines_max: u64, skip_bad: bool) -> Result<Self, Failure> {
        if from.fill_buf()?.starts_with(ZSTD) {
            return Err("it is compressed: unpack it with `zstd -d`".into());
        }
        let (mut trace, mut places, mut text) = (Self::default(), HashMap::new(), Vec::new());
        for number in 1..=lines_max {
            text.clear();
            if from.read_until(b'\n', &mut text)? == 0 {
                break;
            }
            let line = text.strip_suffix(b"\n").unwrap_or(&text);
            match Line::of(line.strip_suffix(b"\r").unwrap_or(line)) {
                Ok(line) => trace.add(&line, &mut places)?,
                Err(why) => {
                    trace.bad.count += 1;
                    if trace.bad.first.len() < NAMED_MAX {
                        trace.bad.first.push(BadLine { number, why });
                    }
                }
            }
        }
        if trace.bad.count > 0 && !skip_bad {
            return Err(trace.bad.to_string().into());
        }
        if trace.requests.is_empty() {
            return Err("it has no requests".into());
        }
        Ok(trace)
    }

    fn add(&mut self, line: &Line<'_>, places: &mut HashMap<Vec<u8>, u32>) -> Result<(), Failure> {
        let key = match places.get(line.key) {
            Some(place) => *place,
            None => {
                let place = u32::try_from(self.keys.len())?;
                places.insert(line.key.to_vec(), place);
                let mut bytes = line.key.to_vec();
                bytes.resize(bytes.len().max(line.key_len as usize), 0);
                let is_there = matches!(line.kind, Kind::Read | Kind::Change) && line.value_len > 0;
                self.keys.push(Key { bytes, at_first: is_there.then_some(line.value_len), requests: 0 });
                place
            }
        };
        self.keys[key as usize].requests += 1;
        self.requests.push(Request { kind: line.kind, key, value_len: line.value_len });
        Ok(())
    }

    /// Counts and means: a user compares them with those of the real requests, and they say how much room is needed.
    pub(crate) fn summary(&self) -> Value {
        let count = |kind| self.requests.iter().filter(|request| request.kind == kind).count();
        let (requests, keys) = (self.requests.len() as f64, self.keys.len() as f64);
        let mut largest = vec![0_u32; self.keys.len()];
        for request in &self.requests {
            let known = &mut largest[request.key as usize];
            *known = request.value_len.max(*known);
        }
        let sizes =
            self.keys.iter().zip(&largest).map(|(key, value_len)| key.bytes.len() as u64 + u64::from(*value_len));
        let mean = |of: &dyn Fn(&Request) -> u64| self.requests.iter().map(of).sum::<u64>() as f64 / requests;
        json!({
            "requests": self.requests.len(), "bad_lines": self.bad.count, "keys": self.keys.len(),
            "loaded": self.keys.iter().filter(|key| key.at_first.is_some()).count(),
            "data_bytes": sizes.sum::<u64>(),
            "reads": count(Kind::Read), "writes": count(Kind::Write), "changes": count(Kind::Change), "deletes": count(Kind::Delete),
            "key_len_mean": mean(&|request| self.keys[request.key as usize].bytes.len() as u64),
            "value_len_mean": mean(&|request| request.value_len.into()),
            "requests_per_key": requests / keys,
            "keys_requested_once": self.keys.iter().filter(|key| key.requests == 1).count() as f64 / keys,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of every kind, as the published traces have them; some keys have commas.
    const SAMPLE: &[u8] = include_bytes!("../../tests/files/requests.csv");

    fn read(text: &[u8], skip_bad: bool) -> Result<Trace, String> {
        Trace::read(text, u64::MAX, skip_bad).map_err(|error| error.to_string())
    }

    #[test]
    fn a_trace_is_read_as_it_was_published() {
        let trace = read(SAMPLE, false).expect("it is read");
        let summary = trace.summary();
        let counts = ["requests", "keys", "loaded", "reads", "writes", "changes", "deletes"];
        let counts = counts.map(|name| summary[name].as_u64().expect("a count"));
        assert_eq!(counts, [24, 9, 5, 11, 6, 4, 3], "{summary}");
        let key = |text: &[u8]| trace.keys.iter().find(|key| key.bytes.starts_with(text)).expect("a key");
        // Shorter than its size: zeros are behind it. Longer: it stays whole.
        assert_eq!(key(b"nz:u:").bytes.len(), 42);
        assert_eq!(key(b"q:a,b,c").bytes, b"q:a,b,c");
        // The first request finds a value, writes one, or finds none.
        assert_eq!([b"nz:u:", b"fresh", b"gone:"].map(|text| key(text).at_first), [Some(101), None, None]);
    }

    #[test]
    fn lines_that_cannot_be_read_are_named_with_their_numbers() {
        let good = "0,key,3,10,1,get,0";
        let cases = [
            ("", "it has 1 fields, not 7"),
            ("0,key,3,10,1,get", "it has 6 fields, not 7"),
            ("now,key,3,10,1,get,0", "the timestamp `now` is not a number"),
            ("0,key,three,10,1,get,0", "the key size `three` is not a number"),
            ("0,key,65537,10,1,get,0", "the key size 65537 is more than 65536"),
            ("0,key,3,-1,1,get,0", "the value size `-1` is not a number"),
            ("0,key,3,+1,1,get,0", "the value size `+1` is not a number"),
            ("0,key,3,99999999999999999999,1,get,0", "the value size `99999999999999999999` is not a number"),
            ("0,key,3,67108865,1,get,0", "the value size 67108865 is more than 67108864"),
            ("0,key,3,10,,get,0", "it has no client id"),
            ("0,key,3,10,1,GET,0", "unknown operation `GET`"),
            ("0,key,3,10,1,get,", "the TTL `` is not a number"),
            ("0,,3,10,1,get,0", "its key is empty, has zero bytes, or is too long"),
        ];
        for (bad, why) in cases {
            let text = format!("{good}\n{bad}\n{good}\n");
            assert_eq!(read(text.as_bytes(), false).expect_err(bad), format!("line 2: {why}"));
            let skipped = read(text.as_bytes(), true).expect("the others are read");
            assert_eq!((skipped.requests.len(), skipped.bad.count, skipped.bad.first[0].number), (2, 1, 2), "{bad}");
        }
    }

    #[test]
    fn many_bad_lines_are_counted_and_a_file_without_requests_is_refused() {
        let text = "bad\n".repeat(25);
        let error = read(text.as_bytes(), false).expect_err("nothing can be read");
        assert!(error.starts_with("line 1: ") && error.contains("\nline 10: "), "{error}");
        assert!(error.ends_with("\nand 15 lines more"), "{error}");
        assert_eq!(read(text.as_bytes(), true).expect_err("nothing is left"), "it has no requests");
        assert_eq!(read(b"", false).expect_err("nothing is there"), "it has no requests");
        let packed = read(&[ZSTD, b"rest"].concat(), false).expect_err("it is packed");
        assert_eq!(packed, "it is compressed: unpack it with `zstd -d`");
    }

    #[test]
    fn only_so_many_lines_are_read_and_the_last_one_needs_no_end() {
        let text = b"0,a,1,5,1,get,0\r\n1,b,1,5,1,set,60\n2,c,1,5,1,delete,0";
        assert_eq!(read(text, false).expect("it is read").requests.len(), 3);
        let two = Trace::read(&text[..], 2, false).expect("it is read");
        assert_eq!((two.requests.len(), two.keys.len()), (2, 2));
    }
}
