//! Asking a discovery controller which subsystems there are.

use std::time::{Duration, Instant};

use diskside_io::ring::{Ring, RingConfig};
use diskside_nvme::Nqn;
use diskside_nvme::host::{Admin, AdminConfig, AdminEvent, ConnectionError, DiscoveredSubsystem, HostIdentity, Login};

use crate::connection::first_success;
use crate::error::HostError;
use crate::link::{Link, NoMemory};
use crate::login::{Party, login};
use crate::options::ConnectOptions;
use crate::route::{Peer, Route};
use crate::url::Url;

/// The subsystems that a target's discovery controller lists.
///
/// Targets of this project answer discovery on every port; others may listen on
/// [`DISCOVERY_PORT_DEFAULT`](crate::DISCOVERY_PORT_DEFAULT): write it into the URL.
pub fn discover(url: &Url, options: &ConnectOptions) -> Result<Vec<DiscoveredSubsystem>, HostError> {
    options.check()?;
    let options = &options.for_server(url);
    first_success((url, &options.key), |route| discover_by(route, url.tls, options))
}

fn discover_by(route: Route, tls: bool, options: &ConnectOptions) -> Result<Vec<DiscoveredSubsystem>, HostError> {
    let environment = |source| HostError::Environment { what: "making a ring", source };
    let config = RingConfig { entries: 8, spin: Duration::ZERO, ..RingConfig::default() };
    let mut ring = Ring::new(&config).map_err(environment)?;
    let group = ring.provide(4, 16 << 10).map_err(environment)?;
    let address = route.peer();
    let Party { identity, login, channel } = login(options, address, tls, &Nqn::discovery())?;
    let route = route.secured(channel);
    let wired = route.connect(options, ring.waker())?;
    let started = Instant::now();
    let after = options.connect_timeout * 3;
    let admin = Admin::new(admin_config(options, identity, login), started);
    let mut link = Link::new(admin, wired, group, 1);
    let mut answer: Answer = None;
    loop {
        let now = Instant::now();
        while let Some(done) = ring.next_completion() {
            link.handle(done, now, &mut NoMemory);
        }
        link.take_in(now, &mut NoMemory);
        take_events(&mut link, address, now, &mut answer);
        if now.duration_since(started) >= after {
            answer.get_or_insert(Err(HostError::TooSlow { address, after }));
            link.close();
        }
        link.pump(&mut ring, now, &mut NoMemory);
        if link.is_finished() {
            // Why it ended is said only now.
            take_events(&mut link, address, now, &mut answer);
            let ended = || Err(link.ended(address, ConnectionError::PeerClosed));
            return answer.unwrap_or_else(ended).map_err(|error| route.explained(error));
        }
        let deadline = link.deadline().into_iter().chain([started + after]).min();
        let patience = deadline.map(|deadline| deadline.saturating_duration_since(now).max(Duration::from_millis(1)));
        ring.wait(patience).map_err(environment)?;
    }
}

type Answer = Option<Result<Vec<DiscoveredSubsystem>, HostError>>;

fn take_events(link: &mut Link<Admin>, address: Peer, now: Instant, answer: &mut Answer) {
    while let Some(event) = link.machine.poll_event() {
        match event {
            AdminEvent::Compute(work) => link.machine.computed(now, diskside_keys::compute(work)),
            AdminEvent::Ready(_) => link.machine.discover(now),
            AdminEvent::Discovered(found) => {
                let what = || "reading the discovery log".to_owned();
                answer.get_or_insert(found.map_err(|source| HostError::Command { what: what(), source }));
                link.machine.shutdown(now);
            }
            AdminEvent::Closed(source) => {
                answer.get_or_insert(Err(link.ended(address, source)));
            }
            _ => {}
        }
    }
}

fn admin_config(options: &ConnectOptions, host: HostIdentity, login: Login) -> AdminConfig {
    AdminConfig {
        host,
        login,
        subsystem: Nqn::discovery(),
        io_queues: 0,
        io_queue_entries: 0,
        keep_alive_ms: 0,
        header_digest: options.header_digest,
        data_digest: options.data_digest,
        connect_timeout: options.connect_timeout,
        command_timeout: options.command_timeout,
    }
}
