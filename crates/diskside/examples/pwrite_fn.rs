//! Runs a function over standard input and writes its output into a file, over what is there, from its start.
//!
//! ```console
//! $ pwrite_fn bitmap /mnt/volume/expanded < runs
//! ```
//!
//! When the file is on a mounted volume, only the input travels: the volume's target writes the output where the file is.

use diskside::session::{OpenMode, RunOptions, Session, SessionOptions, Where};
use std::io::Read;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(function), Some(path), None) = (args.next(), args.next(), args.next()) else {
        return Err("say FUNCTION and FILE".into());
    };
    let session = Session::new(SessionOptions::default());
    let function = session.function(&function)?;
    let file = session.open_as(&path.parse()?, OpenMode::Write)?;
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let options = RunOptions { place: Where::Device, durable: true, ..RunOptions::default() };
    let ran = file.pwrite_fn(0, input, &function, &[], &options).wait()?;
    println!("{} bytes written; {}", ran.written_bytes, session.mounted_counters());
    for (name, why) in &ran.refusals {
        println!("{name}: {why}");
    }
    Ok(())
}
