//! Which volume a mounted file system is on, by what this machine tells.

use std::fs;
use std::path::Path;
use std::time::Instant;

use diskside_io::unanswered;
use diskside_layout::{Disk, Namespace, Place, Reason, Refusal};

use crate::url::Url;

/// Where attached volumes have their directories (`diskside attach`).
pub const ATTACHED_DIRECTORY: &str = "/run/diskside";
/// In such a directory, the file that is the volume.
pub const ATTACHED_VOLUME: &str = "volume";
/// In such a directory, the file that says which volume it is.
pub const ATTACHED_URL: &str = "url";

/// The volumes that a file system may be on, each by a path to it.
///
/// # Errors
/// [`Reason::UnknownDisk`].
pub fn volume_urls(place: &Place) -> Result<Vec<Url>, Refusal> {
    let unknown = |found: String| Err(Refusal::new(Reason::UnknownDisk, found));
    match &place.disk {
        Disk::Nvme(namespace) => {
            let urls: Vec<Url> = namespace.paths.iter().filter_map(|path| url_of_path(namespace, path)).collect();
            if urls.is_empty() {
                return unknown(format!("{} is not reached over TCP: {}", place.device, namespace.paths.join("; ")));
            }
            Ok(urls)
        }
        Disk::File(path) => match attached_url(path).map(|url| url.parse()) {
            Some(Ok(url)) => Ok(vec![url]),
            Some(Err(error)) => unknown(format!("{}: {error}", path.display())),
            None => unknown(format!("{} shows {}", place.device, path.display())),
        },
        Disk::Other(name) => unknown(name.clone()),
    }
}

/// The URL of the volume behind a file that a loop device shows; `None`: it is not an attached volume, the process that
/// attached it died, or the caller may not know it.
#[must_use]
pub fn attached_url(backing_file: &Path) -> Option<String> {
    if backing_file.file_name()? != ATTACHED_VOLUME || !backing_file.starts_with(ATTACHED_DIRECTORY) {
        return None;
    }
    // The volume may hang, and with it the file system that this is in.
    let _asked = unanswered::here().ask(Instant::now());
    Some(fs::read_to_string(backing_file.with_file_name(ATTACHED_URL)).ok()?.trim_end().to_owned())
}

/// `tcp traddr=192.0.2.1,trsvcid=4420,src_addr=192.0.2.2`, as the kernel writes it.
fn url_of_path(namespace: &Namespace, path: &str) -> Option<Url> {
    let (transport, address) = path.split_once(' ')?;
    let field = |name: &str| {
        let mut fields = address.split(',').filter_map(|field| field.trim().split_once('='));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let (host, port) = (field("traddr")?.to_owned(), field("trsvcid")?.parse().ok()?);
    let subsystem = namespace.subsystem.parse().ok()?;
    let url = Url { tls: false, host, port: Some(port), subsystem: Some(subsystem), nsid: Some(namespace.nsid) };
    (transport == "tcp").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_kernels_becomes_a_url() {
        let namespace = |paths: &[&str]| {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            let subsystem = "nqn.2026-11.org.example:target".to_owned();
            let disk = Disk::Nvme(Namespace { subsystem, nsid: 2, uuid: None, nguid: None, paths });
            Place { disk, device: "nvme0n1".into(), offset: 0, len: 1, block_len: 512 }
        };
        let texts = |urls: Vec<Url>| urls.iter().map(Url::to_string).collect::<Vec<_>>();
        let urls = |paths: &[&str]| volume_urls(&namespace(paths)).map(texts);
        let wanted: Vec<String> = vec![
            "nvme-tcp://10.0.2.2:4420/nqn.2026-11.org.example:target/2".into(),
            "nvme-tcp://[fe80::1]:8009/nqn.2026-11.org.example:target/2".into(),
        ];
        let found = urls(&[
            "tcp traddr=10.0.2.2,trsvcid=4420,src_addr=10.0.2.15",
            "rdma traddr=10.0.2.2,trsvcid=4420",
            "tcp traddr=fe80::1,trsvcid=8009",
            "tcp traddr=10.0.2.2,trsvcid=http",
        ]);
        assert_eq!(found.expect("known"), wanted);
        let refusal = urls(&["pcie 0000:00:1f.0"]).expect_err("not over TCP");
        assert_eq!(
            (refusal.reason, refusal.found.as_str()),
            (Reason::UnknownDisk, "nvme0n1 is not reached over TCP: pcie 0000:00:1f.0")
        );
    }

    #[test]
    fn other_files_are_no_attached_volumes() {
        for path in ["/tmp/volume", "/run/diskside/1-0/url", "/run/diskside/no-such/volume"] {
            assert_eq!(attached_url(Path::new(path)), None, "{path}");
        }
    }
}
