//! The output of `diskside explain`: every code with its meaning.

/// The output of `diskside explain` for a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The code.
    pub code: &'static str,
    /// One line.
    pub title: &'static str,
    /// A few sentences, with an example.
    pub text: &'static str,
}

/// The explanation of a code.
#[must_use]
pub fn explain(code: &str) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|e| e.code.eq_ignore_ascii_case(code))
}

/// All explanations, in order of their codes.
#[must_use]
pub fn explanations() -> &'static [Explanation] {
    EXPLANATIONS
}

const fn entry(code: &'static str, title: &'static str, text: &'static str) -> Explanation {
    Explanation { code, title, text }
}

static EXPLANATIONS: &[Explanation] = &[
    entry(
        "V0101",
        "unknown opcode",
        "RFC 9669 defines no instruction with this operation code, or not in this class \
         or size. Nothing is run that is not understood.\n\
         Example: byte-sized atomics; `exit` in the 32-bit jump class.",
    ),
    entry(
        "V0102",
        "no such register",
        "The registers are r0 to r10; the encoding has room for r11 to r15, which do \
         not exist.",
    ),
    entry(
        "V0103",
        "reserved field is set",
        "RFC 9669 keeps unused fields at zero so that they can get a meaning later. A \
         program that sets one was made for something else.\n\
         Example: an immediate in a register move.",
    ),
    entry(
        "V0104",
        "undefined field value",
        "The operation code exists, but not with this offset, immediate or source.\n\
         Example: offset 2 in a division (0 is unsigned, 1 is signed).",
    ),
    entry(
        "V0105",
        "malformed 64-bit immediate",
        "`lddw` takes two slots. The second holds the upper 32 bits in `imm` and is \
         otherwise zero; here it is missing or holds something else.",
    ),
    entry(
        "V0106",
        "legacy packet access",
        "The `ABS` and `IND` loads of classic BPF are deprecated by RFC 9669 and read \
         network packets. Here input is read through its pointer.",
    ),
    entry(
        "V0107",
        "indirect call",
        "`callx` calls through a register, so that nobody can know the target before \
         running.\n\
         In C: a call through a function pointer. Use a `switch` over direct calls.",
    ),
    entry(
        "V0108",
        "unsupported 64-bit immediate",
        "The object loads the address of an eBPF map, of a kernel variable or of a \
         function. Maps are not supported: use globals (`.data`, `.bss`), `ds_alloc` \
         memory, or the state region for what has to outlive a call.",
    ),
    entry(
        "V0109",
        "call of a kernel function",
        "A call by BTF id goes to a function of the Linux kernel. Here helpers are \
         called by name.",
    ),
    entry("V0201", "empty function", "A function without instructions falls through into whatever follows."),
    entry(
        "V0202",
        "jump out of the function",
        "Jumps stay inside their function; other functions are reached by `call`.",
    ),
    entry("V0203", "jump into a 64-bit immediate", "The target is the second slot of an `lddw`, which is data."),
    entry(
        "V0204",
        "control falls off the end",
        "The last instruction of a function has to be `exit` or an unconditional jump, \
         so that control cannot run into the next function.\n\
         In C: often a function that ends in undefined behaviour, after which the \
         compiler stopped to emit code.",
    ),
    entry(
        "V0301",
        "register read before it is set",
        "On the path shown nothing gives the register a value. On entry only the \
         parameters of the kind and r10 are set; a call leaves r1 to r5 unset.\n\
         Example: `r0 = r6; exit` as the whole program.",
    ),
    entry(
        "V0302",
        "parameter that a caller does not set",
        "The function reads a parameter that at least one of its call sites leaves \
         unset.",
    ),
    entry(
        "V0303",
        "frame pointer is written",
        "r10 always points to the end of the frame. Copy it: `r2 = r10; r2 += -16`.",
    ),
    entry(
        "V0304",
        "no return value",
        "The entry point has to set r0 on every path: its value is the result of the \
         call.",
    ),
    entry(
        "V0305",
        "function without a return value",
        "A function of the program leaves r0 unset on some path, and its caller uses \
         r0.\n\
         In C: a non-void function that ends without `return`.",
    ),
    entry(
        "V0401",
        "outside of the frame",
        "A frame reaches from r10-512 (or what `DS_STACK_BYTES(n)` asks for) to r10. \
         The access has a constant offset outside of it, so it would touch another \
         function's frame or nothing at all.",
    ),
    entry(
        "V0402",
        "misaligned atomic on the stack",
        "Atomic operations need an address that is a multiple of their size; this \
         constant offset is not.",
    ),
    entry(
        "V0403",
        "helper argument outside of the frame",
        "A helper gets a stack address and a constant length that leave the frame.\n\
         Example: `char buf[16]; ds_memset(buf, 0, 32);`",
    ),
    entry(
        "V0501",
        "access through NULL",
        "The address is a constant that lies in no region: NULL, a small number, or a \
         number with any of the upper 16 bits set. It would trap whenever control comes \
         here.",
    ),
    entry(
        "V0502",
        "write to read-only memory",
        "Each kind says which regions a program may write: its output, not its input; \
         never arguments or constants. This pointer is known to go to one of the \
         others.\n\
         Example: in a `read` program, `((char *)in)[0] = 0`.",
    ),
    entry(
        "V0503",
        "outside of the context",
        "The context structure of this kind is shorter. Fields of later versions exist \
         only when `size` says so, and only for programs compiled and run with that \
         version.",
    ),
    entry(
        "V0504",
        "write to a read-only context field",
        "Only the result fields of a context may be written, such as `result_len`, \
         `nnext` and `next` of a traversal.",
    ),
    entry(
        "V0505",
        "write to a context pointer",
        "The pointers in a context are the host's. Copy one to a variable to move it.",
    ),
    entry(
        "V0506",
        "write to a read-only context",
        "Programs of this kind only read their context; results go to the output. Other kinds may write \
         some fields of theirs, such as `next` of a traversal.",
    ),
    entry(
        "V0507",
        "atomic operation on the context",
        "A context belongs to one call; nobody else sees it. Use a plain load and \
         store.",
    ),
    entry(
        "V0601",
        "call of something that is no function",
        "The target of a local call is not the first instruction of a function.",
    ),
    entry(
        "V0602",
        "recursion",
        "The functions shown call each other in a circle, so the stack they need has no \
         bound. Use a loop with an explicit stack.",
    ),
    entry(
        "V0603",
        "calls nest too deep",
        "A chain of calls may be 8 functions long, the entry point included. Inline the \
         small ones.",
    ),
    entry(
        "V0604",
        "helper that is not imported",
        "The number in the call is not an index into the import table: the object was \
         not linked.",
    ),
    entry(
        "V0605",
        "missing helper",
        "This host does not have the helper. The name carries the version: a later one \
         may have another name. Declare the helper weak and test its address to run \
         without it.",
    ),
    entry("V0606", "helper argument is not set", "The helper takes more arguments than the call sets."),
    entry(
        "V0607",
        "number where a pointer is needed",
        "The helper takes a pointer here, and the register holds a number.",
    ),
    entry(
        "V0608",
        "pointer where a number is needed",
        "The helper takes a number here, and the register holds an address. Two \
         arguments may be swapped.",
    ),
    entry(
        "V0609",
        "NULL with a length",
        "A helper accepts NULL only for zero bytes; here the constant length is larger.",
    ),
    entry(
        "V0610",
        "helper writes read-only memory",
        "The helper writes through this argument, which points into a region that the \
         kind may not write.\n\
         Example: `ds_memcpy` into the input; into the context, whose fields have to be \
         written one by one.",
    ),
    entry(
        "V0611",
        "file helper outside of a kernel",
        "Only programs of kind `kernel` have files, which they read and write by their numbers. A \
         program of another kind is given its input.",
    ),
    entry("V0701", "no such program", "The image does not have that many programs."),
    entry("V0702", "inconsistent image", "Functions or programs refer to code that is not there."),
    entry(
        "V0703",
        "other version of the program ABI",
        "The note asks for a version of the program ABI that this host does not speak.",
    ),
    entry("V0704", "bad frame size", "`DS_STACK_BYTES(n)` takes a multiple of 64 from 64 bytes to 1 MiB."),
    entry(
        "V0705",
        "bad output ratio",
        "`DS_OUTPUT(num, den, constant)` gives the output capacity as a share of the input; \
         the denominator cannot be 0.",
    ),
    entry("V0706", "bad default split", "`DS_SPLIT_RECORDS(n)` gives the record length in bytes, which cannot be 0."),
    entry(
        "V0707",
        "output too large",
        "The constant of `DS_OUTPUT(num, den, constant)` is output that every run may write, in bytes. No region can be \
         so long; what a host gives a call is far less.",
    ),
    entry("V0801", "code too long", "An image holds at most 1,048,576 instruction slots."),
    entry("V0802", "too many basic blocks", "A program may have 65,536 basic blocks."),
    entry(
        "V0803",
        "takes too long to verify",
        "Following the values took more steps than its length justifies. Real programs \
         do not come near; smaller functions help.",
    ),
];
