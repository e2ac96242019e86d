//! A database as it is measured: how it is opened, and which way its reads go.

use crate::Failure;
use crate::arguments::Arguments;
use diskside_rocksdb::{ConnectOptions, Database, Mode, Options, Reads, Store};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The options of tables: RocksDB's own defaults, except that there is no compression and no blocks are in the page
/// cache.
const TABLES: &str = "compression=kNoCompression;use_direct_reads=true;use_direct_io_for_flush_and_compaction=true;\
                      target_file_size_base=16777216;write_buffer_size=16777216;max_bytes_for_level_base=67108864;\
                      level_compaction_dynamic_level_bytes=false";

/// How a database is read.
pub(crate) struct Plan {
    /// `None`: RocksDB makes all reads.
    pub(crate) mode: Option<Mode>,
    pub(crate) values_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) index_in_memory: bool,
    pub(crate) table: String,
    pub(crate) threads: u64,
    pub(crate) batch: u64,
    pub(crate) warm: Duration,
    pub(crate) time: Duration,
    pub(crate) sampled: u64,
    pub(crate) spin: Duration,
}

impl Plan {
    pub(crate) fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let seconds = |name, usual| arguments.number(name, usual).map(Duration::from_secs_f64);
        Ok(Self {
            mode: match arguments.value("mode") {
                Some("plain") | None => None,
                Some("auto") => Some(Mode::Auto),
                Some("server") => Some(Mode::Server),
                Some(other) => return Err(format!("no mode {other}").into()),
            },
            values_bytes: arguments.number("values", 0)?,
            cache_bytes: arguments.number("cache", 0)?,
            index_in_memory: arguments.value("index") == Some("memory"),
            table: arguments.table(),
            threads: arguments.number("threads", 1)?,
            batch: arguments.number("batch", 1)?,
            warm: seconds("warm", 1.0)?,
            time: seconds("seconds", 2.0)?,
            sampled: arguments.number("sampled", 0)?,
            spin: Duration::from_micros(arguments.number("spin", 100)?),
        })
    }

    /// Opens a database on the volume at a URL.
    pub(crate) fn open(&self, directory: &Path, url: &str) -> Result<Reads, Failure> {
        let options = format!(
            "{TABLES};max_open_files=-1;block_based_table_factory={{{};cache_index_and_filter_blocks={};block_cache={}}}",
            self.table,
            !self.index_in_memory,
            self.cache_bytes.max(1024)
        );
        let database = Arc::new(Database::open(directory, &options)?);
        let connect = ConnectOptions { spin: self.spin, ..ConnectOptions::default() };
        Ok(Reads::new(database, Store::on_volume(directory, &url.parse()?, &connect)?, self.options()))
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        (options.mode, options.values_bytes) = (self.mode.unwrap_or_default(), self.values_bytes);
        options.sampled = self.sampled;
        options
    }

    /// The value of a key, the way that is measured.
    pub(crate) fn get(&self, reads: &Reads, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(if self.mode.is_some() { reads.get(key)? } else { reads.database().get(key)? })
    }
}

/// Opens a database that is to be filled.
pub(crate) fn created(directory: &Path, table: &str) -> Result<Database, Failure> {
    let options = format!("{TABLES};create_if_missing=true;block_based_table_factory={{{table}}}");
    Ok(Database::open(directory, &options)?)
}
