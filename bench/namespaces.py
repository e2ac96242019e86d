"""Two network namespaces joined by a veth pair: a target in one, its hosts in the other. Needs root."""

import os
import subprocess

TARGET, HOST = 0, 1


class Namespaces:
    """`name` (at most ten letters) tells apart those of several programs, `network` are three numbers of their addresses."""

    def __init__(self, name, network):
        self.names = [f"ds-{name}-{side}-{os.getpid()}" for side in ("target", "host")]
        self.devices = [f"ds-{name}-t", f"ds-{name}-h"]
        self.addresses = [f"{network}.1", f"{network}.2"]

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            (target, host), (at_target, at_host) = self.names, self.devices
            ip("link", "add", at_target, "netns", target, "type", "veth", "peer", "name", at_host, "netns", host)
            for name, device, address in zip(self.names, self.devices, self.addresses):
                ip("-n", name, "address", "add", f"{address}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)

    def inside(self, side, command):
        """The command, to be run in the namespace of TARGET or HOST."""
        return ["nsenter", f"--net=/run/netns/{self.names[side]}", "--", *command]


def ip(*words):
    subprocess.run(["ip", *words], check=True)
