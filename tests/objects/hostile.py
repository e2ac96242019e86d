"""A web server that answers wrongly: what is read of it is right, or an error that says what is wrong."""

import hashlib
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = bytes(range(256)) * 8192
#: What a server may do, and what the error says; `None`: it is read all the same.
WAYS = {
    "right": None,
    "redirected": None,
    "by-time": None,
    "weak-tag": None,
    "short": "",
    "long": "",
    "whole": "no ranges",
    "other-range": "",
    "tag-of-each-answer": "",
    "no-version": "neither an entity tag nor a time",
    "huge": "9223372036854775818 bytes",
    "headers": "",
    "closed": "",
    "forbidden": "403",
    "broken": "500",
}


class Hostile(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        way, asked = self.path.rpartition("/")[2], self.headers.get("Range")
        start, end, status = 0, len(BODY), 200
        if asked:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            start, end, status = first, min(last + 1, len(BODY)), 206
        part = BODY[start:end]
        says = {"ETag": '"one"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        total = 2**63 + 10 if way == "huge" else len(BODY)
        if way == "whole":
            part, status = BODY, 200
        if status == 206:
            shifted = int(way == "other-range")
            says["Content-Range"] = f"bytes {start + shifted}-{end - 1 + shifted}/{total}"
        match way:
            case "short" if asked:
                part = part[:-1]
            case "long" if asked:
                part += b"x"
            case "by-time":
                del says["ETag"]
            case "weak-tag":
                says["ETag"] = 'W/"one"'
            case "tag-of-each-answer":
                says["ETag"] = f'"{time.time_ns()}"'
            case "no-version":
                says = {name: value for name, value in says.items() if name == "Content-Range"}
            case "redirected":
                status, part, says["Location"] = 302, b"", "/right"
            case "forbidden" | "broken":
                status, part = (403 if way == "forbidden" else 500), b""
            case "headers":
                says |= {f"X-{number}": "x" * 100 for number in range(3000)}
            case "closed":
                self.close_connection = True
                return
        try:
            self.send_response(status)
            for name, value in {**says, "Content-Length": str(len(part))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "GET":
                return
            if way == "slow":
                time.sleep(20)
            self.wfile.write(part)
        except OSError:
            pass


def all_of_it(lab, programs):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    store = f"http://127.0.0.1:{server.server_address[1]}"

    def run(*arguments):
        return subprocess.run([programs / "diskside", *arguments], capture_output=True, timeout=100)

    with lab.serve(f"--export=store={store}", f"--export=here={lab.web}") as (url, _):
        for way, wrong in WAYS.items():
            for command in [["cat"], ["run", "wc", "--json", "--where", "device"], ["run", "wc", "--json", "--where", "host"]]:
                ended = run(*command, f"{url}/store/{way}")
                said = ended.stderr.decode()
                if wrong is None:
                    assert ended.returncode == 0, (way, command, said)
                    whole = hashlib.sha256(ended.stdout).digest() == hashlib.sha256(BODY).digest()
                    assert whole if command == ["cat"] else b"2097152" in ended.stdout, (way, command, ended.stdout)
                else:
                    assert ended.returncode == 4 and way in said and wrong in said, (way, command, ended.returncode, said)
        a_slow_store_slows_nobody_else(programs, url)
    server.shutdown()
    print("stores that answer wrongly: right, or an error that says what")


def a_slow_store_slows_nobody_else(programs, url):
    slow = [programs / "diskside", "run", "wc", f"{url}/store/slow", "--where", "device"]
    waiting = [subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(40)]
    try:
        time.sleep(2)
        other = [programs / "diskside", "run", "wc", f"{url}/here/text.log", "--where", "device", "--hostnqn", "nqn.2026-11.io.diskside:other"]
        # The slow ones take 20 seconds and more.
        subprocess.run(other, check=True, stdout=subprocess.DEVNULL, timeout=15)
        assert all(process.poll() is None for process in waiting)
    finally:
        for process in waiting:
            process.kill()
            process.wait()
