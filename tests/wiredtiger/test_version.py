"""The library knows which WiredTiger loads it, or refuses.

It looked for a function that a program shows to all of its libraries. Where WiredTiger was loaded for one of them alone, or was a part of
the program, it found none, took the structures to be those that it was built for, and the program crashed.
"""

import os
import subprocess
import unittest

from lab import BUILT, ROOT, Lab

EXTENSION = f"{BUILT}/libdiskside_wiredtiger.so"


class Version(Lab):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hidden = f"{cls.directory.name}/hidden"
        source = ROOT / "tests/wiredtiger/hidden.c"
        subprocess.run(["cc", "-std=gnu11", "-Wall", "-Werror", source, "-o", cls.hidden, "-ldl"], check=True)

    def tried(self, *words, **environment):
        done = subprocess.run([self.hidden, *words], capture_output=True, text=True, env=os.environ | environment, timeout=60)
        return done.returncode, done.stderr

    def test_a_wiredtiger_that_one_library_sees(self):
        where = os.environ.get("DISKSIDE_WIREDTIGER_LIBRARY")
        library = f"{where}/libwiredtiger.so" if where else "libwiredtiger.so"
        code, said = self.tried(library, EXTENSION, self.server.url("hidden"))
        self.assertEqual(code, 0, said)

    def test_a_wiredtiger_that_cannot_be_asked(self):
        code, said = self.tried(EXTENSION)
        self.assertEqual(code, 22, said)
        self.assertIn("set DISKSIDE_WIREDTIGER_VERSION=", said)
        code, said = self.tried(EXTENSION, DISKSIDE_WIREDTIGER_VERSION="9.9.9")
        self.assertEqual(code, 22, said)
        self.assertIn("this is WiredTiger 9.9.9, the library was built for", said)


if __name__ == "__main__":
    unittest.main()
