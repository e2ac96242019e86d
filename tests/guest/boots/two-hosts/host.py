"""Two hosts at once on one volume: each sees what the other flushed, and one fences the other off."""

import threading

from lab import Failure

NQN = "nqn.2026-11.org.diskside:guest-two-hosts"


def run(lab):
    image = lab.file("data.img", 64)
    target = lab.target("--nqn", NQN, "--volume", f"data={image},rw")
    meeting = threading.Barrier(2)

    def meet():
        try:
            meeting.wait(timeout=200)
        except threading.BrokenBarrierError:
            raise Failure("one host waits for the other in vain") from None

    guests = []
    for number in (0, 1):
        settings = {"ADDR": "10.0.2.2", "PORT": target.port, "NQN": NQN, "SELF": number}
        guest = lab.guest(settings, cpus=1, name=f"host{number}")
        guest.on("meet", meet)
        guests.append(guest.start())
    for thread in guests:
        thread.join()
    lab.expect("the target is still up", target.alive())
    target.stop()
