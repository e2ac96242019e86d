"""Servers that differ in how hosts authenticate: one for each hash function with each group."""

HASHES = ["sha256", "sha384", "sha512"]
GROUPS = ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"]


def matrix(lab, nqn, config):
    """Starts them, with the hosts and keys of `config`: `PORT:HASH:GROUP` of each, as the case `04-groups` takes them."""
    plain = config.read_text(encoding="ascii")
    servers = []
    for hashing, group in [(hashing, group) for group in GROUPS for hashing in HASHES]:
        special = config.with_name(f"{hashing}-{group}.toml")
        security = f'[security]\ndhchap_hashes = ["{hashing}"]\ndhchap_groups = ["{group}"]\n\n'
        special.write_text(security + plain, encoding="ascii")
        server = lab.target("--nqn", nqn, "--config", special, "--volume", "data=mem:8MiB,rw")
        servers.append(f"{server.port}:{hashing}:{group}")
    return ",".join(servers)
