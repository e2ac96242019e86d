; Regions and the context.

;;; input, output and arguments
;; kind: read
ldxdw %r0, [%r2+0]
stxdw [%r1+0], %r0
ldxw %r0, [%r4+4]
ldxdw %r0, [%r5+16]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: input
;=   1: output
;=   2: args
;=   3: context 16

;;; a write to the input
;; kind: read
;; source: 0 clear.bpf.c:9: in[0] = 0;
stb [%r2+0], 0
mov %r0, 0
exit
;= verify: rejected
;= V0502 unsafe
;=   reason:     write to the input region, which is read-only for kind `read`
;=   at:         instruction 0 of `main`: stb [%r2], 0
;=               clear.bpf.c:9: in[0] = 0;
;=   suggestion: copy the bytes to the stack, the heap or the output and change them there

;;; a write to the arguments
;; kind: read
stb [%r4+0], 0
mov %r0, 0
exit
;= verify: rejected
;= V0502 unsafe
;=   reason:     write to the args region, which is read-only for kind `read`
;=   at:         instruction 0 of `main`: stb [%r4], 0
;=   suggestion: copy the bytes to the stack, the heap or the output and change them there

;;; a write to constants
;; kind: read
;; rodata: 16
lddw %r6, 0x20000000008
stb [%r6+0], 0
mov %r0, 0
exit
;= verify: rejected
;= V0502 unsafe
;=   reason:     write to the rodata region, which is read-only for kind `read`
;=   at:         instruction 2 of `main`: stb [%r6], 0
;=   suggestion: copy the bytes to the stack, the heap or the output and change them there

;;; raw code may write its input
stb [%r1+0], 0
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: input

;;; the part of a combine is read-only
;; kind: combine
stb [%r4+0], 0
mov %r0, 0
exit
;= verify: rejected
;= V0502 unsafe
;=   reason:     write to the input region, which is read-only for kind `combine`
;=   at:         instruction 0 of `main`: stb [%r4], 0
;=   suggestion: copy the bytes to the stack, the heap or the output and change them there

;;; the accumulator is writable
;; kind: combine
ldxdw %r0, [%r4+0]
stxdw [%r1+0], %r0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: input
;=   1: accumulator

;;; through NULL
mov %r1, 0
ldxb %r0, [%r1+4]
exit
;= verify: rejected
;= V0501 unsafe
;=   reason:     read through NULL
;=   at:         instruction 1 of `main`: ldxb %r0, [%r1+4]
;=   suggestion: test the pointer before its use

;;; a write through NULL
mov %r1, 0
stb [%r1+0], 1
mov %r0, 0
exit
;= verify: rejected
;= V0501 unsafe
;=   reason:     write through NULL
;=   at:         instruction 1 of `main`: stb [%r1], 1
;=   suggestion: test the pointer before its use

;;; through a number with high bits
mov %r1, -8
ldxb %r0, [%r1+0]
exit
;= verify: rejected
;= V0501 unsafe
;=   reason:     read at the constant address 0xfffffffffffffff8, where nothing can be mapped
;=   at:         instruction 1 of `main`: ldxb %r0, [%r1]
;=   suggestion: test the pointer before its use

;;; NULL on one path keeps the region
;; kind: read
mov %r6, 0
jeq %r3, 0, skip
mov %r6, %r2
skip:
mov %r0, 0
jeq %r6, 0, exit
ldxb %r0, [%r6+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   5: input

;;; two regions by path
;; kind: read
mov %r6, %r1
jeq %r3, 0, skip
mov %r6, %r2
skip:
ldxb %r0, [%r6+0]
stxb [%r6+0], %r0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   3: unknown
;=   4: unknown

;;; an index keeps the region
;; kind: read
ldxw %r6, [%r2+0]
and %r6, 255
lsh %r6, 3
add %r6, %r2
ldxdw %r0, [%r6+8]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: input
;=   4: input

;;; a loaded index keeps the region
;; kind: read
ldxdw %r6, [%r2+0]
add %r2, %r6
ldxdw %r0, [%r2+8]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: input
;=   2: input

;;; aligning a pointer down keeps the region
;; kind: read
and %r2, -8
ldxdw %r0, [%r2+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   1: input

;;; the distance of two pointers is a number
;; kind: read
mov %r6, %r2
add %r6, %r3
sub %r6, %r2
add %r6, %r1
stdw [%r6+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   4: output

;;; a pointer is spilled and filled
;; kind: read
stxdw [%r10-8], %r2
ldxdw %r6, [%r10-8]
ldxb %r0, [%r6+0]
exit
;= verify: ok
;= stack: 64
;= main: frame 64
;=   0: frame -8
;=   1: frame -8
;=   2: input

;;; a pointer that comes from memory is not known
;; kind: read
ldxdw %r6, [%r2+0]
ldxb %r0, [%r6+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: input
;=   1: unknown

;;; data and constants by their addresses
;; kind: read
;; data: 8
;; rodata: 8
lddw %r6, 0x30000000000
lddw %r7, 0x20000000000
ldxdw %r0, [%r7+0]
ldxdw %r8, [%r6+0]
add %r0, %r8
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   4: rodata
;=   5: data

;;; a large number is no address where there is nothing
;; kind: read
lddw %r6, 0x30000000000
add %r6, %r3
ldxdw %r0, [%r6+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   3: unknown

;;; atomics on a region
;; kind: read
mov %r6, 1
lock fetch add [%r1+0], %r6
mov %r0, %r6
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   1: output

;;; an atomic on the input
;; kind: read
mov %r6, 1
lock add [%r2+0], %r6
mov %r0, 0
exit
;= verify: rejected
;= V0502 unsafe
;=   reason:     write to the input region, which is read-only for kind `read`
;=   at:         instruction 1 of `main`: lock add [%r2], %r6
;=   suggestion: copy the bytes to the stack, the heap or the output and change them there

;;; behind the context
;; kind: read
ldxdw %r0, [%r5+56]
exit
;= verify: rejected
;= V0503 unsafe
;=   reason:     read of 8 bytes at offset 56 of the context, which is 56 bytes long for kind `read`
;=   at:         instruction 0 of `main`: ldxdw %r0, [%r5+56]
;=   suggestion: compile against the header of this version, and stay inside the arrays of the context

;;; across the end of the context
;; kind: read
ldxdw %r0, [%r5+52]
exit
;= verify: rejected
;= V0503 unsafe
;=   reason:     read of 8 bytes at offset 52 of the context, which is 56 bytes long for kind `read`
;=   at:         instruction 0 of `main`: ldxdw %r0, [%r5+52]
;=   suggestion: compile against the header of this version, and stay inside the arrays of the context

;;; before the context
;; kind: traverse
ldxdw %r0, [%r1-8]
exit
;= verify: rejected
;= V0503 unsafe
;=   reason:     read of 8 bytes at offset -8 of the context, which is 464 bytes long for kind `traverse`
;=   at:         instruction 0 of `main`: ldxdw %r0, [%r1-8]
;=   suggestion: compile against the header of this version, and stay inside the arrays of the context

;;; a traversal writes its results
;; kind: traverse
;; source: 0 walk.bpf.c:10: t->result_len = 8;
ldxdw %r2, [%r1+8]
ldxdw %r3, [%r1+48]
ldxdw %r4, [%r2+0]
stxdw [%r3+0], %r4
stdw [%r1+64], 8
stw [%r1+72], 1
stxdw [%r1+80], %r4
stdw [%r1+88], 4096
stw [%r1+460], 7
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: context 8
;=   1: context 48
;=   2: input
;=   3: scratch
;=   4: context 64
;=   5: context 72
;=   6: context 80
;=   7: context 88
;=   8: context 460

;;; a write to a read-only field
;; kind: traverse
stdw [%r1+16], 0
mov %r0, 0
exit
;= verify: rejected
;= V0504 unsafe
;=   reason:     write of 8 bytes at offset 16 of the context, which is read-only there
;=   at:         instruction 0 of `main`: stdw [%r1+16], 0
;=   suggestion: write only the fields that are results of the kind

;;; a write across the end of a writable field
;; kind: traverse
stdw [%r1+72], 1
mov %r0, 0
exit
;= verify: rejected
;= V0504 unsafe
;=   reason:     write of 8 bytes at offset 72 of the context, which is read-only there
;=   at:         instruction 0 of `main`: stdw [%r1+72], 1
;=   suggestion: write only the fields that are results of the kind

;;; a write to a pointer field
;; kind: traverse
stdw [%r1+48], 0
mov %r0, 0
exit
;= verify: rejected
;= V0505 unsafe
;=   reason:     write to the pointer at offset 48 of the context
;=   at:         instruction 0 of `main`: stdw [%r1+48], 0
;=   suggestion: copy the pointer to a variable and change that

;;; a write to a part of a pointer field
;; kind: kernel
stw [%r1+28], 0
mov %r0, 0
exit
;= verify: rejected
;= V0505 unsafe
;=   reason:     write to the pointer at offset 28 of the context
;=   at:         instruction 0 of `main`: stw [%r1+28], 0
;=   suggestion: copy the pointer to a variable and change that

;;; a write at a variable offset
;; kind: traverse
ldxw %r2, [%r1+72]
mul %r2, 24
add %r1, %r2
stdw [%r1+80], 0
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: context 72
;=   3: context

;;; a write at a variable offset where nothing may be written
;; kind: read
add %r5, %r3
stdw [%r5+0], 0
mov %r0, 0
exit
;= verify: rejected
;= V0506 unsafe
;=   reason:     write to the context, of which kind `read` may write nothing
;=   at:         instruction 1 of `main`: stdw [%r5], 0
;=   suggestion: write results to the output

;;; a read at a variable offset
;; kind: traverse
ldxw %r2, [%r1+44]
mul %r2, 24
add %r1, %r2
ldxdw %r0, [%r1+80]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: context 44
;=   3: context

;;; an atomic on the context
;; kind: traverse
mov %r0, 1
lock add [%r1+64], %r0
exit
;= verify: rejected
;= V0507 unsafe
;=   reason:     atomic operation on the context
;=   at:         instruction 1 of `main`: lock add [%r1+64], %r0
;=   suggestion: use a plain load and store; nobody else sees the context during a call

;;; the context through a spill and a constant offset
;; kind: kernel
stxdw [%r10-8], %r1
mov %r6, 0
ldxdw %r7, [%r10-8]
add %r7, 40
stdw [%r7+0], 3
mov %r0, 0
exit
;= verify: ok
;= stack: 64
;= main: frame 64
;=   0: frame -8
;=   2: frame -8
;=   4: context 40

;;; the data buffer and the ranges of an exec
;; kind: exec
ldxdw %r2, [%r1+24]
ldxb %r3, [%r2+0]
ldxdw %r4, [%r1+40]
ldxb %r0, [%r4+0]
stxb [%r2+0], %r3
stxb [%r4+0], %r3
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: context 24
;=   1: range 0
;=   2: context
;=   3: unknown
;=   4: range 0
;=   5: unknown

;;; a write to a range's description
;; kind: exec
stdw [%r1+48], 1
mov %r0, 0
exit
;= verify: rejected
;= V0503 unsafe
;=   reason:     write of 8 bytes at offset 48 of the context, which is 40 bytes long for kind `exec`
;=   at:         instruction 0 of `main`: stdw [%r1+48], 1
;=   suggestion: compile against the header of this version, and stay inside the arrays of the context

;;; the buffers of lambda-IO's context
;; kind: lambda_io
ldxdw %r2, [%r1+0]
ldxdw %r3, [%r1+8]
ldxdw %r4, [%r1+16]
ldxb %r0, [%r3+0]
stxb [%r2+0], %r0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: context 0
;=   1: context 8
;=   2: context 16
;=   3: input
;=   4: output

;;; the fields of an XRP program
;; kind: xrp
ldxdw %r2, [%r1+0]
ldxdw %r3, [%r1+8]
ldxb %r4, [%r2+0]
stxb [%r3+0], %r4
ldxw %r5, [%r1+344]
stw [%r1+16], 0
stdw [%r1+24], 512
stdw [%r1+152], 512
stxw [%r1+280], %r5
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: context 0
;=   1: context 8
;=   2: input
;=   3: scratch
;=   4: context 344
;=   5: context 16
;=   6: context 24
;=   7: context 152
;=   8: context 280

;;; data and state of a Delilah program
;; kind: delilah
ldxdw %r0, [%r3+0]
stxdw [%r1+0], %r0
exit
;= verify: ok
;= stack: 0
;= effects: uses_state
;= main: frame 0
;=   0: state
;=   1: range 0
