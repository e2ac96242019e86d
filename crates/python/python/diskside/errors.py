"""What can go wrong, a class for each kind of failure.

Each is a :class:`DisksideError` and also the exception of Python's that says the same, so ``except FileNotFoundError`` and
``except ValueError`` work as with files of this machine.
"""

from __future__ import annotations

import errno as _errno
from typing import Any, NamedTuple

__all__ = [
    "BudgetError",
    "CancelledError",
    "ChangedError",
    "CompileError",
    "DeadlineError",
    "DeniedError",
    "DisksideError",
    "ExistsError",
    "IoError",
    "IsDirectoryError",
    "NoCompilerError",
    "NotDirectoryError",
    "NotFoundError",
    "OutputFullError",
    "RefusedError",
    "ReturnedError",
    "Trap",
    "TrapError",
    "UsageError",
]


class Trap(NamedTuple):
    """Where a function was stopped, or which error it returned."""

    kind: str | None
    """``out_of_bounds``, ``unmapped``, ``read_only``, ``misaligned``, ``budget``, ``deadline``, ``cancelled`` or ``helper``;
    None if the function itself returned an error."""
    instruction: int
    """Which instruction of its code, counted in slots of 8 bytes."""
    range: tuple[int, int]
    """First byte and end of the input that it was given, in the file; of a function over columns the row group, and the next one,
    or (0, 0) where results of several are put together."""
    region: str | None = None
    """Of an access: the memory, such as ``input`` or ``output``."""
    offset: int | None = None
    """Of an access: the offset in that memory, in bytes."""
    bound: int | None = None
    """Of an access: how long that memory is, in bytes."""
    returned: int | None = None
    """What the function returned, a negative errno."""
    file: str | None = None
    """Source file; known if the function was compiled with ``-g``."""
    line: int | None = None
    """Source line."""
    text: str | None = None
    """The text of that line."""


class DisksideError(Exception):
    """Anything that this package raises by itself."""

    kind: str = "environment"
    """What kind of failure it is, the same wherever the function ran."""
    trap: Trap | None = None
    """Where the function was stopped, if that is what failed."""

    def __init__(self, text: str = "", errno: int | None = None, trap: Trap | None = None) -> None:
        super().__init__(text)
        self.trap = trap
        self._errno = errno
        if isinstance(self, OSError):
            vars(OSError)["errno"].__set__(self, errno)
            vars(OSError)["strerror"].__set__(self, text)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self._errno, self.trap)


class UsageError(DisksideError, ValueError):
    """The call is wrong: a place, a range, an option, arguments."""

    kind = "usage"


class IoError(DisksideError, OSError):
    """A file, the network, a server or memory is at fault; ``errno`` if the system said it."""

    kind = "environment"


class NotFoundError(IoError, FileNotFoundError):
    """There is no such file or directory."""


class ExistsError(IoError, FileExistsError):
    """There is one already."""


class DeniedError(IoError, PermissionError):
    """It is not permitted, or read-only."""


class IsDirectoryError(IoError, IsADirectoryError):
    """It is a directory, and a file is needed."""


class NotDirectoryError(IoError, NotADirectoryError):
    """It is no directory, and one is needed."""


class TrapError(DisksideError, RuntimeError):
    """The function was stopped at an access that it must not make: see ``trap``."""

    kind = "trap"


class BudgetError(DisksideError, RuntimeError):
    """The function used up its loop iterations: see the option ``budget``."""

    kind = "budget"


class DeadlineError(DisksideError, TimeoutError):
    """The time was over."""

    kind = "deadline"


class OutputFullError(DisksideError, RuntimeError):
    """The function gave more output than there is room for."""

    kind = "output_full"


class ReturnedError(DisksideError, RuntimeError):
    """The function itself returned an error: see ``trap.returned``."""

    kind = "returned"


class RefusedError(DisksideError, RuntimeError):
    """The function cannot be loaded, or not be run there."""

    kind = "refused"


class CompileError(RefusedError):
    """The function's source does not compile."""


class NoCompilerError(CompileError):
    """There is no clang that compiles for eBPF."""


class ChangedError(DisksideError, RuntimeError):
    """The file changed while it was read."""

    kind = "changed"


class CancelledError(DisksideError):
    """The call was cancelled."""

    kind = "cancelled"


_BY_KIND: dict[str, type[DisksideError]] = {
    "usage": UsageError,
    "environment": IoError,
    "trap": TrapError,
    "budget": BudgetError,
    "deadline": DeadlineError,
    "output_full": OutputFullError,
    "returned": ReturnedError,
    "refused": RefusedError,
    "changed": ChangedError,
    "cancelled": CancelledError,
    "compile": CompileError,
    "no_clang": NoCompilerError,
}

_BY_ERRNO: dict[int, type[DisksideError]] = {
    _errno.ENOENT: NotFoundError,
    _errno.EEXIST: ExistsError,
    _errno.EACCES: DeniedError,
    _errno.EPERM: DeniedError,
    _errno.EROFS: DeniedError,
    _errno.EISDIR: IsDirectoryError,
    _errno.ENOTDIR: NotDirectoryError,
}


def _made(kind: str, text: str, errno: int | None, trap: dict[str, Any] | None) -> DisksideError:
    """The exception that the native part raises."""
    made = _BY_KIND[kind]
    if made is IoError and errno is not None:
        made = _BY_ERRNO.get(errno, made)
    return made(text, errno, None if trap is None else Trap(**trap, **_line(text)))


def _line(text: str) -> dict[str, Any]:
    """The source line that a message names: ``instruction 9 (sum.bpf.c:6: *out += in[i];)``."""
    import re

    begin = re.search(r"at instruction \d+ \((.*?):(\d+)(: )?", text, re.DOTALL)
    if begin is None:
        return {}
    line = None
    if begin[3]:
        ends = [end.start() for end in re.finditer(r"\)(?=[:;,. ]|$)", text[begin.end() :])]
        lines = [text[begin.end() :][:end] for end in ends]
        # The line may have parentheses of its own.
        line = next((one for one in lines if one.count("(") == one.count(")")), lines[0] if lines else None)
    return {"file": begin[1], "line": int(begin[2]), "text": line}
