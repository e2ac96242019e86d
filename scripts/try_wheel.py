"""Tries the Python package in an environment that has nothing else, in an empty directory; part of scripts/python-wheel.

try_wheel.py DISKSIDE    with the command DISKSIDE as the server of README.md's example
try_wheel.py --extras    functions in C and in Python, by the packages that the extras bring
"""

import contextlib
import io
import pathlib
import re
import socket
import subprocess
import sys
import time

import diskside

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    directory = pathlib.Path("data")
    directory.mkdir(exist_ok=True)
    (directory / "measured.u64").write_bytes(b"".join(number.to_bytes(8, "little") for number in range(1000)))
    if sys.argv[1] == "--extras":
        return functions(directory)
    with diskside.serve(directory) as server, server.connect() as session:
        for place in ["host", "device"]:
            assert session.run("stats64", "measured.u64", place=place).sum == 499500
        assert session.read("measured.u64")[8:16] == (1).to_bytes(8, "little")
    readme(directory)
    took = 1000 * (best("import diskside") - best("pass"))
    print(f"Python {sys.version.split()[0]}: works; import diskside takes {took:.0f} ms")


def readme(directory):
    """Its lines of Python, as they stand there but for the server's address."""
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    serve = [sys.argv[1], "serve", "--export", f"data={directory}", "--listen", address]
    server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with diskside.connect(f"diskside://{address}/data") as session:
            wait_for(session)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(example.replace("//server/", f"//{address}/"), {})
        assert said.getvalue() == "1000 499500\n", said.getvalue()
    finally:
        server.terminate()
        server.wait()


def wait_for(session):
    until = time.monotonic() + 20
    while True:
        try:
            return session.ls()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def functions(directory):
    page = (ROOT / "docs/python.md").read_text()
    in_c = re.search(r"source='''\n(.*?)\n\.\.\. '''\)", page, re.DOTALL)[1]
    evens = diskside.function(source=re.sub(r"^\.\.\. ?", "", in_c, flags=re.MULTILINE))

    def add(acc, part):
        acc.count += part.count

    @diskside.function(records="u8", result={"count": "u8"}, args={"bound": ("u8", 0)}, combine=add)
    def above(out, values, args):
        for value in values:
            if value > args.bound:
                out.count += 1

    with diskside.serve(directory) as server, server.connect() as session:
        for place in ["host", "device"]:
            assert session.run(evens, "measured.u64", place=place).count == 500
            assert session.run(above, "measured.u64", bound=499, place=place).count == 500
    print(f"Python {sys.version.split()[0]}: functions in C by ziglang, and in Python by numba, work")


def best(code):
    times = []
    for _ in range(10):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return min(times)


main()
