"""Reductions of Zarr arrays at a server, beside numpy."""

from __future__ import annotations

import diskside
import numpy
import pytest
import zarr
from diskside.zarr import ZarrStore, histogram, statistics
from zarr.codecs import BytesCodec, GzipCodec, TransposeCodec, ZstdCodec

SHAPE, CHUNK = (25, 30, 7), (10, 8, 7)


def made(url, dtype, *, zarr_format=3, fill_value=3, **how):
    """An array whose last chunks are missing, and are its fill value."""
    array = zarr.create_array(
        ZarrStore(url), shape=SHAPE, chunks=CHUNK, dtype=dtype, fill_value=fill_value, zarr_format=zarr_format, overwrite=True, **how
    )
    random = numpy.random.default_rng(7)
    values = random.normal(scale=100, size=(20, *SHAPE[1:])) if array.dtype.kind == "f" else random.integers(0, 100, (20, *SHAPE[1:]))
    array[:20] = values.astype(dtype)
    return array


def same(found, values):
    assert found.count == values.size
    if values.dtype.kind == "f":
        # Sums are made in float64, in another order than numpy's.
        off = 1e-12 * numpy.abs(values).sum(dtype="f8")
        assert abs(found.sum - values.sum(dtype="f8")) <= off and abs(found.mean - values.mean(dtype="f8")) <= off / values.size
    else:
        assert (found.sum, found.mean) == (values.sum(), values.mean())
        assert found.sum.dtype == values.sum().dtype
    assert (found.min, found.max) == (values.min(), values.max())
    assert found.min.dtype == values.dtype.newbyteorder("=")


@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u2", "i4", "u8", "i8", "bool"])
def test_numbers_of_every_type(server, dtype):
    array = made(f"{server.url}/a", dtype, fill_value=1)
    found = statistics(array, place="device")
    same(found, array[:])
    for place in ["host", "auto"]:
        assert statistics(f"{server.url}/a", place=place)[:5] == found[:5], "to the last bit, wherever it is computed"


@pytest.mark.parametrize(("dtype", "low", "high"), [("u8", 2**63, 2**64 - 1), ("i8", -(2**63), -(2**62)), ("u8", 0, 2**64 - 1)])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_means_of_numbers_whose_sum_has_more_than_64_bits(server, dtype, low, high, endian):
    """Their mean was that of a sum that had wrapped."""
    array = zarr.create_array(
        ZarrStore(f"{server.url}/a"), shape=(500,), chunks=(64,), dtype=dtype, fill_value=high, serializer=BytesCodec(endian=endian)
    )
    values = numpy.random.default_rng(1).integers(low, high, 500, dtype=dtype, endpoint=True)
    values[448:] = high
    array[:448] = values[:448]
    found = statistics(array, place="device")
    assert (found.sum, found.min, found.max) == (values.sum(), values.min(), values.max())
    assert found.mean == pytest.approx(sum(map(int, values)) / 500, rel=1e-12)


BIG = BytesCodec(endian="big")


@pytest.mark.parametrize(
    ("zarr_format", "how"),
    [
        (3, {"compressors": None}),
        (3, {"compressors": GzipCodec()}),
        (3, {"compressors": ZstdCodec(level=3, checksum=True)}),
        (3, {"serializer": BIG, "compressors": None}),
        (3, {"filters": [TransposeCodec(order=(2, 0, 1))]}),
        (2, {"compressors": None}),
        (2, {"order": "F"}),
    ],
)
@pytest.mark.parametrize("dtype", [">f8", "<i2"])
def test_codecs_orders_and_formats(server, zarr_format, how, dtype):
    if zarr_format == 3:
        dtype = dtype[1:]
    array = made(f"{server.url}/a", dtype, zarr_format=zarr_format, **how)
    same(statistics(array, place="device"), array[:])


def test_numbers_of_each_chunk(server):
    array = made(f"{server.url}/group/a", "f8")
    values = array[:]
    found = statistics(array, by_chunk=True, place="device")
    assert found.count.shape == found.mean.shape == (3, 4, 1)
    for at in numpy.ndindex(3, 4, 1):
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, CHUNK, strict=True))]
        assert found.count[at] == part.size and found.min[at] == part.min() and found.max[at] == part.max()
        assert found.mean[at] == pytest.approx(part.mean(), rel=1e-12)


@pytest.mark.parametrize("dtype", ["f4", ">f4", "f8", "i2", "u8", "bool"])
def test_histograms_are_those_of_numpy(server, dtype):
    array = made(f"{server.url}/a", dtype)
    values = array[:].astype("u1") if dtype == "bool" else array[:]
    for given in [{}, {"bins": 64}, {"bins": 7, "range": (-50, 60)}, {"bins": [-10, 0, 1, 2.5, 200]}]:
        counts, edges = histogram(array, place="device", **given)
        expected, expected_edges = numpy.histogram(values, **given)
        assert (counts == expected).all() and (edges == expected_edges).all(), given
        assert edges.dtype == expected_edges.dtype


@pytest.mark.parametrize("bins", [10, 37, 999])
def test_numbers_that_are_equal_to_edges_are_in_the_bins_where_numpy_has_them(server, bins):
    """Edges of float32 arrays were float64, so that numbers on an edge fell elsewhere."""
    values = (numpy.random.default_rng(0).integers(0, 1000, 20000) / numpy.float32(10)).astype("f4")
    array = zarr.create_array(ZarrStore(f"{server.url}/t"), shape=values.shape, chunks=(3000,), dtype="f4")
    array[:] = values
    assert (histogram(array, bins=bins)[0] == numpy.histogram(values, bins=bins)[0]).all()


def test_bins_that_servers_do_not_count_are_refused(server):
    array = made(f"{server.url}/a", "f4")
    for bins in ["auto", 1 << 16, 10**8, [0, numpy.nan], [1], list(range((1 << 16) + 1))]:
        with pytest.raises(diskside.UsageError, match="bins: "):
            histogram(array, bins=bins)
    with pytest.raises(ValueError, match="monotonic"):
        histogram(array, bins=[3, 1])
    assert histogram(array, bins=(1 << 16) - 1)[0].sum() == array.size


def test_arguments_longer_than_a_request_are_refused(server):
    """A build with assertions panicked."""
    for files in (["a.log"], ["a.log"] * 20):
        with pytest.raises(diskside.DisksideError, match="the server takes 1048576"):
            server.connect().run("grep_count", files, pattern="x" * 2**20, place="device")


def test_what_is_not_a_number_and_what_is_not_there(server):
    array = zarr.create_array(ZarrStore(f"{server.url}/n"), shape=(9,), chunks=(4,), dtype="f8", fill_value=numpy.nan)
    assert numpy.isnan(statistics(array)[1:5]).all() and statistics(array).count == 9
    array[:] = numpy.arange(9)
    array[5] = numpy.nan
    found = statistics(array, place="device")
    assert numpy.isnan([found.sum, found.min, found.max]).all()
    assert histogram(array, bins=[0, 4, 8], place="device")[0].tolist() == [4, 4]
    empty = zarr.create_array(ZarrStore(f"{server.url}/e"), shape=(0, 3), chunks=(4, 4), dtype="i4")
    found = statistics(empty)
    assert (found.count, found.sum) == (0, 0) and numpy.isnan([found.mean, found.min, found.max]).all()
    with pytest.raises(FileNotFoundError):
        statistics(f"{server.url}/nothing")


def test_what_servers_do_not_reduce_is_named(server):
    url = f"{server.url}/a"
    for dtype, how, told in [
        ("c16", {}, "its elements are complex128"),
        ("f2", {}, "its elements are float16"),
    ]:
        with pytest.raises(diskside.UsageError, match=told):
            statistics(zarr.create_array(ZarrStore(url), shape=SHAPE, chunks=CHUNK, dtype=dtype, overwrite=True, **how))
    with pytest.raises(diskside.UsageError, match="is in no diskside.zarr.ZarrStore"):
        statistics(zarr.create_array({}, shape=(3,), dtype="f8"))


@pytest.mark.parametrize("place", ["host", "device"])
def test_damaged_chunks_are_named(server, directory, place):
    array = made(f"{server.url}/a", "f8", compressors=None)
    chunk = directory / "a" / "c" / "1" / "2" / "0"
    whole = chunk.read_bytes()
    for damaged in [whole[:-8], whole + bytes(8), b"", whole[:-3]]:
        chunk.write_bytes(damaged)
        with pytest.raises(diskside.DisksideError, match="a/c/1/2/0.*the chunk decodes to|a/c/1/2/0.*too many for"):
            statistics(array, place=place)
    array = made(f"{server.url}/a", "f8", compressors=GzipCodec())
    chunk.write_bytes(chunk.read_bytes()[:-20])
    with pytest.raises(diskside.DisksideError, match="a/c/1/2/0.*cut off|a/c/1/2/0.*damaged"):
        statistics(array, place=place)


def test_a_chunk_that_unfolds_to_too_much_is_refused(server, directory):
    """A kilobyte that becomes a gigabyte must not fill the server's memory."""
    import gzip

    array = made(f"{server.url}/a", "f8", compressors=GzipCodec())
    member = gzip.compress(bytes(16 << 20), 9)
    (directory / "a" / "c" / "0" / "0" / "0").write_bytes(member * 64)
    with pytest.raises(diskside.DisksideError, match="a/c/0/0/0"):
        statistics(array, place="device")


@pytest.mark.parametrize("name", ["per%41", "x y#?%41", "a%2Fb", "50%", "[1]*", "ü"])
def test_statistics_are_of_the_array_of_this_name(server, name):
    """The name was decoded once more, so they were of another array, or of the fill value."""
    group = zarr.create_group(ZarrStore(f"{server.url}/g"))
    for one, value in [(name, 1), ("perA", 100)]:
        group.create_array(one, shape=(4,), chunks=(2,), dtype="i4")[:] = value
    array = zarr.open_group(ZarrStore(f"{server.url}/g", read_only=True), mode="r")[name]
    assert array[:].sum() == statistics(array).sum == 4
    assert histogram(array, bins=1)[0].sum() == 4
