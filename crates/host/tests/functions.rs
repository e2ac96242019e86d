//! Functions at a real target, and what goes wrong between it and a host.

mod common;

use std::sync::Arc;

use common::{builder, connect, pattern, start, write_now};
use diskside_host::function::{Compute, FunctionError};
use diskside_host::{Command, CommandData};
use diskside_io::buffer::Buffer;
use diskside_io::request::block_on;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, ReceiveAnswer};
use sha2::{Digest, Sha256};

/// A host asked for the end of a result again and again, for ever, when the target had given the call up: it had waited for
/// a slow reader of the result in vain.
#[test]
fn a_call_that_the_target_gave_up_is_an_error() {
    let running = start(builder().volume("data=mem:4MiB,rw".parse().unwrap()));
    let volume = connect(&running);
    // Bytes that `bitmap` expands to 32 times as many.
    write_now(&volume, 0, &common::as_runs(&pattern(32 << 10, 1)));
    let compute = Compute::new(volume.connection()).unwrap();
    let bitmap = compute.programs().unwrap().into_iter().find(|program| program.name == "bitmap").unwrap();
    let request = FunctionRequest {
        sources: vec![Endpoint::new(EndpointKind::Volume(1), 0, 64 << 10)],
        ..FunctionRequest::new(FunctionKind::Read, bitmap.index)
    };
    let mut stream = compute.stream(&request, Vec::new()).unwrap();
    // Behind the first Receive, which is on its way already, somebody else takes the result, and its trailer: for the stream
    // it is as if the target had dropped them.
    let mut offset = 32 << 10;
    loop {
        let sqe = Sqe::function_receive(compute.nsid(), stream.tag(), offset, 256 << 10, 5_000).with_fill();
        let data = CommandData::Receive(Buffer::zeroed(256 << 10));
        let command = Command { sqe, data, timeout: None, repeatable: false };
        let answer = block_on(volume.command(command)).result.unwrap().result;
        let answer = ReceiveAnswer::from_result(answer).unwrap();
        offset += u64::from(answer.result_len);
        if answer.end {
            break;
        }
    }
    let ended = diskside_host::drive(async move {
        while stream.next().await?.is_some() {}
        Ok::<_, FunctionError>(())
    });
    let error = block_on(ended).expect_err("there was no trailer");
    assert!(matches!(error, FunctionError::Untold), "{error}");
}

/// Two hosts that loaded programs at the same time chose the same index, and one of them failed.
#[test]
fn hosts_that_load_at_the_same_time_both_succeed() {
    let running = Arc::new(start(builder().volume("data=mem:4MiB,rw".parse().unwrap())));
    let threads: Vec<_> = (0..4)
        .map(|host| {
            let running = Arc::clone(&running);
            std::thread::spawn(move || {
                let volume = connect(&running);
                let compute = Compute::new(volume.connection()).unwrap();
                for index in 0..6 {
                    // Longer, so that no two are the same, and that they come in parts.
                    let mut object = compute.object(index).unwrap();
                    object.extend_from_slice(&[host, index as u8]);
                    object.extend_from_slice(&[0; 100_000]);
                    let program = compute.load(&object).unwrap();
                    assert!(
                        program.active
                            && program.sha256 == *Sha256::digest(&object)
                            && program.hash.to_be_bytes() == program.sha256[..8],
                        "{program:?}"
                    );
                }
                volume
            })
        })
        .collect();
    let volumes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let compute = Compute::new(volumes[0].connection()).unwrap();
    assert_eq!(compute.programs().unwrap().iter().filter(|program| !program.device_defined).count(), 24);
}
