//! A longer way to a target: a relay whose bytes take a given time in each direction.
//!
//! `cargo run --release -p diskside-kv --example relay -- ADDRESS MICROSECONDS` prints the address where it listens. For
//! measurements on one machine, where the network cannot be slowed down without privileges.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, delay_us] = &arguments[..] else { return Err("say ADDRESS MICROSECONDS".into()) };
    let delay = Duration::from_micros(delay_us.parse()?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (near, far) = (stream?, TcpStream::connect(target)?);
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
        std::thread::spawn(move || carry(near, far, delay));
        std::thread::spawn(move || carry(far_too, near_too, delay));
    }
    Ok(())
}

/// Carries bytes one way until an end closes: they leave `delay` after they came.
fn carry(mut from: TcpStream, to: TcpStream, delay: Duration) {
    let (send, arrived) = channel();
    std::thread::spawn(move || deliver(&arrived, to));
    let mut buffer = vec![0; 256 << 10];
    while let Ok(len) = from.read(&mut buffer) {
        if len == 0 || send.send((Instant::now() + delay, buffer[..len].to_vec())).is_err() {
            return;
        }
    }
}

fn deliver(arrived: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    // Sleeping ends some 50 us late, which would be a large part of a short delay.
    const SPIN: Duration = Duration::from_micros(80);
    for (due, bytes) in arrived {
        std::thread::sleep(due.saturating_duration_since(Instant::now()).saturating_sub(SPIN));
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
