"""Diskside's host comes over TLS to the Linux kernel's target."""

from lab import HERE, Failure, free_port

NQN = "nqn.2026-11.org.diskside:guest-nvmet"
KERNEL = "trixie"


def run(lab):
    port = free_port()
    right, wrong = (lab.directory / name for name in ("right", "wrong"))
    name, key = lab.diskside("key", "new", "--tls", "--file", right).split()
    lab.diskside("key", "new", "--tls", "--nqn", name, "--file", wrong)
    cases = [
        HERE / "boots/tls/00-tlshd.sh", HERE / "boots/kernel-target/00-nvmet.sh", lab.boot / "01-channel.sh"
    ]
    settings = {
        "ADDR": "0.0.0.0", "PORT": 4420, "NQN": NQN, "VOLUMES": "/run/volumes", "VOLUME_MIB": 8,
        "HOSTNQN": name, "KEY": key, "TSAS": "tls1.3",
    }
    guest = lab.guest(settings, cases=cases, forward=[(port, 4420)], cpus=1)
    url = f"nvme-tcp+tls://127.0.0.1:{port}/{NQN}/1"

    def connects():
        lab.diskside("ping", url, "--count", "2", "--timeout-ms", "30000", "--key", right)

    def does_not():
        try:
            lab.diskside("ping", url, "--count", "2", "--timeout-ms", "30000", "--key", wrong)
        except Failure as failure:
            lab.say(f"  so: {failure}")
            return
        raise Failure("another key: it connects")

    guest.on("connects", connects)
    guest.on("does-not", does_not)
    guest.run()
