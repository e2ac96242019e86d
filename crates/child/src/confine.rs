//! What a child gives up before it reads anything.

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// The last of the standard descriptors.
const STANDARD_MAX: u64 = 2;

/// What a child may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of address space, the program's own code among them.
    pub memory_len: u64,
    /// Seconds of processor time; `None`: the parent decides when it is enough.
    pub cpu_seconds: Option<u64>,
}

/// Sets the limits and shuts the door: from here on the process computes, allocates, reads and writes
/// its standard descriptors, and ends. It makes no file longer.
///
/// # Errors
/// The kernel refuses something, which is named.
pub fn confine(limits: Limits) -> Result<(), String> {
    limit(limits)?;
    refuse_calls(MakesCode::No)
}

/// As [`confine`], but the process may still make machine code of its own, until it says that it has all of it.
///
/// # Errors
/// As [`confine`].
pub fn confine_but_for_code(limits: Limits) -> Result<MayMakeCode, String> {
    // Pages for code need their size, which is asked for once, by calls that are refused from here on.
    rustix::param::page_size();
    limit(limits)?;
    refuse_calls(MakesCode::Yes).map(|()| MayMakeCode(()))
}

fn limit(limits: Limits) -> Result<(), String> {
    // With the parent goes who wants the answer.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| format!("death signal: {e}"))?;
    let cpu = limits.cpu_seconds.map(|seconds| (Resource::Cpu, seconds));
    let fixed = [(Resource::As, limits.memory_len), (Resource::Fsize, 0), (Resource::Core, 0), (Resource::Nofile, 0)];
    for (resource, limit) in fixed.into_iter().chain(cpu) {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(resource, limit).map_err(|e| format!("limit {resource:?}: {e}"))?;
    }
    Ok(())
}

/// A confined process may make memory executable.
#[must_use = "until this is given up, the process may make memory executable"]
#[derive(Debug)]
pub struct MayMakeCode(());

impl MayMakeCode {
    /// From here on no memory becomes executable. A filter adds to those before it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn forbid_code(self) -> Result<(), String> {
        refuse_calls(MakesCode::No)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MakesCode {
    /// Until another filter is set, which has to be possible then.
    Yes,
    No,
}

fn refuse_calls(makes_code: MakesCode) -> Result<(), String> {
    // This also sets no_new_privs. Threads that were started before get it, too.
    seccompiler::apply_filter_all_threads(&filter(makes_code)?).map_err(|e| format!("system call filter: {e}"))
}

fn filter(makes_code: MakesCode) -> Result<BpfProgram, String> {
    let text = |e: seccompiler::BackendError| format!("system call filter: {e}");
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in [
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
        libc::SYS_exit,
        libc::SYS_exit_group,
    ] {
        rules.insert(call, Vec::new());
    }
    // It aborts itself, and sends nothing to its parent or to other children, which have the same user.
    let own = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, std::process::id().into());
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![own.map_err(text)?]).map_err(text)?]);
    // Standard descriptors alone: others that its parent was started with may be open, too.
    let standard = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Le, STANDARD_MAX).map_err(text)?;
    for call in [libc::SYS_read, libc::SYS_pread64, libc::SYS_write, libc::SYS_writev] {
        rules.insert(call, vec![SeccompRule::new(vec![standard.clone()]).map_err(text)?]);
    }
    // Memory, but none that could be executed, and none of a file: that could be written past the limit on its length.
    let masked = |argument, mask: libc::c_int, value: libc::c_int| {
        let op = SeccompCmpOp::MaskedEq(mask as u64);
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value as u64).map_err(text)
    };
    let data = masked(2, libc::PROT_EXEC, 0)?;
    let anonymous = masked(3, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS)?;
    let rule = |condition| SeccompRule::new(vec![condition]).map_err(text);
    let mut protect = vec![rule(data.clone())?];
    if makes_code == MakesCode::Yes {
        // Memory is written or executed, not both.
        protect.push(rule(masked(2, libc::PROT_WRITE, 0)?)?);
        rules.insert(libc::SYS_prctl, vec![rule(masked(0, !0, libc::PR_SET_NO_NEW_PRIVS)?)?]);
        rules.insert(libc::SYS_seccomp, vec![rule(masked(0, !0, libc::SECCOMP_SET_MODE_FILTER as libc::c_int)?)?]);
    }
    rules.insert(libc::SYS_mprotect, protect);
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![data, anonymous]).map_err(text)?]);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().map_err(text)?;
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch).map_err(text)?;
    filter.try_into().map_err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, ErrorKind, Read as _, Write as _};

    /// A server that was started with a pipe open handed it on to those that scan: one that a file had taken over could have written to it.
    #[test]
    fn what_else_is_open_is_neither_read_nor_written() {
        let (mut from, mut to) = io::pipe().unwrap();
        to.write_all(b"before").unwrap();
        let filter = filter(MakesCode::No).unwrap();
        // A filter is of one thread, and goes with it.
        let confined = std::thread::spawn(move || {
            seccompiler::apply_filter(&filter).unwrap();
            let refused =
                [to.write(b"x").map_err(|error| error.kind()), from.read(&mut [0]).map_err(|error| error.kind())];
            (refused, rustix::io::write(rustix::stdio::stderr(), &[]))
        });
        let (refused, standard) = confined.join().unwrap();
        assert_eq!(refused, [Err(ErrorKind::PermissionDenied); 2]);
        assert_eq!(standard, Ok(0));
    }

    /// A child that a file had taken over could have ended its server, and every other child: all have one user, and a signal to any
    /// process passed the filter.
    #[test]
    fn no_other_process_is_signalled() {
        let filter = filter(MakesCode::No).unwrap();
        let of = |process: u32| verdict(&filter, libc::SYS_tgkill, process.into());
        assert_eq!(of(std::process::id()), libc::SECCOMP_RET_ALLOW, "it aborts where there is no memory");
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        assert_eq!(of(std::os::unix::process::parent_id()), refused);
        assert_eq!(of(u32::MAX), refused, "all processes");
        assert_eq!(verdict(&filter, libc::SYS_kill, std::process::id().into()), refused);
    }

    /// The filter's answer to a call with this first argument: `tgkill` itself cannot be called without `unsafe`.
    fn verdict(filter: &BpfProgram, call: i64, argument: u64) -> u32 {
        let (audit_x86_64, audit_aarch64) = (0xC000_003E_u32, 0xC000_00B7_u32);
        let arch = if cfg!(target_arch = "x86_64") { audit_x86_64 } else { audit_aarch64 };
        let mut data = [0; 64];
        data[..4].copy_from_slice(&(call as u32).to_le_bytes());
        data[4..8].copy_from_slice(&arch.to_le_bytes());
        data[16..24].copy_from_slice(&argument.to_le_bytes());
        let (mut at, mut value) = (0, 0_u32);
        loop {
            let instruction = &filter[at];
            let (k, jump) = (instruction.k, |yes: bool| usize::from(if yes { instruction.jt } else { instruction.jf }));
            at += 1;
            match instruction.code {
                0x20 => value = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap()),
                0x54 => value &= k,
                0x05 => at += k as usize,
                0x15 => at += jump(value == k),
                0x25 => at += jump(value > k),
                0x35 => at += jump(value >= k),
                0x06 => return k,
                other => panic!("an instruction that filters do not have: {other:#x}"),
            }
        }
    }
}
