"""A stock Linux host, that of Debian 13, that comes over TLS."""

import base64

NQN = "nqn.2026-11.org.diskside:guest-tls"
KERNEL = "trixie"


def run(lab):
    config, strict = (lab.directory / name for name in ("server.toml", "strict.toml"))
    settings = {"ADDR": "10.0.2.2", "NQN": NQN}
    secrets = []
    # `OLD` uses the first version of identities; `STRANGER` is nobody's guest; `BOTH` authenticates in its channel, too; `EXPLAINED`
    # does what `diskside key explain` prints.
    for name in ("NEW", "OLD", "LONG", "STRANGER", "BOTH", "EXPLAINED"):
        line = lab.diskside("key", "new", "--tls", "--file", lab.directory / name)
        host, key = line.split()
        secrets.append(key)
        settings |= {f"{name}_NQN": host, f"{name}_ID": host.split("uuid:")[1], f"{name}_KEY": key}
        if name == "BOTH":
            auth = lab.diskside("key", "new", "--nqn", host, "--file", lab.directory / "auth")
            lab.diskside("key", "allow", "--name", name, "--config", strict, given=auth)
            lab.diskside("key", "allow", "--name", name, "--config", strict, given=line)
            settings["BOTH_SECRET"] = auth.split()[1]
            secrets.append(auth.split()[1])
        elif name != "STRANGER":
            lab.diskside("key", "allow", "--name", name, "--config", config, given=line)

    strict.write_text('[security]\nrequire = "tls+auth"\n\n' + strict.read_text(encoding="ascii"), encoding="ascii")
    server = lab.target("--nqn", NQN, "--config", config, "--volume", "data=mem:16MiB,rw")
    both = lab.target("--nqn", NQN, "--config", strict, "--volume", "data=mem:16MiB,rw")
    settings |= {"PORT": server.port, "BOTH_PORT": both.port, "EXPLAINED_FILE": lab.directory / "EXPLAINED"}
    # Another host's volume is read from outside, over TLS as well.
    guest = lab.guest(settings, cpus=2)
    url = f"nvme-tcp+tls://127.0.0.1:{server.port}/{NQN}/1"

    def reads():
        copy = lab.directory / "copy"
        lab.diskside("cp", url, copy, "--key", lab.directory / "LONG")
        return copy.read_bytes()[:64].split()[0].decode("ascii")

    def explain():
        url = f"nvme-tcp://{settings['ADDR']}:{server.port}/{NQN}"
        commands = lab.diskside("key", "explain", url, "--file", lab.directory / "EXPLAINED")
        return base64.b64encode(commands.encode()).decode("ascii")

    guest.on("reads", reads)
    guest.on("explain", explain)
    guest.on("key-file", lambda: base64.b64encode((lab.directory / "EXPLAINED").read_bytes()).decode("ascii"))
    guest.run()
    said = server.said() + both.said()
    lab.expect("the server says whom it does not know", "no host is known by the identity" in said)
    lab.expect("and who has another key", "has another key" in said)
    lab.expect("and who comes without TLS", "does not speak TLS" in said)
    lab.expect("and no key", not any(secret[16:48] in said for secret in secrets))
