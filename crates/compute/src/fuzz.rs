//! Commands of the compute and the memory namespace one after the other on the caller's thread, without connections: what
//! the fuzzers of their state drive. Nothing else uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use diskside_nvme::Status;
use diskside_nvme::controller::HostReservations;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::program_opcode;
use diskside_rights::HostRights;

use crate::standard::{Standard, StandardCommand};
use crate::{Answer, Association, Compute, Piece};

/// The controllers of some hosts. Dropping it takes them away.
pub struct Commands {
    compute: Arc<Compute>,
    controllers: Vec<Arc<Association>>,
}

/// The answer to a command: status, dwords 0 and 1, and data.
pub type Answered = (Status, u64, Vec<u8>);

/// Controllers of all targets so far.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

impl Commands {
    /// One controller for each of these hosts. The target need not serve.
    ///
    /// # Panics
    /// If there are no standard commands.
    pub fn new(compute: &Arc<Compute>, hosts: &[&str]) -> Self {
        let compute = Arc::clone(compute);
        assert!(compute.environment.standard.is_some(), "the target has a memory namespace");
        let id = || LAST_ID.fetch_add(1, Ordering::Relaxed);
        let everything = || (HostRights::everything(), HostReservations::none());
        let join = |nqn: &&str| compute.association(id(), nqn, everything).expect("it is there");
        let controllers = hosts.iter().map(join).collect();
        Self { compute, controllers }
    }

    /// Carries out a command of a host.
    pub fn run(&self, host: usize, sqe: &Sqe, admin: bool, data: &[u8]) -> Answered {
        let controller = &self.controllers[host];
        let standard = self.compute.environment.standard.as_ref().is_some_and(|standard| standard.takes(sqe, admin));
        let until = Instant::now() + Standard::wait_max(&self.compute.environment);
        let answer = match (admin, sqe.opcode()) {
            _ if standard => Standard::run(
                &controller.context,
                &StandardCommand::new(Box::new(*sqe), admin, data.to_vec().into(), (Arc::default(), until)),
            ),
            (true, program_opcode::LOAD | program_opcode::ACTIVATION) => match controller.program_command(sqe, data) {
                Ok(None) => Answer::success(),
                Ok(Some(unverified)) => {
                    let verified =
                        self.compute.environment.programs.verify(&self.compute.environment.engine, unverified);
                    verified.map_or_else(Into::into, |()| Answer::success())
                }
                Err(problem) => problem.into(),
            },
            (true, _) => controller.log_page(sqe),
            (false, _) => Status::INVALID_OPCODE.dnr().into(),
        };
        let data = answer.short.into_iter().chain(answer.pieces.iter().flat_map(Piece::bytes).copied()).collect();
        (answer.status, answer.result, data)
    }
}
