//! Damaged and hostile objects: each gets its exact error.

mod elf_writer;

use diskside_sbpf::helpers::standard;
use diskside_sbpf::image::{Image, Kind, LoadOptions};
use elf_writer::{
    ALLOC, COMMON, EXEC, GLOBAL, GLOBAL_FUNC, LOCAL, LOCAL_FUNC, NOBITS, Object, PROGBITS, R_64_32, R_64_64, R_ABS64,
    UNDEFINED, WEAK, WRITE,
};

/// `exit`, `r0 = 0`, `r1 = 0 ll` (two slots) and `call -1` as words.
const EXIT: u64 = 0x95;
const ZERO: u64 = 0xb7;
const LOAD: [u64; 2] = [0x0118, 0];
const CALL: u64 = 0xffff_ffff_0000_1085;

/// A good object with one program of three slots, in section 1, and its symbol, number 1.
fn good() -> Object {
    let mut o = Object::default();
    let code = o.code("read/good", &[ZERO, ZERO, EXIT]);
    o.symbol("good", GLOBAL_FUNC, code, 0, 24);
    o
}

/// A good object whose code is these slots, so that they can be relocated.
fn with_code(slots: &[u64]) -> Object {
    let mut o = Object::default();
    let code = o.code("read/code", slots);
    o.symbol("code", GLOBAL_FUNC, code, 0, 8 * slots.len() as u64);
    o
}

/// A good object with one section more.
fn with_section(name: &str, ty: u32, flags: u64, data: &[u8]) -> Object {
    let mut o = good();
    o.section(name, ty, flags, data);
    o
}

fn edited(mut o: Object, edit: impl FnOnce(&mut Object)) -> Vec<u8> {
    edit(&mut o);
    o.to_bytes()
}

fn error_of(bytes: &[u8]) -> String {
    match Image::from_elf(bytes, &standard()) {
        Ok(_) => "it loads".to_owned(),
        Err(e) => e.to_string(),
    }
}

/// Checks each object's error.
fn check(table: &[(Vec<u8>, &str)]) {
    for (bytes, expected) in table {
        let error = error_of(bytes);
        assert!(error.contains(expected), "expected: {expected}\nfound: {error}");
    }
}

#[test]
fn the_good_object_loads() {
    let image = Image::from_elf(&good().to_bytes(), &standard()).expect("it loads");
    assert_eq!((image.code.len(), image.programs.len()), (3, 1));
    // The reader must not need aligned bytes.
    let mut shifted = vec![0];
    shifted.extend(good().to_bytes());
    Image::from_elf(&shifted[1..], &standard()).expect("it loads from an odd address");
}

#[test]
fn file_headers() {
    let patched = |at: usize, bytes: &[u8]| {
        let mut object = good().to_bytes();
        object[at..at + bytes.len()].copy_from_slice(bytes);
        object
    };
    let whole = good().to_bytes();
    check(&[
        (
            vec![],
            "malformed ELF object: it does not start with a whole ELF header (raw code needs a kind, chosen with `--kind`); \
             compile it again, or check that it was copied whole",
        ),
        (b"\x7fELF".to_vec(), "it does not start with a whole ELF header"),
        (whole[..17].to_vec(), "the file header is cut short"),
        (whole[..40].to_vec(), "malformed ELF object: "),
        (whole[..whole.len() - 1].to_vec(), "malformed ELF object: "),
        (patched(4, &[1]), "malformed ELF object: it is not a 64-bit object"),
        (patched(5, &[2]), "the object is for ELF machine 63232, not for eBPF (247)"),
        (
            patched(18, &[62, 0]),
            "the object is for ELF machine 62, not for eBPF (247); compile it with `clang -target bpf -c`",
        ),
        (patched(16, &[3, 0]), "ELF file type 3 is not supported: only relocatable objects are; load the `.o`"),
        (patched(40, &[0xff; 8]), "malformed ELF object: "),
        (patched(40, &[0; 8]), "malformed ELF object: it has no sections"),
        (patched(58, &[63, 0]), "malformed ELF object: "),
        (patched(62, &[99, 0]), "malformed ELF object: "),
    ]);
}

#[test]
fn limits() {
    let mut sections = good();
    for _ in 0..4096 {
        sections.section("", PROGBITS, 0, &[]);
    }
    let mut symbols = good();
    for _ in 0..65536 {
        symbols.symbol("", LOCAL, 1, 0, 0);
    }
    let zero_filled = |len| {
        edited(with_section(".bss", NOBITS, ALLOC | WRITE, &[]), |o| {
            o.sections[1].len = Some(len);
        })
    };
    let repeated = |ty: &str, flags, each: usize| {
        let mut o = good();
        for _ in 0..5 {
            o.section(ty, PROGBITS, flags, &vec![0; each]);
        }
        o
    };
    let mut code = repeated("read/x", ALLOC | EXEC, 2 << 20);
    for s in &mut code.sections {
        s.align = 1;
    }
    check(&[
        (
            vec![0; (16 << 20) + 1],
            "the object's length in bytes is 16777217, above the limit of 16777216; make the object smaller",
        ),
        (sections.to_bytes(), "the number of sections is 4100, above the limit of 4096"),
        (symbols.to_bytes(), "the number of symbols is 65538, above the limit of 65536"),
        (code.to_bytes(), "the number of instruction slots is 1048579, above the limit of 1048576"),
        (zero_filled(1 << 40), "bytes of data is 1099511627776, above the limit of 67108864"),
        (zero_filled(u64::MAX), "bytes of data is 18446744073709551615, above the limit of 67108864"),
        (zero_filled((64 << 20) + 1), "bytes of data is 67108865, above the limit of 67108864"),
    ]);
}

#[test]
fn sections() {
    let aligned = |align| {
        edited(with_section(".data", PROGBITS, ALLOC | WRITE, &[0; 8]), |o| {
            o.sections[1].align = align;
        })
    };
    let odd_code = with_section("read/odd", PROGBITS, ALLOC | EXEC, &[0; 12]);
    let past_the_end = edited(with_section(".data", PROGBITS, ALLOC | WRITE, &[0; 8]), |o| {
        o.sections[1].len = Some(1 << 30);
    });
    let long_name = with_section(&"n".repeat(1025), PROGBITS, 0, &[]);
    check(&[
        (aligned(3), "section `.data`: its alignment 3 is no power of two up to 4096; compile"),
        (aligned(1 << 62), "section `.data`: its alignment 4611686018427387904 is no power of two"),
        (odd_code.to_bytes(), "section `read/odd`: its length 12 or alignment 8 does not fit 8-byte instructions"),
        (past_the_end, "section `.data`: its bytes reach past the end of the object"),
        (
            with_section(".data", PROGBITS, ALLOC | WRITE | 0x800, &[0; 8]).to_bytes(),
            "section `.data`: it is compressed",
        ),
        (long_name.to_bytes(), "malformed ELF object: section 2 has a bad name"),
        (with_section("read/x", NOBITS, ALLOC | EXEC, &[1]).to_bytes(), "it loads"),
        (with_section(".BTF", PROGBITS, 0, &[]).to_bytes(), "section `.BTF` at offset 0x0: the header is damaged"),
        (
            edited(with_section(".diskside", PROGBITS, 0, &[]), |o| {
                o.section(".diskside", PROGBITS, 0, &[]);
            }),
            "section `.diskside`: there is a second one",
        ),
        (
            with_section("read/", PROGBITS, ALLOC | EXEC, &EXIT.to_le_bytes()).to_bytes(),
            "section `read/`: the name after the slash is empty",
        ),
        (
            with_section("raed/x", PROGBITS, ALLOC | EXEC, &EXIT.to_le_bytes()).to_bytes(),
            "section `raed/x`: its name chooses no kind of program",
        ),
        (
            edited(Object::default(), |o| {
                o.code(".text", &[EXIT]);
            }),
            "the object holds no program; mark its entry point",
        ),
        (
            edited(with_section("maps", PROGBITS, ALLOC | WRITE, &[0; 20]), |o| {
                o.symbol("counts", GLOBAL, 2, 0, 20);
            }),
            "eBPF maps are not supported: `counts` in section `maps`",
        ),
    ]);
}

#[test]
fn symbols() {
    let with_symbol = |name: &str, info, section, value, size| {
        edited(good(), |o| {
            o.symbol(name, info, section, value, size);
        })
    };
    check(&[
        (
            with_symbol("f", LOCAL_FUNC, 1, 4, 8),
            "symbol `f` of section `read/good`: a function at 0x4 of 8 bytes does not fit the section of 24",
        ),
        (with_symbol("f", LOCAL_FUNC, 1, 16, 16), "a function at 0x10 of 16 bytes does not fit the section of 24"),
        (with_symbol("f", LOCAL_FUNC, 1, 24, 0), "a function at 0x18 of 0 bytes does not fit the section of 24"),
        (with_symbol("f", LOCAL_FUNC, 1, u64::MAX - 7, 8), "a function at 0xfffffffffffffff8 of 8 bytes does not fit"),
        (with_symbol("f", LOCAL_FUNC, 1, 8, 8), "symbol `f` of section `read/good`: it lies inside function `good`"),
        (
            with_symbol("f", LOCAL_FUNC, 77, 0, 8),
            "malformed ELF object: symbol 2 (`f`) is in a section that does not exist",
        ),
        (with_symbol("f", LOCAL_FUNC, 0xff01, 0, 8), "malformed ELF object: symbol 2 (`f`) is in a reserved section"),
        (with_symbol(&"n".repeat(1025), LOCAL, 1, 0, 0), "malformed ELF object: symbol 2 has a bad name"),
        (with_symbol("\u{fffd}".repeat(400).as_str(), LOCAL, 1, 0, 0), "malformed ELF object: symbol 2 has a bad name"),
    ]);
}

#[test]
fn relocations_of_code() {
    let relocated = |slots: &[u64], symbol: &dyn Fn(&mut Object) -> u32, offset, ty| {
        edited(with_code(slots), |o| {
            let number = symbol(o);
            o.relocate(1, &[(offset, number, ty)]);
        })
    };
    let itself = |_: &mut Object| 1;
    let data = |o: &mut Object| {
        let section = o.section(".data", PROGBITS, ALLOC | WRITE, &[0; 8]);
        o.symbol("cell", GLOBAL, section, 0, 8)
    };
    let far_data = |o: &mut Object| {
        let section = o.section(".data", PROGBITS, ALLOC | WRITE, &[0; 8]);
        o.symbol("cell", GLOBAL, section, 9, 8)
    };
    let common = |o: &mut Object| o.symbol("shared", GLOBAL, COMMON, 8, 8);
    let debug = |o: &mut Object| {
        let section = o.section(".debug_str", PROGBITS, 0, &[0; 8]);
        o.symbol("text", LOCAL, section, 0, 0)
    };
    let thread_local = |o: &mut Object| {
        let section = o.section(".tdata", PROGBITS, ALLOC | WRITE | 0x400, &[0; 8]);
        o.symbol("mine", GLOBAL, section, 0, 8)
    };
    let helper = |o: &mut Object| o.symbol("ds_popcount", GLOBAL, UNDEFINED, 0, 0);
    let typo = |o: &mut Object| o.symbol("ds_popcnt", GLOBAL, UNDEFINED, 0, 0);
    let load = [LOAD[0], LOAD[1], EXIT];
    let far_load = [LOAD[0] | 0x7fff_ffff_0000_0000, 0, EXIT];
    let wide_load = [LOAD[0], 5 << 32, EXIT];
    let call = [CALL, EXIT];
    let far_call = [0x0000_1000_0000_1085, EXIT];
    check(&[
        (
            relocated(&load, &data, 4, R_64_64),
            "relocation at `read/code`+0x4 (symbol `cell`): it is not at an instruction",
        ),
        (
            relocated(&load, &data, 24, R_64_64),
            "relocation at `read/code`+0x18 (symbol `cell`): it is not at an instruction",
        ),
        (relocated(&load, &data, u64::MAX - 7, R_64_64), "it is not at an instruction"),
        (relocated(&call, &data, 0, R_64_64), "a 64-bit address needs a 64-bit immediate load"),
        (relocated(&[EXIT, LOAD[0]], &data, 8, R_64_64), "a 64-bit address needs a 64-bit immediate load"),
        (relocated(&load, &data, 0, R_64_32), "a call target needs a call"),
        (relocated(&load, &data, 0, 99), "type 99 does not belong into code"),
        (
            relocated(&load, &far_data, 0, R_64_64),
            "symbol `cell` of section `.data`: its value 0x9 is no place in the section",
        ),
        (relocated(&far_load, &data, 0, R_64_64), "the distance from the symbol is out of range"),
        (relocated(&wide_load, &data, 0, R_64_64), "the distance from the symbol is out of range"),
        (relocated(&load, &common, 0, R_64_64), "a common symbol is not supported; compile with `-fno-common`"),
        (relocated(&load, &debug, 0, R_64_64), "it refers to section `.debug_str`, which is not loaded"),
        (
            relocated(&load, &thread_local, 0, R_64_64),
            "section `.tdata` is not supported: there is no thread-local data",
        ),
        (relocated(&load, &itself, 0, R_64_64), "the address of a function is not supported"),
        (relocated(&load, &helper, 0, R_64_64), "the address of a function is not supported"),
        (
            relocated(&load, &typo, 0, R_64_64),
            "neither the object nor this host defines `ds_popcnt` (used at `read/code`+0x0; did you mean ds_popcount",
        ),
        (relocated(&call, &data, 0, R_64_32), "the called symbol is no function"),
        (relocated(&far_call, &itself, 0, R_64_32), "the call leaves the section of its target"),
        (
            edited(with_code(&[0x0000_0001_0000_1085, EXIT, EXIT]), |o| {
                o.symbol("x", LOCAL, 1, 16, 0);
            }),
            "the call goes into the middle of function `code`",
        ),
        (edited(with_code(&[0x0000_0007_0000_1085, EXIT]), |_| {}), "`read/code`+0x0: the call goes to slot 8 of 2"),
        (
            edited(with_code(&[0x8000_0000_0000_1085, EXIT]), |_| {}),
            "`read/code`+0x0: the call goes to slot -2147483647 of 2",
        ),
        (edited(with_code(&[0x0000_0006_0000_0085, EXIT]), |_| {}), "`read/code`+0x0: call of helper number 6"),
        (
            edited(good(), |o| o.relocate(1, &[(0, 9, R_64_64)])),
            "section `.rel`: the relocation of offset 0x0 names a missing symbol",
        ),
        (
            edited(good(), |o| o.relocate(99, &[(0, 1, R_64_64)])),
            "section `.rel`: it relocates a section that does not exist",
        ),
    ]);
}

#[test]
fn relocations_of_data() {
    let relocated = |offset, ty| {
        edited(with_section(".data", PROGBITS, ALLOC | WRITE, &[0; 12]), |o| {
            let symbol = o.symbol("cell", GLOBAL, 2, 4, 8);
            o.relocate(2, &[(offset, symbol, ty)]);
        })
    };
    let function = edited(with_section(".data", PROGBITS, ALLOC | WRITE, &[0; 8]), |o| {
        o.relocate(2, &[(0, 1, R_ABS64)]);
    });
    check(&[
        (relocated(5, R_ABS64), "relocation at `.data`+0x5 (symbol `cell`): it reaches past the end of the section"),
        (relocated(u64::MAX, R_ABS64), "it reaches past the end of the section"),
        (relocated(0, 3), "`.data`+0x0 (symbol `cell`): an address in a 32-bit variable is not supported"),
        (relocated(0, R_64_32), "type 10 does not belong into data"),
        (function, "the address of a function is not supported"),
    ]);
    let image = Image::from_elf(&relocated(4, R_ABS64), &standard()).expect("it loads");
    assert_eq!(image.data[4..12], 0x0300_0000_0004u64.to_le_bytes());
}

#[test]
fn weak_symbols() {
    let object = |name: &str| {
        edited(with_code(&[LOAD[0], LOAD[1], EXIT]), |o| {
            let symbol = o.symbol(name, WEAK, UNDEFINED, 0, 0);
            o.relocate(1, &[(0, symbol, R_64_64)]);
        })
    };
    for (name, expected) in [("ds_popcount", 1), ("memcpy", 1), ("absent", 0)] {
        let image = Image::from_elf(&object(name), &standard()).expect("it loads");
        assert_eq!((image.code[0].imm, image.code[1].imm), (expected, 0), "{name}");
    }
}

#[test]
fn functions_without_symbols() {
    let mut o = Object::default();
    let read = o.code("read/bare", &[CALL, EXIT]);
    let text = o.code(".text", &[ZERO, EXIT, ZERO, EXIT]);
    let label = o.symbol("", 0x03, text, 0, 0);
    o.symbol("second", LOCAL, text, 16, 0);
    o.relocate(read, &[(0, label, R_64_32)]);
    // The addend of the call is one function further.
    o.sections[0].data[4..8].copy_from_slice(&1i32.to_le_bytes());
    let image = Image::from_elf(&o.to_bytes(), &standard()).expect("it loads");
    let functions: Vec<_> = image.functions.iter().map(|f| (f.name.as_str(), f.start, f.end)).collect();
    assert_eq!(functions, [("read/bare", 0, 2), (".text", 2, 4), ("second", 4, 6)]);
    assert_eq!(image.programs[0].name, "bare");
}

/// Sources of other systems name their sections as they like, or leave their entry point in `.text`. A user who loads
/// such an object at a target has no `--kind` to say what it is.
#[test]
fn a_note_gives_the_kind_of_programs_whose_section_names_none() {
    let note = |kind: u8| [5, 0, 4, 0, kind, 0, 0, 0];
    for (section, told, kind) in
        [(".text", 2, Kind::Delilah), ("oliver_agg", 1, Kind::Xrp), ("read/good", 2, Kind::Read)]
    {
        let mut o = Object::default();
        let code = o.code(section, &[ZERO, EXIT]);
        o.symbol("good", GLOBAL_FUNC, code, 0, 16);
        let plain = Image::from_elf(&o.to_bytes(), &standard()).map(|image| image.programs[0].kind).ok();
        assert_eq!(plain, Kind::from_section_prefix("read").filter(|read| *read == kind), "{section}: without a note");
        o.section(".diskside", PROGBITS, ALLOC, &note(told));
        let image = Image::from_elf(&o.to_bytes(), &standard()).expect("it loads");
        assert_eq!((image.programs[0].kind, image.programs[0].name.as_str()), (kind, "good"));
        let options = LoadOptions { kind: Some(Kind::Exec) };
        let forced = Image::from_elf_with(&o.to_bytes(), &standard(), options).expect("it loads").programs[0].kind;
        assert_eq!(forced, if kind == Kind::Read { Kind::Read } else { Kind::Exec }, "who loads it has the last word");
    }
}

#[test]
fn notes() {
    let note = |bytes: &[u8]| with_section(".diskside", PROGBITS, ALLOC, bytes).to_bytes();
    let words = |ty: u16, words: &[u32]| {
        let len = words.len() as u16 * 4;
        let mut out = [ty.to_le_bytes(), len.to_le_bytes()].concat();
        out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        note(&out)
    };
    check(&[
        (note(&[1, 0]), "section `.diskside` at offset 0x0: a record is cut short"),
        (note(&[0, 0, 0, 0, 1, 0, 8, 0, 1, 0, 0, 0]), "section `.diskside` at offset 0x4: a record is cut short"),
        (note(&[1, 0, 3, 0, 1, 0, 0, 0]), "record type 1 is 3 bytes long instead of 4"),
        (
            words(1, &[9]),
            "the object asks for version 9 of the program ABI, this host has 1; compile it with the header of this host",
        ),
        (words(1, &[0]), "the object asks for version 0 of the program ABI"),
        (words(2, &[100]), "a stack of 100 bytes: ask for a multiple of 64 up to 1048576"),
        (words(2, &[2 << 20]), "a stack of 2097152 bytes: ask for a multiple of 64"),
        (words(3, &[1, 0, 0, 0]), "the denominator of the output ratio is 0"),
        (words(4, &[1, 0]), "split kind 1 with 0 is not defined"),
        (words(4, &[2, 256]), "split kind 2 with 256 is not defined"),
        (words(5, &[]), "record type 5 is 0 bytes long instead of 4"),
        (words(5, &[3]), "kind 3 is not defined"),
        (words(6, &[]), "record type 6 is 0 bytes long instead of 4"),
        (words(6, &[2]), "concatenation 2 is not defined; it is 1 or left out"),
        (words(7, &[0]), "pieces of a multiple of 0 records: ask for 1 to 65536"),
        (words(7, &[65_537]), "pieces of a multiple of 65537 records: ask for 1 to 65536"),
        (words(4, &[3, 1]), "split kind 3 with 1 is not defined"),
        (words(8, &[2]), "selection 2 is not defined; it is 1 or left out"),
        (words(9, &[]), "record type 9 is unknown here; compile with the header of this host"),
        (words(0, &[1]), "record type 0 is 4 bytes long instead of 0"),
        (words(0x8005, &[1]), "it loads"),
        (words(0x8001, &[1_000_000, 1000, 1]), "it loads"),
        (words(0x8001, &[1, 1]), "record type 32769 is 8 bytes long instead of 12"),
        (words(0x8001, &[1_000_001, 1, 0]), "1000001 bytes of output for 1000 of input: at most 1000000"),
        (words(0x8001, &[1, 0, 0]), "0 passes over the input: 1 to 1000"),
        (words(0x8001, &[1, 1001, 0]), "1001 passes over the input: 1 to 1000"),
        (words(0x8001, &[1, 1, 2]), "accesses 2 are not defined: 0 in order, 1 scattered"),
        (
            note(&[1, 128, 12, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0].repeat(2)),
            "offset 0x10: record type 32769 appears twice; keep one",
        ),
        (
            note(&[2, 0, 4, 0, 64, 0, 0, 0, 2, 0, 4, 0, 64, 0, 0, 0]),
            "offset 0x8: record type 2 appears twice; keep one",
        ),
    ]);
}

/// A `.BTF` section with these types and strings.
fn btf(types: &[u32], strings: &str) -> Vec<u8> {
    let types: Vec<u8> = types.iter().flat_map(|w| w.to_le_bytes()).collect();
    let lens = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
    let mut out = vec![0x9f, 0xeb, 1, 0];
    out.extend(lens.iter().flat_map(|w| w.to_le_bytes()));
    out.extend(types);
    out.extend(strings.as_bytes());
    out
}

#[test]
fn type_information() {
    let with_btf = |section: &[u8]| with_section(".BTF", PROGBITS, 0, section).to_bytes();
    let with_ext = |ext: &[u8]| {
        edited(with_section(".BTF", PROGBITS, 0, &btf(&[], "\0read/good\0")), |o| {
            o.section(".BTF.ext", PROGBITS, 0, ext);
        })
    };
    let ext = |lens: [u32; 5], body: &[u32]| {
        let mut out = vec![0x9f, 0xeb, 1, 0];
        out.extend(lens.iter().chain(body).flat_map(|w| w.to_le_bytes()));
        with_ext(&out)
    };
    // A function `good` with four parameters, all of type 3: a pointer to type 4.
    let function = |fourth: &[u32]| {
        let mut types = vec![1, 12 << 24, 2, 0, (13 << 24) | 4, 0];
        types.extend([0, 3, 0, 3, 0, 3, 0, 3]);
        types.extend([0, 2 << 24, 4]);
        types.extend(fourth);
        with_btf(&btf(&types, "\0good\0k\0"))
    };
    let itself = [6, (4 << 24) | 1, 8, 6, 4, 0];
    check(&[
        (
            with_btf(&[0; 24]),
            "section `.BTF` at offset 0x0: the header is damaged, or for another version than 1; compile the object again",
        ),
        (
            with_btf(&btf(&[0, 31 << 24, 0], "\0")),
            "section `.BTF` at offset 0x18: a type is cut short or of an unknown kind",
        ),
        (with_btf(&btf(&[0, (4 << 24) | 0xffff, 0], "\0")), "section `.BTF` at offset 0x18: a type is cut short"),
        // It was read beyond its two bytes.
        (with_ext(&[0x9f, 0xeb]), "section `.BTF.ext` at offset 0x0: the header is damaged"),
        (with_ext(&[0; 32]), "section `.BTF.ext` at offset 0x0: the header is damaged"),
        (ext([24, 0, 99, 0, 0], &[]), "section `.BTF.ext` at offset 0x8: a table reaches past the end of the section"),
        (ext([24, 0, 0, 0, 4], &[3]), "section `.BTF.ext` at offset 0x18: a record is cut short or names no section"),
        (ext([24, 0, 0, 0, 12], &[16, 1, u32::MAX]), "section `.BTF.ext` at offset 0x1c: a record is cut short"),
        (
            ext([24, 0, 0, 0, 12], &[16, 99, 0]),
            "section `.BTF.ext` at offset 0x1c: a record is cut short or names no section",
        ),
        (function(&itself), "structures nest deeper than 8"),
        // A typedef of itself: no structure, so no schema, and no endless chain.
        (function(&[6, 8 << 24, 4]), "it loads"),
        (function(&[6, (4 << 24) | 1, 8, 6, 99, 0]), "its type is no number"),
        (function(&[6, (4 << 24) | 1, 8, 6, 5, 0, 6, 1 << 24, 4, 0x0001_0020 & 0xff]), "it loads"),
        (function(&[6, (4 << 24) | 1, 2, 6, 5, 0, 6, 1 << 24, 4, 32]), "it reaches past the end of the structure"),
        (function(&[6, (4 << 24) | 1, 8, 6, 5, 3, 6, 1 << 24, 4, 32]), "bit fields are not supported"),
    ]);
}

/// Small sections that describe far more than they hold.
#[test]
fn amplification() {
    let with_args = |structure: &[u32]| {
        let mut types = vec![1, 12 << 24, 2, 0, (13 << 24) | 4, 0];
        types.extend([0, 3, 0, 3, 0, 3, 0, 3]);
        types.extend([0, 2 << 24, 4]);
        types.extend(structure);
        with_section(".BTF", PROGBITS, 0, &btf(&types, "\0good\0k\0")).to_bytes()
    };
    let structure = |members: u32, of: u32| {
        let mut words = vec![6, (4 << 24) | members, 1 << 20];
        words.extend((0..members).flat_map(|_| [6, of, 0]));
        words
    };
    // Structures of structures of structures, 3,000 members each, without a single number.
    let nested = [structure(3000, 5), structure(3000, 6), structure(3000, 7), structure(0, 0)].concat();
    // Two hundred members of one enumeration with 60,000 names.
    let mut shared = structure(200, 5);
    shared.extend([6, (6 << 24) | 60_000, 4]);
    shared.extend((0..60_000).flat_map(|i| [6, i]));
    // Calls to more places than there may be functions.
    let calls = 70_000u64;
    let mut code = vec![(calls << 32) | 0x1085; calls as usize];
    code.extend(vec![EXIT; calls as usize + 1]);
    let mut functions = Object::default();
    functions.code("read/calls", &code);
    let mut programs = Object::default();
    let section = programs.code("read/many", &[EXIT; 1025]);
    for i in 0..1025 {
        programs.symbol(&format!("f{i}"), GLOBAL_FUNC, section, i * 8, 8);
    }
    check(&[
        (with_args(&nested), "the length in bytes of all argument descriptions is"),
        (with_args(&shared), "the length in bytes of all argument descriptions is"),
        (functions.to_bytes(), "the number of functions is 65537, above the limit of 65536"),
        (programs.to_bytes(), "the number of programs is 1025, above the limit of 1024"),
    ]);
}

#[test]
fn raw_code() {
    let raw = |slots: &[u64], kind| {
        let bytes: Vec<u8> = slots.iter().flat_map(|s| s.to_le_bytes()).collect();
        Image::load(&bytes, &standard(), LoadOptions { kind })
    };
    let image = raw(&[0x0000_0001_0000_1085, EXIT, ZERO, EXIT], Some(Kind::Lambda)).expect("it loads");
    let functions: Vec<_> = image.functions.iter().map(|f| (f.name.as_str(), f.start, f.end)).collect();
    assert_eq!(functions, [("lambda", 0, 2), ("lambda+2", 2, 4)]);
    assert_eq!(image.programs[0].kind, Kind::Lambda);
    for (slots, kind, expected) in [
        (&[EXIT][..], None, "raw code needs a kind, chosen with `--kind`"),
        (&[], Some(Kind::Raw), "raw eBPF code of 0 bytes"),
        (&[0x0000_0001_0000_1085, EXIT], Some(Kind::Raw), "`raw code`+0x0: the call goes to slot 2 of 2"),
        (&[0x0000_009c_0000_0085, EXIT], Some(Kind::Raw), "`raw code`+0x0: call of helper number 156"),
    ] {
        let error = raw(slots, kind).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
