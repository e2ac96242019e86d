"""Symbolic links in exports, as data sets kept by git-annex have them, and names found in the same order here and there.

The statistics of an array whose chunks were links were those of its fill value, without a word: listings left links out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import diskside
import fsspec
import numpy
import pandas
import pytest
import zarr
from diskside.zarr import ZarrStore, histogram, statistics


def moved_away(path: Path, store: Path) -> None:
    """Moves a file or directory to a store of the same export, and leaves a link in its place."""
    store.mkdir(exist_ok=True)
    target = store / "-".join(path.parts[-3:])
    shutil.move(path, target)
    path.symlink_to(Path(*[".."] * len(path.parent.relative_to(store.parent).parts)) / target.relative_to(store.parent))


@pytest.mark.parametrize("what", ["c/0/0", "c/1", "c"])
@pytest.mark.parametrize("shards", [None, (4, 4)])
def test_statistics_of_chunks_behind_links(server, directory, what, shards):
    values = numpy.arange(64, dtype="i4").reshape(8, 8)
    array = zarr.create_array(directory / "a.zarr", shape=(8, 8), chunks=(2, 2), shards=shards, dtype="i4", fill_value=-7)
    array[:] = values
    moved_away(directory / "a.zarr" / what, directory / "store")
    url = f"{server.url}/a.zarr"
    assert statistics(url).sum == values.sum() and statistics(url).min == 0
    assert (histogram(url, bins=5)[0] == numpy.histogram(values, bins=5)[0]).all()
    assert (zarr.open_array(ZarrStore(url, read_only=True), mode="r")[:] == values).all()


def test_a_link_to_itself_ends(server, directory):
    array = zarr.create_array(directory / "a.zarr", shape=(8, 8), chunks=(2, 2), dtype="i4", fill_value=-7)
    array[:4] = 1
    (directory / "a.zarr" / "c" / "3").symlink_to("../c")
    assert statistics(f"{server.url}/a.zarr").sum == 32 - 7 * 32


def test_a_chunk_that_is_a_link_to_nothing_is_no_fill_value(server, directory):
    array = zarr.create_array(directory / "a.zarr", shape=(8,), chunks=(2,), dtype="i4")
    array[:4] = 1
    (directory / "a.zarr" / "c" / "3").symlink_to("not-fetched")
    with pytest.raises(diskside.NotFoundError, match="c/3"):
        statistics(f"{server.url}/a.zarr")


def test_tables_behind_links_are_read(server, directory):
    table = pandas.DataFrame({"n": range(10)})
    (directory / "tables").mkdir()
    for part in ("one", "two"):
        table.to_parquet(directory / "tables" / f"{part}.parquet")
    moved_away(directory / "tables" / "two.parquet", directory / "store")
    (directory / "tables" / "gone.parquet").symlink_to("nowhere")
    (directory / "tables" / "up").symlink_to("../tables")
    fs, root = fsspec.core.url_to_fs(f"{server.url}/tables")
    assert [Path(name).name for name in fs.find(root)] == ["gone.parquet", "one.parquet", "two.parquet"]
    kinds = {Path(entry["name"]).name: (entry["type"], entry["size"]) for entry in fs.ls(root, detail=True)}
    length = (directory / "tables" / "one.parquet").stat().st_size
    assert kinds["one.parquet"] == kinds["two.parquet"] == ("file", length)
    assert kinds["gone.parquet"][0] == kinds["up"][0] == "link"
    (directory / "tables" / "gone.parquet").unlink()
    assert len(pandas.read_parquet(f"{server.url}/tables")) == 20


NAMES = ["b", "a.log", "a/z.log", "a/.hidden/h.log", "a-b/x.log", "ä.log", "[1].log", ".first.log", "a/deep/er/y.log"]


@pytest.mark.parametrize("pattern", ["", "**/*.log", "*/*.log", "a/**", "[ab]*.log", "?.log", "**/[!a]*/*.log", "link/*.log", "*"])
def test_a_pattern_means_the_same_files_in_the_same_order_here_and_at_a_server(tmp_path, pattern):
    directory = tmp_path / "names"
    for name in NAMES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"{name}\n")
    (directory / "link").symlink_to("a")
    (directory / "to.log").symlink_to("a/z.log")
    with diskside.serve(directory) as names:
        how = {"recursive": not pattern, "pattern": "."}
        here = diskside.run("regex", str(directory / pattern), **how).text
        assert here == diskside.run("regex", f"{names.url}/{pattern}", **how).text
        assert here
