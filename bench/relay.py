"""A longer way to a target: bytes take a given time each way. Not netem, which many kernels come without."""

import subprocess


class Relay:
    """`command` is the example `relay` of diskside-kv, where the hosts are, `address` leads to the target by it."""

    def __init__(self, command, target, delay_us):
        self.process = subprocess.Popen([*command, target, str(delay_us)], stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()

    def end(self):
        self.process.terminate()
        self.process.wait()
