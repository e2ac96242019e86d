//! `diskside discover`.

use super::volume::{Connect, host_failure, parse_url};
use crate::error::Failure;
use crate::output::{self, Table};
use clap::Args;
use diskside::host::Url;
use serde_json::json;
use std::io::Write as _;

/// Arguments of `discover`.
#[derive(Args)]
pub(crate) struct Discover {
    /// The target: nvme-tcp://HOST[:PORT]
    #[arg(value_parser = parse_url)]
    url: Url,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Discover {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let found = diskside::host::discover(&self.url, &self.connect.options()?).map_err(host_failure)?;
        if self.json {
            let list: Vec<_> = found
                .iter()
                .map(|s| {
                    json!({
                        "nqn": s.nqn.as_str(), "address": s.address, "port": s.service,
                        "transport": transport(s.transport), "type": kind(s.kind),
                    })
                })
                .collect();
            return Ok(output::print_json(json!({ "subsystems": list }))?);
        }
        let mut table = Table::new(&["type", "transport", "address", "port", "nqn"]);
        for s in &found {
            table.row(vec![
                kind(s.kind).into(),
                transport(s.transport).into(),
                s.address.clone(),
                s.service.clone(),
                s.nqn.as_str().into(),
            ]);
        }
        write!(output::stdout(), "{table}")?;
        Ok(())
    }
}

/// SUBTYPE of a discovery log entry (NVMe Base, Discovery Log Page).
fn kind(n: u8) -> &'static str {
    match n {
        1 => "referral",
        2 => "nvm",
        3 => "discovery",
        _ => "unknown",
    }
}

/// TRTYPE of a discovery log entry.
fn transport(n: u8) -> &'static str {
    match n {
        1 => "rdma",
        2 => "fc",
        3 => "tcp",
        254 => "loop",
        _ => "unknown",
    }
}
