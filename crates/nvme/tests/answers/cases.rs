//! The text of cases, taken apart.

use diskside_nvme::crc32c;
use diskside_nvme::wire::{H2cData, Sgl, Sqe};

/// One case.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub line: usize,
    pub on: Vec<String>,
    pub steps: Vec<(usize, Step)>,
}

#[derive(Debug)]
pub enum Step {
    Send(Vec<u8>),
    Command { sqe: Sqe, data: Vec<u8>, spoil: Spoil },
    H2cData { header: H2cData, last: bool, data: Vec<u8>, spoil: Spoil },
    Want(String),
    Medium(String),
    Path(String),
}

/// What is wrong with the digests of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    Nothing,
    HeaderDigest,
    DataDigest,
}

/// The cases of a file.
pub fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.split('#').next().unwrap_or_default().trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "case" {
            cases.push(Case { name: rest.into(), line: number, on: Vec::new(), steps: Vec::new() });
            continue;
        }
        if word.is_empty() {
            continue;
        }
        let case = cases.last_mut().unwrap_or_else(|| panic!("line {number}: no case yet"));
        let step = match word {
            "on" => {
                case.on = rest.split_whitespace().map(String::from).collect();
                continue;
            }
            "command" => command(rest, number),
            "h2c" => h2c_data(rest, number),
            "pdu" => Step::Send(hex(rest, number)),
            "want" => Step::Want(rest.into()),
            "medium" => Step::Medium(rest.into()),
            "path" => Step::Path(rest.into()),
            _ => panic!("line {number}: {word}?"),
        };
        case.steps.push((number, step));
    }
    cases
}

/// A command from its keys.
fn command(text: &str, line: usize) -> Step {
    let mut sqe = Sqe::new(0, 0);
    sqe.set_cid(1);
    sqe.set_sgl(Sgl::transport(0));
    let (mut data_len, mut spoil) = (0, Spoil::Nothing);
    let pairs = pairs(text, line);
    // The opcode and what else `Sqe::new` takes come first, wherever they stand.
    if let Some(value) = pairs.iter().find(|(key, _)| key == "opcode").map(|(_, value)| value) {
        let nsid = pairs.iter().find(|(key, _)| key == "nsid" || key == "fctype").map_or(0, |(_, value)| value.hex());
        let (cid, sgl) = (sqe.cid(), sqe.sgl());
        sqe = Sqe::new(value.hex() as u8, nsid as u32);
        sqe.set_cid(cid);
        sqe.set_sgl(sgl);
    }
    for (key, value) in &pairs {
        match key.as_str() {
            "opcode" | "nsid" | "fctype" => {}
            "cid" => sqe.set_cid(value.hex() as u16),
            "flags" => sqe = sqe.with_flags(value.hex() as u8),
            "slba" => sqe = sqe.with_qword(10, value.decimal()),
            "blocks" => sqe = sqe.with_bits(12, 0, 16, value.decimal() as u32 - 1),
            "data" => data_len = value.decimal() as usize,
            "spoil" => spoil = value.spoil(),
            "sgl" => sqe.set_sgl(value.sgl()),
            _ => {
                let number = key.strip_prefix("dw").and_then(|n| n.parse().ok());
                sqe = sqe.with_dword(number.unwrap_or_else(|| panic!("line {line}: {key}?")), value.hex() as u32);
            }
        }
    }
    Step::Command { sqe, data: counted(data_len), spoil }
}

fn h2c_data(text: &str, line: usize) -> Step {
    let (mut cid, mut ttag, mut offset, mut len, mut last, mut spoil) = (1, 0, 0, 0, false, Spoil::Nothing);
    for (key, value) in pairs(text, line) {
        match key.as_str() {
            "cid" => cid = value.hex() as u16,
            "ttag" => ttag = value.hex() as u16,
            "offset" => offset = value.decimal() as u32,
            "len" => len = value.decimal() as u32,
            "last" => last = value.decimal() == 1,
            "spoil" => spoil = value.spoil(),
            _ => panic!("line {line}: {key}?"),
        }
    }
    Step::H2cData { header: H2cData::new(cid, ttag, offset, len), last, data: counted(len as usize), spoil }
}

/// Bytes that hold their index.
fn counted(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

struct Value {
    text: String,
    line: usize,
}

fn pairs(text: &str, line: usize) -> Vec<(String, Value)> {
    text.split_whitespace()
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or_else(|| panic!("line {line}: {pair}?"));
            (key.to_owned(), Value { text: value.to_owned(), line })
        })
        .collect()
}

impl Value {
    fn hex(&self) -> u64 {
        u64::from_str_radix(&self.text, 16).unwrap_or_else(|_| panic!("line {}: {}?", self.line, self.text))
    }

    fn decimal(&self) -> u64 {
        self.text.parse().unwrap_or_else(|_| panic!("line {}: {}?", self.line, self.text))
    }

    fn spoil(&self) -> Spoil {
        match self.text.as_str() {
            "hdgst" => Spoil::HeaderDigest,
            "ddgst" => Spoil::DataDigest,
            text => panic!("line {}: {text}?", self.line),
        }
    }

    fn sgl(&self) -> Sgl {
        let parts: Vec<Value> =
            self.text.split(':').map(|part| Value { text: part.to_owned(), line: self.line }).collect();
        let [identifier, address, len] = parts.as_slice() else {
            panic!("line {}: identifier:address:length", self.line)
        };
        Sgl::raw(address.decimal(), len.decimal() as u32, identifier.hex() as u8)
    }
}

fn hex(text: &str, line: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for group in text.split_whitespace() {
        if group == "crc" {
            bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
            continue;
        }
        let (digits, times) = group.split_once('*').unwrap_or((group, "1"));
        let times: usize = times.parse().unwrap_or_else(|_| panic!("line {line}: {group}?"));
        let one: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or_else(|_| panic!("line {line}: {group}?")))
            .collect();
        bytes.extend(one.repeat(times));
    }
    bytes
}
