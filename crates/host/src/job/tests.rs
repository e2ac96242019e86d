use std::sync::Arc;

use diskside_io::buffer::Buffer;
use diskside_io::request::{Cause, Outcome, Request, RequestFuture, Status as IoStatus, promise};
use diskside_nvme::Status;
use diskside_nvme::host::{Answer, CommandError, Data, NamespaceInfo};
use diskside_nvme::wire::nvm_opcode;
use proptest::prelude::*;

use super::{Command, CommandData, Job, Limits, Next, Staged};
use crate::volume_state::VolumeState;

const BLOCK: u64 = 512;

fn volume(blocks: u64) -> Arc<VolumeState> {
    let info = NamespaceInfo {
        nsid: 3,
        csi: 0,
        blocks,
        block_len: BLOCK as u32,
        atomic_len: BLOCK as u32,
        delta_len_max: 0,
        read_only: false,
        deallocate_zeroes: true,
        uuid: None,
        nguid: None,
    };
    Arc::new(VolumeState::new(&info).unwrap())
}

fn limits(part_blocks: u32, retries_max: u8) -> Limits {
    let command_timeout = std::time::Duration::from_secs(1);
    Limits { transfer_len_max: part_blocks * BLOCK as u32, command_timeout, retries_max, entries: 129 }
}

fn job(volume: &Arc<VolumeState>, request: Request, limits: &Limits) -> (Job, RequestFuture) {
    let (promise, future) = promise();
    (Job::new(Staged::Request { volume: Arc::clone(volume), request, promise }, limits), future)
}

fn outcome(job: Job, future: RequestFuture) -> Outcome {
    job.finish();
    future.try_take().unwrap()
}

/// Sends what there is to send: (part, opcode, first block, blocks, bytes of the buffer).
fn send_all(job: &mut Job, limits: &Limits) -> Vec<(u32, u8, u64, u64, std::ops::Range<u32>)> {
    std::iter::from_fn(|| {
        job.has_more().then(|| {
            let command = job.next_command(5, limits);
            assert_eq!(command.user_data >> 32, 5);
            let bytes = match command.data {
                Data::Send(slice) | Data::Receive(slice) => slice.offset..slice.offset + slice.len,
                _ => 0..0,
            };
            let blocks = u64::from(command.sqe.bits(12, 0, 16)) + 1;
            (command.user_data as u32, command.sqe.opcode(), command.sqe.qword(10), blocks, bytes)
        })
    })
    .collect()
}

fn done() -> Result<Answer, CommandError> {
    Ok(Answer::default())
}

proptest! {
    #[test]
    fn commands_tile_the_request_whatever_fails_once(
        first in 0_u64..1000, blocks in 1_u64..300, part_blocks in 1_u32..70, write in any::<bool>(),
        fates in prop::collection::vec(0_u8..3, 300),
    ) {
        let (volume, limits) = (volume(2000), limits(part_blocks, 10));
        let buffer = Buffer::zeroed((blocks * BLOCK) as usize);
        let offset = first * BLOCK;
        let request = match write {
            true => Request::Write { offset, buffer, durable: true },
            false => Request::Read { offset, buffer },
        };
        let (mut job, future) = job(&volume, request, &limits);
        let mut fates = fates.into_iter();
        let mut covered = vec![0; blocks as usize];
        let mut over = false;
        while !over {
            let sent = send_all(&mut job, &limits);
            prop_assert!(!sent.is_empty());
            let mut lost = false;
            for (part, opcode, lba, count, bytes) in sent {
                prop_assert_eq!(opcode, if write { nvm_opcode::WRITE } else { nvm_opcode::READ });
                prop_assert_eq!(u64::from(bytes.start), (lba - first) * BLOCK);
                prop_assert_eq!(u64::from(bytes.end - bytes.start), count * BLOCK);
                let result = match fates.next() {
                    Some(1) => Err(CommandError::Status { status: Status::NAMESPACE_NOT_READY, result: 0 }),
                    Some(2) if !write => Err(CommandError::DataDigest),
                    _ => done(),
                };
                if result.is_ok() {
                    (lba - first..lba - first + count).for_each(|block| covered[block as usize] += 1);
                } else {
                    lost = true;
                }
                over = job.complete(part, result, &limits) == Next::Finish;
            }
            prop_assert!(over || lost, "a job that lost nothing is over");
        }
        let outcome = outcome(job, future);
        if outcome.status == IoStatus::Success {
            prop_assert!(covered.iter().all(|&times| times == 1), "each block is moved exactly once");
            prop_assert_eq!(outcome.transferred_bytes, blocks * BLOCK);
        } else {
            prop_assert!(outcome.transferred_bytes < blocks * BLOCK);
        }
    }
}

#[test]
fn after_a_loss_reads_send_what_is_missing_and_changes_send_everything() {
    for (write, durable, again) in [(false, false, 2), (true, true, 2), (true, false, 4)] {
        let (volume, limits) = (volume(100), limits(2, 3));
        let buffer = Buffer::zeroed(8 * BLOCK as usize);
        let request = match write {
            true => Request::Write { offset: 0, buffer, durable },
            false => Request::Read { offset: 0, buffer },
        };
        let (mut job, future) = job(&volume, request, &limits);
        assert_eq!(send_all(&mut job, &limits).len(), 4);
        assert_eq!(job.complete(2, done(), &limits), Next::Wait);
        assert_eq!(job.complete(0, done(), &limits), Next::Wait);
        assert_eq!(job.complete(1, Err(CommandError::ConnectionLost), &limits), Next::Again);
        assert_eq!(job.complete(3, Err(CommandError::ConnectionLost), &limits), Next::Again);
        assert!(!job.note_loss(&limits));
        let sent = send_all(&mut job, &limits);
        assert_eq!(sent.len(), again, "write {write}, durable {durable}");
        let (last, others) = sent.split_last().unwrap();
        others.iter().for_each(|sent| assert_eq!(job.complete(sent.0, done(), &limits), Next::Wait));
        assert_eq!(job.complete(last.0, done(), &limits), Next::Finish);
        assert_eq!(outcome(job, future).transferred_bytes, 8 * BLOCK);
    }
}

#[test]
fn connections_that_are_lost_too_often_end_the_request() {
    let (volume, limits) = (volume(100), limits(1, 2));
    let (mut job, future) = job(&volume, Request::Read { offset: 0, buffer: Buffer::zeroed(1024) }, &limits);
    for loss in 0..3 {
        for (part, ..) in send_all(&mut job, &limits) {
            assert_eq!(job.complete(part, Err(CommandError::ConnectionLost), &limits), Next::Again);
        }
        assert_eq!(job.note_loss(&limits), loss == 2);
    }
    assert!(matches!(outcome(job, future).status, IoStatus::IoError(Cause::Lost(_))));
}

#[test]
fn what_was_never_sent_does_not_count_a_loss() {
    let (volume, limits) = (volume(100), limits(1, 0));
    let (mut job, _future) = job(&volume, Request::Read { offset: 0, buffer: Buffer::zeroed(512) }, &limits);
    assert!((0..9).all(|_| !job.note_loss(&limits)));
    assert!(job.has_more());
}

#[test]
fn the_first_part_that_failed_says_how_much_was_moved() {
    let (volume, limits) = (volume(100), limits(1, 2));
    let request = Request::Write { offset: 0, buffer: Buffer::zeroed(4 * BLOCK as usize), durable: false };
    let (mut job, future) = job(&volume, request, &limits);
    assert_eq!(send_all(&mut job, &limits).len(), 4);
    let full = || Err(CommandError::Status { status: Status::CAPACITY_EXCEEDED.dnr(), result: 0 });
    assert_eq!(job.complete(3, full(), &limits), Next::Wait);
    assert_eq!(job.complete(0, done(), &limits), Next::Wait);
    // A part that could be sent again is not, now that the job cannot succeed.
    assert_eq!(job.complete(1, Err(CommandError::ConnectionLost), &limits), Next::Wait);
    assert_eq!(job.complete(2, done(), &limits), Next::Finish);
    let outcome = outcome(job, future);
    assert_eq!(outcome.transferred_bytes, BLOCK);
    assert_eq!(outcome.buffer.unwrap().len(), 4 * BLOCK as usize);
    assert_eq!(volume.writes_acknowledged(), 0);
}

#[test]
fn a_flush_is_not_sent_again_and_covers_only_what_came_before_it() {
    let (volume, limits) = (volume(100), limits(8, 5));
    let write = || {
        let request = Request::Write { offset: 0, buffer: Buffer::zeroed(512), durable: false };
        let (mut job, _future) = job(&volume, request, &limits);
        send_all(&mut job, &limits);
        assert_eq!(job.complete(0, done(), &limits), Next::Finish);
        job.finish();
    };
    let flush = || job(&volume, Request::Flush, &limits);

    // A write that is acknowledged after the flush was submitted is not covered by it.
    write();
    let (mut early, future) = flush();
    write();
    send_all(&mut early, &limits);
    assert_eq!(early.complete(0, done(), &limits), Next::Finish);
    assert_eq!(outcome(early, future).status, IoStatus::Success);
    volume.note_loss();
    let (told, _) = flush();
    assert!(told.obstacle().is_some(), "the second write may be gone");
    assert!(told.obstacle().is_none(), "it is told once");

    // A flush that was in flight when the connection was lost has told it itself.
    write();
    let (mut lost, future) = flush();
    send_all(&mut lost, &limits);
    assert_eq!(lost.complete(0, Err(CommandError::ConnectionLost), &limits), Next::Finish);
    assert!(matches!(outcome(lost, future).status, IoStatus::IoError(Cause::Lost(_))));
    volume.note_loss();
    assert!(flush().0.obstacle().is_none());
}

#[test]
fn statuses_fall_into_the_classes_of_local_errors() {
    for (status, class) in [
        (Status::UNRECOVERED_READ_ERROR, "I/O error"),
        (Status::INTERNAL_ERROR, "I/O error"),
        (Status::INTERNAL_PATH_ERROR, "I/O error"),
        (Status::CAPACITY_EXCEEDED, "out of space"),
        (Status::NAMESPACE_WRITE_PROTECTED, "access denied"),
        (Status::RESERVATION_CONFLICT, "access denied"),
        (Status::LBA_OUT_OF_RANGE, "error"),
    ] {
        let text = super::classify(status.dnr()).to_string();
        assert!(text.starts_with(&format!("{class}: {} (status", status.name().unwrap())), "{text}");
    }
}

/// A call with effects was sent again after a status of the path, behind which it may have been executed.
#[test]
fn a_command_that_must_not_be_executed_twice_is_sent_again_only_if_it_was_not_begun() {
    let limits = limits(1, 3);
    let next = |status: Status, repeatable| {
        let command =
            Command { sqe: diskside_nvme::wire::Sqe::flush(1), data: CommandData::None, timeout: None, repeatable };
        let (promise, _future) = promise();
        let mut job = Job::new(Staged::Command { command, promise }, &limits);
        send_all(&mut job, &limits);
        job.complete(0, Err(CommandError::Status { status, result: 0 }), &limits)
    };
    for status in [Status::FUNCTION_BUSY, Status::TAG_LIMIT_EXCEEDED, Status::NAMESPACE_NOT_READY] {
        assert_eq!((next(status, false), next(status, true)), (Next::AgainLater, Next::AgainLater), "{status}");
        assert_eq!(next(status.dnr(), true), Next::Finish);
    }
    for status in [Status::INTERNAL_PATH_ERROR, Status::TRANSIENT_TRANSPORT_ERROR, Status::HOST_PATHING_ERROR] {
        assert_eq!((next(status, false), next(status, true)), (Next::Finish, Next::AgainLater), "{status}");
    }
}
