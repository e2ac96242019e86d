; The frame: constant offsets are proved, the rest makes the stack addressable.

;;; slots at constant offsets
stdw [%r10-8], 1
stw [%r10-12], 2
ldxdw %r0, [%r10-8]
ldxw %r1, [%r10-12]
add %r0, %r1
exit
;= verify: ok
;= stack: 64
;= main: frame 64
;=   0: frame -8
;=   1: frame -12
;=   2: frame -8
;=   3: frame -12

;;; through a copy of the frame pointer
mov %r2, %r10
add %r2, -72
stdw [%r2+0], 1
ldxdw %r0, [%r2+0]
exit
;= verify: ok
;= stack: 128
;= main: frame 128
;=   2: frame -72
;=   3: frame -72

;;; bytes that were never written are zero
ldxdw %r0, [%r10-8]
exit
;= verify: ok
;= stack: 64
;= main: frame 64
;=   0: frame -8

;;; below the frame
;; source: 0 big.bpf.c:4: buf[0] = 1;
stdw [%r10-520], 1
mov %r0, 0
exit
;= verify: rejected
;= V0401 unsafe
;=   reason:     write of 8 bytes at r10-520, outside of the frame of 512 bytes
;=   at:         instruction 0 of `main`: stdw [%r10-520], 1
;=               big.bpf.c:4: buf[0] = 1;
;=   suggestion: use less stack, or ask for a larger frame with `DS_STACK_BYTES(n)`

;;; a larger frame
;; stack: 1024
stdw [%r10-520], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 576
;= main: frame 576
;=   0: frame -520

;;; above the frame
stdw [%r10+0], 1
mov %r0, 0
exit
;= verify: rejected
;= V0401 unsafe
;=   reason:     write of 8 bytes at r10+0, outside of the frame of 512 bytes
;=   at:         instruction 0 of `main`: stdw [%r10], 1
;=   suggestion: stay below r10: the frame ends there

;;; across the upper end
stdw [%r10-4], 1
mov %r0, 0
exit
;= verify: rejected
;= V0401 unsafe
;=   reason:     write of 8 bytes at r10-4, outside of the frame of 512 bytes
;=   at:         instruction 0 of `main`: stdw [%r10-4], 1
;=   suggestion: stay below r10: the frame ends there

;;; across the lower end
ldxdw %r0, [%r10-516]
exit
;= verify: rejected
;= V0401 unsafe
;=   reason:     read of 8 bytes at r10-516, outside of the frame of 512 bytes
;=   at:         instruction 0 of `main`: ldxdw %r0, [%r10-516]
;=   suggestion: use less stack, or ask for a larger frame with `DS_STACK_BYTES(n)`

;;; an offset that is not constant
mov %r3, %r10
sub %r3, %r2
stdw [%r3+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   2: stack

;;; an offset that depends on the path
mov %r3, %r10
sub %r3, 8
jeq %r2, 0, skip
sub %r3, 8
skip:
stdw [%r3+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   4: stack

;;; a number or a stack address
mov %r3, 0
jeq %r2, 0, skip
mov %r3, %r10
sub %r3, 8
skip:
jeq %r3, 0, end
stdw [%r3+0], 1
end:
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   5: stack

;;; an address that goes to a helper
mov %r1, %r10
sub %r1, 16
mov %r2, 0
mov %r3, 16
call helper ds_memset
ldxdw %r0, [%r10-8]
exit
;= verify: ok
;= stack: 64, addressable
;= main: frame 64
;=   5: frame -8

;;; a helper argument that leaves the frame
mov %r1, %r10
sub %r1, 16
mov %r2, 0
mov %r3, 32
call helper ds_memset
mov %r0, 0
exit
;= verify: rejected
;= V0403 unsafe
;=   reason:     argument 1 of `ds_memset` covers 32 bytes from r10-16, outside of the frame of 512 bytes
;=   at:         instruction 4 of `main`: call helper ds_memset
;=   suggestion: pass no more than the size of the variable

;;; a helper argument below the frame
mov %r1, %r10
sub %r1, 600
mov %r2, 0
mov %r3, 8
call helper ds_memset
mov %r0, 0
exit
;= verify: rejected
;= V0403 unsafe
;=   reason:     argument 1 of `ds_memset` covers 8 bytes from r10-600, outside of the frame of 512 bytes
;=   at:         instruction 4 of `main`: call helper ds_memset
;=   suggestion: pass no more than the size of the variable

;;; a write at any offset of a variable
stdw [%r10-8], 1
call helper ds_now
mov %r3, %r0
mov %r1, %r10
sub %r1, 16
mov %r2, %r10
sub %r2, 8
mov %r4, 8
mov %r5, 16
call helper ds_lambda_mem_write
mov %r0, 0
exit
;= verify: ok
;= stack: 64, addressable
;= effects: uses_clock
;= main: frame 64
;=   0: frame -8

;;; a write at any offset of more than the variable
stdw [%r10-8], 1
call helper ds_now
mov %r3, %r0
mov %r1, %r10
sub %r1, 16
mov %r2, %r10
sub %r2, 8
mov %r4, 8
mov %r5, 32
call helper ds_lambda_mem_write
mov %r0, 0
exit
;= verify: rejected
;= V0403 unsafe
;=   reason:     argument 1 of `ds_lambda_mem_write` covers 32 bytes from r10-16, outside of the frame of 512 bytes
;=   at:         instruction 9 of `main`: call helper ds_lambda_mem_write
;=   suggestion: pass no more than the size of the variable

;;; an address that is stored in memory
mov %r3, %r10
stxdw [%r1+0], %r3
stdw [%r10-8], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   1: input
;=   2: frame -8

;;; an address that is spilled and filled stays proved
mov %r3, %r10
sub %r3, 16
stxdw [%r10-8], %r3
ldxdw %r4, [%r10-8]
stdw [%r4+0], 7
ldxdw %r0, [%r10-16]
exit
;= verify: ok
;= stack: 64
;= main: frame 64
;=   2: frame -8
;=   3: frame -8
;=   4: frame -16
;=   5: frame -16

;;; half of a spilled address is a number made from an address
mov %r3, %r10
stxdw [%r10-8], %r3
ldxw %r0, [%r10-8]
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   1: frame -8
;=   2: frame -8

;;; half of a spilled address is overwritten
mov %r3, %r10
stxdw [%r10-8], %r3
stw [%r10-8], 0
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   1: frame -8
;=   2: frame -8

;;; arithmetic that hides an address
mov %r3, %r10
xor %r3, 5
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512

;;; 32 bits of an address
mov32 %r0, %r10
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512

;;; the distance of two stack addresses is a number
mov %r3, %r10
mov %r4, %r10
sub %r4, 24
sub %r3, %r4
mov %r5, %r10
sub %r5, %r3
stdw [%r5+0], 1
mov %r0, %r3
exit
;= verify: ok
;= stack: 64
;= main: frame 64
;=   6: frame -24

;;; comparing addresses does not need them
mov %r3, %r10
sub %r3, 8
jeq %r3, 0, exit
stdw [%r3+0], 1
mov %r0, 1
exit
;= verify: rejected
;= V0304 unsafe
;=   reason:     r0 is not set when the program exits
;=   at:         instruction 5 of `main`: exit
;=   path:       0 -> 5
;=   suggestion: return a value on every path

;;; an atomic on the stack goes by address
stdw [%r10-8], 1
mov %r2, 2
lock fetch add [%r10-8], %r2
mov %r0, %r2
exit
;= verify: ok
;= stack: 64, addressable
;= main: frame 64
;=   0: frame -8
;=   2: frame -8

;;; a misaligned atomic on the stack
stdw [%r10-16], 1
mov %r2, 2
lock add [%r10-12], %r2
mov %r0, 0
exit
;= verify: rejected
;= V0402 unsafe
;=   reason:     atomic operation of 8 bytes at r10-12, which is not a multiple of 8
;=   at:         instruction 2 of `main`: lock add [%r10-12], %r2
;=   suggestion: align the variable to its size

;;; after a wild store a spilled address is a hint only
mov %r3, %r10
sub %r3, 16
stxdw [%r10-8], %r3
mov %r4, %r10
add %r4, %r2
stdw [%r4-8], 0
ldxdw %r5, [%r10-8]
stdw [%r5+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   2: frame -8
;=   5: stack
;=   6: frame -8
;=   7: stack

;;; a wild store elsewhere changes nothing while nobody has the address
stdw [%r10-8], 16
stdw [%r1+0], 1
ldxdw %r3, [%r10-8]
mov %r4, %r10
sub %r4, %r3
stdw [%r4+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 64
;= main: frame 64
;=   0: frame -8
;=   1: input
;=   2: frame -8
;=   5: frame -16

;;; constants are followed through narrow slots
stb [%r10-1], 200
ldxb %r3, [%r10-1]
mov %r4, %r10
sub %r4, %r3
stdw [%r4+0], 1
ldxsb %r3, [%r10-1]
mov %r4, %r10
add %r4, %r3
stdw [%r4+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 256
;= main: frame 256
;=   0: frame -1
;=   1: frame -1
;=   4: frame -200
;=   5: frame -1
;=   8: frame -56

;;; a helper argument of unknown length may reach all of the frame
mov %r3, %r2
mov %r1, %r10
sub %r1, 16
mov %r2, 0
call helper ds_memset
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512

;;; a callee's frame is its own
stdw [%r10-8], 1
mov %r1, %r10
sub %r1, 8
call local f
exit
f:
stdw [%r10-8], 2
stdw [%r1+0], 3
mov %r0, 0
exit
;= verify: ok
;= stack: 576, addressable
;= main: frame 512
;=   0: frame -8
;= f5: frame 64
;=   5: frame -8
;=   6: stack

;;; a spilled address whose slot another path uses otherwise
mov %r3, %r10
sub %r3, 16
stdw [%r10-8], 5
jeq %r2, 0, skip
stxdw [%r10-8], %r3
skip:
ldxdw %r4, [%r10-8]
stdw [%r4+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   2: frame -8
;=   4: frame -8
;=   5: frame -8
;=   6: unknown

;;; a caller's slots are hints after a call that may write them
mov %r3, %r10
stxdw [%r10-8], %r3
mov %r1, %r10
sub %r1, 8
call local f
ldxdw %r3, [%r10-8]
stdw [%r3-16], 0
mov %r0, 0
exit
f:
stdw [%r1+0], 0
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   1: frame -8
;=   5: frame -8
;=   6: stack
;= f9: frame 0
;=   9: stack
