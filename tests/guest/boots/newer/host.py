"""A newer kernel with newer tools, as a host and as a target: keys of 48 bytes, and TLS with keys that authenticating makes."""

from authenticating import matrix
from lab import HERE, Failure, free_port

NQN = "nqn.2026-11.org.diskside:guest-newer"
# Secure channel concatenation came with Linux 6.15, and keys of 48 bytes work from nvme-cli 2.16 on.
KERNEL = "forky"


def run(lab):
    config, strict = (lab.directory / name / "server.toml" for name in ("usual", "strict"))
    for path in (config, strict):
        path.parent.mkdir()
    secrets = []
    # The host of the guest's kernel: one with keys of authentication alone, and one with a key of TLS of each length.
    line = lab.diskside("key", "new", "--mutual", "--file", lab.directory / "both")
    host, key, server_key = line.split()
    secrets += [key, server_key]
    for path in (config, strict):
        lab.diskside("key", "allow", "--name", "CHAP", "--config", path, given=line)
    _, tls_key = lab.diskside("key", "new", "--tls", "--file", lab.directory / "tls").split()
    names = {}
    for name, tls in (("SHORT", tls_key), ("LONG", LONG_KEY)):
        names[name] = known = f"nqn.2014-08.org.nvmexpress:uuid:{'1' if name == 'SHORT' else '2'}f3c9dd6-40b4-4c1d-9a67-8a1fe4d3b5a0"
        lab.diskside("key", "allow", "--name", name, "--config", config, given=f"{known} {tls}\n")
        secrets.append(tls)
    strict.write_text('[security]\nrequire = "tls"\n\n' + strict.read_text(encoding="ascii"), encoding="ascii")
    # One that has to come over TLS and to authenticate in its channel.
    inside = lab.directory / "inside" / "server.toml"
    inside.parent.mkdir()
    both_name, both_key = lab.diskside("key", "new", "--tls", "--file", lab.directory / "inside" / "tls").split()
    auth = lab.diskside("key", "new", "--nqn", both_name, "--file", lab.directory / "inside" / "auth")
    for text in (auth, f"{both_name} {both_key}\n"):
        lab.diskside("key", "allow", "--name", "BOTH", "--config", inside, given=text)
    secrets += [both_key, auth.split()[1]]
    inside.write_text('[security]\nrequire = "tls+auth"\n\n' + inside.read_text(encoding="ascii"), encoding="ascii")
    server = lab.target("--nqn", NQN, "--config", config, "--volume", "data=mem:16MiB,rw")
    only_tls = lab.target("--nqn", NQN, "--config", strict, "--volume", "data=mem:16MiB,rw")

    both = lab.target("--nqn", NQN, "--config", inside, "--volume", "data=mem:16MiB,rw")
    whole = f"data={lab.file('atomic.img', 16)},rw,block=512,atomic=16KiB"
    atomic = lab.target("--nqn", NQN, "--volume", whole)

    outside = free_port()
    settings = {"ADDR": "10.0.2.2", "PORT": server.port, "STRICT_PORT": only_tls.port, "NQN": NQN, "VOLUME_MIB": 8}
    settings |= {"SHORT_NQN": names["SHORT"], "SHORT_KEY": tls_key}
    settings |= {"LONG_NQN": names["LONG"], "LONG_KEY": LONG_KEY, "HOSTNQN": host, "KEY": key, "SERVER_KEY": server_key}
    settings |= {"HOSTID": host.split("uuid:")[1], "MATRIX": matrix(lab, NQN, config), "BOTH_PORT": both.port}
    settings |= {"BOTH_NQN": both_name, "BOTH_ID": both_name.split("uuid:")[1], "BOTH_KEY": both_key}
    settings |= {"BOTH_SECRET": auth.split()[1], "ATOMIC_PORT": atomic.port}
    shared = [HERE / "boots" / name for name in ("tls/00-tlshd.sh", "tls/03-both.sh", "authentication/04-groups.sh")]
    cases = [*shared, *lab.boot.glob("*.sh")]
    guest = lab.guest(settings, cases=cases, forward=[(outside, 4420)], cpus=2)
    keys = {"both": lab.directory / "both", "tls": lab.directory / "nvmet-tls", "long": lab.directory / "nvmet-long"}
    made = lab.diskside("key", "new", "--tls", "--nqn", host, "--file", keys["tls"])
    guest.on("tls-key", lambda: made.split()[1])
    keys["long"].touch(mode=0o600)
    keys["long"].write_text(f"nqn {host}\ntls-key {LONG_KEY}\n", encoding="ascii")

    def connects(scheme, which):
        url = f"{scheme}://127.0.0.1:{outside}/{NQN}-kernel/1"
        lab.diskside("ping", url, "--count", "2", "--timeout-ms", "30000", "--key", keys[which])

    def does_not(scheme, which, why):
        try:
            connects(scheme, which)
        except Failure as failure:
            lab.expect(f"{scheme}, {which}: {failure}", why.replace("_", " ") in str(failure))
            return
        raise Failure(f"{scheme}, {which}: it connects")

    guest.on("connects", connects)
    guest.on("does-not", does_not)
    guest.run()
    said = server.said() + only_tls.said() + both.said()
    lab.expect("no key is in the log", not any(secret[16:48] in said for secret in secrets))


# Of 48 bytes.
LONG_KEY = "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:"
