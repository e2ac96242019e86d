"""Two listeners of one server are two paths to its volume: one is cut and comes back, and the server changes their states."""

import signal
import socket
import threading
import time

from lab import Failure, free_port

NQN = "nqn.2026-11.org.diskside:guest-paths"


def run(lab):
    image = lab.file("data.img", 64)
    ports = [free_port(), free_port()]
    config = lab.directory / "paths.toml"

    def write(states):
        listen = ", ".join(f'"127.0.0.1:{port},path={state}"' for port, state in zip(ports, states))
        volume = f'[[volume]]\nname = "data"\npath = "{image}"\nrw = true\n'
        config.write_text(f'nqn = "{NQN}"\nlisten = [{listen}]\n{volume}', encoding="ascii")

    write(["optimized", "non-optimized"])
    target = lab.target("--config", config, port=ports[0])
    cable = Cable(ports[0])

    def states(*wanted):
        times = target.said_times(READ_AGAIN)
        write(wanted)
        target.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 20
        while target.said_times(READ_AGAIN) == times:
            if time.monotonic() > deadline:
                raise Failure(f"the configuration was not read again: {target.said()}")
            time.sleep(0.05)

    guest = lab.guest({"ADDR": "10.0.2.2", "PORT": cable.port, "OTHER": ports[1], "NQN": NQN})
    guest.on("states", states)
    guest.on("cut", cable.cut)
    guest.on("mend", cable.mend)
    guest.run()
    lab.expect("the target is still up", target.alive())
    target.stop()


READ_AGAIN = "the configuration was read again"


class Cable:
    """Leads connections to a port of this machine, as long as it is not cut."""

    def __init__(self, to):
        self.to = to
        self.ends = []
        self.whole = True
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            with self.lock:
                if not self.whole:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self.to))
                self.ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=lead, args=(source, sink), daemon=True).start()

    def cut(self):
        with self.lock:
            self.whole = False
            ends, self.ends = self.ends, []
        for end in ends:
            close(end)

    def mend(self):
        with self.lock:
            self.whole = True


def lead(source, sink):
    try:
        while some := source.recv(1 << 18):
            sink.sendall(some)
    except OSError:
        pass
    close(source)
    close(sink)


def close(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
