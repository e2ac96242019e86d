"""What `make install` leaves, used as a stranger's C program uses it: by pkg-config alone."""

import os
import shutil
import struct
import subprocess
import unittest

from system import ROOT, Case


class Install(Case):
    @unittest.skipUnless(shutil.which("pkg-config"), "needs pkg-config: scripts/setup --for test")
    def test_a_c_program_is_built_and_run_against_the_installed_tree(self):
        prefix = self.directory / "prefix"
        # As for a package: installed below another directory, then moved to where it belongs.
        staging = self.directory / "staging"
        install = [ROOT / "scripts/install", "--profile", "dev", "--prefix", prefix, "--destdir", staging]
        listed = subprocess.run(install, check=True, capture_output=True, text=True, timeout=900).stdout.split()
        self.assertEqual(len(listed), 6, listed)
        (staging / prefix.relative_to("/")).rename(prefix)

        environment = os.environ | {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
        asked = ["pkg-config", "--cflags", "--libs", "diskside"]
        found = subprocess.run(asked, check=True, capture_output=True, text=True, env=environment)
        flags = found.stdout.split()
        self.assertIn(f"-I{prefix}/include", flags)
        program = self.directory / "stats"
        # Not below the project: nothing but the installed tree has the header.
        source = shutil.copy(ROOT / "crates/capi/examples/stats.c", self.directory)
        subprocess.run(["cc", "-Wall", "-Werror", source, "-o", program, *flags], check=True, cwd=self.directory)

        data = self.write("n", struct.pack("<3q", 5, -7, 11))
        done = subprocess.run(
            [program, data], check=True, capture_output=True, text=True, env={"LD_LIBRARY_PATH": f"{prefix}/lib"}
        )
        self.assertEqual(done.stdout, "3 numbers, sum 9, least -7, greatest 11\n")
        said = subprocess.run([prefix / "bin/diskside", "--version"], check=True, capture_output=True, text=True).stdout
        version = subprocess.run(
            ["pkg-config", "--modversion", "diskside"], check=True, capture_output=True, text=True, env=environment
        ).stdout
        self.assertEqual(said.split()[-1], version.strip())

    def test_a_prefix_that_is_not_from_the_root_is_refused(self):
        done = subprocess.run([ROOT / "scripts/install", "--prefix", "here"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--prefix here: name it from the root", done.stderr)
