//! The functions, each with data like that of its everyday use.

use crate::data::{self, Data};
use diskside_bench_runner::Task;
use diskside_bench_runner::native::Function as Native;
use std::path::Path;

/// What build.rs made of a source.
struct Compiled {
    name: &'static str,
    about: &'static str,
    source: &'static str,
    native: [Native; 2],
}

include!(concat!(env!("OUT_DIR"), "/natives.rs"));
static COMPILED: &[Compiled] = include!(concat!(env!("OUT_DIR"), "/compiled.rs"));

/// A function that is measured.
pub struct Function(&'static Compiled);

/// All of them.
pub fn all() -> impl Iterator<Item = Function> {
    COMPILED.iter().map(Function)
}

impl Function {
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// What it does.
    pub fn about(&self) -> &'static str {
        self.0.about
    }

    /// The task over about so many bytes.
    ///
    /// # Errors
    /// Why there is no object.
    pub fn task(&self, size: usize) -> Result<Task, String> {
        // As `diskside run` does.
        let object = diskside_compile::compile(Path::new(self.0.source)).map_err(|error| error.to_string())?;
        let Data { input, args, out_cap, accumulates } = data_for(self.0.name, size);
        Ok(Task {
            name: self.0.name,
            object: object.leak(),
            program: self.0.name,
            native: self.0.native,
            peer_object: &[],
            wasm_module: &[],
            input,
            args,
            zeroed_len: if accumulates { out_cap } else { 0 },
            out_cap,
        })
    }
}

fn data_for(name: &str, size: usize) -> Data {
    let n4 = size / 4;
    let n8 = size / 8;
    match name {
        // Text
        "status_count" => Data::text(data::web_log(size)).out(4800),
        "addresses" => Data::text(data::web_log(size)).out(2056),
        "csv_sum" | "csv_mean" => Data::text(data::sales_csv(size)),
        "csv_fields" => Data::text(data::quoted_csv(size)),
        "quotes_escaped" | "json_price" | "json_depth" => Data::text(data::json_lines(size)),
        "logfmt_ms" => Data::text(data::logfmt(size)),
        "longest_line" | "word_count" => Data::text(data::words(size)),
        "distinct" => Data::text(data::words(size)).out(1024),
        "repeated_lines" => Data::text(data::repeated(size)),
        "state_machine" => Data::text(data::c_source(size)),
        "byte_histogram" => Data::text(data::words(size)).out(2048),
        "utf8_count" => Data::text(data::utf8(size)),
        "lower_case" => Data::bulk(data::words(size), size),
        "levenshtein" => Data::text(data::word_lines(size)).args(data::word_argument("namespaces")),
        "hex_decode" => Data::bulk(data::digits(size, b"0123456789abcdef"), size / 2),
        "base64_decode" => Data::bulk(data::digits(size, data::BASE64), size),
        "base64_encode" => Data::bulk(data::noise(size / 4 * 3), size + 64),
        // Bytes
        "crc32" => Data::text(data::noise(size)),
        "run_lengths" => Data::bulk(data::runs(size), 2 * size + 64),
        "lz_decode" => {
            let input = data::lz(size);
            Data::bulk(input, size + 4096)
        }
        "varint_sum" => Data::text(data::varints(size)),
        "bit_unpack" => Data::bulk(data::noise(size), 3 * size + 64),
        // Integers
        "delta_decode" => Data::bulk(data::u32s(n4, |i| (data::mix(i) % 200) as u32), size),
        "delta_max" => Data::text(data::u32s(n4, |i| (data::mix(i) as u32) >> 4)),
        "sort_blocks" => Data::bulk(data::noise(size), size),
        "columns" => Data::bulk(data::noise(size), size),
        "binary_search" => {
            let keys = data::u32s(1024, |i| (i * 977) as u32);
            Data::text(data::u32s(n4, |i| (data::mix(i) % 1_000_448) as u32)).args(keys)
        }
        "bloom_probe" => {
            let filter = data::u64s(512, |i| data::mix(i) & data::mix(i + 7777) & data::mix(i + 99_999));
            Data::text(data::noise(size)).args(filter)
        }
        "intersect" => Data::text([data::sorted(n8, 1), data::sorted(n8, 2)].concat()),
        "top_k" => Data::text(data::noise(size)),
        "linked_list" => Data::text(data::noise(size / 4)).out(2048),
        "hamming" => Data::text(data::noise(size)).args(data::noise(32)),
        // Rows
        "group_sum" => {
            Data::text(data::u64s(n8, |i| if i % 2 == 0 { data::mix(i) % 1000 } else { data::mix(i) >> 40 }))
                .out(98_304)
        }
        "hash_join" => {
            let rows = data::u32s(2000, |i| if i < 1000 { (i * 3 + 1) as u32 } else { (i % 97) as u32 });
            let sales = data::u32s(n4, |i| (data::mix(i) % 4000 + 1) as u32);
            Data::text(sales).args([1000u32.to_le_bytes().to_vec(), rows].concat())
        }
        "filter_rows" => Data::text(data::u32s(n4, |i| match i % 4 {
            0 => (data::mix(i) % 2500) as u32,
            1 => (data::mix(i) % 50) as u32,
            2 => (data::mix(i) % 11) as u32,
            _ => (data::mix(i) % 100_000) as u32,
        })),
        "sessions" => Data::text(data::u32s(n4, |i| match i % 2 {
            0 => (data::mix(i) % 3000) as u32,
            _ => (1 + i * 2) as u32,
        })),
        // Floating point
        "float_sum" | "variance" => Data::text(data::doubles(n8)),
        "float_histogram" => Data::text(data::doubles(n8)).out(816),
        "moving_average" => Data::bulk(data::doubles(n8), size),
        "matrix_vector" => Data::bulk(data::doubles(n8), size / 64).args(data::doubles(64)),
        "k_means" => Data::text(data::doubles(n8)).args(data::doubles(16)).out(192),
        "float_scale" => Data::bulk(data::floats(n4), size),
        "distances" => Data::text(data::floats(n4)).args(data::floats(32)),
        _ => panic!("functions/{name}.bpf.c has no data here"),
    }
}
