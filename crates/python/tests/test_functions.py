"""Functions by name, source, object and text; their arguments and results."""

from __future__ import annotations

import pickle
import sys

import diskside
import numpy
import pytest
from conftest import LONGEST


def test_a_function_comes_by_name_path_object_and_text(tmp_path, directory, longest):
    path = tmp_path / "longest.bpf.c"
    path.write_text(LONGEST)
    of_object = diskside.function(longest.object)
    for function in [longest, diskside.function(path), diskside.function(f"{path}:longest"), of_object]:
        assert function.name == "longest" and function.kind == "read" and function.combines
        assert diskside.run(function, directory / "a.log")["bytes"] == 19
    assert of_object == longest and hash(of_object) == hash(longest)
    assert diskside.function("stats64") is diskside.function("stats64")
    assert diskside.function(longest) is longest
    (tmp_path / "f.o").write_bytes(longest.object)
    assert diskside.function(tmp_path / "f.o") == longest
    assert longest(directory / "a.log")["bytes"] == 19


def test_a_function_says_what_it_takes_and_gives():
    told = diskside.function("csv_aggregate").help.split("\n")
    assert told[0] == "csv_aggregate: results are folded"
    assert told[1] == "takes by, text of at most 64 bytes: column of the keys: its number from 1, or its name"
    assert told[3] == "takes delimiter, a character [,]: between the columns"
    assert told[-1] == "gives key: char[64], count: u8, sum: f8, min: f8, max: f8, not_numbers: u8"
    assert diskside.function("grep").help.split("\n")[-1] == "gives bytes"
    assert all(diskside.function(name).help for name in diskside.shipped())


def test_shipped_functions_have_kinds():
    """Which of them run over files was told by how they are called."""
    assert {"stats64", "grep", "lambda_sum"} <= set(diskside.shipped())
    for kind in ["read", "write", "lambda", "lambda_io"]:
        names = diskside.shipped(kind)
        assert names and set(names) <= set(diskside.shipped()), kind
        assert {diskside.function(name).kind for name in names} == {kind}
    for kind, command in [("traverse", "kv_get"), ("kernel", "ndp_filter")]:
        names = diskside.shipped(kind)
        assert command in names and not set(names) & set(diskside.shipped())
        for name in names:
            with pytest.raises(diskside.RefusedError, match=kind):
                diskside.function(name)
    with pytest.raises(diskside.UsageError, match="'tree' is the kind of no shipped function; there are kernel, lambda, .*, write"):
        diskside.shipped("tree")


def test_what_is_no_function_is_said():
    with pytest.raises(diskside.UsageError, match="no function is called `stats` \\(did you mean .*diskside.shipped\\(\\) gives them"):
        diskside.function("stats")
    with pytest.raises(diskside.UsageError, match="give either what it is called or source="):
        diskside.function()
    with pytest.raises(diskside.UsageError, match="3 is no name, path, object or Function"):
        diskside.function(3)
    with pytest.raises(diskside.RefusedError, match="`nope`"):
        diskside.function(source=LONGEST, name="nope")
    with pytest.raises(diskside.RefusedError):
        diskside.function(b"no object")
    with pytest.raises(FileNotFoundError):
        diskside.function("/nowhere/f.bpf.c")
    with pytest.raises(diskside.CompileError, match="^function.bpf.c does not compile:\nfunction.bpf.c:1:7: error: "):
        diskside.function(source="int f(")


def test_without_a_clang_the_remedy_is_said(monkeypatch):
    monkeypatch.delenv("DISKSIDE_CLANG", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "ziglang", None)
    monkeypatch.setattr("diskside._function._zig", lambda: None)
    with pytest.raises(diskside.NoCompilerError, match="no clang was found to compile function.bpf.c: .*pip install ziglang"):
        diskside.function(source=LONGEST)


def test_the_clang_of_the_package_ziglang_is_found(monkeypatch, tmp_path):
    """A stand-in for the package's program, which is asked for its command `clang` first."""
    import shutil

    clang = shutil.which("clang")
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__init__.py").touch()
    zig = package / "zig"
    zig.write_text(f'#!/bin/sh\n[ "$1" = clang ] || exit 9\nshift\nexec {clang} "$@"\n')
    zig.chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("DISKSIDE_CLANG", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert diskside.function(source=LONGEST).name == "longest"


def test_functions_and_results_pickle(directory, longest):
    assert pickle.loads(pickle.dumps(longest)) == longest
    result = pickle.loads(pickle.dumps(diskside.run("stats64", directory / "n.u64")))
    assert result.count == 100_000 and result.function == diskside.function("stats64")


def test_arguments_are_python_values(directory):
    run = diskside.run
    log, numbers = directory / "a.log", directory / "n.u64"
    assert run("grep", log, pattern=b"well").text == "all well\n"
    top = run("topk", numbers, k=numpy.int64(2), offset=0, row_len=8, type="i64")
    assert top["value"] == [99_999, 99_998]
    near = {"row_len": 16, "k": 1, "metric": "squared"}
    vectors = directory / "v.f32"
    numpy.array([[0, 0, 0, 0], [1, 2, 3, 4], [9, 9, 9, 9]], "<f4").tofile(vectors)
    wanted = numpy.array([[1, 2], [3, 4]], ">f8").reshape(4)
    for target in [[1.0, 2, 3, 4], (1, 2, 3, 4), wanted, wanted.astype("f4")[::1]]:
        assert run("knn_f32", vectors, args=near, target=target)["index"] == 1


def test_wrong_arguments_are_named(directory):
    log = directory / "a.log"
    for arguments, told in [
        ({}, "grep: argument `pattern` \\(text\\) must be given: "),
        ({"pattern": "x", "row_len": -1}, "grep: argument `row_len`: `-1` is not a number"),
        ({"patern": "x"}, "grep: `patern` is neither an argument of the function \\(it has row_len, pattern\\)"
         " nor an option of a run \\(did you mean pattern\\?\\)"),
        ({"pattern": "x", "palce": "host"}, "did you mean place\\?"),
        ({"pattern": "x", "args": {"pattern": "y"}}, "grep: argument `pattern` is given twice"),
        ({"pattern": b"\xff"}, "grep: argument `pattern`: bytes that are not UTF-8 cannot be given"),
    ]:
        with pytest.raises(ValueError, match=told):
            diskside.run("grep", log, **arguments)


def test_no_shipped_function_has_an_argument_called_as_an_option():
    """`offset` was an option, and of many functions an argument: they could not be given it by its name."""
    from diskside._options import OPTIONS

    names = diskside.shipped()
    assert len(names) > 10
    for name in names:
        assert not OPTIONS & {argument["name"] for argument in diskside.function(name).arguments}, name


def test_a_result_is_numpy_without_a_copy(directory):
    result = diskside.run("topk", directory / "n.u64", k=3, type="i64", row_len=8, offset=0)
    rows = result.numpy()
    assert rows.dtype.names == ("index", "value") and rows["value"].tolist() == [99_999, 99_998, 99_997]
    assert not rows.flags.owndata and not rows.flags.writeable
    assert rows.base is not None and memoryview(result).readonly
    del result
    assert rows["index"].tolist() == [99_999, 99_998, 99_997], "it keeps the memory that it looks at"


def test_a_result_of_several_rows_is_a_table(directory):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    result = diskside.run("topk", directory / "n.u64", k=2, type="i64", row_len=8, offset=0)
    assert result.rows()[0] == {"index": 99_999, "value": 99_999}
    frame = result.pandas()
    assert isinstance(frame, pandas.DataFrame) and frame.value.tolist() == [99_999, 99_998]
    assert result.arrow().to_pydict() == result.columns()
    assert pyarrow.table(result).to_pydict() == result.columns(), "by the Arrow C stream"
    with pytest.raises(AttributeError, match="value: the result has 2 rows; use result\\['value'\\], rows\\(\\)"):
        _ = result.value
    assert repr(result) == "<diskside.Result of topk: 2 rows of index, value>"


def test_text_and_arrays_in_rows(directory):
    function = diskside.function(
        source="""
#include "diskside.h"
struct row { char name[6]; __u8 flag; __s16 pair[2]; ds_f64 half; };
SEC("read/rows")
__s64 rows(struct row *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call) {
    out->name[0] = 'a'; out->name[1] = '<'; out->flag = 1; out->pair[1] = -2;
    return sizeof(*out);
}
"""
    )
    result = diskside.run(function, directory / "a.log")
    assert result.name == "a<" and result.pair == [0, -2] and result.half == 0.0
    assert result.numpy()["name"].tolist() == [b"a<"] and result.numpy()["pair"].shape == (1, 2)
    assert result.numpy().dtype.itemsize == result.nbytes == 24
    assert result.arrow().to_pylist() == [{"name": "a<", "flag": 1, "pair": [0, -2], "half": 0.0}]
    assert "<td>a&lt;</td>" in result._repr_html_() and "host: the data is here" in result._repr_html_()


def test_a_result_is_an_arrow_stream(directory):
    import gc

    import pyarrow

    result = diskside.run("topk", directory / "n.u64", k=3, type="i64", row_len=8, offset=0)
    unused = result.__arrow_c_stream__()
    del unused
    reader = pyarrow.RecordBatchReader.from_stream(result)
    assert reader.schema == pyarrow.schema(
        [pyarrow.field("index", pyarrow.uint64(), False), pyarrow.field("value", pyarrow.int64(), False)]
    )
    del result
    gc.collect()
    assert reader.read_all().to_pydict() == {"index": [99_999, 99_998, 99_997], "value": [99_999, 99_998, 99_997]}
    (directory / "empty").write_bytes(b"")
    aggregate = {"row_len": 8, "key_offset": 0, "key_type": "i64", "value_offset": 0, "value_type": "i64"}
    assert pyarrow.table(diskside.run("aggregate", directory / "empty", args=aggregate)).num_rows == 0
    with pytest.raises(diskside.UsageError, match="not made of rows"):
        diskside.run("grep", directory / "a.log", pattern="well").__arrow_c_stream__()


def test_a_long_result_is_asked_for(directory):
    """64 MiB are kept in memory if nobody says otherwise."""
    (directory / "long.log").write_bytes(b"x" * 999 + b"\n")
    long = [directory / "long.log"] * 3
    with pytest.raises(diskside.OutputFullError):
        diskside.run("grep", long, pattern="x", result_max="2kB")
    assert diskside.run("grep", long, pattern="x", result_max="3kB").nbytes == 3000


def test_bytes_are_no_rows(directory):
    result = diskside.run("grep", directory / "a.log", pattern="well")
    assert result.bytes == b"all well\n" == bytes(memoryview(result))
    assert repr(result) == "<diskside.Result of grep: 9 bytes>" and "all well" in result._repr_html_()
    for read in [result.rows, result.numpy, result.pandas]:
        with pytest.raises(diskside.UsageError, match="grep: its result"):
            read()
    with pytest.raises(AttributeError, match="the result of grep has no `lines`"):
        _ = result.lines
    with pytest.raises(KeyError, match="grep gives no `lines`"):
        result["lines"]
