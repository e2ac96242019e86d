//! How the kernel's scheduler treats the calling thread (`sched_setscheduler`, `sched_setattr`, `setpriority`); no right is needed for this.

use std::io;
use std::time::Duration;

use rustix::thread::CpuSet;

use crate::checked;

/// A scheduling policy of threads without real-time priority; see `sched(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`: every thread's, unless it says otherwise.
    Other,
    /// `SCHED_BATCH`: it computes and nobody waits for its wakeups: it does not push others aside when it wakes.
    Batch,
    /// `SCHED_IDLE`: any other thread that wakes pushes it aside at once; beside one that always runs it gets next to
    /// nothing.
    Idle,
}

impl Policy {
    fn number(self) -> libc::c_int {
        match self {
            Self::Other => libc::SCHED_OTHER,
            Self::Batch => libc::SCHED_BATCH,
            Self::Idle => libc::SCHED_IDLE,
        }
    }
}

/// Gives the calling thread a policy.
pub fn set_policy(policy: Policy) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and the parameters are read during the call alone.
    checked(unsafe { libc::sched_setscheduler(0, policy.number(), &raw const parameters) }).map(drop)
}

/// The calling thread's policy; `None` for the policies of real time.
pub fn policy() -> io::Result<Option<Policy>> {
    // SAFETY: 0 is the calling thread; nothing is passed by address.
    let number = checked(unsafe { libc::sched_getscheduler(0) })?;
    Ok([Policy::Other, Policy::Batch, Policy::Idle]
        .into_iter()
        .find(|known| known.number() == number & !libc::SCHED_RESET_ON_FORK))
}

/// What a thread that computes goes behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Threads that answer: its computations take milliseconds, and nobody should wait for its time slice to end.
    Answers,
    /// Those as well, and threads that compute what somebody waits for.
    Calls,
}

impl Behind {
    /// Its nice value, if it has none that is higher; see `nice(2)`.
    #[must_use]
    pub fn nice(self) -> i32 {
        match self {
            Self::Answers => 10,
            Self::Calls => 15,
        }
    }
}

/// Lowers the priority of the calling thread and of the threads that it starts. It does not use [`Policy::Idle`]: any other
/// program that computes on this machine would then starve the thread. A thread that already has that policy keeps it.
///
/// A thread behind answers keeps [`Policy::Other`], and its time slices are shorter than those of a thread behind calls, so that it
/// preempts that one when it wakes. A thread behind calls yields: it may have begun with the priority of the thread that started
/// it, and would keep the processor until the next tick.
pub fn step_back(behind: Behind) -> io::Result<()> {
    let known = policy()?;
    let policy = match behind {
        _ if known == Some(Policy::Idle) => Policy::Idle,
        Behind::Answers if known == Some(Policy::Other) => Policy::Other,
        _ => Policy::Batch,
    };
    let slice = if behind == Behind::Answers { ANSWERS_SLICE } else { CALLS_SLICE };
    set_attributes(policy, behind.nice().max(nice()), slice)?;
    if behind == Behind::Calls {
        std::thread::yield_now();
    }
    Ok(())
}

/// Longer than the slice of a reactor (100 us), which such a thread must not preempt.
const ANSWERS_SLICE: Duration = Duration::from_micros(500);
const CALLS_SLICE: Duration = Duration::from_millis(4);

/// Lets the calling thread run on the processors of the process, as its first thread has them, but for those that are `taken`, if
/// others are left. A thread begins with the processors of the one that started it.
pub fn leave_processors(taken: &[usize]) -> io::Result<()> {
    let process = rustix::thread::sched_getaffinity(Some(rustix::process::getpid()))?;
    let mut left = process;
    taken.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| left.unset(*core));
    let set = if left.count() == 0 { process } else { left };
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// How long the calling thread has had a processor so far.
#[must_use]
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The calling thread's nice value.
pub fn nice() -> i32 {
    // SAFETY: 0 is the calling thread; nothing is passed by address. It answers 20 less the nice value.
    20 - unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) } as i32
}

/// Asks for time slices of this length for the calling thread: who asks for short ones gets them sooner. The kernel takes
/// 100 us to 100 ms, and before Linux 6.12 does as it likes. A thread that somebody gave another policy keeps that.
pub fn set_slice(slice: Duration) -> io::Result<()> {
    if policy()? != Some(Policy::Other) {
        return Ok(());
    }
    set_attributes(Policy::Other, nice(), slice)
}

fn set_attributes(policy: Policy, nice: i32, slice: Duration) -> io::Result<()> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: policy.number() as u32,
        nice,
        runtime_ns: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        ..Attributes::default()
    };
    // SAFETY: 0 is the calling thread; the attributes are read during the call alone, and as long as they say.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    checked(answer as libc::c_int).map(drop)
}

/// `struct sched_attr` of its first version.
#[derive(Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_slice_changes_nothing_else() {
        let run = || {
            let thread = || Some(rustix::thread::gettid());
            set_policy(Policy::Other)?;
            let nice = (rustix::process::getpriority_process(thread())? + 1).min(19);
            rustix::process::setpriority_process(thread(), nice)?;
            set_slice(Duration::from_micros(100))?;
            assert_eq!(rustix::process::getpriority_process(thread())?, nice);
            policy()
        };
        assert_eq!(std::thread::spawn(run).join().unwrap().unwrap(), Some(Policy::Other));
        let run =
            || set_policy(Policy::Batch).and_then(|()| set_slice(Duration::from_micros(100))).and_then(|()| policy());
        assert_eq!(std::thread::spawn(run).join().unwrap().unwrap(), Some(Policy::Batch), "it was somebody's choice");
    }

    #[test]
    fn who_steps_back_goes_behind_those_that_did_before() {
        let before = (policy().unwrap(), nice());
        for (behind, kept) in [(Behind::Answers, before.0), (Behind::Calls, Some(Policy::Batch))] {
            let found = std::thread::spawn(move || step_back(behind).map(|()| (policy().unwrap(), nice())));
            assert_eq!(found.join().unwrap().unwrap(), (kept, behind.nice().max(before.1)));
        }
        assert!(Behind::Answers.nice() < Behind::Calls.nice());
        let twice = || step_back(Behind::Calls).and_then(|()| step_back(Behind::Answers)).map(|()| nice());
        assert_eq!(
            std::thread::spawn(twice).join().unwrap().unwrap(),
            Behind::Calls.nice().max(before.1),
            "no way forward"
        );
        let idle = || {
            set_policy(Policy::Idle)?;
            step_back(Behind::Calls)?;
            policy()
        };
        assert_eq!(std::thread::spawn(idle).join().unwrap().unwrap(), Some(Policy::Idle), "nor here");
        assert_eq!((policy().unwrap(), nice()), before, "other threads keep theirs");
    }

    /// A server's `cores` pin its reactors. Its engines are started by them, and all functions ran on the reactors' processors.
    #[test]
    fn a_thread_leaves_the_processors_of_the_one_that_started_it() {
        let all = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        let of_started = move |taken: Vec<usize>| {
            std::thread::spawn(move || {
                rustix::thread::sched_setaffinity(None, &one).unwrap();
                let started =
                    move || leave_processors(&taken).map(|()| rustix::thread::sched_getaffinity(None).unwrap());
                std::thread::spawn(started).join().unwrap().unwrap()
            })
            .join()
            .unwrap()
        };
        assert_eq!(of_started(Vec::new()), all);
        let every: Vec<usize> = (0..CpuSet::MAX_CPU + 1).collect();
        assert_eq!(of_started(every), all, "none would be left");
        if all.count() > 1 {
            let mut others = all;
            others.unset(first);
            assert_eq!(of_started(vec![first]), others);
        }
    }

    #[test]
    fn a_thread_steps_back_alone() {
        let before = policy().unwrap();
        for wanted in [Policy::Batch, Policy::Idle] {
            let found = std::thread::spawn(move || set_policy(wanted).and_then(|()| policy()));
            assert_eq!(found.join().unwrap().unwrap(), Some(wanted));
        }
        assert_eq!(policy().unwrap(), before, "other threads keep theirs");
    }
}
