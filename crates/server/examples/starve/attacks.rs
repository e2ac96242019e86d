//! The attacks by which peers keep others from their work. Each of them begins again when the target has thrown it out.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diskside_nvme::wire::Sqe;
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest};

use crate::client::{COMPUTE, encode, function};
use crate::common::Queue;
use crate::peer::{MEMORY, Peer, Place, TEXT, run, shipped};
use crate::{Failure, client};

/// How much of the attack there was: connections, calls, programs.
pub(crate) static DONE: AtomicU64 = AtomicU64::new(0);

/// How peers attack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attack {
    /// Connections that owe the data of their writes, and names that do not read what they asked for.
    Owing,
    /// Calls of one host, as many as may run, over memory.
    Calls,
    /// Calls whose results nobody reads.
    Unread,
    /// Programs that are loaded, compiled, run once and unloaded.
    Compilers,
    /// Connections that come and go, slow handshakes, and wrong keys.
    Connections,
    /// Bytes that mean nothing.
    Broken,
}

/// Connections of one name that owe data, on so many controllers, and names that read nothing.
const OWING_CONTROLLERS: usize = 4;
const OWING_QUEUES: u16 = 61;
const NAMES: usize = 60;
/// Calls of a host that run at a time, usually.
const CALLS: usize = 16;
/// Names with as many unread calls as may run.
const UNREAD_NAMES: usize = 4;
const UNREAD_CALLS: usize = 16;
/// How long a peer does nothing before it begins again: those that keep others from memory are given up after two
/// seconds.
const IDLE: Duration = Duration::from_secs(3);
const SLOW_HANDSHAKES: usize = 200;
const WRONG_KEYS_THREADS: usize = 2;

impl FromStr for Attack {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "owing" => Self::Owing,
            "calls" => Self::Calls,
            "unread" => Self::Unread,
            "compilers" => Self::Compilers,
            "connections" => Self::Connections,
            "broken" => Self::Broken,
            _ => return Err(format!("there is no attack {name:?}")),
        })
    }
}

impl Attack {
    /// Starts the threads of it.
    pub(crate) fn start(self, place: &Place) {
        match self {
            Self::Owing => {
                repeat(place, owe);
                repeat(place, read_nothing);
            }
            Self::Calls => (0..CALLS).for_each(|_| repeat(place, call_again)),
            Self::Unread => repeat(place, leave_results),
            Self::Compilers => repeat(place, load_programs),
            Self::Connections => {
                repeat(place, come_and_go);
                repeat(place, shake_slowly);
                (0..WRONG_KEYS_THREADS).for_each(|_| repeat(&place.with_wrong_key(), try_a_key));
            }
            Self::Broken => repeat(place, send_garbage),
        }
    }
}

/// Does it again and again, whatever comes of it.
fn repeat(place: &Place, attack: fn(&Place) -> Result<(), Failure>) {
    let place = place.clone();
    std::thread::spawn(move || {
        loop {
            if attack(&place).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

fn count(done: u64) {
    DONE.fetch_add(done, Ordering::Relaxed);
}

fn owe(place: &Place) -> Result<(), Failure> {
    let data = vec![1; 64 << 10];
    let mut queues: Vec<Queue> = Vec::new();
    let mut controllers = Vec::new();
    for _ in 0..OWING_CONTROLLERS {
        let peer = Peer::connect(place, "greedy")?;
        for id in 2..2 + OWING_QUEUES {
            let mut queue = peer.io_queue(id)?;
            for _ in 0..16 {
                queue.post(Sqe::write(MEMORY, 0, 16), Some(&data), 0)?;
            }
            queues.push(queue);
            count(1);
        }
        controllers.push(peer);
    }
    std::thread::sleep(IDLE);
    Ok(())
}

fn read_nothing(place: &Place) -> Result<(), Failure> {
    let mut peers = Vec::new();
    for name in 0..NAMES {
        let mut peer = Peer::connect(place, &format!("peer{name}"))?;
        for _ in 0..16 {
            peer.queue.post(Sqe::read(MEMORY, 0, 256), None, 1 << 20)?;
        }
        peers.push(peer);
        count(1);
    }
    std::thread::sleep(IDLE);
    Ok(())
}

/// A function that counts, over all of the text.
fn call_again(place: &Place) -> Result<(), Failure> {
    let words = FunctionRequest {
        sources: vec![Endpoint::new(EndpointKind::Volume(TEXT), 0, 8 << 20)],
        ..FunctionRequest::new(FunctionKind::Read, shipped("wc"))
    };
    let mut peer = Peer::connect(place, "greedy")?;
    loop {
        peer.result(&words)?;
        count(1);
    }
}

fn leave_results(place: &Place) -> Result<(), Failure> {
    let lines = FunctionRequest {
        args: encode(&function("grep"), &[("pattern", "x")]),
        chunk_len: 64 << 10,
        sources: vec![Endpoint::new(EndpointKind::Volume(TEXT), 0, 8 << 20)],
        ..FunctionRequest::new(FunctionKind::Read, shipped("grep"))
    };
    let mut peers = Vec::new();
    for name in 0..UNREAD_NAMES {
        let mut peer = Peer::connect(place, &format!("peer{name}"))?;
        for _ in 0..UNREAD_CALLS {
            peer.send(FunctionKind::Read, &lines)?;
            count(1);
        }
        peers.push(peer);
    }
    std::thread::sleep(IDLE);
    Ok(())
}

/// The longest shipped program, each time with another end, so that nothing of it is known from before.
fn load_programs(place: &Place) -> Result<(), Failure> {
    let mut peer = Peer::connect(place, "greedy")?;
    let longest = diskside_functions::shipped().iter().max_by_key(|shipped| shipped.object.len());
    let longest = longest.expect("there are shipped programs");
    let pind = diskside_functions::shipped().len() as u16;
    let call = FunctionRequest {
        sources: vec![Endpoint::new(EndpointKind::Volume(MEMORY), 0, 4096)],
        ..FunctionRequest::new(FunctionKind::Read, pind)
    };
    loop {
        let number = DONE.fetch_add(1, Ordering::Relaxed);
        let object = [longest.object, &number.to_le_bytes()].concat();
        let mut offset = 0;
        for part in object.chunks(8000) {
            let load = Sqe::load_program(COMPUTE, pind, object.len() as u32, offset, part.len() as u32);
            run(&mut peer.admin, load, Some(part), 0)?;
            offset += part.len() as u32;
        }
        run(&mut peer.admin, Sqe::activate_program(COMPUTE, pind, true), None, 0)?;
        // Most of them want arguments that this request does not have: they are compiled before that is seen, or not.
        let _ = peer.result(&call);
        run(&mut peer.admin, Sqe::activate_program(COMPUTE, pind, false), None, 0)?;
        run(&mut peer.admin, Sqe::unload_program(COMPUTE, pind), None, 0)?;
    }
}

fn come_and_go(place: &Place) -> Result<(), Failure> {
    loop {
        drop(TcpStream::connect(place.address)?);
        count(1);
    }
}

/// A byte of a ClientHello in each, again and again.
fn shake_slowly(place: &Place) -> Result<(), Failure> {
    let mut slow = Vec::new();
    loop {
        slow.retain_mut(|(stream, sent): &mut (TcpStream, usize)| {
            let header = [0x16, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3];
            let byte = header.get(*sent).copied().unwrap_or(7);
            *sent += 1;
            stream.write_all(&[byte]).is_ok()
        });
        while slow.len() < SLOW_HANDSHAKES {
            slow.push((place.socket()?, 0));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn try_a_key(place: &Place) -> Result<(), Failure> {
    match place.channel("worker") {
        Ok(_) => panic!("the target takes a key that it does not know"),
        Err(_) => count(1),
    }
    Ok(())
}

fn send_garbage(place: &Place) -> Result<(), Failure> {
    let mut stream = place.socket()?;
    let number = DONE.fetch_add(1, Ordering::Relaxed);
    let mut bytes = client::runs(4096);
    // A record of TLS, an ICReq, or neither.
    bytes[..4].copy_from_slice(&[[0x16, 3, 1, 0x10], [0, 0, 128, 0], [7, 7, 7, 7]][number as usize % 3]);
    stream.write_all(&bytes)?;
    stream.shutdown(Shutdown::Write)?;
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(())
}
