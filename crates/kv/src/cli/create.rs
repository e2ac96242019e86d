//! `diskside-kv create`.

use super::{Failure, open, print};
use clap::Args;
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo, Request, block_on};
use diskside_kv::KvError;
use diskside_kv::create::{Creation, Keys};
use diskside_kv::format::{FAN_OUT, Value, text_value};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

/// Arguments of `create`.
#[derive(Args)]
pub(crate) struct Create {
    /// Path or URL of the store; a file is replaced
    store: String,
    /// Levels of nodes: as many keys as full nodes hold, the value of each its number
    #[arg(long, conflicts_with_all = ["keys", "from"], required_unless_present_any = ["keys", "from"])]
    levels: Option<u32>,
    /// The keys 0 up to this, the value of each its number
    #[arg(long, conflicts_with = "from")]
    keys: Option<u64>,
    /// Read pairs from a file, `-` for standard input: a line is key, tab, value; keys ascend
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// Keys of a node, from 2 to 31: fewer make a small store with many levels
    #[arg(long, default_value_t = FAN_OUT as u64)]
    fill: u64,
    /// Write the older format, whose nodes do not name the next one
    #[arg(long)]
    older: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Create {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let keys = match (&self.from, self.keys, self.levels) {
            (Some(from), ..) => Keys::Pairs(read_pairs(from)?),
            (None, Some(keys), _) => Keys::Counting(keys),
            (None, None, Some(levels)) => Keys::Counting(self.fill.checked_pow(levels).unwrap_or(u64::MAX)),
            (None, None, None) => return Err(Failure::Usage("say --levels, --keys or --from".into())),
        };
        let creation = Creation::new(keys).fill(self.fill);
        let creation = if self.older { creation.older() } else { creation };
        let geometry = creation.geometry()?;
        if open::is_url(&self.store) {
            let volume = open::volume(&self.store)?;
            let room = volume.len_bytes().unwrap_or(0);
            if geometry.len > room {
                let what = format!("{}: the store has {} bytes, the volume {room}", self.store, geometry.len);
                return Err(Failure::Usage(what));
            }
            let mut writer = VolumeWriter { volume: &volume, offset: 0, rest: Vec::new() };
            creation.write(&mut writer)?;
            writer.finish().map_err(|source| KvError::Io { what: "writing", offset: 0, source })?;
        } else {
            let open = |error: io::Error| KvError::Open { name: self.store.clone(), reason: error.to_string() };
            let file = File::create(&self.store).map_err(open)?;
            creation.write(&file)?;
            file.sync_all().map_err(open)?;
        }
        let (levels, bytes) = (geometry.nodes.len(), geometry.len);
        print(self.json, json!({ "levels": levels, "bytes": bytes }), &format!("{levels} levels, {bytes} bytes"))
    }
}

fn read_pairs(from: &str) -> Result<Vec<(u64, Value)>, Failure> {
    let reader: Box<dyn BufRead> = match from {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(BufReader::new(
            File::open(path).map_err(|error| KvError::Open { name: path.into(), reason: error.to_string() })?,
        )),
    };
    let mut pairs = Vec::new();
    for (number, line) in (1..).zip(reader.lines()) {
        let wrong = |what: &str| Failure::Usage(format!("{from}, line {number}: {what}"));
        let line = line.map_err(|error| wrong(&error.to_string()))?;
        let (key, value) = line.split_once('\t').ok_or_else(|| wrong("no tab between key and value"))?;
        let key = key.parse().map_err(|_| wrong("the key is no number of 64 bits"))?;
        pairs.push((key, text_value(value).ok_or_else(|| wrong("the value is longer than 64 bytes"))?));
    }
    Ok(pairs)
}

/// Writes a volume from its start, whole blocks at a time.
struct VolumeWriter<'a> {
    volume: &'a diskside::host::Volume,
    offset: u64,
    /// Less than a block.
    rest: Vec<u8>,
}

impl VolumeWriter<'_> {
    fn finish(mut self) -> io::Result<()> {
        let block = self.volume.alignment_bytes() as usize;
        let padded = self.rest.len().next_multiple_of(block);
        self.rest.resize(padded, 0);
        let rest = std::mem::take(&mut self.rest);
        self.write_blocks(&rest)?;
        block_on(self.volume.submit(Request::Flush)).into_result().map(|_| ())
    }

    fn write_blocks(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let request = Request::Write { offset: self.offset, buffer: Buffer::copy_of(bytes), durable: false };
        block_on(self.volume.submit(request)).into_result()?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

impl Write for VolumeWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let block = self.volume.alignment_bytes() as usize;
        let whole = self.rest.len() - self.rest.len() % block;
        let rest = self.rest.split_off(whole);
        let blocks = std::mem::replace(&mut self.rest, rest);
        self.write_blocks(&blocks)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
