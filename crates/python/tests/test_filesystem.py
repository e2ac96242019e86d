"""Files through fsspec: its own suite, and libraries that open files by it."""

from __future__ import annotations

import contextlib

import fsspec
import numpy
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from fsspec.tests import abstract

import diskside
import diskside.zarr
from diskside.filesystem import DisksideFileSystem


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def _served(self, tmp_path_factory):
        directory = tmp_path_factory.mktemp("served")
        with diskside.serve(directory, rw=True) as server:
            yield server

    @pytest.fixture(scope="class")
    def fs(self, _served):
        return DisksideFileSystem()

    @pytest.fixture
    def fs_path(self, _served):
        return _served.url.removeprefix("diskside://")

    @pytest.fixture
    def supports_empty_directories(self):
        return True


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


@pytest.fixture
def fs(server):
    return DisksideFileSystem(skip_instance_cache=True)


def test_fsspec_finds_it(server):
    with fsspec.open(f"{server.url}/a.log", "rt") as file:
        assert file.read() == "one ERROR here\nall well\nanother ERROR there\n"
    with fsspec.open(f"{server.url}/new/deep/x.txt", "wt") as file:
        file.write("whole")
    fs, path = fsspec.core.url_to_fs(f"{server.url}/new")
    assert isinstance(fs, DisksideFileSystem)
    assert fs.find(path) == [f"{path}/deep/x.txt"] and fs.cat(f"{path}/deep/x.txt") == b"whole"


def test_ranges_of_one_call_are_one_batch(fs, server):
    url = f"{server.url}/n.u64"
    before = fs._turns.batches
    paths = [url] * 30 + [f"{server.url}/a.log", f"{server.url}/nothing"]
    read = fs.cat_ranges(paths, [8 * at for at in range(30)] + [-6, 0], [8 * at + 8 for at in range(30)] + [None, 1])
    assert [int.from_bytes(one, "little") for one in read[:30]] == list(range(30))
    assert read[30] == b"there\n" and isinstance(read[31], FileNotFoundError)
    assert fs._turns.batches - before == 1
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{server.url}/nothing"], [0], [1], on_error="raise")


def test_a_file_that_grew_since_the_batch_before_is_read_whole(fs, server, directory):
    """A batch takes the files that the one before it had opened, and took their lengths, too: a file that was written anew in
    between came cut."""
    for before, after in [("short", "longer than before"), ("", "no longer empty"), ("longer than after", "short"), ("same", "size")]:
        for _ in range(5):
            (directory / "changing").write_text(before)
            assert fs.cat_file(f"{server.url}/changing") == before.encode()
            (directory / "changing").write_text(after)
            assert fs.cat_file(f"{server.url}/changing") == after.encode()


def test_pandas_and_pyarrow_open_files_unchanged(server, directory):
    frame = pandas.DataFrame({"a": range(1000), "b": numpy.linspace(0, 1, 1000)})
    frame.to_parquet(f"{server.url}/table.parquet")
    assert (directory / "table.parquet").exists()
    pandas.testing.assert_frame_equal(pandas.read_parquet(f"{server.url}/table.parquet"), frame)
    frame.to_csv(f"{server.url}/table.csv", index=False)
    pandas.testing.assert_frame_equal(pandas.read_csv(f"{server.url}/table.csv"), frame)
    fs, path = fsspec.core.url_to_fs(f"{server.url}/table.parquet")
    table = pyarrow.dataset.dataset(path, filesystem=fs).to_table(columns=["b"], filter=pyarrow.dataset.field("a") < 3)
    assert table.to_pydict() == {"b": frame.b[:3].tolist()}
    with fs.open(path) as file:
        assert pyarrow.parquet.read_table(file, columns=["a"])["a"].to_pylist() == list(range(1000))


def test_dask_and_xarray_open_files_unchanged(server):
    import dask.bag
    import xarray

    for at in range(3):
        with fsspec.open(f"{server.url}/part{at}.csv", "wt") as file:
            file.writelines(f"{at},{number}\n" for number in range(100))
    lines = dask.bag.read_text(f"{server.url}/part*.csv").map(lambda line: int(line.split(",")[1]))
    assert lines.sum().compute(scheduler="threads") == 3 * 4950
    grid = xarray.DataArray(numpy.arange(12.0).reshape(3, 4), dims=("row", "column"), name="grid")
    grid.to_dataset().to_zarr(f"{server.url}/grid.zarr", consolidated=False, zarr_format=2)
    read = xarray.open_zarr(f"{server.url}/grid.zarr", consolidated=False, chunks=None)
    assert read.grid.sum() == 66


def test_no_more_is_read_than_needed(fs, server, directory, monkeypatch):
    """By blocks and read-ahead, a column of eight took all of the file."""
    columns = {f"c{at}": numpy.random.default_rng(at).integers(0, 2**60, 50_000) for at in range(8)}
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, directory / "wide.parquet", row_group_size=10_000, compression="none", use_dictionary=False)
    moved = []
    fetch = diskside.filesystem.DisksideFile._fetch_range
    monkeypatch.setattr(diskside.filesystem.DisksideFile, "_fetch_range", lambda *given: moved.append(fetch(*given)) or moved[-1])
    with fs.open(f"{server.url}/wide.parquet") as file:
        read = pyarrow.parquet.read_table(file, columns=["c3"], pre_buffer=False)
    assert read["c3"].to_numpy().tolist() == columns["c3"].tolist()
    metadata = pyarrow.parquet.read_metadata(directory / "wide.parquet")
    needed = sum(metadata.row_group(at).column(3).total_compressed_size for at in range(metadata.num_row_groups))
    assert needed <= sum(map(len, moved)) <= needed + 2 * (64 << 10), "the footer comes besides"


def test_lines_are_read_ahead_of(fs, server, directory, monkeypatch):
    lines = [f"line {at}\n" for at in range(100_000)]
    (directory / "lines.txt").write_text("".join(lines))
    moved = []
    fetch = diskside.filesystem.DisksideFile._fetch_range
    monkeypatch.setattr(diskside.filesystem.DisksideFile, "_fetch_range", lambda *given: moved.append(fetch(*given)) or moved[-1])
    with fs.open(f"{server.url}/lines.txt", "r") as file:
        assert list(file) == lines
    assert len(moved) < 30 and sum(map(len, moved)) == (directory / "lines.txt").stat().st_size


def test_a_file_appears_when_it_is_closed(fs, server, directory):
    with fs.open(f"{server.url}/big.bin", "wb", block_size=1 << 20) as file:
        for _ in range(5):
            file.write(bytes(1 << 20))
        assert not (directory / "big.bin").exists()
    assert (directory / "big.bin").stat().st_size == 5 << 20
    with fs.open(f"{server.url}/big.bin", "ab") as file:
        file.write(b"end")
    assert fs.cat_file(f"{server.url}/big.bin", start=-3) == b"end"
    with fs.transaction:
        with fs.open(f"{server.url}/later.bin", "wb") as file:
            file.write(b"x")
        assert not (directory / "later.bin").exists()
    assert (directory / "later.bin").read_bytes() == b"x"
    with pytest.raises(FileExistsError):
        fs.open(f"{server.url}/later.bin", "xb")


def test_a_server_that_vanishes_while_a_file_is_written_is_named_once(directory):
    server = diskside.serve(directory, rw=True)
    with server.connect(connect_timeout=1, loss_timeout=0.2) as session:
        fs = DisksideFileSystem(session=session, skip_instance_cache=True)
        with pytest.raises(OSError, match="lost") as told:
            with fs.open(f"{server.url}/half.bin", "wb", block_size=1 << 20) as file:
                file.write(bytes(5 << 20))
                server.close()
                for _ in range(20):
                    file.write(bytes(5 << 20))
    assert str(told.value).count(f"{server.url}/half.bin") == 1
    assert not (directory / "half.bin").exists()


def test_a_file_whose_writer_fails_does_not_appear(fs, server, directory):
    """It had its name, and the bytes that were written before."""
    (directory / "kept.bin").write_bytes(b"as it was")
    for name in ["kept.bin", "half.bin"]:
        with pytest.raises(KeyboardInterrupt):
            with fs.open(f"{server.url}/{name}", "wb", block_size=1 << 20) as file:
                file.write(bytes(5 << 20))
                raise KeyboardInterrupt
    assert (directory / "kept.bin").read_bytes() == b"as it was" and not (directory / "half.bin").exists()


def test_an_open_file_outlives_its_server(directory):
    """What was open was read by a handle that the new server does not know."""
    server = diskside.serve(directory)
    with server.connect(loss_timeout=30) as session:
        fs = DisksideFileSystem(session=session, skip_instance_cache=True)
        with fs.open(f"{server.url}/a.log", "rb") as file:
            assert file.read(3) == b"one"
            server.close()
            with diskside.serve(directory, listen=server.address):
                assert file.read() == b" ERROR here\nall well\nanother ERROR there\n"


def test_names_change_and_go(fs, server, directory):
    root = server.url
    fs.makedirs(f"{root}/d/e")
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{root}/d/e")
    fs.pipe({f"{root}/d/e/x": b"x", f"{root}/d/y": b"y"})
    fs.mv(f"{root}/d/y", f"{root}/d/e")
    assert sorted(fs.find(f"{root}/d")) == [fs._strip_protocol(f"{root}/d/e/{name}") for name in "xy"]
    assert fs.glob(f"{root}/d/*/x") == [fs._strip_protocol(f"{root}/d/e/x")]
    assert fs.ls(f"diskside://{server.address}", detail=False) == [f"{server.address}/data"]
    first = fs.ukey(f"{root}/d/e/x")
    fs.pipe_file(f"{root}/d/e/x", b"xx")
    assert fs.ukey(f"{root}/d/e/x") != first and fs.modified(f"{root}/d/e/x").year >= 2020
    with pytest.raises(OSError):
        fs.rm(f"{root}/d")
    fs.rm(f"{root}/d", recursive=True)
    assert not fs.exists(f"{root}/d") and not (directory / "d").exists()


def test_urls_that_want_tls_go_everywhere(server):
    """Only sessions knew them: everything else took them for paths of this machine."""
    url = server.url.replace("diskside://", "diskside+tls://")
    fs, path = fsspec.core.url_to_fs(f"{url}/a.log")
    assert type(fs).__name__ == "DisksideTlsFileSystem" and fs.unstrip_protocol(path) == f"{url}/a.log"
    assert fs._url(path) == f"{url}/a.log"
    # This server has no keys, and hosts without one do not speak TLS: they never fall back to a plain connection.
    with diskside.connect(url) as session:
        for use in [
            lambda: fs.cat(path),
            lambda: pandas.read_csv(f"{url}/a.log"),
            lambda: session.ls(),
            lambda: session.ls(url.rpartition("/")[0]),
            lambda: session.run("wc", f"{url}/*.log"),
            lambda: diskside.partitions(f"{url}/n.u64", record=8),
            lambda: diskside.zarr.statistics(f"{url}/grid.zarr"),
        ]:
            with pytest.raises(OSError, match="TLS"):
                use()


#: More than fsspec keeps before it writes.
BLOCKS = b"x" * (6 << 20)


@pytest.mark.parametrize("piece", [b"abc\n", BLOCKS])
@pytest.mark.parametrize("how", [{"mode": "wb"}, {"mode": "wt"}, {"mode": "wb", "compression": "gzip"}])
@pytest.mark.parametrize("opened", ["fsspec", "filesystem", "contextmanager"])
def test_a_with_block_that_ends_by_an_exception_leaves_the_file_as_it_was(server, directory, piece, how, opened):
    """fsspec.open, text and gzip close what they wrap as if all were written: the old file was lost for a part of the new one."""
    (directory / "old.log").write_bytes(b"OLD")
    data = piece.decode() if how["mode"] == "wt" else piece

    @contextlib.contextmanager
    def wrapped(url):
        with fsspec.open(url, **how) as file:
            yield file

    for name in ("old.log", "new.log"):
        url = f"{server.url}/{name}"
        open_ = {
            "fsspec": lambda url=url: fsspec.open(url, **how),
            "filesystem": lambda url=url: fsspec.filesystem("diskside").open(url, **how),
            "contextmanager": lambda url=url: wrapped(url),
        }[opened]
        with pytest.raises(KeyError), open_() as file:
            file.write(data)
            raise KeyError
        assert [path.name for path in directory.glob("*.log*") if path.name.startswith("new")] == []
        assert (directory / "old.log").read_bytes() == b"OLD"
        with open_() as file:
            file.write(data)
        assert (directory / name).stat().st_size > 0 and (name == "new.log" or (directory / name).read_bytes() != b"OLD")
        (directory / "old.log").write_bytes(b"OLD")


def test_what_is_written_while_an_exception_is_handled_appears(server, directory):
    file = fsspec.open(f"{server.url}/handled.log", "wb").open()
    try:
        raise KeyError
    except KeyError:
        file.write(b"all of it")
        file.close()
        with fsspec.open(f"{server.url}/inside.log", "wt") as other:
            other.write("this, too")
    assert (directory / "handled.log").read_bytes() == b"all of it"
    assert (directory / "inside.log").read_bytes() == b"this, too"


def test_directories_are_removed_or_it_is_said_why_not(server, directory):
    fs, root = fsspec.core.url_to_fs(server.url)
    (directory / "full" / "inner").mkdir(parents=True)
    fs.rmdir(f"{root}/full/inner")
    fs.rmdir(f"{root}/full")
    assert not (directory / "full").exists()
    (directory / "full" / "inner").mkdir(parents=True)
    for path, error in [("full", OSError), ("nowhere", FileNotFoundError), ("a.log", NotADirectoryError)]:
        with pytest.raises(error):
            fs.rmdir(f"{root}/{path}")
