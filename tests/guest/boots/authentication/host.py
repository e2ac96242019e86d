"""A stock Linux host that authenticates, with each hash function and group that it has."""

NQN = "nqn.2026-11.org.diskside:guest-authentication"
# Debian 12's own kernel is built without it.
KERNEL = "backports"
HASHES = ["sha256", "sha384", "sha512"]
GROUPS = ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"]
MATRIX = [(hashing, group) for group in GROUPS for hashing in HASHES]


def run(lab):
    key, renewed, config = (lab.directory / name for name in ("key", "renewed", "server.toml"))
    line = lab.diskside("key", "new", "--mutual", "--file", key)
    name, first, server = line.split()
    lab.diskside("key", "allow", "--name", "guest", "--config", config, given=line)
    # The key that it is changed for later; the server has both.
    line = lab.diskside("key", "new", "--nqn", name, "--file", renewed)
    lab.diskside("key", "allow", "--name", "guest", "--config", config, given=line)
    _, second = line.split()

    plain = config.read_text(encoding="ascii")
    ports = []
    for index, (hashing, group) in enumerate(MATRIX):
        special = lab.directory / f"server-{index}.toml"
        security = f'[security]\ndhchap_hashes = ["{hashing}"]\ndhchap_groups = ["{group}"]\n\n'
        special.write_text(security + plain, encoding="ascii")
        target = lab.target("--nqn", NQN, "--config", special, "--volume", "data=mem:8MiB,rw")
        ports.append(f"{target.port}:{hashing}:{group}")
    usual = lab.target("--nqn", NQN, "--config", config, "--volume", "data=mem:8MiB,rw")

    guest = lab.guest({
        "ADDR": "10.0.2.2", "PORT": usual.port, "NQN": NQN, "HOSTNQN": name, "HOSTID": name.split("uuid:")[1],
        "KEY": first, "SERVER_KEY": server, "RENEWED": second, "MATRIX": ",".join(ports),
    }, cpus=1)
    guest.run()
    said = usual.said()
    lab.expect("the server names who did not authenticate", "did not authenticate" in said and name in said)
    lab.expect("and no key", first[10:40] not in said and second[10:40] not in said and server[10:40] not in said)
