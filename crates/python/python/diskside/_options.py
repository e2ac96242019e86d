"""The options of a run, told apart from the arguments of its function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._names import size
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._function import Function

#: What a run is told besides the function's arguments.
OPTIONS = frozenset(
    "place split chunk heap range decompress header threads tier combine budget deadline result_max background durable "
    "state".split()
)
_SIZES = frozenset({"chunk", "heap", "result_max"})


def parted(by: Function, args: Mapping[str, Any] | None, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the run, and arguments of the function."""
    chosen = {name: value for name, value in options.items() if name in OPTIONS and value is not None}
    arguments = {name: value for name, value in options.items() if name not in OPTIONS}
    for name in _SIZES & chosen.keys():
        chosen[name] = size(name, chosen[name])
    if "state" in chosen and not isinstance(chosen["state"], str):
        try:
            state, length = chosen["state"]
        except (TypeError, ValueError):
            raise UsageError(f"state: {chosen['state']!r} is not a name and a size, such as ('seen', '64KiB')") from None
        chosen["state"] = (state, size("state", length))
    elif "state" in chosen:
        state, _, length = chosen["state"].partition("=")
        chosen["state"] = (state, size("state", length))
    if "range" in chosen:
        chosen |= _range(chosen.pop("range"))
    known = [argument["name"] for argument in by.arguments]
    for name in arguments:
        if name not in known:
            raise UsageError(_unknown(by, name, known))
    try:
        given = dict(args or {})
    except (TypeError, ValueError):
        raise UsageError(f"{by.name}: args: {args!r} is not a dictionary of names and values") from None
    for name, value in given.items():
        if name in arguments:
            raise UsageError(f"{by.name}: argument `{name}` is given twice")
        arguments[name] = value
    return chosen, arguments


def _range(given: Any) -> dict[str, int]:
    try:
        start, end = given
    except (TypeError, ValueError):
        raise UsageError(f"range: {given!r} is not a first byte and an end") from None
    start = size("range", start)
    if end is None:
        return {"offset": start}
    end = size("range", end)
    if end < start:
        raise UsageError(f"range: it ends at {end}, before its first byte {start}")
    return {"offset": start, "length": end - start}


def _unknown(by: Function, name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, [*known, *OPTIONS, "out", "recursive", "progress", "timeout", "args"], 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    has = ", ".join(known) or "none"
    return f"{by.name}: `{name}` is neither an argument of the function (it has {has}) nor an option of a run{hint}"
