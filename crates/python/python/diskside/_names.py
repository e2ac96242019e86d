"""Names of files, and sizes, as users write them."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from .errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from . import _diskside

_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50, "eib": 2**60}


def size(name: str, value: Any) -> int:
    """A number of bytes, or text such as ``8MiB``."""
    if isinstance(value, str):
        digits = value.strip().lower().rstrip("kmgtpeib")
        unit = value.strip().lower()[len(digits) :]
        if not digits.strip().isdecimal() or unit not in _UNITS:
            raise UsageError(f"{name}: {value!r} is no size; write bytes, or text such as '8MiB'")
        return int(digits) * _UNITS[unit]
    try:
        number = value.__index__()
    except AttributeError:
        raise UsageError(f"{name}: {value!r} is no size; write bytes, or text such as '8MiB'") from None
    if not 0 <= number < 2**64:
        raise UsageError(f"{name}: {number} is no size: it is from 0 to 2**64 - 1")
    return int(number)


def seconds(name: str, value: Any) -> float | None:
    """A time in seconds; None: none is given."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise UsageError(f"{name}: {value!r} is no number of seconds")
    return number


def server_of(url: str) -> str | None:
    """HOST:PORT of the server that has a file; None of files of this machine."""
    return url.split("://", 1)[1].split("/", 1)[0] if is_url(url) else None


def path_of(name: Any) -> str | bytes:
    """A path or URL as text."""
    try:
        text: str | bytes = os.fspath(name)
    except TypeError:
        raise UsageError(f"{name!r} is no file: give a path, a URL, an open file, or several of them") from None
    return text


_OF_EXPORTS = ("diskside", "diskside+tls", "diskside+srv", "diskside+tls+srv")
_OF_VOLUMES = ("nvme-tcp", "nvme-tcp+tls")


def is_url(name: str) -> bool:
    """Whether it names something at a server."""
    return _has_scheme(name, _OF_EXPORTS + _OF_VOLUMES)


def is_export_url(name: str) -> bool:
    """Whether it names something in an export."""
    return _has_scheme(name, _OF_EXPORTS)


def _has_scheme(name: str, schemes: tuple[str, ...]) -> bool:
    scheme, separator, _ = name.partition("://")
    return bool(separator) and scheme.lower() in schemes


def parts_of(url: str) -> tuple[str, str]:
    """Scheme and server of a URL (``diskside://HOST:PORT``), and what is behind the next slash."""
    scheme, _, rest = url.partition("://")
    server, _, path = rest.partition("/")
    return f"{scheme}://{server}", path


def export_of(url: str) -> tuple[str, str]:
    """Scheme and server of a URL, and the export."""
    server, path = parts_of(url)
    return server, path.partition("/")[0]


def joined(base: str | None, name: str | os.PathLike[str]) -> str:
    """A path or URL; a relative path is that of the base, if there is one."""
    text = path_of(name)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    for scheme in (f"{name}:/" for name in _OF_EXPORTS + _OF_VOLUMES):
        # pathlib makes one slash of two.
        if text.startswith(scheme) and not text.startswith(scheme + "/"):
            text = scheme + "/" + text.removeprefix(scheme)
    if base is not None and "://" not in text and not text.startswith("/"):
        text = f"{base.rstrip('/')}/{text}" if text else base
    return _escaped(text) if is_export_url(text) else text


def _escaped(text: str) -> str:
    """A URL whose bytes that are not UTF-8, which Python keeps as surrogates, are escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(f"%{ord(one) - 0xDC00:02X}" if "\udc80" <= one <= "\udcff" else one for one in text)
    return text


def expanded(session: _diskside.Session, name: str, recursive: bool) -> list[str]:
    """The files that a name means: those of a pattern, or below a directory, in the order of their names."""
    if is_export_url(name):
        server, path = parts_of(name)
        if not recursive and not _has_wildcards(path):
            return [name]
        found = [f"{server}/{path}" for path, _ in session.find(name, recursive)]
    elif "://" not in name and (os.path.isdir(name) if recursive else _has_wildcards(name) and not os.path.exists(name)):
        from . import _diskside

        found = _diskside.find_local(name, recursive)
    else:
        return [name]
    if not found:
        raise NotFoundError(f"{name}: there are no such files")
    return found


def _has_wildcards(path: str) -> bool:
    return any(character in path for character in "*?[")
