//! `diskside info`.

use super::volume::{Connect, host_failure, parse_url};
use crate::error::Failure;
use crate::output::{self, Table, bytes};
use clap::Args;
use diskside::host::function::Compute;
use diskside::host::{Connection, HostError, Url, Volume};
use diskside::io::request::AsyncIo;
use diskside::io::ring::interface;
use diskside::wire::function::target_io;
use serde_json::json;
use std::io::Write as _;

/// Arguments of `info`.
#[derive(Args)]
pub(crate) struct Info {
    /// A subsystem or a volume: nvme-tcp://HOST[:PORT]/NQN[/NSID]
    #[arg(value_parser = parse_url)]
    url: Url,
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Info {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let connection = Connection::connect(&self.url, &self.connect.options()?).map_err(host_failure)?;
        let controller = connection.controller();
        let wanted = |nsid: &&u32| self.url.nsid.is_none_or(|n| n == **nsid);
        let mut volumes = Vec::new();
        for nsid in controller.namespaces.iter().filter(wanted) {
            match connection.volume(*nsid) {
                Ok(volume) => volumes.push(volume),
                // The namespaces of functions and of memory, unless one is asked for.
                Err(HostError::NotBlocks { .. }) if self.url.nsid.is_none() => {}
                Err(e) => return Err(host_failure(e)),
            }
        }
        if let (Some(nsid), true) = (self.url.nsid, volumes.is_empty()) {
            // For its error: it names the namespaces that are there.
            connection.volume(nsid).map_err(host_failure)?;
        }
        let (major, minor, tertiary) = controller.version;
        let version = format!("{major}.{minor}.{tertiary}");
        let io = interface()?.name();
        // A target that computes nothing does not say, and neither do those of others.
        let target_io = Compute::new(&connection).ok().and_then(|compute| target_io::name(compute.capabilities().io));
        let path = connection.path_state();
        if self.json {
            return Ok(output::print_json(json!({
                "subsystem": controller.subsystem.as_str(),
                "address": connection.address().to_string(),
                "path": path.map(|state| state.to_string()),
                "controller": controller.controller_id,
                "model": controller.model, "serial": controller.serial, "firmware": controller.firmware,
                "version": version,
                "io_queues": controller.io_queues,
                "transfer_bytes_max": controller.transfer_len_max,
                "in_capsule_bytes": controller.in_capsule_len,
                "volatile_write_cache": controller.write_cache,
                "io": {"host": io, "server": target_io},
                "volumes": volumes.iter().map(document).collect::<Vec<_>>(),
            }))?);
        }
        writeln!(output::stdout(), "subsystem   {}", controller.subsystem.as_str())?;
        writeln!(output::stdout(), "address     {}", connection.address())?;
        if let Some(state) = path {
            writeln!(output::stdout(), "path        {state}")?;
        }
        writeln!(
            output::stdout(),
            "model       {}, serial {}, firmware {}",
            controller.model,
            controller.serial,
            controller.firmware
        )?;
        writeln!(output::stdout(), "nvme        {version}, controller {}", controller.controller_id)?;
        writeln!(output::stdout(), "transfer    at most {}", bytes(controller.transfer_len_max.into()))?;
        writeln!(output::stdout(), "io          host {io}, server {}", target_io.unwrap_or("not known"))?;
        writeln!(
            output::stdout(),
            "write cache {}\n",
            if controller.write_cache { "volatile: flush matters" } else { "none" }
        )?;
        let mut table = Table::new(&[">nsid", ">size", ">block", "access", "uuid"]);
        for v in &volumes {
            table.row(vec![
                v.nsid().to_string(),
                bytes(v.len_bytes()?),
                v.block_len().to_string(),
                if v.is_read_only() { "read-only" } else { "read-write" }.into(),
                uuid_text(v),
            ]);
        }
        write!(output::stdout(), "{table}")?;
        Ok(())
    }
}

fn document(v: &Volume) -> serde_json::Value {
    json!({
        "nsid": v.nsid(),
        "size_bytes": v.len_bytes().unwrap_or_default(),
        "block_bytes": v.block_len(),
        "read_only": v.is_read_only(),
        "uuid": uuid_text(v),
    })
}

fn uuid_text(v: &Volume) -> String {
    let Some(b) = v.uuid() else { return "-".into() };
    let hex: String = b.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
