"""Functions: shipped ones, C source, objects, Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, overload

from . import _diskside
from .errors import NoCompilerError, UsageError

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping

    import numpy as np

    from ._result import Result

_shipped: dict[str, Function] = {}


class Function:
    """A function that runs over the bytes of files, here or where they are.

    :func:`function` makes one. It belongs to no session, can be used by many threads, and pickles.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _diskside.Function) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """Its name: that of its program."""
        return self._native.name

    @property
    def kind(self) -> str:
        """``read``, ``write``, ``lambda``, ``lambda_io`` or ``delilah``; ``columns``, for ``scan(function=...)``."""
        return self._native.kind

    @property
    def object(self) -> bytes:
        """The eBPF object that it is in."""
        return self._native.object

    @property
    def combines(self) -> bool:
        """Whether results of pieces and of files are folded into one."""
        return self._native.combines

    @property
    def arguments(self) -> list[dict[str, Any]]:
        """The arguments that it takes: of each ``name``, ``expects`` (its type in words), ``default`` and ``doc``."""
        return self._native.arguments

    @property
    def help(self) -> str:
        """What it takes and gives: a line for each argument and each member of a row of its result.

        >>> print(diskside.function("stats64").help)
        stats64: results are folded
        gives count: u8, sum: i8, min: i8, max: i8
        """
        folds = "results are folded" if self.combines else "results stand one after another"
        lines = [f"{self.name}: {'selects rows' if self._native.selects else folds}"]
        if self._native.reads:
            lines.append(f"reads {', '.join(self._native.reads)}")
        for argument in self.arguments:
            default = argument["default"]
            given = "" if default is None else f" [{default}]" if default else " [none]"
            doc = f": {argument['doc']}" if argument["doc"] else ""
            lines.append(f"takes {argument['name']}, {argument['expects']}{given}{doc}")
        fields = self._native.fields
        if self._native.selects:
            lines.append("gives the rows that it selects")
        elif fields is None:
            lines.append("gives bytes")
        else:
            members = [f"{name}: {kind}{'' if count is None else f'[{count}]'}" for name, kind, _, count in fields[0]]
            lines.append(f"gives {', '.join(members)}")
        return "\n".join(lines)

    @property
    def columns(self) -> list[str]:
        """The names of the members of a row of its result; none if results are bytes."""
        fields = self._native.fields
        return [] if fields is None else [name for name, *_ in fields[0]]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of a row of its result: structured, little-endian, with the C structure's offsets and size.

        Text (``char`` arrays) is ``S``, bytes without padding zeroes; other arrays are subarrays.

        :raises UsageError: results are not made of rows.
        """
        import numpy

        fields = self._native.fields
        if fields is None:
            raise UsageError(f"{self.name}: its results are not made of rows; use result.bytes")
        names, formats, offsets = [], [], []
        for name, kind, offset, count in fields[0]:
            names.append(name)
            formats.append(_format(kind, count))
            offsets.append(offset)
        return numpy.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": fields[1]})

    def encode(
        self, arguments: Mapping[str, Any], input: _diskside.File | None = None, options: dict[str, Any] | None = None
    ) -> bytes:
        """The bytes of its argument structure.

        Values are numbers, truth values, text, bytes for ``char`` arrays, or lists, tuples and numpy arrays of those.

        :param input: what a run with these options is over: its first line has the names of its columns, if one of them goes
            by its name and no argument has the names.
        :raises UsageError: an argument is unknown, missing, or not of its type.
        """
        given = [(name, _text(self, name, value)) for name, value in arguments.items()]
        return self._native.encode(given, input, options)

    def __call__(self, files: Any, **options: Any) -> Result:
        """Runs it over files in the default session: :func:`diskside.run`."""
        from ._default import run

        return run(self, files, **options)

    def __eq__(self, other: builtins.object) -> bool:
        if not isinstance(other, Function):
            return NotImplemented
        return (self._native.hash, self.name) == (other._native.hash, other.name)

    def __hash__(self) -> int:
        return hash((self._native.hash, self.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (self.object, self.name)

    def __repr__(self) -> str:
        takes = ", ".join(argument["name"] for argument in self.arguments)
        return f"<diskside.Function {self.kind}/{self.name}({takes})>"


@overload
def function(
    what: Function | str | os.PathLike[str] | bytes | None = None,
    *,
    source: str | None = None,
    name: str | None = None,
) -> Function: ...
@overload
def function(
    what: Callable[..., Any],
    *,
    result: Any = None,
    records: Any = None,
    args: Mapping[str, Any] | None = None,
    combine: Callable[..., Any] | str | None = None,
    output_max: int | str | None = None,
    columns: Mapping[str, str] | None = None,
    select: bool = False,
) -> Function: ...
@overload
def function(
    *,
    result: Any = None,
    records: Any = None,
    args: Mapping[str, Any] | None = None,
    combine: Callable[..., Any] | str | None = None,
    output_max: int | str | None = None,
    columns: Mapping[str, str] | None = None,
    select: bool = False,
) -> Callable[[Callable[..., Any]], Function]: ...
def function(
    what: Function | str | os.PathLike[str] | bytes | Callable[..., Any] | None = None,
    *,
    source: str | None = None,
    name: str | None = None,
    **python: Any,
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Finds, loads or compiles a function; with ``result``, makes one of a function of Python's.

    :param what: the name of a shipped function (``shipped()`` lists them); a path to C source (``.c``) or to an eBPF object;
        the bytes of an object; or a Function, which is given back.
    :param source: instead of ``what``, C source as text. It is compiled with clang: the one that ``DISKSIDE_CLANG`` names,
        one that is installed, or that of the package ``ziglang`` (``pip install ziglang``).
    :param name: which function, if there are several.
    :param result: of a function of Python's (with numba 0.68): what a row of its result is, names and types
        such as ``{"count": "u8", "sum": "f8"}``, or what ``numpy.dtype`` takes.
    :param records: what its input is made of: a type as above; a number of bytes; ``"lines"`` or ``"bytes"``, which are given
        as an array of bytes that is cut between them; None: bytes, and it is called once, over all of them.
    :param args: its arguments: names and types, or (type, default); ``"3f8"`` is an array of three.
    :param combine: a function of (acc, part), which folds the row ``part`` into the row ``acc``: then ``out`` is one row;
        ``"concatenate"``: rows stand one after another. Without it, the function is called once.
    :param output_max: bytes of the longest result of a piece, if it is not as many rows as there are records.
    :param columns: instead of ``records``, the columns of a table that it reads, for ``scan(function=...)``: their names, and types such
        as ``"i8"``, ``"f8"``, ``"decimal(2)"`` (whole numbers with all its digits), ``"text"`` or ``"dictionary"``. ``NAME__valid``, a
        ``"u1"``, says which values of a column are there.
    :param select: its result is a byte for each row of the columns: the scan continues with the rows where it is not 0.
    :raises CompileError: the source does not compile; the text has the compiler's words, and the line.
        :class:`NoCompilerError`: there is no compiler.
    :raises RefusedError: it may not run; the text says why, where and what helps.
    :raises UsageError: nothing is called so.

    >>> diskside.function("stats64").columns
    ['count', 'sum', 'min', 'max']
    """
    if python:
        if unknown := python.keys() - _OF_PYTHON:
            raise UsageError(f"function: there is no {', '.join(sorted(unknown))}; there are source, name, {', '.join(_OF_PYTHON)}")
        if source is not None or name is not None or not (what is None or callable(what)) or isinstance(what, Function):
            raise UsageError(f"function: {', '.join(python)} is for functions of Python's: write @diskside.function(...) before def")
        return _of_python(what, python) if callable(what) else lambda written: _of_python(written, python)
    if (what is None) == (source is None):
        raise UsageError("function: give either what it is called or source=, its C source as text")
    if source is not None:
        if not isinstance(source, str):
            raise UsageError(f"function: source is C source as text, not {type(source).__name__}")
        return _load(_compiled(lambda clang: _diskside.compile_text("function.bpf.c", source, clang)), name)
    if isinstance(what, Function):
        return what
    if isinstance(what, (bytes, bytearray, memoryview)):
        return _load(bytes(what), name)
    if callable(what):
        raise UsageError("function: of a function of Python's, result= says what it gives: @diskside.function(result={'count': 'u8'})")
    if not isinstance(what, (str, os.PathLike)):
        raise UsageError(f"function: {what!r} is no name, path, object or Function")
    named = os.fspath(what)
    if named in _shipped:
        return _shipped[named]
    path, _, asked = named.rpartition(":")
    if not path.endswith(".c") or os.path.exists(named):
        path, asked = named, ""
    if path.endswith(".c"):
        return _load(_compiled(lambda clang: _diskside.compile(path, clang)), name or asked or None)
    found = Function(_diskside.find(f"{named}:{name}" if name and os.sep in named else named))
    if named in dict(_diskside.shipped()):
        _shipped[named] = found
    return found


_OF_PYTHON = ("result", "records", "args", "combine", "output_max", "columns", "select")


def _of_python(written: Callable[..., Any], said: dict[str, Any]) -> Function:
    from ._python import object_of

    asked: dict[str, Any] = {name: said.get(name) for name in _OF_PYTHON}
    return _load(object_of(written, **asked), written.__name__)


#: Kinds of functions that are not run over files: traversals follow pointers from block to block, and kernels open files themselves.
_NOT_OVER_FILES = ("traverse", "kernel")


def shipped(kind: str | None = None) -> list[str]:
    """The names of the functions that come with Diskside; every server has them.

    :param kind: those of this :attr:`Function.kind` alone, such as ``read``; also ``traverse``, for programs in Rust and C, and
        ``kernel``, for ``diskside launch``. None: those that :func:`run` takes.
    :raises UsageError: there is none of this kind.

    >>> "stats64" in diskside.shipped()
    True
    """
    kinds = dict(_diskside.shipped())
    if kind is not None and kind not in kinds.values():
        raise UsageError(f"shipped: {kind!r} is the kind of no shipped function; there are {', '.join(sorted(set(kinds.values())))}")
    return [name for name, of in kinds.items() if (of == kind if kind is not None else of not in _NOT_OVER_FILES)]


def _load(object_bytes: bytes, name: str | None) -> Function:
    return Function(_diskside.Function.load(object_bytes, name))


def _compiled(compile_by: Any) -> bytes:
    try:
        return bytes(compile_by(None))
    except NoCompilerError as error:
        zig = _zig()
        if zig is None:
            remedy = ", or the Python package ziglang (pip install ziglang)"
            raise NoCompilerError(f"{error}{remedy}") from None
        return bytes(compile_by(zig))


def _zig() -> str | None:
    """The compiler in the package ``ziglang``, which has a clang in it."""
    import importlib.util

    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        return None
    zig = os.path.join(os.path.dirname(found.origin), "zig")
    return zig if os.path.exists(zig) else None


def _format(kind: str, count: int | None) -> Any:
    if kind == "char":
        return f"S{1 if count is None else count}"
    scalar = "?" if kind == "bool" else f"<{kind}"
    return scalar if count is None else (scalar, (count,))


def _text(function: Function, name: str, value: Any) -> str:
    """A value as the command line would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        field = next((field for field in function.arguments if field["name"] == name), None)
        if field is not None and field["type"] != "char":
            return "@" + value.hex()
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{function.name}: argument `{name}`: bytes that are not UTF-8 cannot be given") from None
    if hasattr(value, "tolist"):
        # Of numpy: an array or a number, of any type and order.
        value = value.tolist()
    if isinstance(value, (list, tuple, range, set, frozenset, memoryview)):
        return ",".join(_text(function, name, one) for one in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    return str(value)
