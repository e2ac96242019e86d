"""Every way of using a volume, against one target that stays up."""

NQN = "nqn.2026-11.org.diskside:guest-volumes"
MIB = 128


def run(lab):
    data = lab.file("data.img", MIB)
    wide = lab.file("wide.img", MIB)
    locked = lab.file("locked.img", 8)
    locked.write_bytes(b"read only " * 100 + bytes((8 << 20) - 1000))
    target = lab.target(
        "--nqn", NQN,
        "--volume", f"data={data},rw,block=512",
        "--volume", f"wide={wide},rw,block=4096",
        "--volume", f"locked={locked},block=512",
    )
    before = locked.read_bytes()
    guest = lab.guest({"ADDR": "10.0.2.2", "PORT": target.port, "NQN": NQN})
    guest.on("allocated-kib", lambda name: (lab.directory / name).stat().st_blocks // 2)
    guest.run()
    lab.expect("the target is still up", target.alive())
    lab.expect("the read-only volume is as it was", locked.read_bytes() == before)
    target.stop()
    lab.expect("SIGTERM ended the target in order", not target.alive())
