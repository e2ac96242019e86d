//! The rights of a host that is let in, as flags and as a `[[grant]]`.

use crate::error::Failure;
use crate::output::say;
use clap::Args;
use diskside::target::config::{FunctionRule, ServeConfig};
use std::path::Path;
use toml_edit::{Array, InlineTable, Table, value};

/// Its rights.
#[derive(Args)]
pub(crate) struct RightsArgs {
    /// An export or a volume that the host may read; '*' for all. Without any grant it may use all that others may
    #[arg(long, value_name = "NAME")]
    read: Vec<String>,
    /// An export or a volume that the host may read and write
    #[arg(long, value_name = "NAME")]
    write: Vec<String>,
    /// Functions that the host may run at the server: shipped:*, shipped:NAME, sha256:HEX, signed:HEX or any [default:
    /// shipped:*, with --read or --write]
    #[arg(long = "function", value_name = "RULE")]
    functions: Vec<FunctionRule>,
    /// With --read or --write, the host may run no function at the server
    #[arg(long, conflicts_with = "functions")]
    no_functions: bool,
}

impl RightsArgs {
    /// Whether nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty() && self.functions.is_empty()
    }

    /// The grant; `None` where nothing is said.
    pub(crate) fn grant(&self, name: &str, config: &ServeConfig, path: &Path) -> Result<Option<Table>, Failure> {
        if self.is_empty() {
            // Without a grant a host may use what all may, functions among that.
            let alone = "--no-functions takes functions from what --read and --write grant; it needs one of them";
            return if self.no_functions { Err(Failure::Usage(alone.into())) } else { Ok(None) };
        }
        let (mut volumes, mut exports) = (InlineTable::new(), InlineTable::new());
        let granted = [(&self.read, "r"), (&self.write, "rw")];
        for (name, mode) in granted.into_iter().flat_map(|(names, mode)| names.iter().map(move |name| (name, mode))) {
            let is_volume = name == "*" || config.volumes.iter().any(|volume| volume.name == *name);
            let is_export = name == "*" || config.exports.iter().any(|export| export.name == *name);
            if !is_volume && !is_export {
                let what = format!("`{name}`: {} has no [[export]] and no [[volume]] of this name", path.display());
                return Err(Failure::Usage(what));
            }
            let tables = [(is_volume, &mut volumes), (is_export, &mut exports)];
            tables.into_iter().filter(|(is, _)| *is).for_each(|(_, table)| drop(table.insert(name, mode.into())));
        }
        let mut grant = Table::new();
        grant.insert("to", value(Array::from_iter([name])));
        for (what, table) in [("volumes", volumes), ("exports", exports)] {
            if !table.is_empty() {
                grant.insert(what, value(table));
            }
        }
        let shipped = [FunctionRule::Shipped];
        // A host that may read something may let the server look at it: that is the purpose of a server.
        let functions = if self.functions.is_empty() { &shipped[..] } else { &self.functions };
        if !self.no_functions {
            grant.insert("functions", value(Array::from_iter(functions.iter().map(ToString::to_string))));
        }
        Ok(Some(grant))
    }
}

/// Warns where a grant to a host of this name, or none, has consequences that are easily overlooked.
pub(crate) fn warn_of_rights(name: &str, is_granted: bool, config: &ServeConfig) {
    let others = config.known_hosts.iter().map(|host| &*host.name).filter(|other| *other != name);
    let others: Vec<&str> = others.collect();
    if is_granted && config.grants.is_empty() && !others.is_empty() {
        let others = others.join(", ");
        say(format_args!(
            "this is the first [[grant]] of the configuration: from now on hosts may use what they are granted alone, and nothing \
             is granted to {others}"
        ));
    } else if !is_granted && !config.grants.is_empty() {
        say(format_args!(
            "the configuration has grants, and none for {name}: it may use what is granted to all hosts (--read, --write and \
             --function grant more)"
        ));
    }
}
