"""Ray over files at several servers. These need the package ray: ``scripts/python --ray``."""

from __future__ import annotations

import diskside
import numpy
import pytest

ray = pytest.importorskip("ray")

import diskside.ray  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture
def two(tmp_path):
    """Two servers, with 300,000 numbers each, one file of which comes twice."""
    numbers = numpy.arange(600_000, dtype="<u8")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    numbers[:300_000].tofile(tmp_path / "one" / "a.u64")
    numbers[300_000:].tofile(tmp_path / "two" / "b.u64")
    with diskside.serve(tmp_path / "one") as one, diskside.serve(tmp_path / "two") as other:
        yield [f"{one.url}/a.u64", f"{other.url}/b.u64"]


def test_ray_gives_what_one_run_gives(two):
    found = diskside.ray.run("stats64", two, target="400kB", record=8)
    assert found.bytes == diskside.run("stats64", two).bytes
    twice = [two[0], two[1], two[0]]
    top = {"k": 3, "type": "i64", "row_len": 8, "offset": 0}
    assert diskside.ray.run("topk", two, target="1MB", record=8, **top).rows() == diskside.run("topk", two, **top).rows()
    assert diskside.ray.run("stats64", twice, record=8).count == 900_000


def test_what_fails_is_what_failed(two):
    with pytest.raises(diskside.DeadlineError):
        diskside.ray.run(ENDLESS, two, record=8, deadline=0.2, budget=1 << 62)
    with pytest.raises(diskside.UsageError, match="at_once: 0 partitions are none"):
        diskside.ray.run("stats64", two, at_once=0)


ENDLESS = diskside.function(
    source="""
#include "diskside.h"
SEC("read/endless")
__s64 endless(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {
    for (volatile __u64 i = 0; i < 1ull << 62; i++) *out = i;
    return 8;
}
"""
)


def test_a_server_has_no_more_to_do_at_once_than_it_should():
    parts = [diskside.Partition(f"diskside://{server}/d/f", offset, 8) for server in "ab" for offset in range(0, 160, 8)]
    under_way: list[diskside.Partition] = []
    most: dict[str | None, int] = {}

    def begin(part):
        under_way.append(part)
        of_server = sum(one.server == part.server for one in under_way)
        most[part.server] = max(most.get(part.server, 0), of_server)
        return part

    def last(begun):
        under_way.remove(begun[-1])
        return begun[-1], begun[-1].offset

    results = diskside.ray.in_turn(parts, begin, last, 3)
    assert results == [part.offset for part in parts] and most == {"a": 3, "b": 3}
