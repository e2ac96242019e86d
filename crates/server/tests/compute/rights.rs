//! Two hosts and what each was granted: what it has no right to is to it as if it were not there, in Identify, in commands,
//! in functions and in log pages; and grants change under hosts that stay connected.

use crate::client::{COMPUTE, Client, VOLUME, locally, object, start};
use crate::common::{Answer, builder, pattern};
use diskside_nvme::Status;
use diskside_nvme::wire::{CSI_NVM, Sqe, cns};
use diskside_server::Running;
use diskside_server::config::{ServeConfig, Settings};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, StatisticsPage, function_log};

const ANN: &str = "nqn.2026-11.org.example:ann";
const BOB: &str = "nqn.2026-11.org.example:bob";
const MEMORY: u32 = 1023;
const SECRET: u32 = 2;
const NEVER: u32 = 7;
const NO_NAMESPACE: Status = Status::INVALID_NAMESPACE_OR_FORMAT.dnr();

fn config(grants: &str) -> ServeConfig {
    let text = format!(
        "[[host]]\nname = 'ann'\nnqn = '{ANN}'\ngroups = ['readers']\n[[host]]\nname = 'bob'\nnqn = '{BOB}'\n\
         [[volume]]\nname = 'data'\npath = 'mem:1MiB'\nrw = true\nnsid = {VOLUME}\n\
         [[volume]]\nname = 'secret'\npath = 'mem:1MiB'\nrw = true\nnsid = {SECRET}\n{grants}"
    );
    ServeConfig::resolve(Settings::from_toml(&text, "a test").unwrap()).unwrap()
}

fn target(grants: &str) -> Running {
    let config = config(grants);
    let mut builder = builder();
    for host in &config.known_hosts {
        builder = builder.host(host.clone());
    }
    for volume in &config.volumes {
        builder = builder.volume(volume.clone());
    }
    start(config.grants.iter().cloned().fold(builder, |builder, grant| builder.grant(grant)))
}

fn namespaces(client: &mut Client) -> Vec<u32> {
    let list = client.controller.admin.command(Sqe::identify(cns::ACTIVE_NAMESPACES, 0, 0), None, 4096).ok();
    let all = list.chunks_exact(4).map(|nsid| u32::from_le_bytes(nsid.try_into().unwrap()));
    all.take_while(|nsid| *nsid != 0).collect()
}

fn identify(client: &mut Client, cns: u8, nsid: u32) -> Answer {
    client.controller.admin.command(Sqe::identify(cns, nsid, CSI_NVM), None, 4096)
}

/// The same command about a namespace that this host may not see, and one that never was.
fn looks_like_none(client: &mut Client, what: &str, mut ask: impl FnMut(&mut Client, u32) -> Answer) {
    let (secret, never) = (ask(client, SECRET), ask(client, NEVER));
    assert_eq!((secret.status, secret.data), (never.status, never.data), "{what}");
}

#[test]
fn a_volume_that_is_not_granted_is_not_there_and_one_that_is_read_is_not_written() {
    let running = target(
        "[[grant]]\nto = ['readers']\nvolumes = { data = 'r' }\nfunctions = ['shipped:stats64']\n\
         [[grant]]\nto = ['bob']\nvolumes = { '*' = 'rw' }\nfunctions = ['any']\nmemory = 'own'\nstatistics = true\n",
    );
    let (mut ann, mut bob) = (Client::connect_as(&running, ANN), Client::connect_as(&running, BOB));
    let bytes = pattern(8192, 1);
    bob.queue.write(VOLUME, 0, &bytes).ok();
    bob.queue.write(SECRET, 0, &bytes).ok();
    assert_eq!(namespaces(&mut bob), [VOLUME, SECRET, MEMORY, COMPUTE]);
    assert_eq!(namespaces(&mut ann), [VOLUME, COMPUTE]);
    assert_eq!(ann.queue.read(VOLUME, 0, 2).ok(), bytes);
    ann.queue.write(VOLUME, 0, &bytes).fails_with(Status::NAMESPACE_WRITE_PROTECTED.dnr());
    let attributes = |client: &mut Client| identify(client, cns::NAMESPACE, VOLUME).ok()[99];
    assert_eq!((attributes(&mut ann), attributes(&mut bob)), (1, 0), "Identify says so");
    looks_like_none(&mut ann, "read", |ann, nsid| ann.queue.read(nsid, 0, 1));
    looks_like_none(&mut ann, "write", |ann, nsid| ann.queue.write(nsid, 0, &[0; 4096]));
    looks_like_none(&mut ann, "flush", |ann, nsid| ann.queue.flush(nsid));
    for cns in [cns::NAMESPACE, cns::NAMESPACE_DESCRIPTORS, cns::INDEPENDENT_NAMESPACE, cns::ATTACHED_CONTROLLERS] {
        looks_like_none(&mut ann, &format!("identify {cns:#x}"), |ann, nsid| identify(ann, cns, nsid));
    }
    let over = |client: &mut Client, nsid: u32| {
        let request = client.over("stats64", &[], 4096);
        FunctionRequest { sources: vec![Endpoint::new(EndpointKind::Volume(nsid), 0, 4096)], ..request }
    };
    let request = over(&mut ann, VOLUME);
    assert_eq!(ann.result(&request), locally("stats64", &[], &bytes[..4096]));
    for nsid in [SECRET, NEVER] {
        let told = format!("there is no volume with namespace ID {nsid}");
        let request = over(&mut ann, nsid);
        ann.is_refused(FunctionKind::Read, &request, Status::NAMESPACE_NOT_REACHABLE.dnr(), &told);
    }

    // Functions: one is granted, and none may be loaded.
    let names = |client: &mut Client| client.programs().iter().map(|program| program.name()).collect::<Vec<_>>();
    assert_eq!(names(&mut ann), ["stats64"]);
    assert!(names(&mut bob).len() > 5);
    let grep = bob.pind("wc");
    let mut request = over(&mut ann, VOLUME);
    request.pind = grep;
    ann.is_refused(FunctionKind::Read, &request, Status::NO_PROGRAM.dnr(), "");
    let image = |client: &mut Client| {
        let sqe = Sqe::get_log_page(function_log::PROGRAM_IMAGE, 0, 4096, 0, false).with_log_specific_id(grep);
        client.controller.admin.command(sqe, None, 4096).status
    };
    assert_eq!((image(&mut ann), image(&mut bob)), (Status::NO_PROGRAM.dnr(), Status::SUCCESS));
    ann.load(200, object("wc")).fails_with(Status::OPERATION_DENIED.dnr());
    assert!(ann.errors()[0].message.starts_with("this host may load no programs, only run those of the server"));
    bob.load(200, object("wc")).ok();

    // Counters: of what it may use, where others see all.
    let listed = |client: &mut Client| {
        let (_, entries) = StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap();
        entries.iter().map(|entry| entry.name()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&mut ann), ["stats64", "data", "data"]);
    assert!(listed(&mut bob).contains(&"secret".to_owned()));
    // The head of the page told how much all hosts do together, from which each could see what the others do.
    let page = |client: &mut Client| StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap();
    let head = |client: &mut Client| {
        let page = page(client).0;
        let read = (page.media_read.get(), page.cache_read.get(), page.cache_misses.get());
        (page.started.get(), page.succeeded.get(), page.prepared_calls.get(), read, page.kept_memory.get())
    };
    let (before, all) = (head(&mut ann), page(&mut bob).0.succeeded.get());
    assert_eq!((before.0, before.1), (1, 1), "its own");
    let request = over(&mut bob, VOLUME);
    bob.result(&request);
    let handle = bob.prepare(&request);
    bob.call(handle, &[], 4096);
    assert_eq!(head(&mut ann), before, "what others do does not show");
    assert_eq!(page(&mut bob).0.succeeded.get(), all + 1);
    let runs = |client: &mut Client| page(client).1[0].operations.get();
    assert_eq!(
        (runs(&mut ann), runs(&mut bob)),
        (1, 3),
        "nor what of it they run; a call of a prepared request is one, too"
    );
}

#[test]
fn programs_are_granted_by_their_hash() {
    let hash = {
        let open = start(builder());
        let mut client = Client::connect(&open);
        let wc = client.programs().into_iter().find(|program| program.name() == "wc").unwrap();
        wc.sha256.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let running = target(&format!("[[grant]]\nto = ['ann']\nfunctions = ['sha256:{hash}']\n"));
    let mut ann = Client::connect_as(&running, ANN);
    assert!(ann.programs().is_empty());
    ann.load(200, object("grep")).fails_with(Status::OPERATION_DENIED.dnr());
    // The host was not told by what its operator could grant the program.
    let told = ann.errors()[0].message.clone();
    let other = told.strip_prefix("this host may not run this program; a [[grant]] with functions = [\"").unwrap();
    let other = other.strip_suffix("\"] would let it").unwrap().to_owned();
    assert_eq!((other.len(), other.starts_with("sha256:")), (7 + 64, true));
    ann.load(200, object("wc")).ok();
    ann.activate(200, true).ok();
    assert_eq!(ann.programs().len(), 1);
    // Taken away, it is not there any more; nor are others let in by what is there already.
    let handle = running.handle();
    handle.reload_hosts(&config("[[grant]]\nto = ['ann']\nfunctions = ['shipped:wc']\n")).unwrap();
    let names: Vec<_> = ann.programs().iter().map(|program| (program.name(), program.pind.get() == 200)).collect();
    assert_eq!(names, [("wc".to_owned(), false)]);
    // What the refusal said is the grant that was missing.
    handle.reload_hosts(&config(&format!("[[grant]]\nto = ['ann']\nfunctions = ['{other}']\n"))).unwrap();
    ann.load(201, object("grep")).ok();
}

#[test]
fn memory_is_a_hosts_own_unless_it_is_shared() {
    let running =
        target("[[grant]]\nto = ['ann', 'bob']\nmemory = 'own'\nfunctions = ['any']\nvolumes = { data = 'rw' }\n");
    let (mut ann, mut bob) = (Client::connect_as(&running, ANN), Client::connect_as(&running, BOB));
    let write = |client: &mut Client, bytes: &[u8]| {
        client.queue.command(Sqe::memory_write(MEMORY, 0, bytes.len() as u32), Some(bytes), 0).ok();
    };
    let read = |client: &mut Client| client.queue.command(Sqe::memory_read(MEMORY, 0, 64), None, 64).ok();
    write(&mut ann, &[1; 64]);
    assert_eq!(read(&mut bob), [0; 64], "another host's memory is not seen");
    write(&mut bob, &[2; 64]);
    assert_eq!(read(&mut ann), [1; 64], "nor changed");
    let over_memory = FunctionRequest {
        sources: vec![Endpoint::new(EndpointKind::Memory(MEMORY), 0, 64)],
        ..ann.over("stats64", &[], 64)
    };
    assert_eq!(ann.result(&over_memory), locally("stats64", &[], &[1; 64]));
    assert_eq!(bob.result(&over_memory), locally("stats64", &[], &[2; 64]));
    // Shared is another memory, that both have.
    running
        .handle()
        .reload_hosts(&config("[[grant]]\nto = ['ann', 'bob']\nmemory = 'shared'\nfunctions = ['any']\n"))
        .unwrap();
    assert_eq!((read(&mut ann), read(&mut bob)), (vec![0; 64], vec![0; 64]));
    write(&mut ann, &[3; 64]);
    assert_eq!(read(&mut bob), [3; 64]);
}

#[test]
fn grants_change_under_hosts_that_stay() {
    let both = "[[grant]]\nto = ['ann', 'bob']\nvolumes = { data = 'rw', secret = 'r' }\nfunctions = ['shipped:*']\n";
    let running = target(both);
    let mut ann = Client::connect_as(&running, ANN);
    let bytes = pattern(4096, 2);
    ann.queue.write(VOLUME, 0, &bytes).ok();
    let request = ann.over("stats64", &[], 4096);
    let handle = ann.prepare(&request);
    let expected = locally("stats64", &[], &bytes);
    let len = expected.len() as u32;
    assert_eq!(ann.call(handle, &[], len).ok(), expected);
    let reload = |grants: &str| running.handle().reload_hosts(&config(grants)).unwrap();

    reload("[[grant]]\nto = ['ann']\nvolumes = { data = 'r' }\nfunctions = ['shipped:*']\n");
    assert_eq!(namespaces(&mut ann), [VOLUME, COMPUTE]);
    ann.queue.write(VOLUME, 0, &bytes).fails_with(Status::NAMESPACE_WRITE_PROTECTED.dnr());
    ann.queue.read(SECRET, 0, 1).fails_with(NO_NAMESPACE);
    assert_eq!(ann.call(handle, &[], len).ok(), expected, "what it may still do goes on");
    reload("[[grant]]\nto = ['ann']\nvolumes = { secret = 'rw' }\nfunctions = ['shipped:*']\n");
    ann.queue.read(VOLUME, 0, 1).fails_with(NO_NAMESPACE);
    ann.queue.write(SECRET, 0, &bytes).ok();
    ann.call(handle, &[], len).fails_with(Status::NAMESPACE_NOT_REACHABLE.dnr());
    reload("[[grant]]\nto = ['bob']\nvolumes = { data = 'r' }\n");
    assert!(namespaces(&mut ann).is_empty(), "it is connected, and there is nothing");
    assert!(!ann.call(handle, &[], len).status.is_success());
    reload("");
    assert_eq!(namespaces(&mut ann), [VOLUME, SECRET, MEMORY, COMPUTE], "no grants: everything is everybody's");
    assert_eq!(ann.call(handle, &[], len).ok(), expected);

    // What cannot be changes nothing.
    let settings =
        |text: &str| ServeConfig::resolve(Settings::from_toml(text, "a test").unwrap()).unwrap_err().to_string();
    for (text, want) in [
        ("[[grant]]\nto = ['carl']\n", "`carl` is neither a [[host]] nor a group"),
        ("[[grant]]\nto = ['*']\nvolumes = { data = 'r' }\n", "there is no volume `data`"),
        ("[[grant]]\nto = ['*']\nexports = { data = 'r' }\n", "there is no export `data`"),
        ("[[grant]]\nto = ['nqn.nothing']\n", "is not an NQN"),
    ] {
        let error = settings(text);
        assert!(error.contains(want), "{error}");
    }
}
