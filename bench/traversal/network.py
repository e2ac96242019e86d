"""The way from host to target: loopback, or a relay that keeps the bytes for a while."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from namespaces import HOST, TARGET, Namespaces  # noqa: E402
from relay import Relay  # noqa: E402


class Network:
    """Without a round trip time, loopback. With one, a relay at the host's side; as root, the host and the relay are in
    one network namespace and the target is in another."""

    def __init__(self, rtt_us, relay):
        self.rtt_us, self.command, self.relay = rtt_us, relay, None
        apart = rtt_us and os.geteuid() == 0
        self.spaces = Namespaces("lookup", "10.211.78") if apart else None

    def __enter__(self):
        """Gives the address where the target listens."""
        if self.spaces:
            self.spaces.__enter__()
        return self.address()

    def __exit__(self, *_):
        if self.relay:
            self.relay.end()
        if self.spaces:
            self.spaces.__exit__()

    def address(self):
        return self.spaces.addresses[TARGET] if self.spaces else "127.0.0.1"

    def at_target(self, command):
        return self.spaces.inside(TARGET, command) if self.spaces else command

    def at_host(self, command):
        return self.spaces.inside(HOST, command) if self.spaces else command

    def reach(self, port):
        """Address and port where the host reaches a target that listens at this port."""
        address = f"{self.address()}:{port}"
        if not self.rtt_us:
            return address
        self.relay = Relay(self.at_host([self.command]), address, self.rtt_us // 2)
        return self.relay.address
