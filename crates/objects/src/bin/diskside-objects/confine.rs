//! What the process gives up before it speaks to anybody.

use diskside_objects::files_of_connections;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Address space: libraries, buffers of connections, and 64 reads of a MiB.
const MEMORY_LEN: u64 = 2 << 30;
/// No core dumps of credentials, bounded memory, and no files but those that connections need.
pub(crate) fn confine() -> Result<(), String> {
    for (resource, limit) in [(Resource::Core, 0), (Resource::As, MEMORY_LEN), (Resource::Fsize, 0)] {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(resource, limit).map_err(|error| format!("limit {resource:?}: {error}"))?;
    }
    // Where the kernel has no Landlock, the process has the rights of the server's user.
    close_files().map_err(|error| format!("Landlock: {error}"))
}

fn close_files() -> Result<(), RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .create()?
        .add_rules(path_beneath_rules(files_of_connections(), AccessFs::from_read(ABI::V5)))?
        .restrict_self()
        .map(drop)
}
