"""Zarr arrays: the suite of zarr-python's stores, and arrays of both formats."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.testing.store import StoreTests

import diskside
from diskside.zarr import ZarrStore


class TestZarrStore(StoreTests[ZarrStore, cpu.Buffer]):
    store_cls = ZarrStore
    buffer_cls = cpu.Buffer

    @pytest.fixture(autouse=True)
    def _served(self, tmp_path):
        with diskside.serve(tmp_path, rw=True) as server:
            self.root = tmp_path
            self.url = f"{server.url}/store"
            yield

    @pytest.fixture
    def store_kwargs(self, _served) -> dict[str, Any]:
        return {"url": self.url}

    def _path(self, key: str) -> Path:
        return self.root / "store" / key

    async def set(self, store: ZarrStore, key: str, value: Buffer) -> None:
        self._path(key).parent.mkdir(parents=True, exist_ok=True)
        self._path(key).write_bytes(value.to_bytes())

    async def get(self, store: ZarrStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(self._path(key).read_bytes())

    def test_store_repr(self, store: ZarrStore) -> None:
        assert repr(store) == f"ZarrStore({self.url!r})" and str(store) == self.url

    def test_store_supports_writes(self, store: ZarrStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: ZarrStore) -> None:
        assert store.supports_listing


@pytest.fixture
def url(server):
    return f"{server.url}/arrays/a.zarr"


@pytest.mark.parametrize("dtype", ["<f8", ">i4", "<u2"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_both_formats_have_edges_and_holes(url, directory, zarr_format, dtype):
    array = zarr.create_array(
        ZarrStore(url), shape=(25, 30), chunks=(10, 8), dtype=dtype, fill_value=7, zarr_format=zarr_format, overwrite=True
    )
    values = numpy.arange(25 * 30).reshape(25, 30).astype(dtype)
    array[:20] = values[:20]
    again = zarr.open_array(ZarrStore(url, read_only=True), mode="r")
    assert (again[:20] == values[:20]).all() and (again[20:] == 7).all()
    assert (again[5:23:3, 29] == numpy.where(numpy.arange(5, 23, 3) < 20, values[5:23:3, 29], 7)).all()
    # What it wrote, zarr's own store reads.
    local = zarr.open_array(directory / "arrays" / "a.zarr", mode="r")
    assert (local[:] == again[:]).all()


def test_a_missing_array_is_not_there(url):
    with pytest.raises(FileNotFoundError):
        zarr.open_array(ZarrStore(url), mode="r")
    with pytest.raises(diskside.UsageError, match="is no directory of an export"):
        ZarrStore("/local/path")


def test_gets_of_one_turn_travel_together(url):
    store = ZarrStore(url)
    array = zarr.create_array(store, shape=(64, 64), chunks=(8, 8), dtype="i4")
    array[:] = numpy.arange(64 * 64).reshape(64, 64)
    read = zarr.open_array(store, mode="r")
    before = read.store.batches
    with zarr.config.set({"async.concurrency": 64}):
        assert read[:].sum() == 64 * 64 * (64 * 64 - 1) // 2
    assert 1 <= read.store.batches - before <= 2, "there are 64 chunks"


@pytest.mark.parametrize("index_location", ["start", "end"])
def test_a_row_through_shards(url, index_location):
    """zarr asks for one chunk behind another: of 10 in each of 4 shards, 44 requests and 11 round trips."""
    shards = {"shape": (10, 200), "index_location": index_location}
    store = ZarrStore(url)
    array = zarr.create_array(store, shape=(40, 800), shards=shards, chunks=(5, 20), dtype="i4", overwrite=True)
    values = numpy.arange(40 * 800).reshape(40, 800)
    array[:] = values
    array[10:15, 40:100] = 0
    values[10:15, 40:100] = 0
    read = zarr.open_array(store, mode="r")
    # Opened for reading, an array has a store of its own.
    before = read.store.batches
    assert (read[5] == values[5]).all()
    # The indices, then all chunks. A batch is a round trip, and the first one looks the files up in another: 3.
    assert read.store.batches - before == 2
    for selection in [numpy.s_[12], numpy.s_[3:38, 100:700:7], numpy.s_[:], numpy.s_[11, 41], numpy.s_[[1, 7, 39], :]]:
        assert (read.oindex[selection] == values[selection]).all(), selection
    again = zarr.open_array(store, mode="r")
    numbers = again.vindex[[1, 39, 12], [0, 799, 50]]
    assert numbers.tolist() == [values[1, 0], values[39, 799], 0]


def test_a_row_through_shards_that_are_known_takes_two_round_trips(url, server, directory):
    """Files that were open a moment ago were looked for before anything was read of them: indexes took two round trips, however
    often they were read. They are read while they are looked for; another file of the same name is still noticed."""
    with server.connect() as session:
        store = ZarrStore(url, session=session)
        array = zarr.create_array(store, shape=(40, 80), shards=(40, 20), chunks=(5, 5), dtype="i4")
        values = numpy.arange(40 * 80).reshape(40, 80)
        array[:] = values
        read = zarr.open_array(store, mode="r")
        for row in [3, 30, 3]:
            # Longer than a file counts as open without being looked for.
            time.sleep(0.15)
            assert (read[row] == values[row]).all()
        other = zarr.create_array(ZarrStore(f"{server.url}/other", session=session), shape=(40, 80), shards=(40, 20), chunks=(5, 5), dtype="i4")
        other[:] = -values
        for shard in range(4):
            (directory / "other" / "c" / "0" / str(shard)).rename(directory / "arrays" / "a.zarr" / "c" / "0" / str(shard))
        time.sleep(0.15)
        assert (read[7] == -values[7]).all()


def test_shards_of_other_stores_are_read_as_before(directory):
    array = zarr.create_array(directory / "local", shape=(8, 8), shards=(4, 4), chunks=(2, 2), dtype="i4")
    array[:] = 5
    assert (zarr.open_array(directory / "local", mode="r")[3] == 5).all()


async def test_keys_are_what_they_are(url, directory):
    store = await ZarrStore.open(url)
    await store.set("a%41/100%", cpu.Buffer.from_bytes(b"x"))
    assert (directory / "arrays" / "a.zarr" / "a%41" / "100%").read_bytes() == b"x"
    assert [key async for key in store.list()] == ["a%41/100%"]
    assert [key async for key in store.list_dir("a%41")] == ["100%"]
    await store.delete("a%41/100%")
    assert not await store.exists("a%41/100%")


def test_groups_and_attributes(server):
    root = zarr.create_group(ZarrStore(f"{server.url}/group"))
    root.create_array("x/y", shape=(4,), dtype="u1")[:] = [1, 2, 3, 4]
    root.attrs["unit"] = "m"
    again = zarr.open_group(ZarrStore(f"{server.url}/group"), mode="r")
    assert again.attrs["unit"] == "m" and again["x/y"][:].tolist() == [1, 2, 3, 4]
    assert sorted(again["x"].array_keys()) == ["y"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_xarray_stands_on_top(server, zarr_format):
    """A data set of variables that share their dimensions: written, read in part, and each reduced at the server."""
    import xarray
    from diskside.zarr import statistics

    values = numpy.random.default_rng(3).normal(size=(30, 40))
    coordinates = {"day": numpy.datetime64("2026-01-01") + numpy.arange(30), "place": numpy.arange(40)}
    written = xarray.Dataset({"heat": (("day", "place"), values), "rain": (("day",), values[:, 0])}, coordinates)
    store = ZarrStore(f"{server.url}/days.zarr")
    written.to_zarr(store, zarr_format=zarr_format, consolidated=False, encoding={"heat": {"chunks": (7, 11)}})
    read = xarray.open_zarr(ZarrStore(f"{server.url}/days.zarr", read_only=True), consolidated=False, chunks=None)
    xarray.testing.assert_identical(read.load(), written)
    part = read.heat.sel(day="2026-01-09", place=slice(3, 5))
    assert part.values.tolist() == values[8, 3:6].tolist()
    found = statistics(f"{server.url}/days.zarr/heat", place="device")
    assert found.count == 1200 and found.mean == pytest.approx(values.mean())
    assert (found.min, found.max) == (values.min(), values.max())
