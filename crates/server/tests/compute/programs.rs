//! Loading, activating and unloading programs, and what is said about them.

use crate::client::{COMPUTE, Client, VOLUME, locally, object, start, target};
use crate::common::{builder, pattern};
use crate::life::send_open;
use crate::standard::compiled;
use diskside_engine::Engine;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::Execution;
use diskside_wire::function::{
    CapabilityPage, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, ProgramImageHeader,
    StatisticsPage, TierHint, function_log, function_opcode, opcode_bit, program_state,
};

const FREE: u16 = 100;

#[test]
fn a_program_is_loaded_in_parts_activated_run_and_unloaded() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let bytes = pattern(4096, 1);
    client.fill(&bytes);
    client.load(FREE, object("stats64")).ok();
    let loaded = client.programs().into_iter().find(|program| program.pind.get() == FREE).unwrap();
    assert_eq!((loaded.state, loaded.name().as_str()), (program_state::OWN, "stats64"));
    assert_eq!(loaded.len.get() as usize, object("stats64").len());

    let request = FunctionRequest { pind: FREE, ..client.over("stats64", &[], 4096) };
    let tag = client.tag();
    client.send(tag, &request).fails_with(Status::PROGRAM_NOT_ACTIVATED.dnr());
    client.activate(FREE, true).ok();
    client.activate(FREE, true).ok();
    assert_eq!(client.result(&request), locally("stats64", &[], &bytes));
    let by_hash = FunctionRequest { program_id: loaded.program_id.get(), ..request.clone() };
    assert_eq!(client.result(&by_hash), locally("stats64", &[], &bytes));
    let other = FunctionRequest { program_id: loaded.program_id.get() ^ 1, ..request.clone() };
    let tag = client.tag();
    client.send(tag, &other).fails_with(Status::PROGRAM_ID_MISMATCH.dnr());
    let named = FunctionRequest { function: Some("nothing".into()), ..request.clone() };
    let tag = client.tag();
    client.send(tag, &named).fails_with(Status::FUNCTION_NOT_FOUND.dnr());
    assert!(client.errors()[0].message.contains("it has stats64"), "{:?}", client.errors()[0]);

    let image = client.log(function_log::PROGRAM_IMAGE, FREE);
    assert!(ProgramImageHeader::decode(&image).unwrap().1 == object("stats64"));

    let mut admin = |sqe| client.controller.admin.command(sqe, None, 0);
    admin(Sqe::unload_program(COMPUTE, FREE)).fails_with(Status::PROGRAM_IN_USE.dnr());
    admin(Sqe::activate_program(COMPUTE, FREE, false)).ok();
    admin(Sqe::unload_program(COMPUTE, FREE)).ok();
    admin(Sqe::unload_program(COMPUTE, FREE)).fails_with(Status::NO_PROGRAM.dnr());
    let tag = client.tag();
    client.send(tag, &request).fails_with(Status::NO_PROGRAM.dnr());
}

/// Unloading looked at activation alone once: a program was gone from its place while calls of it went on.
#[test]
fn a_program_that_runs_is_not_unloaded() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load(FREE, object("stats64")).ok();
    client.activate(FREE, true).ok();
    // Calls that wait for input: nothing ends them but a cancel.
    let sources = vec![Endpoint::whole(EndpointKind::HostStream)];
    let request = FunctionRequest { pind: FREE, sources, ..client.over("stats64", &[], 0) };
    let tags = [client.tag(), client.tag()];
    for tag in tags {
        send_open(&mut client, tag, &request);
    }
    client.activate(FREE, false).ok();
    for (tag, told) in tags.into_iter().zip([2, 1]) {
        let answer = client.controller.admin.command(Sqe::unload_program(COMPUTE, FREE), None, 0);
        assert_eq!(answer.status, Status::PROGRAM_IN_USE, "for now: it may be sent again");
        assert_eq!(client.errors()[0].message, format!("{told} calls of this program have not ended"));
        client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 10_000), None, 0).ok();
    }
    client.controller.admin.command(Sqe::unload_program(COMPUTE, FREE), None, 0).ok();
}

#[test]
fn a_prepared_request_of_a_program_that_was_stopped_says_so() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.fill(&pattern(1 << 20, 1));
    // On a reactor, on an engine, and a traversal.
    for (object, len) in [(object("stats64"), 4096), (object("stats64"), 1 << 20), (&compiled("walk")[..], 4096)] {
        client.load(FREE, object).ok();
        client.activate(FREE, true).ok();
        let sources = vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, len)];
        let walks = object != self::object("stats64");
        let kind = if walks { FunctionKind::Traverse } else { FunctionKind::Read };
        let function = walks.then(|| "walk".to_owned());
        let handle = client.prepare(&FunctionRequest { sources, function, ..FunctionRequest::new(kind, FREE) });
        let call = |client: &mut Client| client.call(handle, &[0; 16], 4096).status;
        assert_eq!(call(&mut client), Status::SUCCESS);
        client.activate(FREE, false).ok();
        assert_eq!(call(&mut client), Status::PROGRAM_NOT_ACTIVATED.dnr());
        client.activate(FREE, true).ok();
        assert_eq!(call(&mut client), Status::SUCCESS);
        client.activate(FREE, false).ok();
        // It is prepared and does not run.
        client.controller.admin.command(Sqe::unload_program(COMPUTE, FREE), None, 0).ok();
        assert_eq!(call(&mut client), Status::NO_PROGRAM.dnr());
    }
}

#[test]
fn no_more_programs_are_active_than_the_target_allows() {
    let running =
        start(builder().compute(|compute| compute.active_programs = 2).volume("data=mem:1MiB,rw".parse().unwrap()));
    let mut client = Client::connect(&running);
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    for (index, name) in (FREE..).zip(["stats64", "wc", "stats64"]) {
        client.load(index, object(name)).ok();
    }
    other.load(FREE + 3, object("wc")).ok();
    client.activate(FREE, true).ok();
    other.activate(FREE + 3, true).ok();
    // The shipped ones are active beside them; and one that is active already stays so.
    client.activate(FREE, true).ok();
    for index in [FREE + 1, FREE + 2] {
        assert_eq!(client.activate(index, true).status, Status::MAXIMUM_PROGRAMS_ACTIVATED.dnr());
        assert_eq!(client.errors()[0].message, "2 programs of hosts are active, all that may be; deactivate one");
    }
    let run = FunctionRequest { pind: FREE + 1, ..client.over("wc", &[], 4096) };
    let tag = client.tag();
    assert_eq!(client.send(tag, &run).status, Status::PROGRAM_NOT_ACTIVATED.dnr());
    other.activate(FREE + 3, false).ok();
    client.activate(FREE + 1, true).ok();
    client.result(&run);
    assert_eq!(client.activate(FREE + 2, true).status, Status::MAXIMUM_PROGRAMS_ACTIVATED.dnr());
    // What is gone is not active any more.
    client.activate(FREE + 1, false).ok();
    client.controller.admin.command(Sqe::unload_program(COMPUTE, FREE + 1), None, 0).ok();
    client.activate(FREE + 2, true).ok();
}

/// Any host could run what another one had loaded, and read its code, constants and all, from a log page.
#[test]
fn programs_belong_to_the_host_that_loaded_them_and_go_with_it() {
    let running = target(1);
    let mut other = Client::connect_as(&running, "nqn.2026-11.org.example:other");
    let shipped = other.programs();
    {
        let mut owner = Client::connect_as(&running, "nqn.2026-11.org.example:owner");
        owner.load(FREE, object("wc")).ok();
        owner.activate(FREE, true).ok();
        let seen = owner.programs().into_iter().find(|program| program.pind.get() == FREE).unwrap();
        assert_eq!(seen.state, program_state::ACTIVE | program_state::OWN);
        let image = owner.log(function_log::PROGRAM_IMAGE, FREE);
        assert!(image.windows(64).any(|part| part == &object("wc")[..64]), "its owner reads it");

        assert_eq!(other.programs().len(), shipped.len(), "it is not listed");
        let none = Status::NO_PROGRAM.dnr();
        let request = FunctionRequest { pind: FREE, ..other.over("wc", &[], 4096) };
        let tag = other.tag();
        other.send(tag, &request).fails_with(none);
        let tag = other.tag();
        other.send_as(tag, FunctionKind::Prepare, &request).fails_with(none);
        let execution = Execution { pind: FREE, ..Execution::default() };
        other.queue.command(Sqe::execute_program(COMPUTE, &execution), None, 0).fails_with(none);
        let image = Sqe::get_log_page(function_log::PROGRAM_IMAGE, 0, 4096, 0, false).with_log_specific_id(FREE);
        for sqe in [
            Sqe::activate_program(COMPUTE, FREE, false),
            Sqe::activate_program(COMPUTE, FREE, true),
            Sqe::unload_program(COMPUTE, FREE),
        ] {
            other.controller.admin.command(sqe, None, 0).fails_with(none);
        }
        other.controller.admin.command(image, None, 4096).fails_with(none);
        // As where there is none; only that it cannot load one there tells of it.
        assert!(!other.can_load_at(FREE) && other.can_load_at(FREE + 1));
        // The same object is the other's own when it loads it.
        other.load(FREE + 1, object("wc")).ok();
        other.activate(FREE + 1, true).ok();
        other.result(&FunctionRequest { pind: FREE + 1, ..request });
    }
    for _ in 0..2000 {
        if other.can_load_at(FREE) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(other.can_load_at(FREE), "the owner left, and so did its program");
    assert_eq!(other.programs().len(), shipped.len() + 1, "and nobody else's");
}

#[test]
fn ten_thousand_loads_leave_nothing_behind() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let stats = object("stats64");
    // As many as a host may have, and one more; then all of them away, again and again.
    let mut loads = 0;
    while loads < 10_000 {
        let mut pind = FREE;
        loop {
            let sqe = Sqe::load_program(COMPUTE, pind, stats.len() as u32, 0, stats.len() as u32);
            let answer = client.controller.admin.command(sqe, Some(stats), 0);
            loads += 1;
            if !answer.status.is_success() {
                answer.fails_with(Status::INSUFFICIENT_PROGRAM_RESOURCES.dnr());
                break;
            }
            pind += 1;
        }
        assert_eq!(pind, FREE + 32, "32 programs of a host");
        for loaded in FREE..pind {
            client.controller.admin.command(Sqe::unload_program(COMPUTE, loaded), None, 0).ok();
        }
    }
    assert!(client.programs().iter().all(|program| program.state & program_state::DEVICE_DEFINED != 0));
}

#[test]
fn capabilities_and_statistics_tell_what_there_is_and_was() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let (page, helpers) = CapabilityPage::decode(&client.log(function_log::CAPABILITIES, 0)).unwrap();
    assert_ne!(page.opcodes.get() & opcode_bit(function_opcode::CALL), 0);
    assert_ne!(page.opcodes.get() & opcode_bit(function_opcode::LAYOUT_SEND), 0);
    let kinds = [FunctionKind::Read, FunctionKind::Write, FunctionKind::Prepare];
    assert!(kinds.iter().all(|kind| page.kinds.get() & 1 << *kind as u32 != 0), "{page:?}");
    assert_eq!(page.kinds.get() & 1 << FunctionKind::File as u32, 0, "nothing is exported");
    assert_eq!(page.sink_kinds.get(), 1 << 1 | 1 << 3, "volumes and memory");
    assert!(helpers.iter().any(|name| name == "ds_find"), "{helpers:?}");
    let described = CapabilityPage::decode_described(&client.log(function_log::CAPABILITIES, 0)).unwrap();
    assert_eq!(described.iter().map(|helper| &helper.name).collect::<Vec<_>>(), helpers.iter().collect::<Vec<_>>());
    let find = described.iter().find(|helper| helper.name == "ds_find").unwrap();
    assert_eq!((find.version, find.cost.as_str()), (1, "linear"));
    assert_eq!(find.prototype, "__s64 ds_find(const void *hay, __u64 hay_len, const void *needle, __u64 needle_len)");
    let cost = |name: &str| &*described.iter().find(|helper| helper.name == name).unwrap().cost;
    assert_eq!([cost("ds_now"), cost("ds_alloc"), cost("ds_f64_add")], ["fixed", "linear", "inline"]);
    let here = Engine::new(diskside_sbpf::helpers::standard()).with_llvm_if_found();
    let llvm = if here.code().has_llvm() { 1 << TierHint::Llvm as u32 } else { 0 };
    let always = [TierHint::Best, TierHint::Interpreter, TierHint::Cranelift].map(|tier| 1 << tier as u32);
    assert_eq!(page.tiers.get(), always.iter().sum::<u32>() | llvm);

    let request = client.over("stats64", &[], 64 << 10);
    client.result(&request);
    client.run(&FunctionRequest { budget: 1, ..request });
    let (page, entries) = StatisticsPage::decode(&client.log(function_log::STATISTICS, 0)).unwrap();
    assert_eq!((page.started.get(), page.succeeded.get(), page.failed.get()), (2, 1, 1));
    assert!(page.media_read.get() >= 64 << 10 && page.sent.get() > 0);
    let stats = entries.iter().find(|entry| entry.name() == "stats64").unwrap();
    assert_eq!((stats.operations.get(), stats.failed.get()), (2, 1));
    assert!(entries.iter().any(|entry| entry.name() == "data" && entry.id.get() == 1));
}
