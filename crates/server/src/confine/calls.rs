//! The system calls that a server makes after it has started. All others are refused with EPERM.
//!
//! Rings are made when they are needed, so `io_uring_setup` is among them: what a ring opens is Landlock's to refuse.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Filters the calls of all threads. The compiler, and what scans files, are programs of their own, which need to be started; threads of exports may
/// have to become other users.
pub(super) fn filter(starts_children: bool, acts_as_others: bool) -> Result<(), String> {
    let text = |error: seccompiler::Error| error.to_string();
    let build = |rules: Rules, found: SeccompAction, else_do: SeccompAction| -> Result<BpfProgram, String> {
        let arch = std::env::consts::ARCH.try_into().map_err(backend)?;
        SeccompFilter::new(rules, else_do, found, arch).and_then(TryInto::try_into).map_err(backend)
    };
    let allowed = build(allowed(starts_children, acts_as_others)?, SeccompAction::Allow, refuse(libc::EPERM))?;
    // Its flags are in memory, where a filter does not see them; without it the C library makes threads by the older call.
    let without_clone3 = build([(libc::SYS_clone3, Vec::new())].into(), refuse(libc::ENOSYS), SeccompAction::Allow)?;
    seccompiler::apply_filter_all_threads(&allowed).map_err(text)?;
    seccompiler::apply_filter_all_threads(&without_clone3).map_err(text)
}

fn allowed(starts_children: bool, acts_as_others: bool) -> Result<Rules, String> {
    let of_all = [FILES, DESCRIPTORS, MEMORY, NETWORK, THREADS, TIME, ONESELF, OLDER].concat();
    let mut rules: Rules = of_all.into_iter().map(|call| (call, Vec::new())).collect();
    if starts_children {
        rules.extend(CHILDREN.iter().map(|call| (*call, Vec::new())));
    }
    if acts_as_others {
        rules.extend(OTHER_USERS.iter().map(|call| (*call, Vec::new())));
    }
    // Threads and children, but no namespaces.
    rules.insert(libc::SYS_clone, vec![rule(&[(0, SeccompCmpOp::MaskedEq(NAMESPACES), 0)])?]);
    rules.insert(libc::SYS_socket, sockets()?);
    // This flag connects, and Landlock does not see it.
    let fast_open = SeccompCmpOp::MaskedEq(libc::MSG_FASTOPEN as u64);
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.insert(call, vec![rule(&[(flags, fast_open.clone(), 0)])?]);
    }
    Ok(rules)
}

/// Sockets for names, routes, UDP and TCP. Of streams Landlock sees TCP alone: MPTCP reaches those that listen for TCP, SCTP and
/// DCCP those that listen for them. Without a protocol the type tells which one it is.
fn sockets() -> Result<Vec<SeccompRule>, String> {
    let is = |argument, value: libc::c_int| (argument, SeccompCmpOp::Eq, value as u64);
    let local = [libc::AF_UNIX, libc::AF_NETLINK].map(|family| rule(&[is(0, family)]));
    let of_type = |kind: libc::c_int| (1, SeccompCmpOp::MaskedEq(SOCK_TYPE_MASK), kind as u64);
    let internet = [libc::AF_INET, libc::AF_INET6].into_iter().flat_map(|family| {
        [
            (libc::SOCK_STREAM, 0),
            (libc::SOCK_STREAM, libc::IPPROTO_TCP),
            (libc::SOCK_DGRAM, 0),
            (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
        ]
        .map(|(kind, protocol)| rule(&[is(0, family), of_type(kind), is(2, protocol)]))
    });
    local.into_iter().chain(internet).collect()
}

/// Takes a call whose arguments, by their index, all compare like this.
fn rule(arguments: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, String> {
    let compare = |(index, op, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*index, SeccompCmpArgLen::Dword, op.clone(), *value).map_err(backend)
    };
    SeccompRule::new(arguments.iter().map(compare).collect::<Result<_, _>>()?).map_err(backend)
}

fn refuse(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno.unsigned_abs())
}

fn backend(error: seccompiler::BackendError) -> String {
    error.to_string()
}

/// The type is in these bits of its argument, flags in the others.
const SOCK_TYPE_MASK: u64 = 0xf;

const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

const FILES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_utimensat,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_setxattr,
    libc::SYS_fsetxattr,
    libc::SYS_listxattr,
    libc::SYS_flistxattr,
    libc::SYS_fremovexattr,
    libc::SYS_removexattr,
    libc::SYS_flock,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_sync_file_range,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    CACHESTAT,
];
const DESCRIPTORS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Where io_uring is denied.
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
];
const MEMORY: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_memfd_create,
    libc::SYS_membarrier,
];
/// Connections are accepted by rings, and nobody is connected to. Sockets are for asking for names and routes.
const NETWORK: &[i64] = &[
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
];
const THREADS: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getattr,
    libc::SYS_sched_setattr,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_getcpu,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
const TIME: &[i64] = &[
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
];
/// What the process may ask of itself, and give up.
const ONESELF: &[i64] = &[
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_seccomp,
];
/// A child's process, until its program has begun.
const CHILDREN: &[i64] = &[
    libc::SYS_setpgid,
    libc::SYS_execve,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];
const OTHER_USERS: &[i64] = &[libc::SYS_setgroups, libc::SYS_setresgid, libc::SYS_setresuid];

/// Calls that newer machines do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[i64] = &[];

/// One number for all machines since system calls are numbered together.
const CACHESTAT: i64 = 451;
const FCHMODAT2: i64 = 452;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// A server in a container makes the same calls: its profile lists them once more. A call passed that the profile names only to
    /// refuse it.
    #[test]
    fn the_containers_profile_has_every_call() {
        let source = include_str!("calls.rs").split("#[cfg(test)]\nmod tests").next().expect("a source");
        let profile = include_str!("../../../../packaging/container/seccomp.json");
        let profile: serde_json::Value = serde_json::from_str(profile).expect("a profile is JSON");
        let groups = profile["syscalls"].as_array().expect("groups of calls");
        let names_of = |group: &serde_json::Value| {
            let names = group["names"].as_array().expect("names").iter();
            names.map(|name| name.as_str().expect("a name").to_owned()).collect::<BTreeSet<_>>()
        };
        let allows = |group: &&serde_json::Value| group["action"] == "SCMP_ACT_ALLOW" && group.get("args").is_none();
        let allowed: BTreeSet<String> = groups.iter().filter(allows).flat_map(names_of).collect();
        let names = source.split("libc::SYS_").skip(1).map(|rest| {
            let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            &rest[..end.unwrap_or(rest.len())]
        });
        let names: BTreeSet<&str> = names.chain(["cachestat", "fchmodat2"]).collect();
        assert!(names.len() > 150, "{names:?}");
        let missing: Vec<_> = names.into_iter().filter(|name| !allowed.contains(*name)).collect();
        assert_eq!(
            missing,
            ["clone", "clone3"],
            "packaging/container/seccomp.json has conditions for these, and all others"
        );
        let group = |name: &str| groups.iter().find(|group| names_of(group).contains(name)).expect("it is there");
        let (clone, clone3) = (group("clone"), group("clone3"));
        assert_eq!(
            (&clone["action"], &clone["args"][0]["value"]),
            (&"SCMP_ACT_ALLOW".into(), &super::NAMESPACES.into())
        );
        assert_eq!((&clone3["action"], &clone3["errnoRet"]), (&"SCMP_ACT_ERRNO".into(), &libc::ENOSYS.into()));
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO", "others are refused");
        for dangerous in ["ptrace", "mount", "bpf", "unshare", "process_vm_readv"] {
            assert!(!allowed.contains(dangerous), "{dangerous}");
        }
    }
}
