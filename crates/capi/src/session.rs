//! Sessions.

use crate::error::{Failure, guard, guard_int};
use crate::memory::{self, Growing, copy_out, elements, object, sized_in, text_of};
use rust::ExportUrl;
use rust::dispatch::{Plan, Reason};
use rust::host::Url;
use rust::host::mounted::Proof;
use rust::io::instance::{InstanceConfig, Threads};
use rust::session::{Session, SessionError, SessionOptions};
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// Connections to targets, what was read of their files, and what was measured of functions.
pub struct ds_session(pub(crate) Session);

/// How sure a function over a file on a mounted volume has to be of the file's blocks.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_proof {
    /// A lease: nobody writes while it runs.
    DS_PROOF_LEASE = 0,
    /// Comparing extents and times, for files that are always open for writing: ordinary changes are noticed, and nothing is
    /// proved.
    DS_PROOF_DETECT = 1,
}

/// How a session works. Begin with all zero except `size`; zero selects the defaults below. Later versions add fields
/// at the end; `size` says which are there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ds_session_options {
    /// sizeof(ds_session_options).
    pub size: usize,
    /// Bytes of files at targets that are kept; 0: none.
    pub cache_len: u64,
    /// How DS_AUTO chooses: "adaptive", or as lambda-IO does, "lambda-io" or "lambda-io:n=N,k=K", measuring the first K of every
    /// N requests on both sides; NULL: adaptive.
    pub policy: *const c_char,
    /// A directory where ds_session_save_learnt keeps what was measured, for the next session; NULL: nowhere.
    pub learnt_directory: *const c_char,
    /// Volumes that local files may be on, nvme-tcp://HOST[:PORT]/NQN/NSID, beside those that the kernel tells of.
    pub mounted_volumes: *const *const c_char,
    /// How many those are.
    pub mounted_volume_count: usize,
    /// The NQN to connect as; NULL: this machine's.
    pub host_nqn: *const c_char,
    /// A ds_proof.
    pub mounted_proof: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Instances that read and write the session's files of this machine, each one io_uring with threads of its own; 0: 1.
    pub instances: u32,
    /// Threads of an instance: 1, or 2, of which one submits and the other completes; 0: 1.
    pub instance_threads: u32,
    /// Requests of an instance that are in flight at once; 0: 128.
    pub in_flight_max: u32,
    /// Requests that wait for an instance, before submitting another sleeps; 0: 4096.
    pub staging_max: u32,
    /// A kernel thread submits, and sleeps after so many milliseconds without work; 0: none does.
    pub sq_poll_ms: u32,
    /// 1: the device is polled for completions, which only files opened with O_DIRECT can be; 0: it interrupts.
    pub io_poll: u32,
    /// How many microseconds a thread polls before it sleeps; 0: 100.
    pub spin_us: u32,
    /// Must be 0.
    pub reserved_too: u32,
}

// SAFETY: `size` is the first field, the others are numbers and pointers.
unsafe impl Growing for ds_session_options {}

impl ds_session_options {
    /// # Safety
    /// The crate's contract.
    unsafe fn read(given: *const Self) -> Result<SessionOptions, Failure> {
        // SAFETY: the caller's promise.
        let given = unsafe { sized_in(given, "ds_session_options")? };
        // SAFETY: as above.
        let text = |text: *const c_char| (!text.is_null()).then(|| unsafe { text_of(text) }).transpose();
        let invalid = |what: &str, why: String| Failure::invalid(format!("ds_session_options: {what}: {why}"));
        let mut options = SessionOptions { cache_len_bytes: given.cache_len, ..SessionOptions::default() };
        if let Some(policy) = text(given.policy)? {
            options.policy =
                policy.parse().map_err(|why: rust::dispatch::PolicyError| invalid("policy", why.to_string()))?;
        }
        options.learnt_directory = text(given.learnt_directory)?.map(Into::into);
        // SAFETY: as above.
        for volume in unsafe { elements(given.mounted_volumes, given.mounted_volume_count)? } {
            // SAFETY: as above.
            let volume = unsafe { text_of(*volume)? };
            let url =
                volume.parse::<Url>().map_err(|error| invalid("mounted_volumes", format!("{volume}: {error}")))?;
            options.mounted_volumes.push(url);
        }
        if let Some(nqn) = text(given.host_nqn)? {
            options.connect.identity.nqn =
                nqn.parse().map_err(|error| invalid("host_nqn", format!("{nqn}: {error}")))?;
        }
        const LEASE: c_int = ds_proof::DS_PROOF_LEASE as c_int;
        const DETECT: c_int = ds_proof::DS_PROOF_DETECT as c_int;
        options.mounted_proof = match given.mounted_proof {
            LEASE => Proof::Epoch,
            DETECT => Proof::Detect,
            other => return Err(invalid("mounted_proof", format!("{other} is no proof: DS_PROOF_..."))),
        };
        options.instances = given.instances().map_err(|why| invalid("instances", why))?;
        match given.reserved | given.reserved_too {
            0 => Ok(options),
            other => Err(invalid("reserved", format!("{other}, and must be 0"))),
        }
    }

    fn instances(&self) -> Result<InstanceConfig, String> {
        let usual = InstanceConfig::default();
        let or_usual = |given: u32, usual: usize| if given == 0 { usual } else { given as usize };
        let config = InstanceConfig {
            instances: or_usual(self.instances, usual.instances),
            threads: match self.instance_threads {
                0 | 1 => Threads::One,
                2 => Threads::Two,
                other => return Err(format!("instance_threads is {other}, and must be 1 or 2")),
            },
            in_flight_max: if self.in_flight_max == 0 { usual.in_flight_max } else { self.in_flight_max },
            staging_max: or_usual(self.staging_max, usual.staging_max),
            sq_poll: (self.sq_poll_ms > 0).then(|| Duration::from_millis(self.sq_poll_ms.into())),
            io_poll: match self.io_poll {
                0 => false,
                1 => true,
                other => return Err(format!("io_poll is {other}, and must be 0 or 1")),
            },
            spin: if self.spin_us == 0 { usual.spin } else { Duration::from_micros(self.spin_us.into()) },
        };
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }
}

/// A session that keeps up to cache_len bytes of what it reads of files at targets.
#[unsafe(no_mangle)]
pub extern "C" fn ds_session_new(cache_len: u64) -> *mut ds_session {
    guard(|| Ok(ds_session(Session::new(SessionOptions { cache_len_bytes: cache_len, ..SessionOptions::default() }))))
}

/// A session that works as the options say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_session_new_with(options: *const ds_session_options) -> *mut ds_session {
    guard(|| {
        if options.is_null() {
            return Err(Failure::invalid("ds_session_options: the pointer is NULL"));
        }
        // SAFETY: the caller keeps the crate's contract.
        Ok(ds_session(Session::new(unsafe { ds_session_options::read(options)? })))
    })
}

/// Keeps what was measured of functions at targets in the session's learnt_directory, for the next session; without one it
/// does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_session_save_learnt(session: *const ds_session) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let session = unsafe { object(session)? };
        let failed = |source| SessionError::File { name: "the learnt_directory".into(), source };
        session.0.save_learnt().map_err(failed)?;
        Ok(0)
    }) as c_int
}

/// Zeroes len bytes of a named state from offset on; UINT64_MAX: to its end. The state is the one that this host has at
/// the target that url names (diskside://HOST[:PORT]), or with NULL the one of calls on the host. While a call uses the
/// state, this comes behind it and before the next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_state_clear(
    session: *const ds_session,
    url: *const c_char,
    name: *const c_char,
    offset: u64,
    len: u64,
) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, name) = unsafe { (object(session)?, text_of(name)?) };
        let range = offset..offset.saturating_add(len);
        if url.is_null() {
            session.0.clear_state(name, range)?;
            return Ok(0);
        }
        // SAFETY: as above.
        let url = unsafe { text_of(url)? };
        let url = url.parse::<ExportUrl>().map_err(Failure::invalid)?;
        let target = url.one_target().map_err(Failure::invalid)?;
        session.0.clear_state_at(&target, name, range)?;
        Ok(0)
    }) as c_int
}

/// How many requests were placed so, or for such a reason: by one of the words that ds_part has in `reason`, by a
/// plan ("host", "device", "split", "both"), or all of them ("all"). Only requests with a choice are counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_session_count(session: *const ds_session, what: *const c_char) -> i64 {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, what) = unsafe { (object(session)?, text_of(what)?) };
        let counts = session.0.decisions();
        let plans = [Plan::Host, Plan::Device, Plan::Split, Plan::Both];
        let reason = Reason::ALL.into_iter().find(|reason| reason.name() == what);
        let count = match (reason, plans.into_iter().find(|plan| plan.name() == what)) {
            (Some(reason), _) => counts.of(reason),
            (None, Some(plan)) => counts.planned(plan),
            (None, None) if what == "all" => counts.total(),
            (None, None) => return Err(Failure::invalid(format!("`{what}` is neither a reason nor a plan"))),
        };
        Ok(count as isize)
    }) as i64
}

/// Writes what the session counts as text in the format of OpenMetrics, without a zero at its end, and returns its length in
/// bytes: decisions, what is kept, and what the connections to each server did. -ENOBUFS: text_cap bytes do not suffice; it is some
/// kilobytes long, and grows with servers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_session_metrics(session: *const ds_session, text: *mut c_char, text_cap: usize) -> i64 {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let session = unsafe { object(session)? };
        // SAFETY: so it does.
        unsafe { copy_out(session.0.metrics().as_bytes(), text.cast(), text_cap) }
    }) as i64
}

/// Frees a session; what came from it keeps alive what it needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_session_free(session: *mut ds_session) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(session) };
}
