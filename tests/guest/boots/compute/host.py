"""A stock Linux host computes with the standard commands: load, activate, copy, execute, read back."""

import base64
import os
import subprocess
from pathlib import Path

NQN = "nqn.2026-11.org.diskside:guest-compute"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]


def run(lab):
    data = lab.file("data.img", 8)
    target = lab.target("--nqn", NQN, "--volume", f"data={data},rw,block=512")
    program = compiled(lab, HERE / "words.bpf.c")
    settings = {"PROGRAM": base64.b64encode(program).decode()}
    guest = lab.guest({"ADDR": "10.0.2.2", "PORT": target.port, "NQN": NQN, **settings})
    guest.run()
    lab.expect("the target is still up", target.alive())
    back = data.read_bytes()[2048 * 512:][:512]
    lab.expect("what the guest copied from memory is on the volume", back == bytes(range(1, 9)) * 64)
    target.stop()


def compiled(lab, source):
    object_file = lab.directory / "program.o"
    flags = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-fno-builtin", "-I", ROOT / "crates/abi/include"]
    clang = os.environ.get("DISKSIDE_CLANG", "clang")
    subprocess.run([clang, *flags, "-c", source, "-o", object_file], check=True)
    return object_file.read_bytes()
