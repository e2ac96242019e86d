"""The way from host to target: loopback, or a relay that keeps the bytes for a while."""

import os
import subprocess

TARGET_ADDRESS, HOST_ADDRESS = "10.211.78.1", "10.211.78.2"


class Network:
    """Without a round trip time, loopback. With one, a relay at the host's side; as root, the host and the relay are in
    one network namespace and the target is in another, joined by a veth pair."""

    def __init__(self, rtt_us, relay):
        self.rtt_us, self.relay, self.process = rtt_us, relay, None
        self.names = [f"diskside-lookup-{side}-{os.getpid()}" for side in ("target", "host")]
        self.apart = bool(rtt_us) and os.geteuid() == 0

    def __enter__(self):
        """Gives the address where the target listens."""
        if not self.apart:
            return "127.0.0.1"
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", "lookup-t", "netns", self.names[0], "type", "veth", "peer", "name", "lookup-h", "netns", self.names[1])
        for name, device, address in zip(self.names, ("lookup-t", "lookup-h"), (TARGET_ADDRESS, HOST_ADDRESS)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")
        return TARGET_ADDRESS

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()
        if self.apart:
            for name in self.names:
                subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)

    def at_target(self, command):
        return self.inside(0, command)

    def at_host(self, command):
        return self.inside(1, command)

    def inside(self, side, command):
        return ["ip", "netns", "exec", self.names[side], *command] if self.apart else command

    def reach(self, port):
        """Address and port where the host reaches a target that listens at this port."""
        address = f"{TARGET_ADDRESS if self.apart else '127.0.0.1'}:{port}"
        if not self.rtt_us:
            return address
        command = self.at_host([self.relay, address, str(self.rtt_us // 2)])
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return self.process.stdout.readline().strip()


def ip(*words):
    subprocess.run(["ip", *words], check=True)
