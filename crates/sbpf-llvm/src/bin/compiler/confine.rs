//! What the child gives up before it reads anything.

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Address space, LLVM's own libraries among it.
const MEMORY_LEN_MAX: u64 = 2 << 30;
/// Processor time.
const CPU_SECONDS_MAX: u64 = 15;

/// Sets the limits and shuts the door: from here on the process computes, allocates, reads and writes
/// what is open already, and ends.
pub(crate) fn confine() -> Result<(), String> {
    // With the parent goes who wants the answer.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| format!("death signal: {e}"))?;
    for (resource, limit) in [
        (Resource::As, MEMORY_LEN_MAX),
        (Resource::Cpu, CPU_SECONDS_MAX),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nofile, 0),
    ] {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(resource, limit).map_err(|e| format!("limit {resource:?}: {e}"))?;
    }
    // This also sets no_new_privs.
    seccompiler::apply_filter(&filter()?).map_err(|e| format!("system call filter: {e}"))
}

fn filter() -> Result<BpfProgram, String> {
    let text = |e: seccompiler::BackendError| format!("system call filter: {e}");
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_clock_gettime,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_tgkill,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ] {
        rules.insert(call, Vec::new());
    }
    // Memory, but none that could be executed.
    let data = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0)
        .map_err(text)?;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![data.clone()]).map_err(text)?]);
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().map_err(text)?;
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch).map_err(text)?;
    filter.try_into().map_err(text)
}
