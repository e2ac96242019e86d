//! `diskside check-config`.

use super::configuration;
use super::serve::in_file;
use crate::error::Failure;
use crate::output;
use clap::Args;
use diskside::target::Target;
use diskside::target::config::{ServeConfig, Settings};
use std::io::Write as _;
use std::path::PathBuf;

/// Arguments of `check-config`.
#[derive(Args)]
#[command(after_help = "\
It reads the keys and looks for exports and volumes as this user, and opens no port. A server that runs is not touched: \
`systemctl reload diskside`, or SIGHUP, has it take the file.")]
pub(crate) struct CheckConfig {
    /// The file [default: diskside.toml, or else /etc/diskside/diskside.toml]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl CheckConfig {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let file = self.file.unwrap_or_else(configuration::usual);
        let wrong = |error| Failure::Usage(in_file(error, &file).to_string());
        let settings = Settings::from_file(&file).map_err(wrong)?;
        let config = ServeConfig::resolve(settings).map_err(wrong)?;
        let problems = Target::problems_of(&config);
        let shown = file.display();
        config.warnings().iter().for_each(|warning| output::say(format_args!("diskside: {shown}: warning: {warning}")));
        if let Some((last, others)) = problems.split_last() {
            others.iter().for_each(|problem| output::say(format_args!("diskside: {shown}: {problem}")));
            return Err(Failure::Usage(format!("{shown}: {last}")));
        }
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let of = [
            count(config.exports.len(), "export"),
            count(config.volumes.len(), "volume"),
            count(config.known_hosts.len(), "host"),
            count(config.grants.len(), "grant"),
            count(config.quotas.len(), "quota"),
        ];
        writeln!(output::stdout(), "{shown}: good: {}", of.join(", "))?;
        Ok(())
    }
}
