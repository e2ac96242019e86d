//! Files that commands write whole.

use crate::error::Failure;
use diskside::outfile::Destination;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Makes `bytes` the content of a file, whole or not at all, by the rules of docs/outputs.md.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error| Failure::Environment(format!("cannot write {error}"));
    let destination = Destination::find(path).map_err(failed)?;
    if destination.is_block_device() {
        let path = path.display();
        return Err(Failure::Usage(format!("{path}: it is a block device, whose content would be lost")));
    }
    let mut file = destination.begin().map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.publish()).map_err(failed)
}

/// An error if an output is the file that `what` is in, by whatever name: that would be lost.
pub(crate) fn refuse_to_replace(source: &Path, what: &str, output: &Path) -> Result<(), Failure> {
    let identity = |path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    match (identity(source), identity(output)) {
        (Some(one), Some(other)) if one == other => {
            let output = output.display();
            Err(Failure::Usage(format!("{output}: it is {what}, which would be lost: name another file")))
        }
        _ => Ok(()),
    }
}
