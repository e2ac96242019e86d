"""Machines that lack something: a slower way, or an error that says what to do."""

from __future__ import annotations

import platform
import subprocess
import sys

import numpy
import pytest

#: Forbids system calls by their numbers, as some containers do: they fail with EPERM.
WITHOUT = """
import ctypes, struct, sys
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
rules = [(LOAD, 0, 0, 0)]
for number in {numbers}:
    rules += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, 0x00050001)]
rules.append((RETURN, 0, 0, 0x7fff0000))
program = b"".join(struct.pack("HBBI", *rule) for rule in rules)
held = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(held)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0
"""
IO_URING = (425, 426, 427)


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=100, env=environment or None
    )


def test_without_io_uring_everything_works(tmp_path):
    """What forbids io_uring is common: Docker does. Servers could not be reached there, nor run."""
    numpy.arange(1000, dtype="<u8").tofile(tmp_path / "n.u64")
    run = """
import diskside
print(diskside.info()["io"])
print(diskside.run("stats64", sys.argv[1] + "/n.u64").sum)
with diskside.serve(sys.argv[1]) as server, server.connect() as session:
    for place in ["host", "device"]:
        print(session.run("stats64", "n.u64", place=place).sum)
"""
    ran = python(WITHOUT.format(numbers=IO_URING) + run, str(tmp_path))
    assert ran.stdout.splitlines() == ["posix", *["499500"] * 3], ran.stdout + ran.stderr


#: Of 2008, without AVX and BMI; of 2012, without atomic instructions of their own: whoever builds may have them.
OLD = {"x86_64": ["qemu-x86_64", "-cpu", "Nehalem"], "aarch64": ["qemu-aarch64", "-cpu", "cortex-a53"]}


def test_an_old_processor_does_as_well(tmp_path):
    numpy.arange(1000, dtype="<u8").tofile(tmp_path / "n.u64")
    (tmp_path / "a.log").write_text("one ERROR here\nall well\n" * 1000)
    # An emulator may know no openat2, without which nothing is exported.
    run = """
import diskside, sys
directory = sys.argv[1]
for tier in ["interp", "cranelift"]:
    count = diskside.run("grep_count", directory + "/a.log", pattern="ERROR", tier=tier)["rows"]
    print(diskside.run("stats64", directory + "/n.u64", tier=tier).sum, count)
    print(len(diskside.run("filter_i64", directory + "/n.u64", tier=tier, op="lt", lo=10, form="positions").bytes))
"""
    command = [*OLD[platform.machine()], sys.executable, "-c", run, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.stdout.splitlines() == ["499500 1000", "80"] * 2, ran.stdout + ran.stderr


def test_importing_loads_nothing_of_others():
    ran = python("import sys, diskside\nprint(sorted({'numpy', 'pyarrow', 'pandas', 'asyncio', 'numba'} & set(sys.modules)))")
    assert ran.stdout == "[]\n", ran.stdout + ran.stderr


def test_without_a_compiler_it_says_what_to_install():
    ran = python("import sys; sys.modules['ziglang'] = None\nimport diskside\ndiskside.function(source='int x;')", PATH="/nowhere")
    assert ran.returncode == 1
    assert "NoCompilerError: no clang was found to compile function.bpf.c" in ran.stderr and "pip install ziglang" in ran.stderr


@pytest.mark.parametrize("of", ["clang", "/nowhere/clang"])
def test_a_compiler_that_is_none_is_named(of, tmp_path):
    fake = tmp_path / "clang"
    fake.write_text("#!/bin/sh\necho 'error: no such target' >&2\nexit 1\n")
    fake.chmod(0o755)
    named = str(fake) if of == "clang" else of
    ran = python("import diskside\ndiskside.function(source='int x;')", DISKSIDE_CLANG=named)
    assert ran.returncode == 1 and ("no such target" in ran.stderr or f"{of} cannot be run" in ran.stderr)
