//! Executions that fail, and what their host gets: the status, and the error record with the source line.

use crate::bad::WAYS;
use crate::client::{Client, start, target};
use crate::common::{Answer, builder};
use crate::standard::{compiled, range};
use diskside_nvme::Status;
use diskside_nvme::wire::memory::Execution;
use diskside_wire::function::Outcome;
use zerocopy::IntoBytes;

const FREE: u16 = 100;
const FAILED: Status = Status::FUNCTION_FAILED.dnr();

impl Client {
    fn load_active(&mut self, pind: u16, object: &[u8]) {
        self.load(pind, object).ok();
        self.activate(pind, true).ok();
    }

    /// Executes `wrong` over a range of 64 bytes with 8 bytes of data.
    fn goes_wrong(&mut self, how: u64) -> Answer {
        let run = Execution { pind: FREE, ranges: 1, data_len: 40, cparam1: how, ..Execution::default() };
        self.execute(run, &[range(0, 64).as_bytes(), &[1; 8]].concat())
    }
}

#[test]
fn an_execution_that_goes_wrong_says_where_and_its_memory_is_free_again() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_active(FREE, &compiled("wrong"));
    let place = "its memory ranges, bytes 0..64: exec/wrong was stopped at instruction ";
    let ways = [
        (
            1,
            "(wrong.bpf.c:10: *((__u8 *)x->range[1].addr + x->range[1].len) = 1;): ",
            "out-of-bounds write of 1 bytes of range 1 at offset 64, which is 64 bytes long",
        ),
        (
            2,
            "(wrong.bpf.c:13: return *((__u8 *)x->data + x->data_len);): ",
            "out-of-bounds read of 1 bytes of range 0 at offset 8, which is 8 bytes long",
        ),
        (4, "(wrong.bpf.c:1", " loop iterations is used up; --budget gives each run more"),
    ];
    for (how, line, told) in ways {
        client.goes_wrong(how).fails_with(FAILED);
        let (_, said) = client.said();
        assert!(said.starts_with(place) && said.contains(line) && said.contains(told), "way {how}: {said}");
        assert_eq!(client.memory_read(0, 8)[0], 0, "nobody waits for it");
    }
    // The return value of a program is its result, also where it is an errno.
    let answer = client.goes_wrong(3);
    assert_eq!((answer.status, answer.result as i64), (Status::SUCCESS, -22));
    let answer = client.goes_wrong(0);
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 0));
    assert_eq!(client.memory_read(0, 8)[0], 7);
}

/// Functions over bytes said how much they wrote, also where that was more than there was room for.
#[test]
fn a_function_over_bytes_that_goes_wrong_fails_its_execution() {
    let running = target(1);
    let mut client = Client::connect(&running);
    client.load_active(FREE, &compiled("hostile"));
    client.memory_write(0, &[7; 4096]).ok();
    let run = Execution { pind: FREE, ranges: 2, ..Execution::default() };
    let data = |how: u64| [range(0, 4096).as_bytes(), range(8192, 64).as_bytes(), &how.to_le_bytes()].concat();
    for way in &WAYS {
        let answer = client.execute(run, &data(way.how));
        if way.outcome == Outcome::Errno {
            assert_eq!((answer.status, answer.result as i64), (Status::SUCCESS, way.returned));
            continue;
        }
        answer.fails_with(FAILED);
        let (_, said) = client.said();
        assert!(said.contains(way.message) && said.contains("read/hostile"), "way {}: {said}", way.how);
    }
    let answer = client.execute(run, &data(0));
    assert_eq!((answer.status, answer.result), (Status::SUCCESS, 1));
    assert_eq!(client.memory_read(8192, 4)[0], 7);
}

#[test]
fn a_program_that_an_execution_does_not_run_or_cannot_name_is_told() {
    let running = start(builder());
    let mut client = Client::connect(&running);
    let cases = [
        ("pair", Status::FUNCTION_NOT_FOUND.dnr(), "the object has several functions: one, two; say which one"),
        (
            "step",
            Status::FUNCTION_KIND_NOT_SUPPORTED.dnr(),
            "`step` is of kind `traverse`, which Execute Program does not run",
        ),
    ];
    for (pind, (name, status, told)) in (FREE..).zip(cases) {
        client.load_active(pind, &compiled(name));
        client.execute(Execution { pind, ..Execution::default() }, &[]).fails_with(status);
        assert_eq!(client.said().1, told);
    }
    // Arguments that are not all there.
    client.load_active(FREE + 2, &compiled("hostile"));
    let data = [range(0, 4096), range(8192, 64)];
    let run = Execution { pind: FREE + 2, ranges: 2, ..Execution::default() };
    client.execute(run, data.as_bytes()).fails_with(Status::INVALID_FIELD.dnr());
    assert_eq!(client.said().1, "the arguments are 0 bytes, the function's structure `hostile_args` is 8 bytes");
}
