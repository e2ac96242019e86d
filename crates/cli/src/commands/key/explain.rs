//! `diskside key explain`: how the kernel's own NVMe host uses the same key.

use super::{KeyFile, failure};
use crate::commands::volume::parse_url;
use crate::error::Failure;
use crate::output;
use clap::Args;
use diskside::host::{PORT_DEFAULT, Url};
use std::io::Write as _;

#[derive(Args)]
pub(super) struct Explain {
    /// The server: nvme-tcp://HOST[:PORT]/NQN, as `diskside discover` lists it
    #[arg(value_parser = parse_url)]
    url: Url,
    #[command(flatten)]
    file: KeyFile,
}

impl Explain {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let file = self.file.or_for(&self.url.server(PORT_DEFAULT));
        let key = file.read()?;
        let path = file.path()?;
        let path = std::path::absolute(&path).map_err(|error| failure_of(&path, error))?;
        let missing = || {
            Failure::Usage(
                "the URL names no subsystem: nvme-tcp://HOST:PORT/NQN, as `diskside discover` lists it".into(),
            )
        };
        let subsystem = self.url.subsystem.as_ref().ok_or_else(missing)?;
        let quoted = format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
        let tls = key.tls_key.is_some();
        let mut out = output::stdout();
        let needs = if tls {
            "with nvme-cli 2.11 or later and tlshd (ktls-utils), and a kernel with CONFIG_NVME_TCP_TLS (6.7 or later)"
        } else {
            "with nvme-cli 2.0 or later, and a kernel with CONFIG_NVME_HOST_AUTH (6.0 or later)"
        };
        writeln!(out, "# As root, {needs}.")?;
        writeln!(
            out,
            "# The key stays in its file; nvme-cli takes it as an argument, which others on this machine can see"
        )?;
        writeln!(out, "# while it runs.")?;
        writeln!(out, "modprobe nvme-tcp")?;
        if tls {
            writeln!(out, "# tlshd makes the secure channel. It has to look into the keyring `.nvme`: a line")?;
            writeln!(out, "# keyrings=.nvme under [authenticate] in /etc/tlshd.conf (/etc/tlshd/config from 1.4 on).")?;
            writeln!(out, "systemctl start tlshd")?;
            writeln!(
                out,
                "nvme check-tls-key --insert --identity 1 \\\n  --hostnqn {} \\\n  --subsysnqn {subsystem} \\",
                key.nqn
            )?;
            writeln!(out, "  --keydata \"$(sed -n 's/^tls-key //p' {quoted})\"")?;
        }
        writeln!(
            out,
            "nvme connect --transport tcp --traddr {} --trsvcid {} \\",
            self.url.host,
            self.url.port.unwrap_or(PORT_DEFAULT)
        )?;
        writeln!(out, "  --nqn {subsystem} \\")?;
        write!(out, "  --hostnqn {}", key.nqn)?;
        if let Some(id) = key.nqn.as_str().strip_prefix("nqn.2014-08.org.nvmexpress:uuid:") {
            write!(out, " --hostid {id}")?;
        }
        if tls {
            write!(out, " \\\n  --tls")?;
        }
        if key.key.is_some() {
            write!(out, " \\\n  --dhchap-secret \"$(sed -n 's/^key //p' {quoted})\"")?;
        }
        if key.server_key.is_some() {
            write!(out, " \\\n  --dhchap-ctrl-secret \"$(sed -n 's/^server-key //p' {quoted})\"")?;
        }
        writeln!(out)?;
        if !tls {
            writeln!(
                out,
                "# Add --concat for TLS with a key that authenticating makes: with tlshd, nvme-cli 2.16 and a recent kernel."
            )?;
        }
        Ok(())
    }
}

fn failure_of(path: &std::path::Path, error: std::io::Error) -> Failure {
    failure(diskside_keys::KeyFileError { path: path.to_owned(), trouble: error.into() })
}
