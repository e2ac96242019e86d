"""NFS for bench/scan/engines: a server of it, and a file system for fsspec over it. Both are programs, as this needs no NFS of the kernel's.

    bench/scan/engines_nfs.py ADDRESS DIRECTORY    whether the server's directory can be mounted: says why not

The server is NFS-Ganesha, the client Debian's libnfs, which speaks NFS 3 and sends as many reads at once as a large one needs.
"""

import contextlib
import ctypes
import functools
import io
import os
import queue
import shutil
import sys
import threading
from pathlib import Path

PORT = 2049
LIBRARY = "libnfs.so.13"
PROGRAMS = ["ganesha.nfsd", "rpcbind", "unshare"]
#: As Linux reads ahead on a new mount.
READ_AHEAD_BYTES = 128 << 10
#: Pages of 4 KiB that are kept of each open file. libnfs clears them all when it opens one: 256 MiB took it 0.2 s, and the kernel nothing.
CACHED_PAGES = 1 << 10
#: So much of one file is asked for in one call: its reads are on their way at the same time.
PIECE_BYTES = 16 << 20

CONFIGURATION = """
NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}
NFSV4 {{ RecoveryRoot = "{directory}/nfs"; Graceless = true; }}
EXPORT {{
    Export_Id = 1; Path = "{data}"; Pseudo = "{data}"; Access_Type = RO; Squash = No_Root_Squash; SecType = sys;
    Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }}
}}
"""
#: The port mapper finds its socket in a /run of their own, so the machine's hears nothing of this server.
START = """
PATH=$PATH:/usr/sbin:/sbin
mount -t tmpfs none /run && mkdir /run/rpcbind /run/ganesha || exit 1
rpcbind -f -w &
tries=0
until [ -S /run/rpcbind.sock ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.05; done
exec ganesha.nfsd -F -f "$1/ganesha.conf" -L "$1/ganesha.log" -p "$1/ganesha.pid"
"""


def lacking():
    """Why there can be no server or client here, or None."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        missing.append(LIBRARY)
    return f"{' and '.join(missing)} not installed: run scripts/setup --for nfs" if missing else None


def server_of(directory, data):
    """The command of a server of `data`, which keeps its own files in `directory`. All of its processes end when the first is killed."""
    (directory / "nfs").mkdir()
    (directory / "ganesha.conf").write_text(CONFIGURATION.format(port=PORT, directory=directory, data=data))
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", START, "sh", directory]


class Status(ctypes.Structure):
    """libnfs's nfs_stat_64."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("device", "inode", "mode", "links", "user", "group", "special", "size", "block_size", "blocks"),
            *("read_s", "written_s", "changed_s", "read_ns", "written_ns", "changed_ns", "used"),
        )
    ]


@functools.cache
def library():
    of = ctypes.CDLL(LIBRARY)
    pointer, text, number, whole = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int
    for name, gives, *takes in [
        ("nfs_init_context", pointer),
        ("nfs_destroy_context", None, pointer),
        ("nfs_get_error", text, pointer),
        ("nfs_set_readahead", None, pointer, ctypes.c_uint32),
        ("nfs_set_pagecache", None, pointer, ctypes.c_uint32),
        ("nfs_mount", whole, pointer, text, text),
        ("nfs_stat64", whole, pointer, text, ctypes.POINTER(Status)),
        ("nfs_open", whole, pointer, text, whole, ctypes.POINTER(pointer)),
        ("nfs_pread", whole, pointer, pointer, number, number, pointer),
        ("nfs_close", whole, pointer, pointer),
    ]:
        getattr(of, name).restype, getattr(of, name).argtypes = gives, takes
    return of


class Mount:
    """A connection to the server. libnfs demands that one thread uses it at a time."""

    def __init__(self, address, directory):
        self.context = library().nfs_init_context()
        try:
            self.call("nfs_mount", address.encode(), directory.encode())
        except OSError:
            library().nfs_destroy_context(self.context)
            raise
        library().nfs_set_pagecache(self.context, CACHED_PAGES)
        library().nfs_set_readahead(self.context, READ_AHEAD_BYTES)

    def call(self, name, *words):
        result = getattr(library(), name)(self.context, *words)
        if result < 0:
            said = (library().nfs_get_error(self.context) or b"").decode(errors="replace")
            raise OSError(-result, f"{name}: {said or os.strerror(-result)}")
        return result


class Mounts:
    """Of one directory: a mount for each file that is open, kept for the next one."""

    def __init__(self, address, directory):
        self.address, self.directory, self.idle = address, directory, queue.SimpleQueue()

    def take(self):
        try:
            return self.idle.get_nowait()
        except queue.Empty:
            return Mount(self.address, self.directory)

    @contextlib.contextmanager
    def one(self):
        mount = self.take()
        yield mount
        self.idle.put(mount)


class File(io.RawIOBase):
    """Read as the kernel's: pages that were read are kept while it is open, and reads one behind another read ahead."""

    def __init__(self, mounts, name):
        self.mounts, self.mount, self.lock = mounts, mounts.take(), threading.Lock()
        self.handle, self.at, status = ctypes.c_void_p(), 0, Status()
        self.mount.call("nfs_stat64", name.encode(), ctypes.byref(status))
        self.mount.call("nfs_open", name.encode(), os.O_RDONLY, ctypes.byref(self.handle))
        self.size = status.size

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, to, whence=os.SEEK_SET):
        self.at = to + (0 if whence == os.SEEK_SET else self.at if whence == os.SEEK_CUR else self.size)
        return self.at

    def readall(self):
        return self.read(max(self.size - self.at, 0))

    def readinto(self, buffer):
        with self.lock, memoryview(buffer).cast("B") as into:
            wanted, done = min(len(into), max(self.size - self.at, 0)), 0
            while done < wanted:
                place = ctypes.byref(ctypes.c_char.from_buffer(into, done))
                read = self.mount.call("nfs_pread", self.handle, self.at, min(wanted - done, PIECE_BYTES), place)
                # The views have to go before the buffer may.
                del place
                if read == 0:
                    raise OSError(f"a file of {self.size} bytes ended at {self.at}")
                self.at, done = self.at + read, done + read
            return done

    def close(self):
        # One that could not be opened has none.
        if not self.closed and self.handle:
            self.mount.call("nfs_close", self.handle)
            self.mounts.idle.put(self.mount)
        super().close()


@functools.cache
def files_of(address, directory):
    """The file system for fsspec; paths are ADDRESS/NAME."""
    from datetime import UTC, datetime

    from fsspec import AbstractFileSystem

    class OverNfs(AbstractFileSystem):
        protocol = "nfs"
        mounts = Mounts(address, directory)

        def _open(self, path, mode="rb", **_):
            return File(self.mounts, name_of(path))

        def info(self, path, **_):
            status, name = Status(), self._strip_protocol(path)
            with self.mounts.one() as mount:
                mount.call("nfs_stat64", name_of(name).encode(), ctypes.byref(status))
            return {"name": name, "size": status.size, "type": "file", "mtime": status.written_s}

        def modified(self, path):
            return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def name_of(path):
        return "/" + path.rpartition("/")[2]

    return OverNfs(skip_instance_cache=True)


if __name__ == "__main__":
    try:
        Mount(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"{Path(sys.argv[2]).name} cannot be mounted: {error}")
