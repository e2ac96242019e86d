//! A way to a server that can be closed, or fall silent, at any moment.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Open,
    /// Connections end at once.
    Closed,
    /// Connections stay, and nothing comes of them.
    Silent,
}

struct State {
    way: Mutex<(Way, Vec<TcpStream>)>,
    changed: Condvar,
}

pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    pub fn new(to: SocketAddr, way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { way: Mutex::new((way, Vec::new())), changed: Condvar::new() });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || listener.incoming().flatten().for_each(|host| shared.forward(host, to)));
        Self { address, state }
    }

    pub fn set(&self, way: Way) {
        let mut state = self.state.way.lock().unwrap();
        state.0 = way;
        if way == Way::Closed {
            state.1.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
        self.state.changed.notify_all();
    }
}

impl State {
    fn forward(self: &Arc<Self>, host: TcpStream, to: SocketAddr) {
        let mut state = self.way.lock().unwrap();
        if state.0 == Way::Closed {
            return;
        }
        let server = TcpStream::connect(to).unwrap();
        for stream in [&host, &server] {
            stream.set_nodelay(true).unwrap();
            state.1.push(stream.try_clone().unwrap());
        }
        for (mut from, mut to) in
            [(&host, &server), (&server, &host)].map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()))
        {
            let this = Arc::clone(self);
            std::thread::spawn(move || {
                let mut bytes = [0; 64 << 10];
                while let Ok(len @ 1..) = from.read(&mut bytes) {
                    let silent = |state: &mut (Way, _)| state.0 == Way::Silent;
                    drop(this.changed.wait_while(this.way.lock().unwrap(), silent).unwrap());
                    if to.write_all(&bytes[..len]).is_err() {
                        break;
                    }
                }
                drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
            });
        }
    }
}
