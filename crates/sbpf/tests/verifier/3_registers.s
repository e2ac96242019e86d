; Registers are set before they are read.

;;; read before set
;; source: 0 sum.bpf.c:12: return total;
mov %r0, %r6
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r6 is read before it is set
;=   at:         instruction 0 of `main`: mov %r0, %r6
;=               sum.bpf.c:12: return total;
;=   suggestion: set the register on every path; in C, initialise the variable

;;; set on one path only
mov %r0, 0
jeq %r1, 0, skip
mov %r3, 5
skip:
add %r0, %r3
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r3 is read before it is set
;=   at:         instruction 3 of `main`: add %r0, %r3
;=   path:       0 -> 3
;=   suggestion: set the register on every path; in C, initialise the variable

;;; set on both paths
mov %r0, 0
jeq %r1, 0, other
mov %r3, 5
ja join
other:
mov %r3, 7
join:
add %r0, %r3
exit
;= verify: ok
;= stack: 0
;= main: frame 0

;;; a parameter that the kind does not have
;; kind: combine
mov %r0, %r5
exit
;= verify: ok
;= stack: 0
;= main: frame 0

;;; the fifth parameter of a traversal
;; kind: traverse
mov %r0, %r5
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r5 is read before it is set; kind `traverse` does not pass it
;=   at:         instruction 0 of `main`: mov %r0, %r5
;=   suggestion: declare only the parameters that the kind has

;;; read after a helper call
mov %r1, 64
call helper ds_alloc
mov %r0, %r1
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r1 is read after the call at 1, which leaves r1 to r5 unset
;=   at:         instruction 2 of `main`: mov %r0, %r1
;=   suggestion: keep what must survive a call in r6 to r9 or on the stack

;;; read after a helper call in a loop
mov %r7, 4
mov %r1, 64
again:
mov %r6, %r1
mov %r1, 64
call helper ds_alloc
sub %r7, 1
jne %r7, 0, again
mov %r0, %r6
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r1 is read after the call at 4, which leaves r1 to r5 unset
;=   at:         instruction 2 of `main`: mov %r6, %r1
;=   path:       0 -> 2 -> 2
;=   suggestion: keep what must survive a call in r6 to r9 or on the stack

;;; r6 to r9 survive a call
mov %r6, %r1
mov %r1, 64
call helper ds_alloc
ldxb %r0, [%r6+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   3: input

;;; the frame pointer is written
mov %r0, 0
add %r10, 8
exit
;= verify: rejected
;= V0303 unsafe
;=   reason:     r10, the frame pointer, is written
;=   at:         instruction 1 of `main`: add %r10, 8
;=   suggestion: copy it to another register first

;;; the frame pointer as the target of a fetch
mov %r0, 0
mov %r2, 0
ldxdw %r10, [%r1+0]
exit
;= verify: rejected
;= V0303 unsafe
;=   reason:     r10, the frame pointer, is written
;=   at:         instruction 2 of `main`: ldxdw %r10, [%r1]
;=   suggestion: copy it to another register first

;;; no return value
;; source: 0 none.bpf.c:2: }
exit
;= verify: rejected
;= V0304 unsafe
;=   reason:     r0 is not set when the program exits
;=   at:         instruction 0 of `main`: exit
;=               none.bpf.c:2: }
;=   suggestion: return a value on every path

;;; a return value on one path only
jeq %r1, 0, exit
mov %r0, 1
exit
;= verify: rejected
;= V0304 unsafe
;=   reason:     r0 is not set when the program exits
;=   at:         instruction 2 of `main`: exit
;=   path:       0 -> 2
;=   suggestion: return a value on every path

;;; compare and exchange reads r0
mov %r2, 1
lock cmpxchg [%r1+0], %r2
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r0 is read before it is set
;=   at:         instruction 1 of `main`: lock cmpxchg [%r1], %r2
;=   suggestion: set the register on every path; in C, initialise the variable

;;; one mistake is said once
mov %r0, 0
add %r0, %r4
add %r0, %r4
add %r0, %r4
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r4 is read before it is set; kind `raw` does not pass it
;=   at:         instruction 1 of `main`: add %r0, %r4
;=   suggestion: declare only the parameters that the kind has

;;; a long path shows its ends
mov %r0, 0
jeq %r1, 1, +0
jeq %r1, 2, +0
jeq %r1, 3, +0
jeq %r1, 4, +0
jeq %r1, 5, +0
jeq %r1, 6, +0
jeq %r1, 7, +0
jeq %r1, 8, +0
jeq %r1, 9, +0
jeq %r1, 10, +0
jeq %r1, 11, +0
add %r0, %r9
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r9 is read before it is set
;=   at:         instruction 12 of `main`: add %r0, %r9
;=   path:       0 -> 2 -> 3 -> 4 -> (4 blocks) -> 9 -> 10 -> 11 -> 12
;=   suggestion: set the register on every path; in C, initialise the variable

;;; a register that is never set and no parameter
mov %r0, %r3
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r3 is read before it is set; kind `raw` does not pass it
;=   at:         instruction 0 of `main`: mov %r0, %r3
;=   suggestion: declare only the parameters that the kind has
