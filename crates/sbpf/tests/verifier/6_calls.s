; Calls of functions and helpers.

;;; a call of a function
;; kind: read
mov %r1, %r2
mov %r2, 8
call local f
exit
f:
ldxdw %r0, [%r1+0]
add %r0, %r2
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;= f4: frame 0
;=   4: input

;;; a region from two call sites
;; kind: read
mov %r6, %r2
mov %r7, %r1
mov %r1, %r6
call local f
mov %r1, %r7
call local f
exit
f:
ldxdw %r0, [%r1+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;= f7: frame 0
;=   7: unknown

;;; a returned pointer
;; kind: read
mov %r1, %r2
call local f
ldxdw %r0, [%r0+0]
exit
f:
mov %r0, %r1
add %r0, 8
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   2: input
;= f4: frame 0

;;; frames of a chain of calls
stdw [%r10-8], 1
call local f
exit
f:
stdw [%r10-128], 2
call local g
exit
g:
stdw [%r10-8], 3
mov %r0, 0
exit
;= verify: ok
;= stack: 256
;= main: frame 64
;=   0: frame -8
;= f3: frame 128
;=   3: frame -128
;= f6: frame 64
;=   6: frame -8

;;; a stack address as an argument
stdw [%r10-8], 1
mov %r1, %r10
sub %r1, 8
call local f
ldxdw %r0, [%r10-8]
exit
f:
stdw [%r1+0], 2
mov %r0, 0
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 512
;=   0: frame -8
;=   4: frame -8
;= f6: frame 0
;=   6: stack

;;; a stack address that the callee does not use
mov %r1, %r10
call local f
exit
f:
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;= f3: frame 0

;;; a pointer to a frame that is gone
call local f
ldxdw %r0, [%r0+0]
exit
f:
stdw [%r10-8], 1
mov %r0, %r10
sub %r0, 8
exit
;= verify: ok
;= stack: 512, addressable
;= main: frame 0
;=   1: stack
;= f3: frame 512
;=   3: frame -8

;;; the context in a callee
;; kind: traverse
mov %r6, %r1
call local f
mov %r1, %r6
call local f
exit
f:
stdw [%r1+64], 8
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;= f5: frame 0
;=   5: context 64

;;; a callee that never returns
call local f
ldxb %r0, [%r9+0]
exit
f:
ja f
;= verify: ok
;= stack: 0
;= main: frame 0
;=   1: unknown
;= f3: frame 0

;;; a call into the middle of nowhere
mov %r0, 0
call local +100
exit
;= verify: rejected
;= V0601 unsafe
;=   reason:     call of instruction 102, which is not the start of a function
;=   at:         instruction 1 of `main`: call local +100
;=   suggestion: call a function by its name

;;; recursion
call local f
exit
f:
jeq %r1, 0, end
call local g
end:
mov %r0, 0
exit
g:
call local f
exit
;= verify: rejected
;= V0602 unsafe
;=   reason:     recursion: f2 -> f6 -> f2
;=   at:         instruction 6 of `f6`: call local -5
;=   suggestion: use a loop with a stack of your own in an array

;;; a function that calls itself
;; source: 1 fact.bpf.c:5: return n * fact(n - 1);
mov %r1, 1
call local f
exit
f:
call local f
exit
;= verify: rejected
;= V0602 unsafe
;=   reason:     recursion: f3 -> f3
;=   at:         instruction 3 of `f3`: call local -1
;=   suggestion: use a loop with a stack of your own in an array

;;; calls nest eight deep
call local b
exit
b:
call local c
exit
c:
call local d
exit
d:
call local e
exit
e:
call local f
exit
f:
call local g
exit
g:
call local h
exit
h:
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;= f2: frame 0
;= f4: frame 0
;= f6: frame 0
;= f8: frame 0
;= f10: frame 0
;= f12: frame 0
;= f14: frame 0

;;; calls nest nine deep
call local b
exit
b:
call local c
exit
c:
call local d
exit
d:
call local e
exit
e:
call local f
exit
f:
call local g
exit
g:
call local h
exit
h:
call local i
exit
i:
mov %r0, 0
exit
;= verify: rejected
;= V0603 unsafe
;=   reason:     calls nest 9 deep, more than 8: main -> f2 -> f4 -> f6 -> f8 -> f10 -> f12 -> f14 -> f16
;=   at:         instruction 0 of `main`: call local +1
;=   suggestion: let the compiler inline some of them (`static inline`, `__always_inline`)

;;; a parameter that no caller sets
mov %r1, 1
call local f
exit
f:
mov %r0, %r4
exit
;= verify: rejected
;= V0302 unsafe
;=   reason:     r4 is read, but not every caller of `f3` sets it
;=   at:         instruction 3 of `f3`: mov %r0, %r4
;=   suggestion: pass every argument that the function reads

;;; a parameter that one caller does not set
mov %r1, 1
mov %r2, 2
call local f
mov %r1, 1
call local f
exit
f:
mov %r0, %r2
exit
;= verify: rejected
;= V0302 unsafe
;=   reason:     r2 is read, but not every caller of `f6` sets it
;=   at:         instruction 6 of `f6`: mov %r0, %r2
;=   suggestion: pass every argument that the function reads

;;; a function without a return value
mov %r1, 1
call local f
mov %r0, 0
exit
f:
mov %r6, 1
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;= f4: frame 0

;;; a function without a return value whose value is used
mov %r1, 1
call local f
exit
f:
mov %r6, 1
exit
;= verify: rejected
;= V0305 unsafe
;=   reason:     r0 is read after the call of `f3`, which does not set it on every path
;=   at:         instruction 2 of `main`: exit
;=   suggestion: return a value on every path of the called function

;;; a function that returns a value on one path only
mov %r1, 1
call local f
add %r0, 1
exit
f:
jeq %r1, 0, end
mov %r0, 1
end:
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;= f4: frame 0

;;; a missing helper
;; source: 0 typo.bpf.c:8: return ds_fnd(in, len, "x", 1);
call helper ds_fnd
exit
;= verify: rejected
;= V0605 missing
;=   reason:     this host has no helper `ds_fnd`
;=   at:         instruction 0 of `main`: call helper ds_fnd
;=               typo.bpf.c:8: return ds_fnd(in, len, "x", 1);
;=   suggestion: did you mean ds_find, ds_fail, ds_free?

;;; a missing helper that resembles none
call helper entirely_different
exit
;= verify: rejected
;= V0605 missing
;=   reason:     this host has no helper `entirely_different`
;=   at:         instruction 0 of `main`: call helper entirely_different
;=   suggestion: use a helper that this host lists, or declare it weak and test its address

;;; an absent weak helper
;; weak: ds_future
mov %r0, 0
jne %r1, 0, exit
call helper ds_future
exit
;= verify: ok
;= stack: 0
;= main: frame 0

;;; an argument that is not set
;; kind: traverse
mov %r1, 0
call helper ds_memcmp
exit
;= verify: rejected
;= V0606 unsafe
;=   reason:     argument 2 of `ds_memcmp` (r2) is not set
;=   at:         instruction 1 of `main`: call helper ds_memcmp
;=   suggestion: call it as `__s64 ds_memcmp(const void *a, const void *b, __u64 len)`

;;; a number for a pointer
;; kind: read
mov %r1, %r3
mov %r2, 1
mov %r3, 8
call helper ds_memset
mov %r0, 0
exit
;= verify: rejected
;= V0607 unsafe
;=   reason:     argument 1 of `ds_memset` is a pointer, but r1 holds a number
;=   at:         instruction 3 of `main`: call helper ds_memset
;=   suggestion: call it as `void *ds_memset(void *to, int value, __u64 len)`

;;; a constant for a pointer
;; kind: read
mov %r1, 16
mov %r2, 1
mov %r3, 8
call helper ds_memset
mov %r0, 0
exit
;= verify: rejected
;= V0607 unsafe
;=   reason:     argument 1 of `ds_memset` is a pointer, but r1 holds the number 16
;=   at:         instruction 3 of `main`: call helper ds_memset
;=   suggestion: call it as `void *ds_memset(void *to, int value, __u64 len)`

;;; a pointer for a number
;; kind: read
mov %r1, %r2
call helper ds_alloc
mov %r0, 0
exit
;= verify: rejected
;= V0608 unsafe
;=   reason:     argument 1 of `ds_alloc` is a number, but r1 holds a pointer into input
;=   at:         instruction 1 of `main`: call helper ds_alloc
;=   suggestion: call it as `void *ds_alloc(__u64 len)`

;;; the frame pointer for a number
mov %r1, %r10
call helper ds_alloc
mov %r0, 0
exit
;= verify: rejected
;= V0608 unsafe
;=   reason:     argument 1 of `ds_alloc` is a number, but r1 holds the stack address r10+0
;=   at:         instruction 1 of `main`: call helper ds_alloc
;=   suggestion: call it as `void *ds_alloc(__u64 len)`

;;; NULL with length 0
mov %r1, 0
mov %r2, 1
mov %r3, 0
call helper ds_memset
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0

;;; NULL with a length that is not known
;; kind: read
mov %r1, 0
mov %r2, 1
call helper ds_memset
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0

;;; NULL with a length
mov %r1, 0
mov %r2, 1
mov %r3, 8
call helper ds_memset
mov %r0, 0
exit
;= verify: rejected
;= V0609 unsafe
;=   reason:     argument 1 of `ds_memset` is NULL, but its length is 8 bytes
;=   at:         instruction 3 of `main`: call helper ds_memset
;=   suggestion: NULL is allowed only with length 0

;;; a helper that writes the input
;; kind: read
;; source: 3 wipe.bpf.c:3: memset(in, 0, 8);
mov %r1, %r2
mov %r2, 0
mov %r3, 8
call helper ds_memset
mov %r0, 0
exit
;= verify: rejected
;= V0610 unsafe
;=   reason:     `ds_memset` writes to the input region, which is read-only for kind `read`
;=   at:         instruction 3 of `main`: call helper ds_memset
;=               wipe.bpf.c:3: memset(in, 0, 8);
;=   suggestion: let it write to the stack, the heap or the output

;;; a helper that writes the context
;; kind: traverse
add %r1, 80
mov %r2, 0
mov %r3, 24
call helper ds_memset
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0

;;; a helper that writes beyond the results of the context
;; kind: traverse
add %r1, 72
mov %r2, 0
mov %r3, 32
call helper ds_memset
mov %r0, 0
exit
;= verify: rejected
;= V0610 unsafe
;=   reason:     `ds_memset` writes to offset 72 of the context, which is read-only for kind `traverse`
;=   at:         instruction 3 of `main`: call helper ds_memset
;=   suggestion: let it write to the stack, the heap or the output

;;; a helper that writes the context at a variable offset
;; kind: traverse
ldxw %r2, [%r1+72]
add %r1, %r2
mov %r2, 0
mov %r3, 24
call helper ds_memset
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: context 72

;;; a helper that writes a context without results
;; kind: read
mov %r1, %r5
mov %r2, 0
mov %r3, 8
call helper ds_memset
mov %r0, 0
exit
;= verify: rejected
;= V0610 unsafe
;=   reason:     `ds_memset` writes to offset 0 of the context, which is read-only for kind `read`
;=   at:         instruction 3 of `main`: call helper ds_memset
;=   suggestion: let it write to the stack, the heap or the output

;;; heap memory from a helper
mov %r1, 64
call helper ds_alloc
jeq %r0, 0, exit
stdw [%r0+0], 1
mov %r1, %r0
call helper ds_free
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   3: heap

;;; a helper that returns its argument
;; kind: read
mov %r6, %r2
mov %r2, 0
mov %r3, 8
call helper ds_memset
stdw [%r0+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   4: output

;;; a helper for files outside of a kernel
;; kind: read
mov %r1, 0
call helper ds_file_len
exit
;= verify: rejected
;= V0611 unsafe
;=   reason:     `ds_file_len` is for programs of kind kernel, and this one is of kind read
;=   at:         instruction 1 of `main`: call helper ds_file_len
;=   suggestion: make it `SEC("kernel/NAME")`, with one argument of type `struct ds_kernel *`

;;; a helper for files in a kernel, with the arguments and the result that it is given
;; kind: kernel
mov %r6, %r3
ldxw %r1, [%r2+0]
call helper ds_file_len
stxdw [%r6+0], %r0
mov %r0, 8
exit
;= verify: ok
;= stack: 0
;= effects: does_io
;= main: frame 0
;=   1: args
;=   3: output
