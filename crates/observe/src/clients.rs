//! The connections of those who ask: one thread reads and writes them all, so that none holds another up. There are so many places;
//! a new connection finds one in any case, and who has had one for long without a request gives his up.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::http::{Answers, Asked, Reply, answer, come_again, request};

/// Connections at a time.
const PLACES: usize = 64;
/// From a connection to its request.
const ASKS_MAX: Duration = Duration::from_secs(2);
/// From the request to the last byte of the reply.
const TAKES_MAX: Duration = Duration::from_secs(10);
/// From a failure to the next connection.
const PAUSE: Duration = Duration::from_millis(20);

/// Answers from a thread of its own until the process ends.
pub(crate) fn serve(listener: TcpListener, answers: impl Answers) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let is_local = listener.local_addr()?.ip().is_loopback();
    let mut clients = Clients { listener, list: Vec::new(), is_local, answers };
    std::thread::Builder::new().name("observe-http".into()).spawn(move || {
        loop {
            clients.turn();
        }
    })?;
    Ok(())
}

struct Clients<A> {
    listener: TcpListener,
    /// The oldest first.
    list: Vec<Client>,
    is_local: bool,
    answers: A,
}

struct Client {
    stream: TcpStream,
    address: IpAddr,
    /// It is disconnected then.
    until: Instant,
    state: State,
}

enum State {
    Asks(Vec<u8>),
    /// So many bytes of the reply are sent.
    Takes(Reply, usize),
    Gone,
}

impl<A: Answers> Clients<A> {
    /// Waits until something can be done, and does it.
    fn turn(&mut self) {
        let now = Instant::now();
        let until = self.list.iter().map(|client| client.until).min();
        let timeout = until.and_then(|until| Timespec::try_from(until.saturating_duration_since(now)).ok());
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.list.iter().map(|client| PollFd::new(&client.stream, client.state.waits_for())));
        let waited = poll(&mut fds, timeout.as_ref());
        let ready: Vec<bool> = fds.iter().map(|fd| waited.is_ok() && !fd.revents().is_empty()).collect();
        drop(fds);
        // Looking at the server may take longer than one may take to ask: what comes meanwhile is in time.
        let now = Instant::now();
        for (client, _) in self.list.iter_mut().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            client.proceed(self.is_local, &self.answers);
        }
        self.list.retain(|client| !matches!(client.state, State::Gone) && now < client.until);
        if ready[0] {
            self.accept();
        }
    }

    /// Lets in those who wait, as many as there are places: then those who are there have a turn.
    fn accept(&mut self) {
        for _ in 0..PLACES {
            match self.listener.accept() {
                Ok((stream, address)) => {
                    let (until, state) = (Instant::now() + ASKS_MAX, State::Asks(Vec::new()));
                    self.add(Client { stream, address: address.ip(), until, state });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                // No descriptor is left, most likely: there is one more when one of them goes.
                Err(_) => {
                    self.give_way();
                    return std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// One more, whose request is often there already.
    fn add(&mut self, mut client: Client) {
        if client.stream.set_nonblocking(true).is_err() {
            return;
        }
        client.proceed(self.is_local, &self.answers);
        if matches!(client.state, State::Gone) {
            return;
        }
        if self.list.len() >= PLACES {
            self.give_way();
        }
        self.list.push(client);
    }

    /// The oldest goes that has not asked yet, of the address with most of them; if all have asked, the oldest of the address with
    /// most.
    fn give_way(&mut self) {
        let mut counts = HashMap::<_, usize>::new();
        let rank = |client: &Client| (matches!(client.state, State::Asks(_)), client.address);
        self.list.iter().for_each(|client| *counts.entry(rank(client)).or_default() += 1);
        let of_most = self.list.iter().enumerate().max_by_key(|(at, client)| {
            let rank = rank(client);
            (rank.0, counts[&rank], std::cmp::Reverse(*at))
        });
        if let Some((at, _)) = of_most {
            let mut gone = self.list.remove(at);
            if let State::Asks(_) = gone.state {
                let Reply { head, body } = come_again();
                let _ = gone.stream.write_all((head + &body).as_bytes());
            }
        }
    }
}

impl State {
    fn waits_for(&self) -> PollFlags {
        if let Self::Takes(..) = self { PollFlags::OUT } else { PollFlags::IN }
    }
}

impl Client {
    /// Reads and writes what it can without waiting.
    fn proceed(&mut self, is_local: bool, answers: &impl Answers) {
        match self.try_proceed(is_local, answers) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // Who went away comes again or not.
            Ok(()) | Err(_) => self.state = State::Gone,
        }
    }

    fn try_proceed(&mut self, is_local: bool, answers: &impl Answers) -> io::Result<()> {
        let mut part = [0; 1024];
        while let State::Asks(bytes) = &mut self.state {
            let len = self.stream.read(&mut part)?;
            bytes.extend_from_slice(&part[..len]);
            let asked = request(bytes).or((len == 0).then_some(Asked::Nonsense));
            if let Some(asked) = asked {
                self.state = State::Takes(answer(&asked, is_local, answers), 0);
                // To look at the server may have taken a while.
                self.until = Instant::now() + TAKES_MAX;
            }
        }
        while let State::Takes(Reply { head, body }, sent) = &mut self.state {
            let rest = match head.as_bytes().get(*sent..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &body.as_bytes()[*sent - head.len()..],
            };
            match rest {
                [] => break,
                rest => match self.stream.write(rest)? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    len => *sent += len,
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use super::*;
    use crate::http::PLAIN;

    fn clients(answers: impl Answers) -> Clients<impl Answers> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Clients { listener, list: Vec::new(), is_local: true, answers }
    }

    fn here(path: &str) -> Option<(&'static str, Arc<str>)> {
        (path == "/").then(|| (PLAIN, "here".into()))
    }

    impl<A: Answers> Clients<A> {
        fn connect(&self) -> TcpStream {
            TcpStream::connect(self.listener.local_addr().unwrap()).unwrap()
        }

        /// Lets a connection in that has sent this.
        fn let_in(&mut self, bytes: &str) -> TcpStream {
            let mut stream = self.connect();
            stream.write_all(bytes.as_bytes()).unwrap();
            self.accept();
            stream
        }
    }

    fn read(stream: &mut TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    const ASK: &str = "GET / HTTP/1.1\r\n\r\n";

    /// Twelve connections that sent a byte now and then held all four threads and all places, and no scraper got an answer.
    #[test]
    fn who_asks_is_answered_although_200_say_a_part_and_wait() {
        let mut clients = clients(here);
        let mut slow: Vec<_> = (0..200).map(|_| clients.let_in("GET /")).collect();
        assert_eq!(clients.list.len(), PLACES);
        assert!(read(&mut clients.let_in(ASK)).ends_with("\r\n\r\nhere"), "at once");
        // One whose request comes in two parts has a place until then, and the oldest has none any more.
        let mut late = clients.let_in("GET / HT");
        late.write_all(b"TP/1.1\r\n\r\n").unwrap();
        clients.turn();
        assert!(read(&mut late).ends_with("\r\n\r\nhere"));
        assert!(read(&mut slow[0]).starts_with("HTTP/1.1 503 "));
        assert_eq!(clients.list.len(), PLACES - 1);
    }

    #[test]
    fn who_does_not_ask_in_time_is_disconnected() {
        let mut clients = clients(here);
        let mut silent = clients.let_in("");
        clients.list[0].until = Instant::now();
        clients.turn();
        assert!(clients.list.is_empty());
        assert_eq!(read(&mut silent), "");
    }

    /// A reader that took nothing of its answer held a thread.
    #[test]
    fn who_does_not_read_the_answer_holds_nobody_up() {
        let large: Arc<str> = "x".repeat(32 << 20).into();
        let mut clients = clients(move |path: &str| match path {
            "/large" => Some((PLAIN, Arc::clone(&large))),
            path => here(path),
        });
        let large = "GET /large HTTP/1.1\r\n\r\n";
        let mut slow: Vec<_> = (0..PLACES).map(|_| clients.let_in(large)).collect();
        assert_eq!(clients.list.len(), PLACES);
        assert!(read(&mut clients.let_in(ASK)).ends_with("\r\n\r\nhere"));
        // Where all have asked, the oldest goes for one more that takes its time, and the others get all of it.
        let _late = clients.let_in("GET /");
        assert_eq!(clients.list.len(), PLACES);
        let last = slow.pop().unwrap();
        let reader = std::thread::spawn(move || read(&mut { last }).len());
        clients.list.drain(..PLACES - 2);
        while clients.list.len() > 1 {
            clients.turn();
        }
        assert!(reader.join().unwrap() > 32 << 20);
    }

    #[test]
    fn what_ends_too_early_is_no_request() {
        let mut clients = clients(here);
        let mut half = clients.connect();
        half.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
        half.shutdown(std::net::Shutdown::Write).unwrap();
        clients.accept();
        assert!(read(&mut half).starts_with("HTTP/1.1 400 "));
    }

    /// An address that asks without end took the places of all others.
    #[test]
    fn the_address_with_most_gives_way() {
        let mut clients = clients(here);
        let _slow: Vec<_> = (0..PLACES).map(|_| clients.let_in("GET /")).collect();
        clients.list[0].address = Ipv4Addr::new(192, 0, 2, 1).into();
        let _more: Vec<_> = (0..PLACES).map(|_| clients.let_in("GET /")).collect();
        assert_eq!(clients.list[0].address, Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(clients.list.len(), PLACES);
    }
}
