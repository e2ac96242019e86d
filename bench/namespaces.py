"""Two network namespaces joined by a veth pair: a target in one, its hosts in the other. Needs root."""

import os
import subprocess
import sys

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

    def plain_rate(self):
        """Bytes a second of TCP from TARGET to HOST: 64 MiB through a socket."""
        count = 64 << 20
        send = (
            "import socket; s = socket.create_server(('', 4424)); print(flush=True); c = s.accept()[0];"
            f"c.sendall(bytes({count}))"
        )
        take = (
            "import socket, sys, time; c = socket.create_connection((sys.argv[1], 4424)); b = memoryview(bytearray(1 << 20));"
            "began = time.monotonic(); n = 0\n"
            "while k := c.recv_into(b): n += k\n"
            "print(n / (time.monotonic() - began))"
        )
        with subprocess.Popen(self.inside(TARGET, [sys.executable, "-c", send]), stdout=subprocess.PIPE) as sender:
            sender.stdout.readline()
            command = self.inside(HOST, [sys.executable, "-c", take, self.addresses[TARGET]])
            return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def ip(*words):
    subprocess.run(["ip", *words], check=True)
