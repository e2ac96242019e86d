"""Control groups below our own: a fraction of a processor, or so much memory. Version 1 and version 2."""

import contextlib
import os


class NoGroup(Exception):
    """Why this machine gives us no control group."""


class Hierarchy:
    """Where the groups of a controller are, and which of them is our own."""

    def __init__(self, version, mount, own):
        self.version, self.mount, self.own = version, mount, own

    @classmethod
    def of(cls, controller, mounts, groups):
        """Looks it up in the texts of /proc/self/mountinfo and /proc/self/cgroup."""
        found = [mount.split(" - ") for mount in mounts.splitlines()]
        found = [(before.split()[3:5], after.split()) for before, after in found]
        ours = [line.split(":", 2) for line in groups.splitlines()]
        for number, controllers, path in ours:
            first = number != "0" and controller in controllers.split(",")
            for (root, mount), (kind, _, *options) in found:
                if first and kind == "cgroup" and controller in ",".join(options).split(","):
                    return cls(1, mount, below(mount, root, path))
        for number, controllers, path in ours:
            for (root, mount), (kind, *_) in found:
                if (number, controllers, kind) == ("0", "", "cgroup2"):
                    return cls(2, mount, below(mount, root, path))
        raise NoGroup(f"no control groups with the controller {controller} are mounted")

    def parents(self):
        """Our own group and those above it."""
        path = self.own
        while True:
            yield path
            if os.path.samefile(path, self.mount):
                return
            path = os.path.dirname(path)


def below(mount, root, path):
    """Where a group is that the kernel calls `path`, if `root` of its hierarchy is mounted there."""
    inside = os.path.relpath(path, root)
    # Above what is mounted, as seen from a container: then the top is the nearest that can be had.
    return mount if inside.startswith("..") else os.path.normpath(os.path.join(mount, inside))


def settings(version, controller, amount):
    """The files of a group and what they say: a share of one processor, or bytes of memory."""
    if controller == "cpu":
        period_us = 20_000
        quota_us = int(amount * period_us)
        if version == 2:
            return {"cpu.max": f"{quota_us} {period_us}"}
        return {"cpu.cfs_period_us": period_us, "cpu.cfs_quota_us": quota_us}
    return {"memory.max" if version == 2 else "memory.limit_in_bytes": int(amount)}


@contextlib.contextmanager
def group(controller, amount):
    """A group for processes, as a path. Raises NoGroup, which says why there is none."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts, open("/proc/self/cgroup", encoding="utf-8") as own:
        hierarchy = Hierarchy.of(controller, mounts.read(), own.read())
    with parent(hierarchy, controller) as above:
        path = os.path.join(above, f"ds-bench-{controller}-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError as error:
            raise NoGroup(f"{above} (version {hierarchy.version}): {error.strerror}: it needs root, or delegation") from error
        try:
            try:
                for name, value in settings(hierarchy.version, controller, amount).items():
                    write(os.path.join(path, name), value)
            except OSError as error:
                raise NoGroup(f"{error.filename}: {error.strerror}") from error
            yield path
        finally:
            os.rmdir(path)


@contextlib.contextmanager
def parent(hierarchy, controller):
    """The group to make ours in: of version 2, one that passes the controller on to those below it."""
    if hierarchy.version == 1:
        yield hierarchy.own
        return
    why = f"no group of {hierarchy.mount} (version 2) has the controller {controller}"
    for path in hierarchy.parents():
        if controller in words(os.path.join(path, "cgroup.subtree_control")) and os.access(path, os.W_OK):
            yield path
            return
        if controller in words(os.path.join(path, "cgroup.controllers")):
            try:
                write(os.path.join(path, "cgroup.subtree_control"), f"+{controller}")
            except OSError as error:
                # A group that has processes passes nothing on (EBUSY), unless it is the root.
                why = f"{path}/cgroup.subtree_control (version 2): {error.strerror}"
                if path == hierarchy.own and os.access(path, os.W_OK):
                    with aside(path):
                        try:
                            write(os.path.join(path, "cgroup.subtree_control"), f"+{controller}")
                        except OSError:
                            continue
                        with given_back(path, controller):
                            yield path
                            return
                continue
            with given_back(path, controller):
                yield path
                return
    raise NoGroup(why)


@contextlib.contextmanager
def given_back(path, controller):
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            write(os.path.join(path, "cgroup.subtree_control"), f"-{controller}")


@contextlib.contextmanager
def aside(path):
    """A group that was delegated to us, with its processes in a group below it meanwhile."""
    leaf = os.path.join(path, f"ds-bench-all-{os.getpid()}")
    os.mkdir(leaf)
    try:
        move(path, leaf)
        yield
    finally:
        move(leaf, path)
        os.rmdir(leaf)


def move(source, sink):
    for process in words(os.path.join(source, "cgroup.procs")):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            write(os.path.join(sink, "cgroup.procs"), process)


def words(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


def grouped(group_, command):
    """The command, run in a control group."""
    if not group_:
        return command
    return ["sh", "-c", 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"', "sh", group_, *command]
