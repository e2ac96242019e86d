"""A stock Linux host that authenticates, with each hash function and group that it has."""

from authenticating import matrix

NQN = "nqn.2026-11.org.diskside:guest-authentication"
# Debian 12's own kernel is built without it.
KERNEL = "backports"


def run(lab):
    key, renewed, config = (lab.directory / name for name in ("key", "renewed", "server.toml"))
    line = lab.diskside("key", "new", "--mutual", "--file", key)
    name, first, server = line.split()
    lab.diskside("key", "allow", "--name", "guest", "--config", config, given=line)
    # The key that it is changed for later; the server has both.
    line = lab.diskside("key", "new", "--nqn", name, "--file", renewed)
    lab.diskside("key", "allow", "--name", "guest", "--config", config, given=line)
    _, second = line.split()

    servers = matrix(lab, NQN, config)
    usual = lab.target("--nqn", NQN, "--config", config, "--volume", "data=mem:8MiB,rw")

    # For what else this kernel does and Debian 12's own does not.
    opened = lab.target("--nqn", NQN, "--volume", f"data={lab.file('open.img', 16)},rw,block=512")

    guest = lab.guest({
        "ADDR": "10.0.2.2", "PORT": usual.port, "OPEN_PORT": opened.port, "NQN": NQN,
        "HOSTNQN": name, "HOSTID": name.split("uuid:")[1], "KEY": first, "SERVER_KEY": server, "RENEWED": second,
        "MATRIX": servers,
    }, cpus=1)
    guest.run()
    said = usual.said()
    lab.expect("the server names who did not authenticate", "did not authenticate" in said and name in said)
    lab.expect("and no key", first[10:40] not in said and second[10:40] not in said and server[10:40] not in said)
