"""A stock Linux host mounts ext4 and XFS from volumes, and runs functions over files there at the target. Its kernel is
older than some of what newer ones offer: `cachestat`, and times of files as fine as they need to be."""

import subprocess
from pathlib import Path

NQN = "nqn.2026-11.org.diskside:guest-mounted"
ROOT = Path(__file__).resolve().parents[4]


def run(lab):
    volumes = [lab.file("ext4.img", 96), lab.file("xfs.img", 384)]
    served = [argument for path in volumes for argument in ("--volume", f"{path.stem}={path},rw")]
    target = lab.target("--nqn", NQN, *served)
    build = ["cargo", "build", "--locked", "--quiet", "-p", "diskside", "--example", "pwrite_fn"]
    subprocess.run(build, check=True, cwd=ROOT)
    debug = Path(lab.program).parent
    programs = [lab.program, debug / "diskside-kv", debug / "examples/pwrite_fn"]
    guest = lab.guest({"ADDR": "10.0.2.2", "PORT": target.port, "NQN": NQN}, programs=programs)
    guest.run()
    lab.expect("the target is still up", target.alive())
    target.stop()
