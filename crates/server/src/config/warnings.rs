//! Parts of a configuration that probably are not meant.

use diskside_nvme::controller::PathState;
use diskside_rights::Mode;

use super::reach::is_local;
use super::{KeyFile, ServeConfig};

impl ServeConfig {
    /// The things that an operator should know of it, although a server runs with it.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.insecure
            && !self.authenticates_hosts()
            && let Some(address) = self.listen.iter().map(|listen| listen.address).find(|address| !is_local(address))
        {
            warnings.push(format!(
                "insecure: {address} is reached from other machines, and anybody who reaches it can use all that is served"
            ));
        }
        if !self.listen.is_empty() && self.listen.iter().all(|listen| listen.path == PathState::Inaccessible) {
            warnings.push("listen: all paths are inaccessible, so no host reaches a volume".into());
        }
        for host in &self.known_hosts {
            let mut keys = host.dhchap_keys.iter().chain(&host.tls_keys).peekable();
            let ends = |key: &KeyFile| key.until.filter(|until| until.is_past());
            if keys.peek().is_some() && keys.all(|key| ends(key).is_some()) {
                warnings.push(format!(
                    "host `{}`: all its keys have ended, so it is not let in (diskside key rotate --until gives it another)",
                    host.name
                ));
            }
        }
        for grant in &self.grants {
            let writes = |modes: &std::collections::BTreeMap<String, Mode>, name: &str| {
                modes.get(name).is_some_and(|mode| *mode == Mode::ReadWrite)
            };
            let to = grant.to.join(", ");
            for volume in self.volumes.iter().filter(|volume| !volume.rw && writes(&grant.volumes, &volume.name)) {
                warnings.push(format!("grant to {to}: volume `{}` is served read-only, so rw means r", volume.name));
            }
            for export in self.exports.iter().filter(|export| !export.rw && writes(&grant.exports, &export.name)) {
                warnings.push(format!("grant to {to}: export `{}` is served read-only, so rw means r", export.name));
            }
        }
        warnings
    }
}
