//! `diskside sign`.

use crate::commands::key::failure;
use crate::error::Failure;
use crate::output;
use crate::output_file::{refuse_to_replace, write_file};
use clap::Args;
use diskside_keys::{SigningKey, default_path, signer_of};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Arguments of `sign`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  diskside sign --new-key
  diskside build report.bpf.c && diskside sign report.o
  diskside run report.o diskside://server/logs/today.log")]
pub(crate) struct Sign {
    /// An object that `diskside build` made; it gets the signature, in place of one that it has
    #[arg(required_unless_present_any = ["new_key", "show"])]
    object: Option<PathBuf>,
    /// Your private key [default: signing-key beside the key of `diskside key new`]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Write the signed object to another file
    #[arg(long, value_name = "FILE", requires = "object")]
    out: Option<PathBuf>,
    /// Make the private key, and print the public one, which operators of servers name
    #[arg(long, conflicts_with_all = ["object", "show", "check"])]
    new_key: bool,
    /// Print your public key
    #[arg(long, conflicts_with_all = ["object", "check"])]
    show: bool,
    /// Print the public key of who signed the object, and change nothing
    #[arg(long, conflicts_with_all = ["key", "out"], requires = "object")]
    check: bool,
}

/// What an object begins with.
const ELF: &[u8] = b"\x7fELF";

impl Sign {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        if self.check {
            return check(&self.object.expect("clap wants it"));
        }
        let usual = || default_path().map(|path| path.with_file_name("signing-key"));
        let nowhere = || Failure::Usage("there is no HOME for the key: name it with --key".into());
        let path = self.key.clone().or_else(usual).ok_or_else(nowhere)?;
        if self.new_key {
            let key = SigningKey::generate();
            key.write(&path).map_err(failure)?;
            writeln!(output::stdout(), "made {}\n{}", path.display(), key.signer())?;
            return Ok(());
        }
        let key = SigningKey::read(&path).map_err(|error| match path.try_exists() {
            Ok(false) => Failure::Environment(format!("{error}; `diskside sign --new-key` makes one")),
            _ => failure(error),
        })?;
        let Some(object) = &self.object else {
            return Ok(writeln!(output::stdout(), "{}", key.signer())?);
        };
        let out = self.out.as_ref().unwrap_or(object);
        refuse_to_replace(&path, "your private key", out)?;
        write_file(out, &key.sign(&read(object)?))?;
        Ok(writeln!(output::stdout(), "{}: signed by {}", out.display(), key.signer())?)
    }
}

fn check(object: &Path) -> Result<(), Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::Load(format!("{}: {what}", object.display()));
    match signer_of(&read(object)?) {
        Ok(Some(signer)) => Ok(writeln!(output::stdout(), "{signer}")?),
        Ok(None) => Err(failed(&"nobody signed it")),
        Err(error) => Err(failed(&error)),
    }
}

fn read(object: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(object).map_err(|e| Failure::Environment(format!("{}: {e}", object.display())))?;
    if !bytes.starts_with(ELF) {
        let what = format!("{} is no object: make one with `diskside build`, and sign that", object.display());
        return Err(Failure::Usage(what));
    }
    Ok(bytes)
}
