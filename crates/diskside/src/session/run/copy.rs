//! A run over one file that several servers may hold.

use super::job::Input;
use super::part::InputPart;
use super::{Ran, RunOptions, read};
use crate::session::error::SessionError;
use crate::session::file::File;
use crate::session::function::SessionFunction;

/// Runs a function over a part of a file. If its URL names several servers and one vanishes, it runs again over the copy at another
/// one: nothing of the first try is in the result.
pub(in crate::session) async fn read_copy(
    file: &File,
    part: InputPart,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
) -> Result<Ran, SessionError> {
    let (mut span, options) = options.begin_span("run", function.name());
    let ran = read_where_it_answers(file, part, function, args, &options).await;
    ran.inspect_err(|error| span.fail(error))
}

async fn read_where_it_answers(
    file: &File,
    part: InputPart,
    function: &SessionFunction,
    args: &[u8],
    options: &RunOptions,
) -> Result<Ran, SessionError> {
    let mut tries = options.tries();
    loop {
        let at = tries.file(file).await?;
        let input = Input { file: at.clone(), part, source_index: 0, frames: false };
        match read(&input, function, args, &options.left(&tries), None).await {
            Ok(ran) => return Ok(Ran { answered: tries.answered(), ..ran }),
            Err(error) if !function.is_pure() => return Err(error),
            Err(error) => tries.go_on(&[at], error)?,
        }
    }
}
