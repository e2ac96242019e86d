"""What stands around a function that numba compiled: the entry that Diskside calls, in LLVM's language, with the types of its
arguments and results for BTF, and the notes that an object says how it is to be called with."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ._columns import Column, loads, structure
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

#: ``struct ds_call`` of diskside.h.
CALL = "size:u4 flags:u4 args_len:u8 out_cap:u8 in_offset:u8 record_index:u8 source_len:u8 source_index:u4 chunk_index:u4"
_OUT_CAP_AT = 16
#: Negated, what a function returns that raised.
_EINVAL = 22


class Rows(NamedTuple):
    """Rows of a numpy dtype; ``width`` of rows that are so many bytes."""

    dtype: Any
    width: int = 0
    is_one: bool = False
    """It is one row, not an array of them."""

    @property
    def len_bytes(self) -> int:
        return self.width or int(self.dtype.itemsize)


class Shape(NamedTuple):
    """What a function is given, and gives."""

    out: Rows
    records: Rows
    args: Rows | None
    parameters: int
    """How many parameters it has: out, records, args, call."""
    defaults: dict[str, Any]
    columns: tuple[Column, ...] = ()
    """What it reads, if not records."""
    decimals: dict[str, str] = {}
    """Tags of members of its result."""


class Notes(NamedTuple):
    """How it is to be called."""

    split: tuple[int, int] | None
    concatenates: bool
    output: tuple[int, int, int] | None
    """Room for in_len * 0th / 1st + 2nd bytes."""
    selects: bool = False
    """Its output says which rows of columns are wanted."""


class Compiled(NamedTuple):
    """A function that numba compiled."""

    symbol: str
    returns: tuple[int, bool] | None
    """The bits of what it returns, and whether that is signed; None: nothing."""


def entry_module(
    name: str, place: tuple[str, int], shape: Shape, notes: Notes, main: Compiled, fold: Compiled | None
) -> str:
    """A module with the entries, which call the functions."""
    told = Metadata(*place)
    lines = [_note(kind, payload) for kind, payload in _payloads(notes)]
    used = ", ".join(f"ptr @ds_note_{kind}" for kind, _ in _payloads(notes))
    count = len(_payloads(notes))
    lines.append(f'@llvm.compiler.used = appending global [{count} x ptr] [{used}], section "llvm.metadata"')
    lines += _main(name, shape, notes, main, told)
    if fold is not None:
        lines += _fold(name, shape, fold, told)
    return "\n".join([*lines, *told.lines()])


def _payloads(notes: Notes) -> list[tuple[int, bytes]]:
    found = [(1, struct.pack("<I", 1))]
    if notes.output is not None:
        found.append((3, struct.pack("<IIQ", *notes.output)))
    if notes.split is not None:
        found.append((4, struct.pack("<II", *notes.split)))
    if notes.concatenates:
        found.append((6, struct.pack("<I", 1)))
    if notes.selects:
        found.append((8, struct.pack("<I", 1)))
    return found


def stack_note(frame_bytes: int) -> str:
    """The note of an object whose frames need more than 512 bytes."""
    return _note(2, struct.pack("<I", frame_bytes))


def _note(kind: int, payload: bytes) -> str:
    record = struct.pack("<HH", kind, len(payload)) + payload
    text = "".join(f"\\{byte:02X}" for byte in record)
    return f'@ds_note_{kind} = internal constant [{len(record)} x i8] c"{text}", section ".diskside", align 4'


def _main(name: str, shape: Shape, notes: Notes, made: Compiled, told: Metadata) -> list[str]:
    out, pointed = shape.out, None
    if shape.columns:
        before, read = loads(shape.columns)
        kind, count, pointed = "columns", "add i64 %in_len, 0", structure(f"{name}_columns", shape.columns, told)
    else:
        before, read = [], _given(shape.records, "in", "%records")
        kind, count = "read", f"udiv i64 %in_len, {shape.records.len_bytes}"
        if shape.records.dtype.names:
            pointed = told.structure(f"{name}_record", shape.records.dtype, {})
    given = ["ptr %returned", "ptr %raised", *_given(out, "out", "%records" if notes.selects else "%rows_max"), *read]
    if shape.parameters > 2:
        given.append("ptr %args")
    if shape.parameters > 3:
        given.append("ptr %call")
    types = ", ".join(one.split(" ")[0] for one in given)
    defaults = {field: f"default:{_default(value)}" for field, value in shape.defaults.items()}
    subprogram, at = told.function(
        name,
        [
            told.pointer(told.structure(f"{name}_result", out.dtype, shape.decimals)),
            told.pointer(pointed),
            told.number("u8"),
            told.pointer(None if shape.args is None else told.structure(f"{name}_args", shape.args.dtype, defaults)),
            told.pointer(None),
        ],
        ["out", "in", "in_len", "args", "call"],
    )
    return [
        f"declare i32 @{made.symbol}({types})",
        f'define i64 @{name}(ptr %out, ptr %in, i64 %in_len, ptr %args, ptr %call) section "{kind}/{name}" !dbg {subprogram} {{',
        f"  %records = {count}",
        f"  %at = getelementptr i8, ptr %call, i64 {_OUT_CAP_AT}",
        f"  %cap = load i64, ptr %at, !dbg {at}",
        f"  %rows_max = udiv i64 %cap, {out.len_bytes}",
        *before,
        *_called(made, given, at),
        *_returned(made, "%records" if notes.selects else str(out.len_bytes), out.len_bytes),
        "}",
    ]


def _default(value: Any) -> str:
    return "true" if value is True else "false" if value is False else str(value)


def _fold(name: str, shape: Shape, made: Compiled, told: Metadata) -> list[str]:
    row = told.pointer(told.structure(f"{name}_result", shape.out.dtype, shape.decimals))
    number = told.number("u8")
    subprogram, at = told.function(
        f"{name}_fold", [row, number, number, row, number], ["acc", "acc_len", "acc_cap", "part", "part_len"]
    )
    given = ["ptr %returned", "ptr %raised", "ptr %acc", "ptr %part"]
    length = shape.out.len_bytes
    return [
        f"declare i32 @{made.symbol}(ptr, ptr, ptr, ptr)",
        "declare ptr @ds_memcpy(ptr, ptr, i64)",
        f"define i64 @{name}_fold(ptr %acc, i64 %acc_len, i64 %acc_cap, ptr %part, i64 %part_len) "
        f'section "combine/{name}" !dbg {subprogram} {{',
        "  %is_first = icmp eq i64 %acc_len, 0",
        "  br i1 %is_first, label %first, label %next",
        "first:",
        f"  call ptr @ds_memcpy(ptr %acc, ptr %part, i64 {length}), !dbg {at}",
        f"  ret i64 {length}",
        "next:",
        *_called(made, given, at),
        *_returned(Compiled(made.symbol, None), str(length), length),
        "}",
    ]


def _given(rows: Rows, name: str, count: str) -> list[str]:
    """Rows as numba passes arrays, or a record: unpacked."""
    if rows.is_one:
        return [f"ptr %{name}"]
    shape, strides = [f"i64 {count}"], [f"i64 {rows.len_bytes}"]
    if rows.width:
        shape, strides = [*shape, f"i64 {rows.width}"], [*strides, "i64 1"]
    items = 1 if rows.width else rows.len_bytes
    return ["ptr null", "ptr null", f"i64 {count}", f"i64 {items}", f"ptr %{name}", *shape, *strides]


def _called(made: Compiled, given: list[str], at: str) -> list[str]:
    bits = made.returns[0] if made.returns else 64
    return [
        f"  %returned = alloca i{bits}",
        "  %raised = alloca ptr",
        f"  %status = call i32 @{made.symbol}({', '.join(given)}), !dbg {at}",
        # 0: it returned a value; -2: nothing.
        "  %no_value = icmp eq i32 %status, -2",
        "  %value = icmp eq i32 %status, 0",
        "  %well = or i1 %no_value, %value",
    ]


def _returned(made: Compiled, length: str, row_len: int) -> list[str]:
    """Of one that returns nothing this length, otherwise as many rows as it says."""
    if made.returns is None:
        return [f"  %length = select i1 %well, i64 {length}, i64 -{_EINVAL}", "  ret i64 %length"]
    bits, is_signed = made.returns
    wide = f"{'sext' if is_signed else 'zext'} i{bits} %short to i64" if bits < 64 else "add i64 %short, 0"
    return [
        f"  %short = load i{bits}, ptr %returned",
        f"  %rows = {wide}",
        f"  %bytes = mul i64 %rows, {row_len}",
        "  %is_error = icmp slt i64 %rows, 0",
        "  %own = select i1 %is_error, i64 %rows, i64 %bytes",
        f"  %length = select i1 %well, i64 %own, i64 -{_EINVAL}",
        "  ret i64 %length",
    ]


#: Of each of numpy's types the name in C, and DWARF's word for what it is.
_NUMBERS = {
    "u1": ("__u8", "unsigned_char"),
    "u2": ("__u16", "unsigned"),
    "u4": ("__u32", "unsigned"),
    "u8": ("__u64", "unsigned"),
    "i1": ("__s8", "signed"),
    "i2": ("__s16", "signed"),
    "i4": ("__s32", "signed"),
    "i8": ("__s64", "signed"),
    "f4": ("float", "float"),
    "f8": ("double", "float"),
    "b1": ("_Bool", "boolean"),
    "S1": ("char", "signed_char"),
}


class Metadata:
    """Debug information, from which LLVM makes BTF."""

    def __init__(self, file: str, line: int) -> None:
        self._lines: list[str] = []
        self._known: dict[str, str] = {}
        self._line = line
        self._file = self._add(f'!DIFile(filename: "{quoted(file)}", directory: "")')
        self._unit = self._add(
            f'distinct !DICompileUnit(language: DW_LANG_C99, file: {self._file}, producer: "diskside", isOptimized: true, '
            "runtimeVersion: 0, emissionKind: FullDebug)"
        )

    def lines(self) -> list[str]:
        at = len(self._lines)
        flags = [f'!{at} = !{{i32 2, !"Dwarf Version", i32 4}}', f'!{at + 1} = !{{i32 2, !"Debug Info Version", i32 3}}']
        return [
            *self._lines,
            *flags,
            f"!llvm.dbg.cu = !{{{self._unit}}}",
            f"!llvm.module.flags = !{{!{at}, !{at + 1}}}",
        ]

    def function(self, name: str, types: list[str], parameters: list[str]) -> tuple[str, str]:
        """A function that returns a number, and a place in it."""
        signature = self._add(f"!DISubroutineType(types: !{{{', '.join([self.number('i8'), *types])}}})")
        made = self._add(
            f'distinct !DISubprogram(name: "{name}", file: {self._file}, line: {self._line}, type: {signature}, '
            f"scopeLine: {self._line}, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: {self._unit}, "
            f"retainedNodes: !{{}})"
        )
        return made, self._add(f"!DILocation(line: {self._line}, column: 1, scope: {made})")

    def number(self, kind: str) -> str:
        name, encoding = _NUMBERS[kind]
        bits = 8 * int(kind[1:])
        return self._add(f'!DIBasicType(name: "{name}", size: {bits}, encoding: DW_ATE_{encoding})')

    def pointer(self, to: str | None) -> str:
        return self._add(f"!DIDerivedType(tag: DW_TAG_pointer_type, baseType: {to or 'null'}, size: 64)")

    def structure(self, name: str, dtype: Any, tags: dict[str, str]) -> str:
        """A structure of a dtype, with tags of members; one that is none has a member ``value``."""
        fields = {"value": (dtype, 0)} if dtype.names is None else dtype.fields
        members = []
        for field, (kind, offset, *_) in fields.items():
            members.append(self._member(field, self._field(name, field, kind), kind.itemsize, offset, tags.get(field, "")))
        return self._composite(name, dtype.itemsize, members)

    def members(self, name: str, members: list[tuple[str, str, int, str]]) -> str:
        """A structure of members one after another: each with its type, its length in bytes and its tag."""
        made, at = [], 0
        for field, base, len_bytes, tag in members:
            made.append(self._member(field, base, len_bytes, at, tag))
            at += len_bytes
        return self._composite(name, at, made)

    def _member(self, name: str, base: str, len_bytes: int, offset: int, tag: str) -> str:
        tagged = f', annotations: !{{!{{!"btf_decl_tag", !"{quoted(tag)}"}}}}' if tag else ""
        return self._add(
            f'!DIDerivedType(tag: DW_TAG_member, name: "{quoted(name)}", baseType: {base}, size: {8 * len_bytes}, offset: {8 * offset}{tagged})'
        )

    def _composite(self, name: str, len_bytes: int, members: list[str]) -> str:
        return self._add(
            f'!DICompositeType(tag: DW_TAG_structure_type, name: "{name}", file: {self._file}, line: {self._line}, '
            f"size: {8 * len_bytes}, elements: !{{{', '.join(members)}}})"
        )

    def _field(self, structure: str, name: str, dtype: Any) -> str:
        if dtype.subdtype is not None:
            element, shape = dtype.subdtype
            return self._array(self._field(structure, name, element), shape, dtype.itemsize)
        if dtype.kind == "S":
            return self._array(self.number("S1"), (dtype.itemsize,), dtype.itemsize)
        kind = f"{dtype.kind}{dtype.itemsize}"
        if kind not in _NUMBERS or dtype.names is not None:
            raise UsageError(f"{structure}: `{name}` is of the type {dtype}; members are numbers, S, and arrays of them")
        return self.number(kind)

    def _array(self, element: str, shape: tuple[int, ...], len_bytes: int) -> str:
        ranges = ", ".join(self._add(f"!DISubrange(count: {count})") for count in shape)
        return self._add(
            f"!DICompositeType(tag: DW_TAG_array_type, baseType: {element}, size: {8 * len_bytes}, elements: !{{{ranges}}})"
        )

    def _add(self, node: str) -> str:
        known = self._known.get(node)
        if known is None:
            known = f"!{len(self._lines)}"
            self._lines.append(f"{known} = {node}")
            if not node.startswith("distinct"):
                self._known[node] = known
        return known


def quoted(text: str) -> str:
    """As text stands in quotes in LLVM's language."""
    return "".join(
        character if " " <= character <= "~" and character not in '"\\' else "".join(f"\\{byte:02X}" for byte in character.encode())
        for character in text
    )
