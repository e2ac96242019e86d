"""The target dies under load, again and again; what it had acknowledged must be there."""

import time

NQN = "nqn.2026-11.org.diskside:guest-restart"


def run(lab):
    image = lab.file("data.img", 64)
    target = lab.target("--nqn", NQN, "--volume", f"data={image},rw")
    guest = lab.guest({"ADDR": "10.0.2.2", "PORT": target.port, "NQN": NQN})

    def crash(seconds):
        target.kill()
        time.sleep(float(seconds))
        target.start()

    def restart():
        target.stop()
        target.start()

    guest.on("crash", crash)
    guest.on("restart", restart)
    guest.run()
    lab.expect("the target is up again", target.alive())
    target.stop()
