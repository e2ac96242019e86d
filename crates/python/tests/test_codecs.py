"""What zarr-python and numcodecs encode, reduced where it is: every codec, both byte orders, edges, fill values, shards."""

from __future__ import annotations

import asyncio
import resource
import warnings

import diskside
import numcodecs
import numpy
import pytest
import zarr
from diskside.zarr import ZarrStore, histogram, statistics
from test_chunks import CHUNK, SHAPE, made, same
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.codecs.numcodecs import LZ4, Zlib

@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("codecs")


@pytest.fixture(scope="module")
def server(directory):
    """One for all: what a test makes is in the place of what was there."""
    with diskside.serve(directory, rw=True, engines=2) as server:
        yield server


BLOSC = [
    BloscCodec(cname=cname, shuffle=shuffle, clevel=clevel)
    for cname, clevel in [("lz4", 5), ("lz4hc", 9), ("zlib", 5), ("zstd", 3), ("lz4", 0)]
    for shuffle in ["noshuffle", "shuffle", "bitshuffle"]
]
with warnings.catch_warnings():
    # What zarr says of codecs of numcodecs, which the specification does not name yet.
    warnings.simplefilter("ignore")
    OF_NUMCODECS = [LZ4(), Zlib(level=4)]
    CRC_TWICE = [Crc32cCodec(), LZ4(), Crc32cCodec()]
CODECS = [
    *BLOSC,
    GzipCodec(level=6),
    ZstdCodec(level=3),
    ZstdCodec(level=19, checksum=True),
    *OF_NUMCODECS,
    Crc32cCodec(),
    [BloscCodec(cname="zstd"), Crc32cCodec()],
    [GzipCodec(), ZstdCodec(), Crc32cCodec()],
    CRC_TWICE,
]
pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")


def told(codec):
    return str(codec.to_dict() if hasattr(codec, "to_dict") else codec)[:90]


@pytest.mark.parametrize("codec", CODECS, ids=told)
def test_every_codec_of_format_3(server, codec):
    for dtype, endian in [("f8", "little"), ("i2", "big")]:
        check(server, codec, dtype, endian)


def test_other_types(server):
    for dtype, endian in [("f4", "big"), ("u1", "little"), ("i8", "big"), ("bool", "little")]:
        check(server, BLOSC[1], dtype, endian)


def check(server, codec, dtype, endian):
    array = made(f"{server.url}/a", dtype, serializer=BytesCodec(endian=endian), compressors=codec)
    values = array[:]
    found = statistics(array, place="device")
    same(found, values)
    for place in ["host", "auto"]:
        assert statistics(array, place=place)[:5] == found[:5], "to the last bit, wherever it is computed"
    counts = histogram(array, bins=9, range=(-50, 90), place="device")[0]
    assert (counts == numpy.histogram(values.astype("f8"), bins=9, range=(-50, 90))[0]).all()


@pytest.mark.parametrize(
    "codec",
    [
        numcodecs.Blosc(cname=cname, shuffle=shuffle)
        for cname in ["lz4", "lz4hc", "zlib", "zstd"]
        for shuffle in [numcodecs.Blosc.NOSHUFFLE, numcodecs.Blosc.SHUFFLE, numcodecs.Blosc.BITSHUFFLE]
    ]
    + [numcodecs.LZ4(), numcodecs.Zlib(), numcodecs.GZip(), numcodecs.Zstd()],
    ids=str,
)
def test_every_codec_of_format_2(server, codec):
    for dtype, order, place in [(">f8", "C", "device"), ("<i4", "F", "host")]:
        array = made(f"{server.url}/a", dtype, zarr_format=2, compressors=codec, order=order)
        same(statistics(array, place=place), array[:])


@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
def test_chunks_of_many_blocks_with_a_short_last_one(server, shuffle):
    """Blocks are of some hundred KiB; none of these lengths is a multiple of anything."""
    for cname, typesize, dtype in [("lz4", None, "f8"), ("lz4", None, "i2"), ("zstd", 3, "u1"), ("lz4", 20, "i2"), ("zlib", 1, "f4")]:
        codec = BloscCodec(cname=cname, shuffle=shuffle, clevel=1, **({} if typesize is None else {"typesize": typesize}))
        url = f"{server.url}/a"
        array = zarr.create_array(ZarrStore(url), shape=(1_000_003,), chunks=(700_001,), dtype=dtype, compressors=codec, overwrite=True)
        values = (numpy.random.default_rng(5).normal(size=1_000_003) * 30).astype("i8").astype(dtype)
        array[:] = values
        same(statistics(array, place="device"), values)


@pytest.mark.parametrize("index_location", ["start", "end"])
@pytest.mark.parametrize(("codec", "dtype"), [(None, "f8"), (ZstdCodec(), "i4"), ([BloscCodec(), Crc32cCodec()], "f4")], ids=told)
def test_shards(server, dtype, codec, index_location):
    """Shards and chunks that are missing, chunks beyond the array's end, a shard that reaches beyond it."""
    shards = {"shape": (20, 16, 14), "index_location": index_location}
    array = zarr.create_array(
        ZarrStore(f"{server.url}/a"), shape=SHAPE, chunks=CHUNK, shards=shards, dtype=dtype, fill_value=3, compressors=codec, overwrite=True
    )
    values = numpy.full(SHAPE, 3, dtype)
    for part in [numpy.s_[:10, :8], numpy.s_[10:20, 24:], numpy.s_[0:12, 20:22]]:
        array[part] = values[part] = numpy.random.default_rng(7).integers(4, 900, values[part].shape)
    assert (array[:] == values).all()
    found = statistics(array, place="device")
    same(found, values)
    for place in ["host", "auto"]:
        assert statistics(array, place=place)[:5] == found[:5]
    by_chunk = statistics(array, by_chunk=True, place="device")
    assert by_chunk.count.shape == (3, 4, 1) and by_chunk.count.sum() == values.size
    for at in numpy.ndindex(3, 4, 1):
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, CHUNK, strict=True))]
        assert (by_chunk.count[at], by_chunk.sum[at], by_chunk.max[at]) == (part.size, part.sum(), part.max())
    assert (histogram(array, bins=5, place="device")[0] == numpy.histogram(values, bins=5)[0]).all()


def test_a_shard_of_many_small_chunks(server):
    """Some thousand ranges of one file, and of a short one."""
    for shape, chunk, shard in [((300, 300), (5, 5), (300, 300)), ((30, 30), (2, 2), (30, 30))]:
        url = f"{server.url}/a"
        array = zarr.create_array(ZarrStore(url), shape=shape, chunks=chunk, shards=shard, dtype="f4", compressors=ZstdCodec(), overwrite=True)
        values = numpy.random.default_rng(2).normal(size=shape).astype("f4")
        array[:] = values
        for place in ["device", "host"]:
            same(statistics(array, place=place), values)


def test_transposed_chunks_in_shards(server):
    array = zarr.create_array(
        ZarrStore(f"{server.url}/a"), shape=(12, 10), chunks=(4, 5), shards=(8, 10), dtype="i4", overwrite=True,
        filters=[TransposeCodec(order=(1, 0))],
    )
    array[:] = numpy.arange(120).reshape(12, 10)
    same(statistics(array, place="device"), array[:])


def damaged_at(server, directory, codec, change, place, told):
    array = made(f"{server.url}/a", "f8", compressors=codec)
    chunk = directory / "a" / "c" / "1" / "2" / "0"
    chunk.write_bytes(change(chunk.read_bytes()))
    with pytest.raises(diskside.DisksideError, match=f"a/c/1/2/0.*{told}") as raised:
        statistics(array, place=place)
    assert isinstance(raised.value, OSError)


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("codec", [BLOSC[1], BLOSC[11], GzipCodec(), ZstdCodec(checksum=True), *OF_NUMCODECS, Crc32cCodec()], ids=told)
def test_what_is_damaged_names_the_chunk(server, directory, codec, place):
    damaged_at(server, directory, codec, lambda whole: whole[:-20], place, "the chunk is damaged|the chunk decodes to")
    damaged_at(server, directory, codec, lambda whole: b"", place, "the chunk is damaged|the chunk decodes to 0 bytes")
    damaged_at(server, directory, codec, lambda whole: whole[:2] + b"\xff\xff\xff\xff" + whole[6:], place, "the chunk is damaged")
    damaged_at(server, directory, codec, lambda whole: bytes(len(whole)), place, "the chunk is damaged")
    damaged_at(server, directory, codec, lambda whole: bytes(1 << 20), place, "too many for")


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize(
    ("codec", "encode"),
    [
        (BloscCodec(cname="lz4"), lambda data: numcodecs.Blosc(cname="lz4").encode(data)),
        (BloscCodec(cname="zstd"), lambda data: numcodecs.Blosc(cname="zstd").encode(data)),
        (GzipCodec(), lambda data: numcodecs.GZip().encode(data)),
        (ZstdCodec(), lambda data: numcodecs.Zstd().encode(data)),
        (OF_NUMCODECS[0], lambda data: numcodecs.LZ4().encode(data)),
        (OF_NUMCODECS[1], lambda data: numcodecs.Zlib().encode(data)),
    ],
    ids=["blosc lz4", "blosc zstd", "gzip", "zstd", "lz4", "zlib"],
)
def test_chunks_of_another_length_and_bombs(server, directory, codec, encode, place):
    """Some kilobytes that become 16 MiB, in a chunk of 4,480 bytes: nothing of that is made."""
    length = 8 * int(numpy.prod(CHUNK))
    damaged_at(server, directory, codec, lambda _: encode(bytes(16 << 20)), place, f"more than the {length} bytes|too many for")
    damaged_at(server, directory, codec, lambda _: encode(bytes(length - 8)), place, f"decodes to {length - 8} bytes, and those of its array have {length}")


@pytest.mark.parametrize("place", ["host", "device"])
def test_damaged_shards_are_named(server, directory, place):
    url = f"{server.url}/a"
    array = zarr.create_array(
        ZarrStore(url), shape=(8, 8), chunks=(4, 4), shards=(8, 8), dtype="f8", compressors=ZstdCodec(), overwrite=True
    )
    array[:] = numpy.arange(64).reshape(8, 8)
    shard = directory / "a" / "c" / "0" / "0"
    whole = shard.read_bytes()

    def refused(data, why):
        shard.write_bytes(data)
        # A session that read it a moment ago takes it for the file that it was.
        with server.connect() as session, pytest.raises(diskside.DisksideError, match=f"(?=.*a/c/0/0).*({why})"):
            statistics(zarr.open_array(ZarrStore(url, session=session, read_only=True), mode="r"), place=place)

    refused(b"short", "no room for the index of a shard, which has 68 bytes")
    refused(whole[:-1] + bytes([whole[-1] ^ 1]), "the index of the shard is damaged: its checksum says")
    refused(bytes([whole[0] ^ 255]) + whole[1:], "the zstd data of the chunk is damaged")

    def with_index(entries):
        import google_crc32c

        index = numpy.array(entries, "<u8").tobytes()
        return whole[:-68] + index + google_crc32c.value(index).to_bytes(4, "little")

    entries = numpy.frombuffer(whole[-68:-4], "<u8").copy()
    for at, number, why in [(0, 2**40, "not in|no chunk"), (1, 2**63, "puts chunk"), (1, 3, "damaged"), (0, 2**64 - 2, "puts chunk \\(0, 0\\) at byte")]:
        changed = entries.copy()
        changed[at] = number
        refused(with_index(changed), why)


def test_codecs_that_servers_have_not_are_named(server):
    for how, why in [
        ({"compressors": BloscCodec(cname="blosclz")}, "its codec blosc by blosclz is none that servers have: gzip, zstd, zlib, lz4, crc32c, and blosc by"),
        ({"zarr_format": 2, "compressors": numcodecs.BZ2()}, "its codec bz2 is none"),
        ({"zarr_format": 2, "compressors": None, "filters": [numcodecs.Delta(dtype="f8")]}, "its filter Delta"),
    ]:
        with pytest.raises(diskside.UsageError, match=why):
            statistics(made(f"{server.url}/a", "f8", **how))


def replaced(shard, other, in_place):
    """The file becomes another one, or is written over."""
    data = other.read_bytes()
    if in_place:
        shard.write_bytes(data)
    else:
        fresh = shard.with_name("fresh")
        fresh.write_bytes(data)
        fresh.replace(shard)


@pytest.fixture
def two_shards(server, directory):
    """An array of one shard, the shard's file, and that of others whose chunks lie elsewhere in it; what both hold."""
    made_of = []
    for name, seed, codec in [("a", 1, ZstdCodec()), ("b", 2, ZstdCodec(level=19)), ("c", 3, ZstdCodec(level=1))]:
        url = f"{server.url}/{name}"
        array = zarr.create_array(ZarrStore(url), shape=(90, 90), chunks=(6, 9), shards=(90, 90), dtype="i4", compressors=codec, overwrite=True)
        values = numpy.random.default_rng(seed).integers(0, 10**seed, (90, 90)).astype("i4")
        array[:] = values
        made_of.append((directory / name / "c" / "0" / "0", values))
    return f"{server.url}/a", made_of


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("place", ["host", "device"])
def test_chunks_of_a_shard_are_of_the_version_of_its_index(two_shards, monkeypatch, place, in_place):
    """Where the shard became another one between its index and its chunks, some of these were taken for others."""
    url, [(shard, _), (second, after), (third, _)] = two_shards
    read, left = diskside._chunks.in_shards, [second]

    def in_shards(*given):
        indexes = list(read(*given))
        if left:
            replaced(shard, left.pop(), in_place)
        return indexes

    monkeypatch.setattr(diskside._chunks, "in_shards", in_shards)
    same(statistics(url, place=place), after)
    left += [second, third] * 3
    with pytest.raises(diskside.ChangedError, match="a/c/0/0.*another version"):
        statistics(url, place=place)


@pytest.mark.parametrize("in_place", [False, True])
def test_rows_through_a_shard_that_changes_are_of_one_version(two_shards, monkeypatch, in_place):
    url, [(shard, _), (second, after), (third, _)] = two_shards
    read, left = ZarrStore._get, [second]

    async def get(self, key, prototype, byte_range, **options):
        found = await read(self, key, prototype, byte_range, **options)
        if key == "c/0/0" and len(found[0]) == 15 * 10 * 16 + 4 and left:
            replaced(shard, left.pop(), in_place)
            # Until the file is looked for again.
            await asyncio.sleep(0.15)
        return found

    monkeypatch.setattr(ZarrStore, "_get", get)
    array = zarr.open_array(ZarrStore(url, read_only=True), mode="r")
    assert (array[40] == after[40]).all()
    left += [second, third] * 3
    with pytest.raises(diskside.ChangedError, match="a/c/0/0: the shard changed while it was read"):
        array[40]


def test_bombs_take_no_memory(server, directory):
    """256 MiB that are some kilobytes, in each of the chunks."""
    array = made(f"{server.url}/a", "f8", compressors=ZstdCodec())
    bomb = numcodecs.Zstd().encode(bytes(256 << 20))
    assert len(bomb) < 64 << 10
    for chunk in (directory / "a" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(bomb)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for place in ["device", "host"]:
        with pytest.raises(OSError, match="a/c/.*more than the 4480 bytes|too many for"):
            statistics(array, place=place, by_chunk=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "server and host are this process"
