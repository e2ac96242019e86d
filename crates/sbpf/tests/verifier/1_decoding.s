; Instructions that are none, and instructions that are left out.

;;; the legacy exclusive add with a bad operation
mov %r0, 0
.raw 0x00000007000010db
exit
;= verify: rejected
;= V0104 unsafe
;=   reason:     undefined imm 7 for opcode 0xdb
;=   at:         instruction 1 of `main`: .raw 0x00000007000010db
;=   suggestion: use a value that RFC 9669 defines

;;; an unknown opcode
.raw 0x00000000000000ff
exit
;= verify: rejected
;= V0101 unsafe
;=   reason:     unknown opcode 0xff
;=   at:         instruction 0 of `main`: .raw 0x00000000000000ff
;=   suggestion: compile for the eBPF target (`clang -target bpf`), at most `-mcpu=v4`

;;; an atomic on a byte
.raw 0x00000000000010d3
mov %r0, 0
exit
;= verify: rejected
;= V0101 unsafe
;=   reason:     unknown opcode 0xd3
;=   at:         instruction 0 of `main`: .raw 0x00000000000010d3
;=   suggestion: compile for the eBPF target (`clang -target bpf`), at most `-mcpu=v4`

;;; a register that does not exist
mov %r11, 0
exit
;= verify: rejected
;= V0102 unsafe
;=   reason:     register r11 does not exist
;=   at:         instruction 0 of `main`: .raw 0x0000000000000bb7
;=   suggestion: use r0 to r10

;;; an immediate in a register move
.raw 0x00000001000010bf
exit
;= verify: rejected
;= V0103 unsafe
;=   reason:     reserved field `imm` must be zero
;=   at:         instruction 0 of `main`: .raw 0x00000001000010bf
;=   suggestion: clear the field; RFC 9669 keeps it for later

;;; an offset that division does not define
mov %r0, 1
.raw 0x0000000200020037
exit
;= verify: rejected
;= V0104 unsafe
;=   reason:     undefined off 2 for opcode 0x37
;=   at:         instruction 1 of `main`: .raw 0x0000000200020037
;=   suggestion: use a value that RFC 9669 defines

;;; a 64-bit immediate as the last slot
mov %r0, 0
.raw 0x0000000000000018
;= verify: rejected
;= V0105 unsafe
;=   reason:     the second half of a 64-bit immediate is missing or malformed
;=   at:         instruction 1 of `main`: .raw 0x0000000000000018
;=   suggestion: a 64-bit immediate takes two slots; the second holds only the upper 32 bits

;;; a 64-bit immediate whose second half is an instruction
.raw 0x0000000000000018
exit
;= verify: rejected
;= V0105 unsafe
;=   reason:     the second half of a 64-bit immediate is missing or malformed
;=   at:         instruction 0 of `main`: .raw 0x0000000000000018
;=   suggestion: a 64-bit immediate takes two slots; the second holds only the upper 32 bits

;;; classic packet access
;; source: 0 filter.bpf.c:7: return load_byte(skb, 0);
.raw 0x0000000000000030
exit
;= verify: rejected
;= V0106 unsupported
;=   reason:     legacy packet access (opcode 0x30) is not supported
;=   at:         instruction 0 of `main`: .raw 0x0000000000000030
;=               filter.bpf.c:7: return load_byte(skb, 0);
;=   suggestion: read the input through its pointer; RFC 9669 deprecates packet access

;;; a call through a register
mov %r0, 0
callx %r1
exit
;= verify: rejected
;= V0107 unsupported
;=   reason:     indirect call (callx) is not supported
;=   at:         instruction 1 of `main`: .raw 0x000000000000018d
;=   suggestion: call functions by name; replace function pointers by a `switch`

;;; the address of a map
lddw %r1, 3, 1
mov %r0, 0
exit
;= verify: rejected
;= V0108 unsupported
;=   reason:     64-bit immediate of type 1 loads the address of an eBPF map, which is not supported
;=   at:         instruction 0 of `main`: lddw %r1, 0x3, 1
;=   suggestion: keep data in globals, in `ds_alloc` memory or in the state region

;;; the address of a map's value
lddw %r1, 3, 2
mov %r0, 0
exit
;= verify: rejected
;= V0108 unsupported
;=   reason:     64-bit immediate of type 2 loads the address of an eBPF map's value, which is not supported
;=   at:         instruction 0 of `main`: lddw %r1, 0x3, 2
;=   suggestion: keep data in globals, in `ds_alloc` memory or in the state region

;;; the address of a kernel variable
lddw %r1, 3, 3
mov %r0, 0
exit
;= verify: rejected
;= V0108 unsupported
;=   reason:     64-bit immediate of type 3 loads the address of a kernel variable, which is not supported
;=   at:         instruction 0 of `main`: lddw %r1, 0x3, 3
;=   suggestion: call a helper that gives the value

;;; the address of a function
lddw %r1, 3, 4
mov %r0, 0
exit
;= verify: rejected
;= V0108 unsupported
;=   reason:     64-bit immediate of type 4 loads the address of a function, which is not supported
;=   at:         instruction 0 of `main`: lddw %r1, 0x3, 4
;=   suggestion: call functions by name; replace function pointers by a `switch`

;;; a kernel function by its BTF id
.raw 0x0000002a00002085
exit
;= verify: rejected
;= V0109 unsupported
;=   reason:     call of kernel function 42 by its BTF id is not supported
;=   at:         instruction 0 of `main`: call runtime 42
;=   suggestion: call a helper by its name

;;; several mistakes are said at once
.raw 0x00000000000000ff
mov %r12, 1
.raw 0x0000000000000030
exit
;= verify: rejected
;= V0101 unsafe
;=   reason:     unknown opcode 0xff
;=   at:         instruction 0 of `main`: .raw 0x00000000000000ff
;=   suggestion: compile for the eBPF target (`clang -target bpf`), at most `-mcpu=v4`
;= V0102 unsafe
;=   reason:     register r12 does not exist
;=   at:         instruction 1 of `main`: .raw 0x0000000100000cb7
;=   suggestion: use r0 to r10
;= V0106 unsupported
;=   reason:     legacy packet access (opcode 0x30) is not supported
;=   at:         instruction 2 of `main`: .raw 0x0000000000000030
;=   suggestion: read the input through its pointer; RFC 9669 deprecates packet access

;;; unreachable code is allowed but has to decode
mov %r0, 0
exit
.raw 0x00000000000000ff
exit
;= verify: rejected
;= V0101 unsafe
;=   reason:     unknown opcode 0xff
;=   at:         instruction 2 of `main`: .raw 0x00000000000000ff
;=   suggestion: compile for the eBPF target (`clang -target bpf`), at most `-mcpu=v4`
