"""The pages for users: every line of Python in them runs, and gives what stands there."""

from __future__ import annotations

import doctest
import re
from decimal import Decimal
from pathlib import Path

import datafusion
import datafusion.substrait
import diskside
import diskside.dask
import diskside.polars
import diskside.pyarrow
import duckdb
import ibis
import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """What the pages have on their disks. Relative paths are those of the same files."""
    numpy.arange(1000, dtype="<u8").tofile(tmp_path / "measured.u64")
    (tmp_path / "day1.log").write_text("one ERROR here\nall well\nanother ERROR there\n")
    (tmp_path / "day2.log").write_text("quiet\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_page(name: str, world: Path) -> int:
    text = "\n".join(re.findall(r"^```pycon\n(.*?)^```", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE))
    with diskside.serve(world, rw=True) as server:
        here = text.replace("/srv/data", str(world)).replace("//server/", f"//{server.address}/")
        here = here.replace('"server/data/', f'"{server.address}/data/')
        here = re.sub(r"diskside\.serve\(.*?\)", "served", here, count=1)
        test = doctest.DocTestParser().get_doctest(here, {"served": server}, name, name, 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        said: list[str] = []
        runner.run(test, out=said.append)
        assert not runner.failures, "".join(said)
        return runner.tries


def test_the_page_on_python(world):
    assert run_page("docs/python.md", world) > 20


def test_the_page_on_daphne(world):
    assert run_page("docs/daphne.md", world) > 5


def test_the_example_of_the_readme(world, capsys):
    text = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    with diskside.serve(world, rw=True) as server:
        exec(example.replace("//server/", f"//{server.address}/"), {})
    assert capsys.readouterr().out == "1000 499500\n"


def test_the_lines_of_the_tutorial(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs/tutorial.md").read_text()
    (tmp_path / "slow.bpf.c").write_text("".join(re.findall(r"^```c\n(.*?)^```", text, re.DOTALL | re.MULTILINE)))
    (tmp_path / "access.log").write_text("10.0.0.1 /a 200 10\n10.0.0.2 /b 404 7\n10.0.0.1 /a 200 20\n")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    with diskside.serve(tmp_path) as server:
        exec(example.replace("//localhost/logs/", f"//{server.address}/data/"), {})
    assert capsys.readouterr().out == "200 15.0\n404 7.0\n"


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_the_examples_of_scans(tmp_path):
    """Those of Spark and Ray run where these are; those of Delta and Iceberg need tables with a history."""
    rows = {
        "l_shipmode": ["MAIL", "AIR"] * 500,
        "l_quantity": range(1000),
        "l_extendedprice": [Decimal(n).scaleb(-2) for n in range(1000)],
        "l_discount": [Decimal("0.05")] * 1000,
    }
    lineitem = pa.table(rows)
    pq.write_table(lineitem, tmp_path / "lineitem.parquet")
    pq.write_table(pa.table({"n": range(20)}), tmp_path / "t.parquet")
    text = (ROOT / "docs/scan.md").read_text()
    examples = [one for one in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if not re.search("spark|ray|iceberg", one)]
    assert len(examples) >= 6
    context = datafusion.SessionContext()
    context.register_parquet("t", str(tmp_path / "t.parquet"))
    names = {"diskside": diskside, "datafusion": datafusion, "duckdb": duckdb, "ibis": ibis, "pc": pc, "schema": lineitem.schema, "context": context}
    with diskside.serve(tmp_path) as server, server.connect() as session:
        names["session"] = session
        for example in examples:
            exec(example.replace("//server/", f"//{server.address}/"), names)
        assert names["query"].arrow().to_pylist() == [{"max(t.n)": 8}]
        wanted = lineitem.to_pandas().query("l_quantity < 24").groupby("l_shipmode")["l_extendedprice"].sum()
        assert names["lineitem"].groupby("l_shipmode")["l_extendedprice"].sum().compute().to_dict() == wanted.to_dict()
