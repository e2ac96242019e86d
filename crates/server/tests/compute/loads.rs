//! Loads, unloads and activations that cannot be: each with its status and what is said about it, and the place that they
//! were for is as it was.

use crate::client::{COMPUTE, Client, object, start, target};
use crate::common::{Answer, builder, pattern};
use crate::standard::compiled;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::config::Size;
use diskside_wire::function::{FunctionRequest, statistics_kind};

const FREE: u16 = 100;
const OTHER: &str = "nqn.2026-11.org.example:other";
const BAD_DATA: Status = Status::INVALID_PROGRAM_DATA.dnr();
const IN_USE: Status = Status::PROGRAM_IN_USE.dnr();

impl Client {
    fn load_part(&mut self, pind: u16, total: u32, offset: u32, part: &[u8]) -> Answer {
        let sqe = Sqe::load_program(COMPUTE, pind, total, offset, part.len() as u32);
        self.controller.admin.command(sqe, Some(part), 0)
    }

    fn admin(&mut self, sqe: Sqe, data: Option<&[u8]>) -> Answer {
        self.controller.admin.command(sqe, data, 0)
    }

    /// The command fails so, and the error records say this; nothing in particular where it is empty.
    #[track_caller]
    fn admin_fails(&mut self, answer: Answer, status: Status, told: &str) {
        assert_eq!(answer.status, status);
        let said = self.said().1;
        assert_eq!(said, if told.is_empty() { status.to_string() } else { told.to_owned() });
    }
}

#[test]
fn each_misuse_of_a_load_says_what_is_wrong() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let stats = object("stats64");
    let len = stats.len() as u32;
    let follow = "the parts of a program follow each other, each as long as its data";
    let parts = [
        (9999, len, 0, stats, Status::INVALID_PROGRAM_INDEX.dnr(), ""),
        (0, len, 0, stats, Status::PROGRAM_INDEX_NOT_DOWNLOADABLE.dnr(), ""),
        (FREE, len, 100, &stats[100..200], BAD_DATA, "a load begins with its first byte"),
        (FREE, 100, 0, &stats[..101], Status::PROGRAM_TOO_BIG.dnr(), ""),
        (FREE, (4 << 20) + 1, 0, &stats[..100], Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr(), ""),
        (FREE, u32::MAX, 0, &stats[..100], Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr(), ""),
    ];
    for (pind, total, offset, part, status, told) in parts {
        let answer = client.load_part(pind, total, offset, part);
        client.admin_fails(answer, status, told);
    }
    // A part that is left out, that comes twice, or that goes too far, ends the load.
    for (offset, part) in [(200, &stats[200..300]), (50, &stats[50..100])] {
        client.load_part(FREE, len, 0, &stats[..100]).ok();
        let answer = client.load_part(FREE, len, offset, part);
        client.admin_fails(answer, BAD_DATA, follow);
        let answer = client.load_part(FREE, len, 100, &stats[100..200]);
        client.admin_fails(answer, BAD_DATA, "a load begins with its first byte");
    }
    // The first part begins again.
    client.load_part(FREE, len, 0, &stats[..200]).ok();
    client.load_part(FREE, len, 0, &stats[..100]).ok();
    let answer = client.load_part(FREE, len, 100, &[&stats[100..], b"x"].concat());
    client.admin_fails(answer, Status::PROGRAM_TOO_BIG.dnr(), "");
    let answer = client.load_part(FREE, len, u32::MAX, &stats[..100]);
    client.admin_fails(answer, BAD_DATA, "a load begins with its first byte");

    let whole = Sqe::load_program(COMPUTE, FREE, len, 0, len);
    let cases = [
        (whole.with_bits(10, 16, 8, 1), Status::INVALID_PROGRAM_TYPE.dnr(), ""),
        (
            whole.with_bits(10, 25, 3, 7),
            Status::INVALID_FIELD.dnr(),
            "byte 43 of the command: this type of identifier is reserved",
        ),
        (whole.with_dword(14, len - 1), BAD_DATA, follow),
        (Sqe::load_program(1, FREE, len, 0, len), Status::INVALID_NAMESPACE_OR_FORMAT.dnr(), ""),
    ];
    for (sqe, status, told) in cases {
        let answer = client.admin(sqe, Some(stats));
        assert_eq!(answer.status, status, "{told}");
        // To a namespace that is a volume no such command comes.
        if sqe.nsid() == COMPUTE {
            client.admin_fails(answer, status, told);
        }
    }
    let answer = client.admin(Sqe::load_program(COMPUTE, FREE, 0, 0, 0), None);
    client.admin_fails(answer, BAD_DATA, "a program has at least one byte");
    // After all that the place is free.
    client.load_part(FREE, len, 0, stats).ok();
    let answer = client.load_part(FREE, len, 0, stats);
    client.admin_fails(answer, IN_USE, "");
}

#[test]
fn each_misuse_of_a_loaded_program_says_what_is_wrong() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let mut other = Client::connect_as(&running, OTHER);
    client.load(FREE, object("stats64")).ok();
    client.activate(FREE, true).ok();
    let select = Sqe::activate_program(COMPUTE, FREE, true).with_bits(10, 16, 4, 2);
    let index = Status::INVALID_PROGRAM_INDEX.dnr();
    let none = Status::NO_PROGRAM.dnr();
    let cases = [
        (Sqe::unload_program(COMPUTE, 0), Status::PROGRAM_INDEX_NOT_DOWNLOADABLE.dnr(), ""),
        (Sqe::unload_program(COMPUTE, 9999), index, ""),
        (Sqe::unload_program(COMPUTE, FREE + 1), none, ""),
        (Sqe::unload_program(COMPUTE, FREE), IN_USE, ""),
        (Sqe::activate_program(COMPUTE, FREE + 1, true), none, ""),
        (Sqe::activate_program(COMPUTE, FREE + 1, false), none, ""),
        (Sqe::activate_program(COMPUTE, 9999, true), index, ""),
        (
            Sqe::activate_program(COMPUTE, 0, false),
            Status::OPERATION_DENIED.dnr(),
            "this program came with the target and stays active",
        ),
        (select, Status::INVALID_FIELD.dnr(), "byte 42 of the command: SEL is 0 (deactivate) or 1 (activate)"),
    ];
    for (sqe, status, told) in cases {
        let answer = client.admin(sqe, None);
        client.admin_fails(answer, status, told);
    }
    for sqe in [Sqe::unload_program(COMPUTE, FREE), Sqe::activate_program(COMPUTE, FREE, false)] {
        let answer = other.admin(sqe, None);
        other.admin_fails(answer, none, "");
    }
    let request = FunctionRequest { pind: FREE, ..client.over("stats64", &[], 4096) };
    client.result(&request);
}

/// Two processes of one host, and two hosts, that load at the same index: the first has it, and nothing of it is mixed.
#[test]
fn two_loads_at_one_index_do_not_mix() {
    let running = target(1);
    let (stats, words) = (object("stats64"), object("wc"));
    let len = |object: &[u8]| object.len() as u32;
    let mut first = Client::connect(&running);
    for host in [crate::common::HOST, OTHER] {
        let mut second = Client::connect_as(&running, host);
        first.load_part(FREE, len(stats), 0, &stats[..100]).ok();
        for (offset, part) in [(0, &words[..100]), (100, &words[100..200])] {
            let answer = second.load_part(FREE, len(words), offset, part);
            second.admin_fails(answer, IN_USE, "");
        }
        // Nor is it there to be run, or to be made active.
        let answer = second.activate(FREE, true);
        second.admin_fails(answer, Status::NO_PROGRAM.dnr(), "");
        first.load_part(FREE, len(stats), 100, &stats[100..]).ok();
        let answer = second.load_part(FREE, len(words), 0, words);
        second.admin_fails(answer, IN_USE, "");
        let loaded = first.programs().into_iter().find(|program| program.pind.get() == FREE).unwrap();
        assert_eq!((loaded.name(), loaded.len.get()), ("stats64".into(), len(stats)));
        first.admin(Sqe::unload_program(COMPUTE, FREE), None).ok();
        // Half a load is given up by who began it.
        first.load_part(FREE, len(stats), 0, &stats[..100]).ok();
        first.admin(Sqe::unload_program(COMPUTE, FREE), None).ok();
        second.load_part(FREE, len(words), 0, words).ok();
        second.admin(Sqe::unload_program(COMPUTE, FREE), None).ok();
    }
}

/// An index that is used again showed the counts of the program that had it before, and that program lost its name.
#[test]
fn counts_belong_to_the_function_and_not_to_the_index_that_it_had() {
    let running = target(1);
    let mut client = Client::connect(&running);
    let function = statistics_kind::FUNCTION;
    let run_at = |client: &mut Client, pind: u16, name: &str, len: u64| {
        client.load(pind, object(name)).ok();
        client.activate(pind, true).ok();
        let request = FunctionRequest { pind, ..client.over(name, &[], len) };
        client.result(&request);
        client.activate(pind, false).ok();
        client.admin(Sqe::unload_program(COMPUTE, pind), None).ok();
    };
    run_at(&mut client, FREE, "stats64", 4096);
    run_at(&mut client, FREE, "histogram", 8192);
    let (counts, entry) = client.counted(function, "stats64").unwrap();
    assert_eq!(counts[..2], [1, 4096]);
    let (counts, other) = client.counted(function, "histogram").unwrap();
    assert_eq!(counts[..2], [1, 8192]);
    assert_ne!(entry.id, other.id);
    // The same function elsewhere, loaded by another host or shipped, is counted there.
    let mut other = Client::connect_as(&running, OTHER);
    run_at(&mut other, FREE + 1, "stats64", 4096);
    let request = client.over("stats64", &[], 8192);
    client.result(&request);
    let (counts, now) = client.counted(function, "stats64").unwrap();
    assert_eq!((&counts[..2], now.id, now.program_id), (&[3, 16384][..], entry.id, entry.program_id));
}

#[test]
fn what_the_verifier_says_travels_back() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load(FREE, &pattern(3000, 1)).fails_with(BAD_DATA);
    let record = client.errors().swap_remove(0);
    assert_eq!((record.opcode, record.id, record.queue_id), (0x85, u64::from(FREE), 0));
    assert!(record.message.contains("ELF"), "{record:?}");
    let refused = [
        (
            "nowhere",
            [
                "read/nowhere is refused: V0401 unsafe",
                "reason:     read of 8 bytes at r10+8, outside of the frame of 512 bytes",
                "nowhere.bpf.c:8: asm volatile(\"%0 = *(u64 *)(r10 + 8)\" : \"=r\"(above));",
                "suggestion: stay below r10: the frame ends there",
            ],
        ),
        (
            "meddler",
            [
                "exec/meddler is refused: V0504 unsafe",
                "reason:     write of 4 bytes at offset 4 of the context, which is read-only there",
                "meddler.bpf.c:7: x->nranges = 9;",
                "suggestion: write only the fields that are results of the kind",
            ],
        ),
    ];
    for (name, told) in refused {
        client.load(FREE, &compiled(name)).fails_with(BAD_DATA);
        let said = client.said().1;
        // How the compiler names registers is its own matter.
        let (at, lines): (Vec<&str>, Vec<&str>) =
            said.lines().map(str::trim).partition(|line| line.starts_with("at: "));
        assert_eq!(lines, told);
        assert!(at.len() == 1 && at[0].contains(&format!("of `{name}`: ")), "{said}");
    }
    client.load(FREE, &compiled("stranger")).fails_with(BAD_DATA);
    let told = "neither the object nor this host defines `ds_finf` (used at `read/stranger`+0x0; did you mean ds_find, ds_fail, \
                ds_free?); define it, or declare it weak and test its address before the call";
    assert_eq!(client.said().1, told);
    // The place is free again.
    client.load(FREE, object("stats64")).ok();
}

/// As many bytes as all hosts may have, and one program more.
#[test]
fn programs_of_all_hosts_have_so_many_bytes_and_no_more() {
    let stats = object("stats64");
    let room = stats.len() as u64 * 3 - 1;
    let running = start(builder().compute(|compute| compute.program_memory = Size::from_bytes(room)));
    let mut client = Client::connect(&running);
    let mut other = Client::connect_as(&running, OTHER);
    client.load(FREE, stats).ok();
    other.load(FREE + 1, stats).ok();
    for host in [&mut client, &mut other] {
        let answer = host.load(FREE + 2, stats);
        host.admin_fails(answer, Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr(), "");
    }
    // A load that has only begun counts the bytes that came: a host that says how many will come keeps nobody from
    // loading.
    other.admin(Sqe::unload_program(COMPUTE, FREE + 1), None).ok();
    for place in [FREE + 1, FREE + 3] {
        other.load_part(place, stats.len() as u32, 0, &stats[..1]).ok();
    }
    client.load(FREE + 2, stats).ok();
    let answer = other.load_part(FREE + 1, stats.len() as u32, 1, &stats[1..]);
    other.admin_fails(answer, Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr(), "");
    // It is as if it had never begun.
    let answer = other.load_part(FREE + 1, stats.len() as u32, 1, &stats[1..]);
    other.admin_fails(answer, BAD_DATA, "a load begins with its first byte");
    client.admin(Sqe::unload_program(COMPUTE, FREE), None).ok();
    other.load(FREE + 1, stats).ok();
}

/// One host's programs could have all bytes that there are for programs, and no other host could load any. Now the last
/// eighth is for hosts that have less than an eighth.
#[test]
fn a_host_with_most_of_the_bytes_leaves_some_to_others() {
    let stats = object("stats64");
    let room = stats.len() as u64 * 10;
    let running = start(builder().compute(|compute| compute.program_memory = Size::from_bytes(room)));
    let mut client = Client::connect(&running);
    let mut other = Client::connect_as(&running, OTHER);
    for place in 0..8 {
        client.load(FREE + place, stats).ok();
    }
    let told =
        "the last eighth of the target's memory for programs is for hosts that have less of it; unload a program";
    let answer = client.load(FREE + 8, stats);
    client.admin_fails(answer, Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr(), told);
    // A load is refused when it begins.
    for place in [FREE + 8, FREE + 9] {
        let answer = client.load_part(place, stats.len() as u32, 0, &stats[..1]);
        client.admin_fails(answer, Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr(), told);
    }
    other.load(FREE + 8, stats).ok();
    client.admin(Sqe::unload_program(COMPUTE, FREE), None).ok();
    client.load(FREE, stats).fails_with(Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr());
    other.admin(Sqe::unload_program(COMPUTE, FREE + 8), None).ok();
    client.load(FREE, stats).ok();
}
