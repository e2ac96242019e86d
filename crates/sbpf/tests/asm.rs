//! The assembler's syntax, and that what the disassembler prints can be assembled again.

use diskside_sbpf::asm::assemble;
use diskside_sbpf::disasm::disassemble;
use diskside_sbpf::insn::{Slot, decode};
use proptest::prelude::*;

/// A line and its slot as the bytes stand in memory: opcode, registers, offset, immediate.
const LINES: &[(&str, &str)] = &[
    ("add %r1, %r2", "0f 21 0000 00000000"),
    ("add32 r1, -5", "04 01 0000 fbffffff"),
    ("add64 %r1, 0x10", "07 01 0000 10000000"),
    ("sdiv %r3, %r4", "3f 43 0100 00000000"),
    ("smod32 %r3, 7", "94 03 0100 07000000"),
    ("mov %r9, 0xffffffff", "b7 09 0000 ffffffff"),
    ("mov %r9, 0xfffffffffffffffc", "b7 09 0000 fcffffff"),
    ("neg %r2", "87 02 0000 00000000"),
    ("neg32 %r2", "84 02 0000 00000000"),
    ("movsx832 %r1, %r2", "bc 21 0800 00000000"),
    ("movsx3264 %r1, %r2", "bf 21 2000 00000000"),
    ("le16 %r1", "d4 01 0000 10000000"),
    ("be64 %r1", "dc 01 0000 40000000"),
    ("swap32 %r1", "d7 01 0000 20000000"),
    ("ldxdw %r0, [%r1+4]", "79 10 0400 00000000"),
    ("ldxb %r0, [%r1 - 0x10]", "71 10 f0ff 00000000"),
    ("ldxsw %r0, [%r1]", "81 10 0000 00000000"),
    ("stxh [%r1+2], %r3", "6b 31 0200 00000000"),
    ("stdw [%r10-8], -1", "7a 0a f8ff ffffffff"),
    ("lock add [%r1], %r2", "db 21 0000 00000000"),
    ("lock fetch add32 [%r1+4], %r2", "c3 21 0400 01000000"),
    ("lock fetch_xor [%r1], %r2", "db 21 0000 a1000000"),
    ("lock cmpxchg [%r1], %r2", "db 21 0000 f1000000"),
    ("lock xchg32 [%r1], %r2", "c3 21 0000 e1000000"),
    ("ja +3", "05 00 0300 00000000"),
    ("ja32 -3", "06 00 0000 fdffffff"),
    ("jeq %r1, %r2, +1", "1d 21 0100 00000000"),
    ("jsle32 %r1, -7, -2", "d6 01 feff f9ffffff"),
    ("call helper 5", "85 00 0000 05000000"),
    ("call 5", "85 00 0000 05000000"),
    ("call local +2", "85 10 0000 02000000"),
    ("call runtime 9", "85 20 0000 09000000"),
    ("callx %r3", "8d 03 0000 00000000"),
    ("exit # a comment", "95 00 0000 00000000"),
    (".raw 0x0123456789abcdef", "ef cd ab89 67452301"),
];

#[test]
fn every_form() {
    for (line, expected) in LINES {
        let bytes = assemble(line).expect(line).to_bytes();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, expected.replace(' ', ""), "{line}");
    }
}

#[test]
fn labels_comments_and_wide_immediates() {
    let out = assemble(
        "start: lddw %r1, 0x1122334455667788 ; two slots\n\
         \n\
         // forwards and backwards\n\
         jne %r1, 0, exit\n\
         call local start\n\
         call ds_find\n\
         ja start\n\
         exit\n\
         exit\n",
    )
    .expect("it assembles");
    let distances: Vec<_> = out.code.iter().map(|s| (s.off, s.imm)).collect();
    assert_eq!(distances, [(0, 0x5566_7788), (0, 0x1122_3344), (3, 0), (0, -4), (0, 0), (-6, 0), (0, 0), (0, 0)]);
    assert_eq!(out.calls, [(4, "ds_find".to_owned())]);
}

const MISTAKES: &[(&str, &str)] = &[
    ("frob %r1", "line 1: there is no instruction `frob`"),
    ("exit\nadd %r1", "line 2: 1 operands instead of 2"),
    ("mov %r16, 0", "line 1: `%r16` is no register"),
    ("mov %r0, 0x100000000", "line 1: 0x100000000 has more than 32 bits"),
    ("mov %r0, five", "line 1: `five` is no number"),
    ("ldxb %r0, %r1", "line 1: `%r1` is no address such as [%r1+4]"),
    ("ldxb %r0, [%r1+40000]", "line 1: the offset 40000 has more than 16 bits"),
    ("ja nowhere", "line 1: label `nowhere` is not defined"),
    ("ja +40000", "line 1: the jump of 40000 slots does not fit its field"),
    ("a:\nexit\na:", "line 3: label `a` is defined twice"),
    ("lock nand [%r1], %r2", "line 1: there is no atomic operation `nand`"),
    ("lddw %r1, 1, 16", "line 1: the sub-code has 4 bits"),
    ("call what where", "line 1: `call what where` is no call"),
];

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, expected) in MISTAKES {
        let error = assemble(text).expect_err(text);
        assert_eq!(error.to_string(), *expected);
    }
}

/// Slots of which many are instructions: a known opcode, small registers, often zero fields.
fn slot() -> impl Strategy<Value = Slot> {
    let opcode = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![
            0x07, 0x0f, 0x04, 0x0c, 0x3f, 0x97, 0x87, 0xbf, 0xbc, 0xd4, 0xdc, 0xd7, 0x18, 0x61, 0x69, 0x71, 0x79, 0x81,
            0x62, 0x7b, 0xc3, 0xdb, 0x05, 0x06, 0x15, 0x1d, 0xd6, 0x85, 0x95,
        ]),
    ];
    let off = prop_oneof![Just(0), Just(1), Just(8), any::<i16>()];
    let imm = prop_oneof![Just(0), Just(16), Just(0x41), Just(0xe1), Just(0xf1), any::<i32>()];
    (opcode, 0..12u8, 0..12u8, off, imm).prop_map(|(opcode, dst, src, off, imm)| Slot { opcode, dst, src, off, imm })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn text_and_back(code in prop::collection::vec(prop_oneof![slot(), Just(Slot::default())], 1..24)) {
        let text: Vec<_> = disassemble(&code).into_iter().map(|l| l.text).collect();
        let again = assemble(&text.join("\n")).expect("what is printed can be assembled");
        prop_assert_eq!(again.code, code);
    }

    #[test]
    fn one_instruction(slot in slot()) {
        let code = [slot, Slot::default()];
        let lines = disassemble(&code);
        let is_insn = decode(&code).is_ok();
        prop_assert_eq!(is_insn, !lines[0].text.starts_with(".raw"));
    }

    #[test]
    fn any_text_is_an_answer(text in "[ -~\n]{0,80}") {
        let _ = assemble(&text);
    }
}
