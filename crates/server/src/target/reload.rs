//! A changed configuration, while hosts are connected: all of it that can be changed, or nothing.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use diskside_export::{ExportSpec, Exports};
use diskside_volume::Source;
use diskside_volume::media::FileMedium;
use rustix::thread::CpuSet;

use super::handle::open;
use super::{Handle, Target, TargetError};
use crate::audit;
use crate::config::{ListenSpec, ServeConfig, VolumeSpec};
use crate::keyring::KeyRing;
use crate::shared::Message;

/// What a new configuration changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Exports and volumes that are served now, or otherwise than before.
    pub added: Vec<String>,
    /// Those that are not served any more.
    pub removed: Vec<String>,
    /// Hosts that are known now, and were not.
    pub let_in: Vec<String>,
    /// Those that are not known any more.
    pub let_out: Vec<String>,
    /// Paths that have another state than before: the address, and the state.
    pub paths: Vec<String>,
    /// Settings that changed, and hold only when the server is started again.
    pub waiting: Vec<&'static str>,
    /// Volumes, or the audit file, that failed although they looked well before anything changed, and exports that stay as they were
    /// because their directory was removed or cannot be taken; and why. The rest holds, and the next reload tries these again.
    pub failed: Vec<String>,
}

impl Handle {
    /// Takes all of `config` that can change while hosts are connected: volumes, exports, hosts, keys, grants, quotas, the states of
    /// paths and the audit file. If anything of it cannot be, everything stays as it was; [`Reloaded::failed`] has what showed too late for that.
    /// Connections stay, but those of hosts that may no longer connect at all.
    ///
    /// # Errors
    /// What cannot be, and why.
    pub fn reload(&self, config: &ServeConfig) -> Result<Reloaded, TargetError> {
        let mut now = self.inner.now.lock().unwrap_or_else(PoisonError::into_inner);
        within_reach(self.shared().confined_to.get(), config)?;
        config.check_exposed()?;
        let confined_to = self.shared().confined_to.get();
        let exports = self.shared().exports.prepare_unless(&config.exports, |spec| out_of_reach(confined_to?, spec))?;
        if config.quotas()?.limits_space() {
            exports.check_accounts()?;
        }
        let changed =
            config.volumes.iter().find(|new| now.volumes.iter().any(|old| old.name == new.name && old != *new));
        if let Some(VolumeSpec { name, .. }) = changed {
            return Err(TargetError::NeedsRestart(format!(
                "volume `{name}` changed: while a server runs, volumes can come and go, but not change; give it another name, or \
                 start the server again"
            )));
        }
        let new = |spec: &&VolumeSpec| !now.volumes.contains(spec);
        config.volumes.iter().filter(new).try_for_each(|spec| self.check_addable(spec).map(drop))?;
        let media = config.volumes.iter().filter(new).map(|spec| Ok((spec, open(spec)?)));
        let mut media = media.collect::<Result<Vec<_>, TargetError>>()?;
        // Volumes without a number of their own get one that none of the others has.
        media.sort_by_key(|(spec, _)| spec.nsid.is_none());
        let hosts = self.prepare_hosts(config)?;
        // All that can be wrong has been looked at. Old exports and volumes go first, and new ones come last: nobody has a right of the
        // old grants to a new one, or of the new grants to an old one.
        self.shared().exports.withdraw_all_but(&exports);
        let gone = now.volumes.iter().filter(|old| !config.volumes.contains(old));
        let mut done: Vec<_> = gone.map(|volume| self.remove_volume(&volume.name)).collect();
        done.push(self.apply_hosts(hosts, config));
        let opened_again = exports.opened_again().to_vec();
        let kept: Vec<String> = exports.kept().iter().map(ToString::to_string).collect();
        self.shared().exports.replace(exports);
        done.extend(media.into_iter().map(|(spec, medium)| self.add_medium(spec, medium).map(drop)));
        // Who embeds the server may have removed a volume.
        let failed =
            done.into_iter().filter_map(Result::err).filter(|error| !matches!(error, TargetError::NoSuchVolume(_)));
        let failed = failed.map(|error| error.to_string()).chain(kept);
        let failed: Vec<String> = failed.collect();
        if !failed.is_empty() {
            self.shared().audit.reloaded_in_part(&failed.join("; "));
        }
        let paths = self.set_paths(&config.listen);
        let mut before = now.clone();
        // The addresses stay, and where they are the same their states do not wait.
        ListenSpec::renew(&mut before.listen, &config.listen);
        *now = before.with_what_can_change(config);
        let served = self.volumes();
        now.volumes.retain(|spec| served.iter().any(|volume| volume.name == spec.name));
        let waiting = before.waiting_in(config);
        let mut changed = Reloaded::between(&before, &now);
        changed
            .added
            .extend(opened_again.iter().map(|name| format!("export `{name}`, whose directory is another one")));
        Ok(Reloaded { failed, waiting, paths, ..changed })
    }

    /// Says in the audit that a configuration was not taken, which stayed as it was.
    pub fn tell_not_reloaded(&self, why: &str) {
        self.shared().audit.not_reloaded(why);
    }

    /// Its configuration now, with the changes since the start.
    pub fn config(&self) -> ServeConfig {
        self.inner.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether all reactors answer within `patience`: one that does not neither serves anybody.
    pub fn is_alive(&self, patience: Duration) -> bool {
        let Some(mailboxes) = self.shared().mailboxes.get() else { return false };
        let (sender, receiver) = mpsc::channel();
        for mailbox in mailboxes {
            mailbox.send(Message::Ping(sender.clone()));
        }
        let end = Instant::now() + patience;
        mailboxes.iter().all(|_| receiver.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok())
    }
}

impl Target {
    /// The problems that would keep a server of `config` from starting, as far as they show without opening a port or
    /// changing anything.
    pub fn problems_of(config: &ServeConfig) -> Vec<String> {
        let nqn = super::builder::nqn(&config.nqn).map_err(TargetError::from);
        let keys = nqn.and_then(|nqn| Ok(KeyRing::read(config, &nqn)?));
        let mut problems: Vec<String> = keys.err().map(|error| error.to_string()).into_iter().collect();
        problems.extend(config.check_exposed().err().map(|error| error.to_string()));
        for export in &config.exports {
            if let Err(error) = std::fs::read_dir(&export.path) {
                problems.push(format!("export `{}`: {}: {error}", export.name, export.path.display()));
            }
        }
        if config.quotas().is_ok_and(|quotas| quotas.limits_space())
            && let Err(error) = Exports::check_accounts_of(&config.exports)
        {
            problems.push(error.to_string());
        }
        for volume in &config.volumes {
            let Some(path) = path_of(volume) else { continue };
            let made =
                volume.size.is_some() && path.parent().is_none_or(|parent| parent == Path::new("") || parent.is_dir());
            match FileMedium::look(&path) {
                Ok(()) => {}
                Err(error) if made && error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => problems.push(format!("volume `{}`: {error}", volume.name)),
            }
        }
        problems.extend(cores_not_ours(&config.cores));
        if let Some(parent) = config.security.audit.as_deref().and_then(Path::parent).filter(|parent| !parent.is_dir())
        {
            problems.push(format!("security.audit: there is no directory {}", parent.display()));
        }
        if let Some(path) = config.security.audit.as_deref().filter(|path| path.is_dir()) {
            problems.push(format!("security.audit: {} is a directory; name a file in it", path.display()));
        }
        if let Some(path) = config.security.audit.as_deref().filter(|path| path.is_symlink())
            && let Err(error) = audit::check_link(path)
        {
            problems.push(format!("security.audit: {}: {error}", path.display()));
        }
        problems
    }
}

/// Why reactors cannot have these processors.
fn cores_not_ours(cores: &[usize]) -> Option<String> {
    let ours = rustix::thread::sched_getaffinity(None).ok()?;
    let wrong = cores.iter().find(|core| **core >= CpuSet::MAX_CPU || !ours.is_set(**core))?;
    Some(format!("cores: this machine has no processor {wrong}, or this process may not use it"))
}

impl Reloaded {
    fn between(old: &ServeConfig, new: &ServeConfig) -> Self {
        let volumes = |one: &ServeConfig, other: &ServeConfig| {
            let named = one.volumes.iter().filter(|volume| !other.volumes.iter().any(|same| same.name == volume.name));
            named.map(|volume| format!("volume `{}`", volume.name)).collect::<Vec<_>>()
        };
        let changed = new.exports.iter().filter(|export| !old.exports.contains(export));
        let gone = old.exports.iter().filter(|export| !new.exports.iter().any(|same| same.name == export.name));
        let added = volumes(new, old).into_iter().chain(changed.map(|export| format!("export `{}`", export.name)));
        let removed = volumes(old, new).into_iter().chain(gone.map(|export| format!("export `{}`", export.name)));
        let hosts = |one: &ServeConfig, other: &ServeConfig| {
            let new = one.known_hosts.iter().filter(|host| !other.known_hosts.iter().any(|same| same.nqn == host.nqn));
            new.map(|host| host.name.clone()).collect()
        };
        let (let_in, let_out) = (hosts(new, old), hosts(old, new));
        Self { added: added.collect(), removed: removed.collect(), let_in, let_out, ..Self::default() }
    }
}

/// Settings that hold until the server is started again.
macro_rules! until_restart {
    ($($setting:ident),*) => {
        impl ServeConfig {
            /// Those that another configuration has otherwise.
            fn waiting_in(&self, new: &Self) -> Vec<&'static str> {
                let settings = [$((stringify!($setting), self.$setting != new.$setting)),*];
                settings.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
            }

            /// This one, with what of another can change while a server runs.
            fn with_what_can_change(&self, new: &Self) -> Self {
                Self { $($setting: Clone::clone(&self.$setting),)* ..new.clone() }
            }
        }
    };
}

until_restart!(
    listen,
    advertise,
    nqn,
    user,
    confine,
    reactors,
    cores,
    poll_us,
    congestion_control,
    metrics,
    reach,
    limits,
    compute
);

fn path_of(volume: &VolumeSpec) -> Option<PathBuf> {
    match volume.source() {
        Ok(Source::Path(path) | Source::Lossy(path)) => Some(path),
        _ => None,
    }
}

/// Why a confined process does not reach the directory that is now at an export's path: the rules of its start are about the one
/// that was there then, and about those that hold it.
fn out_of_reach(start: &ServeConfig, spec: &ExportSpec) -> Option<String> {
    let holds = |root: &Path| spec.path != root && spec.path.starts_with(root);
    let exports = start.exports.iter().filter(|export| export.rw || !spec.rw).map(|export| export.path.as_path());
    if exports.chain(start.reach.iter().map(PathBuf::as_path)).any(holds) {
        return None;
    }
    let (path, parent) = (spec.path.display(), spec.path.parent().unwrap_or(Path::new("/")).display());
    Some(format!(
        "{path} is another directory than the one to which this server has closed its process when it started; start it again, and \
         write reach = [\"{parent}\"] in its file for directories there that are made again while it runs"
    ))
}

/// A process that confined itself reaches nothing but what it served then, and what is beneath.
fn within_reach(confined_to: Option<&ServeConfig>, config: &ServeConfig) -> Result<(), TargetError> {
    let Some(start) = confined_to else { return Ok(()) };
    let reached = |path: &Path, rw: bool| {
        let exports = start.exports.iter().filter(|export| export.rw || !rw).map(|export| export.path.clone());
        exports.chain(start.reach.iter().cloned()).any(|root| path.starts_with(root))
    };
    let export = config.exports.iter().find(|export| {
        let same = start.exports.iter().any(|old| old.path == export.path && old.rw == export.rw);
        !same && !reached(&export.path, export.rw)
    });
    let volume = config.volumes.iter().filter(|volume| !start.volumes.contains(volume)).find_map(|volume| {
        let path: PathBuf = path_of(volume)?;
        let same = start.volumes.iter().any(|old| path_of(old).is_some_and(|old| old == path) && old.rw == volume.rw);
        (!same && !reached(&path, volume.rw)).then_some((&volume.name, path))
    });
    let (what, path) = match (export, volume) {
        (Some(export), _) => (format!("export `{}`", export.name), export.path.clone()),
        (None, Some((name, path))) => (format!("volume `{name}`"), path),
        (None, None) => return Ok(()),
    };
    let parent = path.parent().unwrap_or(Path::new("/")).display();
    Err(TargetError::NeedsRestart(format!(
        "{what}: this server has closed its process to {} when it started; start it again, and write reach = [\"{parent}\"] in its \
         file for what is to be added there while it runs",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    /// A volume without a number took the one that another of the same file was to have: that one failed, the rest of the file held
    /// already, and no later reload was taken.
    #[test]
    fn new_volumes_leave_each_other_their_numbers() {
        let config = |volumes: &str| {
            let text = format!("nqn = 'nqn.2026-11.org.example:target'\nlisten = ['127.0.0.1:0']\n{volumes}");
            ServeConfig::resolve(Settings::from_toml(&text, "test").unwrap()).unwrap()
        };
        let volume = |name: &str, more: &str| format!("[[volume]]\nname = '{name}'\npath = 'mem:1MiB'\n{more}\n");
        let before = volume("one", "nsid = 1") + &volume("two", "nsid = 2");
        let running = Target::builder().config(config(&before)).build().unwrap().start().unwrap();
        let handle = running.handle();
        let after = config(&(before.clone() + &volume("a", "") + &volume("b", "nsid = 3")));
        assert_eq!(handle.reload(&after).unwrap().added, ["volume `a`", "volume `b`"]);
        let nsid = |name: &str| handle.volumes().iter().find(|volume| volume.name == name).map(|volume| volume.nsid);
        assert_eq!((nsid("b"), nsid("a")), (Some(3), Some(4)));
        assert_eq!(handle.reload(&after).unwrap().added, [""; 0]);
        assert_eq!(handle.reload(&config(&before)).unwrap().removed.len(), 2);

        // Of two that both say the same number one fails when the rest holds already, and the next reload adds it.
        let same = config(&(before.clone() + &volume("a", "nsid = 3") + &volume("b", "nsid = 5")));
        let mut clash = same.clone();
        clash.volumes[3].nsid = Some(3);
        let told = handle.reload(&clash).unwrap();
        assert_eq!((&told.added[..], told.failed.len()), (&["volume `a`".to_owned()][..], 1), "{told:?}");
        assert_eq!(handle.reload(&same).unwrap().added, ["volume `b`"]);
        handle.reload(&config(&before)).unwrap();

        // A number that is taken is found before anything changes.
        let taken = config(&(volume("one", "nsid = 1") + &volume("other", "nsid = 2")));
        assert!(handle.reload(&taken).is_err());
        assert_eq!((nsid("two"), nsid("other")), (Some(2), None));
    }
}
