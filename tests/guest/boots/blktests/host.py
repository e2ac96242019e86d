"""The operations of blktests' nvme group that the other boots do not have: docs/standard.md says which number is where."""

import signal
import time

from lab import Failure, free_port

NQN = "nqn.2026-11.org.diskside:guest-blktests"
# Addresses that the discovery log tells, besides the one that is connected to. Nothing is there.
ADVERTISED = 1000
MANY = 60
READ_AGAIN = "the configuration was read again"


def run(lab):
    port = free_port()
    config = lab.directory / "server.toml"
    names = ["data", "extra", *(f"v{number}" for number in range(MANY))]
    for name in names:
        lab.file(f"{name}.img", 64 if name == "data" else 1)
    nsids = {"data": 1, "extra": 2, **{f"v{number}": 100 + number for number in range(MANY)}}
    now = {"volumes": ["data"], "hosts": [], "queues": 64, "path": "optimized"}

    def write():
        lines = [f'nqn = "{NQN}"', f'listen = ["127.0.0.1:{port},path={now["path"]}"]', f"hosts = {now['hosts']}"]
        lines.append(f'reach = ["{lab.directory}"]')
        addresses = [f'"192.0.2.1:{1000 + number}"' for number in range(ADVERTISED - 1)]
        lines.append(f'advertise = ["192.0.2.1:{port}", {", ".join(addresses)}]')
        lines.append(f'[limits]\nqueues = {now["queues"]}')
        for name in now["volumes"]:
            path = lab.directory / f"{name}.img"
            lines.append(f'[[volume]]\nname = "{name}"\npath = "{path}"\nrw = true\nblock = 512\nnsid = {nsids[name]}')
        config.write_text("\n".join(lines) + "\n", encoding="ascii")

    def reload(wanted=READ_AGAIN, **changes):
        now.update(changes)
        write()
        times = target.said_times(wanted)
        target.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while target.said_times(wanted) == times:
            if time.monotonic() > deadline:
                raise Failure(f"after a change of the configuration it does not say '{wanted}': {target.said()}")
            time.sleep(0.02)

    def remap():
        """Another volume gets the number of `extra`, which the host knows by it."""
        nsids["v0"] = nsids["extra"]
        reload("the configuration stays as it was: ", volumes=["data", "v0"])
        nsids["v0"] = 100
        reload(volumes=["data"])

    def queues(count):
        now["queues"] = int(count)
        write()
        target.stop()
        target.start()

    def flicker(times):
        """The volume `extra` comes and goes, and no change waits until the host has seen the one before."""
        for _ in range(int(times)):
            reload(volumes=["data", "extra"])
            reload(volumes=["data"])

    write()
    target = lab.target("--config", config, port=port)
    guest = lab.guest({"ADDR": "10.0.2.2", "PORT": port, "NQN": NQN, "ADVERTISED": ADVERTISED, "MANY": MANY})
    guest.on("serve", lambda *names: reload(volumes=list(names)))
    guest.on("serve-many", lambda: reload(volumes=names))
    guest.on("let-in", lambda *hosts: reload(hosts=list(hosts)))
    guest.on("path", lambda state: reload(path=state))
    guest.on("queues", queues)
    guest.on("flicker", flicker)
    guest.on("remap", remap)
    guest.run()
    lab.expect("the target is still up", target.alive())
    target.stop()
