//! `diskside key allow`: a host's key into a file beside the server's configuration, and the host into that.

use super::hosts_file::{HostsFile, HostsFileArgs, parse_name, read_line, tell_of_restart};
use crate::error::Failure;
use crate::output;
use clap::Args;
use std::io::Write as _;

#[derive(Args)]
pub(super) struct Allow {
    /// How the host is called at this server
    #[arg(long, value_parser = parse_name)]
    name: String,
    #[command(flatten)]
    file: HostsFileArgs,
}

impl Allow {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let host = read_line()?;
        let nqn = host.nqn.clone();
        let mut file = HostsFile::open(self.file)?;
        let config = file.path().to_owned();
        let has_others = file.knows(&self.name);
        file.allow(&self.name, host, None)?;
        let told = file.write()?;
        write!(output::stdout(), "{} may connect as {nqn}\n{told}", self.name)?;
        if has_others {
            let name = &self.name;
            writeln!(
                output::stdout(),
                "its earlier keys are good, too: `diskside key rotate --name {name} --finish` takes them away"
            )?;
        }
        Ok(tell_of_restart(&self.name, &config)?)
    }
}
