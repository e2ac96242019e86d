//! `ds_decompress`.

use super::access::{cost, steps};
use crate::machine::{Fault, Machine};
use lz4_flex::block::DecompressError;
use std::cell::RefCell;
use zstd::zstd_safe;

/// Bytes of `struct ds_compression`.
pub(super) const HOW_LEN_BYTES: u64 = 16;
/// Most bytes that are decompressed at a time, some 10 ms of work: nothing stops it in the middle.
pub(super) const LEN_MAX: u64 = 16 << 20;

const ENOSPC: i64 = 28;
const EBADMSG: i64 = 74;

/// `enum ds_codec`.
#[derive(Clone, Copy)]
enum Codec {
    Snappy,
    Lz4,
    Zstd,
}

/// Why there are no bytes.
#[derive(Clone, Copy)]
enum Failure {
    TooLong,
    Damaged,
}

/// `ds_decompress(to, to_len, from, from_len, how)`. The output is never longer than `to_len`, whatever the bytes say; a
/// zstd decoder has its window there, and the rest of its memory is of a fixed size.
pub(super) fn ds_decompress(machine: &mut Machine, [to, to_len, from, from_len, how]: [u64; 5]) -> Result<u64, Fault> {
    machine.check_write(to, to_len)?;
    machine.check_read(from, from_len)?;
    let how: [u8; HOW_LEN_BYTES as usize] = machine.bytes(how, HOW_LEN_BYTES)?.try_into().expect("so many bytes");
    let word = |at: usize| u32::from_le_bytes(how[at..at + 4].try_into().expect("four bytes"));
    let (dict, dict_len) = (u64::from(word(8)) | u64::from(word(12)) << 32, u64::from(word(4)));
    let codec = match word(0) {
        0 => Codec::Snappy,
        1 => Codec::Lz4,
        2 => Codec::Zstd,
        _ => return Err(Fault::Refused("how->codec is not one of enum ds_codec")),
    };
    machine.check_read(dict, dict_len)?;
    machine.charge(1)?;
    // All of it before anything is done.
    for len in [to_len.min(LEN_MAX), from_len.min(LEN_MAX), dict_len] {
        for (_, n) in steps(len) {
            machine.charge(cost(n))?;
        }
    }
    // A copy: it may overlap the output, and mostly there is none.
    let dict = machine.bytes(dict, dict_len)?.to_vec();
    let (input, output) = machine.bytes_and_mut((from, from_len), (to, to_len))?;
    let room = output.len().min(LEN_MAX as usize);
    let done = if from_len > LEN_MAX { Err(Failure::TooLong) } else { run(codec, input, &dict, &mut output[..room]) };
    Ok(match done {
        Ok(len) => len as u64,
        Err(failure) => {
            output.fill(0);
            let error = match failure {
                Failure::TooLong => ENOSPC,
                Failure::Damaged => EBADMSG,
            };
            (-error).cast_unsigned()
        }
    })
}

fn run(codec: Codec, input: &[u8], dict: &[u8], output: &mut [u8]) -> Result<usize, Failure> {
    match codec {
        Codec::Snappy => match snap::raw::decompress_len(input) {
            Ok(len) if len > output.len() => Err(Failure::TooLong),
            Ok(_) => snap::raw::Decoder::new().decompress(input, output).map_err(|_| Failure::Damaged),
            Err(_) => Err(Failure::Damaged),
        },
        Codec::Lz4 => {
            let done = match dict {
                [] => lz4_flex::block::decompress_into(input, output),
                dict => lz4_flex::block::decompress_into_with_dict(input, output, dict),
            };
            done.map_err(|error| match error {
                DecompressError::OutputTooSmall { .. } => Failure::TooLong,
                _ => Failure::Damaged,
            })
        }
        Codec::Zstd => ZSTD.with_borrow_mut(|zstd| {
            let zstd = match zstd {
                Some(zstd) => zstd,
                none => none.insert(zstd_safe::DCtx::try_create().ok_or(Failure::Damaged)?),
            };
            let done = match dict {
                [] => zstd.decompress(output, input),
                dict => zstd.decompress_using_dict(output, input, dict),
            };
            done.map_err(|code| match zstd_safe::get_error_name(code) {
                "Destination buffer is too small" => Failure::TooLong,
                _ => Failure::Damaged,
            })
        }),
    }
}

thread_local! {
    /// Some 160 KiB, which a thread keeps.
    static ZSTD: RefCell<Option<zstd_safe::DCtx<'static>>> = const { RefCell::new(None) };
}
