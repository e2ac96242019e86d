"""Diskside's host authenticates to the Linux kernel's target, and has it prove itself."""

from lab import HERE, Failure, free_port

NQN = "nqn.2026-11.org.diskside:guest-nvmet"
KERNEL = "backports"


def run(lab):
    port = free_port()
    one, two, wrong = (lab.directory / name for name in ("one", "two", "wrong"))
    line = lab.diskside("key", "new", "--mutual", "--file", two)
    name, key, server = line.split()
    text = two.read_text(encoding="ascii")
    one.touch(mode=0o600)
    one.write_text("".join(line for line in text.splitlines(True) if "server-key" not in line), encoding="ascii")
    lab.diskside("key", "new", "--nqn", name, "--file", wrong)
    cases = [HERE / "boots/kernel-target/00-nvmet.sh", lab.boot / "01-hosts.sh"]
    settings = {
        "ADDR": "0.0.0.0", "PORT": 4420, "NQN": NQN, "VOLUMES": "/run/volumes", "VOLUME_MIB": 8,
        "HOSTNQN": name, "KEY": key, "SERVER_KEY": server,
    }
    guest = lab.guest(settings, cases=cases, forward=[(port, 4420)], cpus=1)
    url = f"nvme-tcp://127.0.0.1:{port}/{NQN}/1"

    def connects(which):
        lab.diskside("ping", url, "--count", "2", "--timeout-ms", "30000", "--key", {"one": one, "two": two}[which])

    def does_not(which, why):
        try:
            lab.diskside("ping", url, "--count", "2", "--key", {"wrong": wrong, "two": two, "one": one}.get(which, which))
        except Failure as failure:
            lab.expect(f"{which} key: {failure}", why.replace("_", " ") in str(failure))
            return
        raise Failure(f"{which} key: it connects")

    guest.on("connects", connects)
    guest.on("does-not", does_not)
    guest.run()
