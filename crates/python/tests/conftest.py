"""A real server on 127.0.0.1 over real files."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Iterator

import diskside
import numpy
import pytest

# A shell without job control has what it starts in the background ignore Ctrl-C, and so would all that the tests start: two of
# them waited for a minute, and failed.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Runs until it is stopped: the compiler cannot take its loop away.
ENDLESS = """
#include "diskside.h"
SEC("read/endless")
__s64 endless(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {
    for (volatile __u64 i = 0; i < 1ull << 62; i++) *out = i;
    return 8;
}
"""

#: The length of the longest line.
LONGEST = """
#include "diskside.h"
DS_SPLIT_LINES;
struct longest { __u64 bytes; };

SEC("read/longest")
__s64 longest(struct longest *out, const char *in, __u64 in_len, const void *args, const struct ds_call *call) {
    __u64 len = 0;
    for (__u64 i = 0; i < in_len; i++) {
        len = in[i] == '\\n' ? 0 : len + 1;
        if (len > out->bytes) out->bytes = len;
    }
    return sizeof(*out);
}

SEC("combine.unordered/longest")
__s64 longest_fold(struct longest *acc, __u64 acc_len, __u64 cap, const struct longest *part, __u64 part_len) {
    if (acc_len == 0 || part->bytes > acc->bytes) *acc = *part;
    return sizeof(*acc);
}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """``n.u64``: the numbers from 0 to 99,999; ``a.log`` and ``b.log``: lines."""
    numpy.arange(100_000, dtype="<u8").tofile(tmp_path / "n.u64")
    (tmp_path / "a.log").write_text("one ERROR here\nall well\nanother ERROR there\n")
    (tmp_path / "b.log").write_text("quiet\nthe last ERROR of them all\n")
    return tmp_path


@pytest.fixture
def server(directory: Path) -> Iterator[diskside.Server]:
    with diskside.serve(directory, rw=True, engines=2) as server:
        yield server


@pytest.fixture
def session(server: diskside.Server) -> Iterator[diskside.Session]:
    with server.connect() as session:
        yield session


@pytest.fixture(scope="module")
def endless() -> diskside.Function:
    return diskside.function(source=ENDLESS)


@pytest.fixture(scope="module")
def longest() -> diskside.Function:
    return diskside.function(source=LONGEST)
