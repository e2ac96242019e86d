; Jumps, the end of a function, and loops.

;;; a jump behind the function
mov %r0, 0
ja +5
exit
;= verify: rejected
;= V0202 unsafe
;=   reason:     jump to instruction 7, outside of function `main` (0 to 2)
;=   at:         instruction 1 of `main`: ja +5
;=   suggestion: jump only inside the function

;;; a jump before the function
mov %r0, 0
jeq %r0, 0, -3
exit
;= verify: rejected
;= V0202 unsafe
;=   reason:     jump to instruction -1, outside of function `main` (0 to 2)
;=   at:         instruction 1 of `main`: jeq %r0, 0, -3
;=   suggestion: jump only inside the function

;;; a jump into a 64-bit immediate
mov %r0, 0
jeq %r0, 0, +1
lddw %r0, 0x1122334455667788
exit
;= verify: rejected
;= V0203 unsafe
;=   reason:     jump into the second half of the 64-bit immediate at 2
;=   at:         instruction 1 of `main`: jeq %r0, 0, +1
;=   suggestion: jump to the start of an instruction

;;; control falls off the end
;; source: 1 last.bpf.c:3: int x = 1;
mov %r0, 0
mov %r1, 1
;= verify: rejected
;= V0204 unsafe
;=   reason:     control can fall off the end of function `main`
;=   at:         instruction 1 of `main`: mov %r1, 1
;=               last.bpf.c:3: int x = 1;
;=   suggestion: end the function with `exit` or an unconditional jump

;;; a conditional jump as the last instruction
mov %r0, 0
exit
jeq %r0, 0, -2
;= verify: rejected
;= V0204 unsafe
;=   reason:     control can fall off the end of function `main`
;=   at:         instruction 2 of `main`: jeq %r0, 0, -2
;=   suggestion: end the function with `exit` or an unconditional jump

;;; an unconditional jump as the last instruction is fine
mov %r0, 0
ja +1
exit
ja -2
;= verify: ok
;= stack: 0
;= main: frame 0

;;; an unreachable jump out of the function
mov %r0, 0
exit
ja +9
;= verify: rejected
;= V0202 unsafe
;=   reason:     jump to instruction 12, outside of function `main` (0 to 2)
;=   at:         instruction 2 of `main`: ja +9
;=   suggestion: jump only inside the function

;;; loops need no bound
mov %r0, 0
again:
add %r0, 1
ja again
;= verify: ok
;= stack: 0
;= main: frame 0

;;; a dynamic bound
;; kind: read
mov %r0, 0
jeq %r3, 0, exit
next:
ldxdw %r5, [%r2+0]
add %r0, %r5
add %r2, 8
sub %r3, 8
jne %r3, 0, next
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   2: input

;;; a far jump
mov %r0, 0
ja32 +0
exit
;= verify: ok
;= stack: 0
;= main: frame 0

;;; a branch on constants goes one way
mov %r6, 0
mov %r0, 0
jeq %r6, 0, exit
ldxb %r0, [%r6+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   3: unknown

;;; a 32-bit branch on constants looks at the low half
lddw %r6, 0x100000000
mov %r0, 0
jne32 %r6, 0, dead
exit
dead:
mov %r0, %r9
exit
;= verify: ok
;= stack: 0
;= main: frame 0

;;; a branch on a constant that a loop changes goes both ways
mov %r6, 0
mov %r0, 0
again:
jgt %r6, 9, end
add %r6, 1
ja again
end:
mov %r0, %r9
exit
;= verify: rejected
;= V0301 unsafe
;=   reason:     r9 is read before it is set
;=   at:         instruction 5 of `main`: mov %r0, %r9
;=   path:       0 -> 2 -> 5
;=   suggestion: set the register on every path; in C, initialise the variable
