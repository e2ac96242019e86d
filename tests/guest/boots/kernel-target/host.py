"""The cases of `volumes` against the Linux kernel's own target, in the same guest.

What fails here is a case that asks for more than the standard or the kernel gives.
"""

from lab import HERE

# It says something of the cases, not of Diskside.
BY_NAME = True

# nvmet has no read-only volumes before Linux 6.10, and neither Verify nor Copy.
NOT_OFFERED = {"09-read-only.sh", "10-commands.sh"}


def run(lab):
    cases = sorted(lab.boot.glob("*.sh"))
    cases += [c for c in (HERE / "boots/volumes").glob("*.sh") if c.name not in NOT_OFFERED]
    nqn = "nqn.2026-11.org.diskside:kernel-target"
    settings = {"ADDR": "127.0.0.1", "PORT": 4420, "NQN": nqn, "VOLUMES": "/run/volumes", "VOLUME_MIB": 128}
    guest = lab.guest(settings, cases=cases)
    guest.run()
