//! `diskside-kv create`.

use super::{Failure, open, print};
use clap::Args;
use diskside::copy::{End, find_content};
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo, Request, block_on};
use diskside::outfile::Destination;
use diskside_kv::KvError;
use diskside_kv::create::{Creation, Keys};
use diskside_kv::format::{FAN_OUT, Value, text_value};
use serde_json::json;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

/// Arguments of `create`.
#[derive(Args)]
pub(crate) struct Create {
    /// Path or URL of the store; nothing but zeroes may be there
    store: String,
    /// Overwrite a file or a volume that holds something
    #[arg(long)]
    force: bool,
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
    pub(super) fn store(&self) -> &str {
        &self.store
    }

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
            self.write_volume(&creation, geometry.len)?;
        } else {
            self.write_file(&creation)?;
        }
        let (levels, bytes) = (geometry.nodes.len(), geometry.len);
        print(self.json, json!({ "levels": levels, "bytes": bytes }), &format!("{levels} levels, {bytes} bytes"))
    }
}

impl Create {
    fn write_volume(&self, creation: &Creation, len: u64) -> Result<(), Failure> {
        let volume = open::volume(&self.store)?;
        let room = volume.len_bytes().unwrap_or(0);
        if len > room {
            return Err(Failure::Usage(format!("{}: the store has {len} bytes, the volume {room}", self.store)));
        }
        if !self.force {
            let found = find_content(&End { io: &volume, len: room, fixed: true }, len);
            if let Some(content) = found.map_err(|error| self.cannot_open(&error))? {
                return Err(self.would_lose(&content));
            }
        }
        let mut writer = VolumeWriter { volume: &volume, offset: 0, rest: Vec::new() };
        creation.write(&mut writer)?;
        Ok(writer.finish().map_err(|source| KvError::Io { what: "writing", offset: 0, source })?)
    }

    fn write_file(&self, creation: &Creation) -> Result<(), Failure> {
        let destination = Destination::find(Path::new(&self.store)).map_err(Failure::Write)?;
        if !self.force && destination.is_block_device() {
            return Err(self.would_lose(&"what may be on a block device"));
        }
        if let (false, Some(len @ 1..)) = (self.force, destination.len_bytes()) {
            return Err(self.would_lose(&format!("a file of {len} bytes")));
        }
        let mut file = destination.begin().map_err(Failure::Write)?;
        creation.write(&mut file)?;
        file.publish().map_err(Failure::Write)
    }

    fn would_lose(&self, what: &dyn Display) -> Failure {
        Failure::Usage(format!("{} holds {what}, which the new store would overwrite; --force does", self.store))
    }

    fn cannot_open(&self, error: &dyn Display) -> Failure {
        KvError::Open { name: self.store.clone(), reason: error.to_string() }.into()
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
