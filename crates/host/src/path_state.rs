//! The state that a server gives the path of a connection (Asymmetric Namespace Access).

use diskside_io::buffer::Buffer;
use diskside_io::request::block_on;
use diskside_nvme::controller::PathState;
use diskside_nvme::wire::{AnaGroup, AnaHeader, Sqe};
use zerocopy::FromBytes as _;

use crate::Connection;
use crate::job::{Command, CommandData};

impl Connection {
    /// The state of its path. `None`: the server gives paths no states, or one that is none of these.
    pub fn path_state(&self) -> Option<PathState> {
        const LEN: usize = size_of::<AnaHeader>() + size_of::<AnaGroup>();
        let command = Command {
            // All namespaces of a server of ours are in one group.
            sqe: Sqe::ana_log(true, 0, LEN as u32, true),
            data: CommandData::Receive(Buffer::zeroed(LEN)),
            timeout: None,
            repeatable: true,
        };
        let outcome = block_on(self.command(command));
        // A controller without states does not have the log page.
        let page = outcome.result.ok().and(outcome.buffer)?;
        let (group, _) = AnaGroup::ref_from_prefix(page.get(size_of::<AnaHeader>()..)?).ok()?;
        PathState::of_number(group.state)
    }
}
