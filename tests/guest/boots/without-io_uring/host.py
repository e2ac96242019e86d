"""A kernel whose administrator denies io_uring to all programs: functions, hosts and servers work over epoll there."""

NQN = "nqn.2026-11.org.diskside:guest-without-rings"
# The setting came with Linux 6.6.
KERNEL = "backports"


def run(lab):
    target = lab.target("--nqn", NQN, "--volume", f"data={lab.file('data.img', 8)},rw")
    guest = lab.guest({"ADDR": "10.0.2.2", "PORT": target.port, "NQN": NQN}, programs=[lab.program])
    guest.run()
    lab.expect("the target is still up", target.alive())
    target.stop()
