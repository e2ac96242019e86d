//! A host at a listener whose path the server closes: it is told so at once, and continues when the path is open again.

mod common;

use common::{NQN, connect, read_now, start, write_now};
use diskside_host::function::Compute;
use diskside_io::request::{AsyncIo, Cause, Status as IoStatus, block_on};
use diskside_nvme::Status;
use diskside_server::Target;
use diskside_server::config::{PathState, ServeConfig, Settings};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest};

fn config(path: PathState) -> ServeConfig {
    let text = format!(
        "nqn = '{NQN}'\nlisten = ['127.0.0.1:0,path={path}']\n[[volume]]\nname = 'data'\npath = 'mem:4MiB'\nrw = true\n"
    );
    ServeConfig::resolve(Settings::from_toml(&text, "d.toml").unwrap()).unwrap()
}

#[test]
fn a_volume_and_a_function_over_a_closed_path_are_clear_errors() {
    let running = start(Target::builder().config(config(PathState::NonOptimized)));
    let volume = connect(&running);
    let path = || volume.connection().path_state();
    assert_eq!(path(), Some(PathState::NonOptimized));
    let compute = Compute::new(volume.connection()).unwrap();
    write_now(&volume, 0, &[7; 4096]);
    let bitmap = compute.programs().unwrap().into_iter().find(|program| program.name == "bitmap").unwrap();
    let request = FunctionRequest {
        sources: vec![Endpoint::new(EndpointKind::Volume(1), 0, 4096)],
        ..FunctionRequest::new(FunctionKind::Read, bitmap.index)
    };

    running.handle().reload(&config(PathState::Inaccessible)).unwrap();
    assert_eq!(path(), Some(PathState::Inaccessible));
    let read = block_on(volume.submit(common::read(0, 4096)));
    let closed = Cause::Remote {
        code: 0x302,
        name: "Asymmetric Access Inaccessible",
        remedy: Some("the server has closed this path; reach it at another of its addresses"),
    };
    assert_eq!(read.status, IoStatus::IoError(closed));
    let called = compute.call(&request).wait().expect_err("its volume cannot be reached");
    assert!(called.is_status(Status::ANA_INACCESSIBLE), "{called}");
    assert!(
        called.to_string().contains("Asymmetric Access Inaccessible (SCT 3h, SC 02h): the server has closed"),
        "{called}"
    );
    assert!(called.to_string().ends_with("reach it at another of its addresses"), "{called}");

    running.handle().reload(&config(PathState::Optimized)).unwrap();
    assert_eq!(read_now(&volume, 0, 4096), [7; 4096], "the connection is as it was");
    assert!(compute.call(&request).wait().is_ok());
}
