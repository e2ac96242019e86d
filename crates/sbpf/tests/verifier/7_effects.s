; What a program does besides its result.

;;; a store to data
;; kind: read
;; data: 8
lddw %r6, 0x30000000000
stdw [%r6+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= effects: writes_globals
;= main: frame 0
;=   2: data

;;; an atomic on data
;; kind: read
;; data: 8
lddw %r6, 0x30000000000
mov %r0, 1
lock add [%r6+0], %r0
exit
;= verify: ok
;= stack: 0
;= effects: writes_globals
;= main: frame 0
;=   3: data

;;; a load from data is none
;; kind: read
;; data: 8
lddw %r6, 0x30000000000
ldxdw %r0, [%r6+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   2: data

;;; a helper writes data
;; kind: read
;; data: 8
lddw %r1, 0x30000000000
mov %r2, 0
mov %r3, 8
call helper ds_memset
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= effects: writes_globals
;= main: frame 0

;;; a store through an unknown pointer in a program that names its data
;; kind: read
;; data: 8
lddw %r6, 0x30000000000
ldxdw %r7, [%r6+0]
stdw [%r7+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= effects: writes_globals
;= main: frame 0
;=   2: data
;=   3: unknown

;;; a store through an unknown pointer in a program that does not
;; kind: read
;; data: 8
ldxdw %r7, [%r2+0]
stdw [%r7+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: input
;=   1: unknown

;;; the clock
call helper ds_now
exit
;= verify: ok
;= stack: 0
;= effects: uses_clock
;= main: frame 0

;;; a log
;; rodata: 8
lddw %r1, 0x20000000000
mov %r2, 8
call helper ds_log
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= effects: does_io
;= main: frame 0

;;; the state region by its address
;; kind: read
lddw %r6, 0xb0000000000
ldxdw %r0, [%r6+0]
exit
;= verify: ok
;= stack: 0
;= effects: uses_state
;= main: frame 0
;=   2: state

;;; the state of a Delilah program
;; kind: delilah
stdw [%r3+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= effects: uses_state
;= main: frame 0
;=   0: state

;;; a Delilah program that leaves the state alone
;; kind: delilah
ldxb %r0, [%r1+0]
exit
;= verify: ok
;= stack: 0
;= main: frame 0
;=   0: range 0

;;; a Delilah program with a pointer of unknown origin
;; kind: delilah
ldxdw %r6, [%r1+0]
ldxb %r0, [%r6+0]
exit
;= verify: ok
;= stack: 0
;= effects: uses_state
;= main: frame 0
;=   0: range 0
;=   1: unknown

;;; a store through a pointer that a constant holds
;; kind: read
;; data: 8
;; rodata: 8
lddw %r6, 0x20000000000
ldxdw %r7, [%r6+0]
stdw [%r7+0], 1
mov %r0, 0
exit
;= verify: ok
;= stack: 0
;= effects: writes_globals
;= main: frame 0
;=   2: rodata
;=   3: unknown
