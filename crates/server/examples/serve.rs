//! Serves volumes until SIGTERM: `serve [LISTEN] NAME=PATH[,option…]…`, such as
//! `cargo run --release -p diskside-server --example serve -- 127.0.0.1:4420 data=mem:512MiB,rw`.

use std::error::Error;
use std::net::SocketAddr;

use diskside_server::Target;
use diskside_server::config::{ServeConfig, Settings};

fn main() -> Result<(), Box<dyn Error>> {
    let mut settings = Settings::default();
    for argument in std::env::args().skip(1) {
        match argument.parse::<SocketAddr>() {
            Ok(address) => settings.listen.get_or_insert_default().push(address.into()),
            Err(_) => settings.volumes.push(argument.parse()?),
        }
    }
    let target = Target::builder().config(ServeConfig::resolve(settings)?).build()?;
    let handle = target.handle();
    println!("{} at {:?}", handle.nqn(), handle.local_addresses());
    target.serve_until_signal(|_| ())?;
    println!("{:#?}", handle.stats());
    Ok(())
}
