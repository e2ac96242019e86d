"""What `make install` leaves, used as a stranger's C program uses it: by pkg-config alone."""

import os
import shutil
import struct
import subprocess
import unittest
from pathlib import Path

from system import ROOT, Case

FUNCTION = """
#include "diskside.h"
DS_SPLIT_RECORDS(8);
SEC("read/twice")
__s64 twice(__s64 *out, const __s64 *in, __u64 in_len, const void *args, const struct ds_call *call) {
    for (__u64 i = 0; i < in_len / 8; i++) out[i] = 2 * in[i];
    return in_len;
}
"""

TIER = """
#include <libdiskside.h>
#include <stdio.h>
int main(int argc, char **argv) {
    ds_session *session = ds_session_new(0);
    ds_file *file = ds_file_open(session, argv[argc - 1], DS_READ);
    ds_function *stats64 = ds_function_find(session, "stats64");
    ds_options options = { .size = sizeof options, .tier = DS_TIER_LLVM };
    ds_result *result = ds_wait_result(ds_submit_pread_fn(file, 0, UINT64_MAX, stats64, NULL, 0, &options));
    ds_part part = { .size = sizeof part };
    if (!result || ds_result_part(result, 0, &part)) {
        fprintf(stderr, "%s\\n", ds_error());
        return 1;
    }
    puts(part.tier);
    return 0;
}
"""


class Install(Case):
    @unittest.skipUnless(shutil.which("pkg-config"), "needs pkg-config: scripts/setup --for test")
    def test_a_c_program_is_built_and_run_against_the_installed_tree(self):
        prefix = self.directory / "prefix"
        # As for a package: installed below another directory, then moved to where it belongs.
        staging = self.directory / "staging"
        install = [ROOT / "scripts/install", "--profile", "dev", "--scan", "no", "--objects", "no", "--databases", "no"]
        install += ["--prefix", prefix, "--destdir", staging]
        listed = subprocess.run(install, check=True, capture_output=True, text=True, timeout=900).stdout.split()
        places = {str(Path(name).relative_to(staging / prefix.relative_to("/"))) for name in listed}
        shipped = ROOT / "crates/abi/include"
        headers = [f"include/diskside/{path.relative_to(shipped)}" for path in shipped.rglob("*.h")]
        wanted = ["bin/diskside", "bin/diskside-kv", "lib/libdiskside.so", "lib/libdiskside.a", "lib/pkgconfig/diskside.pc"]
        wanted += ["include/libdiskside.h", "include/lambda_io.h", *headers]
        wanted += ["lib/libdiskside_csapi.so", "lib/libdiskside_csapi.a", "lib/pkgconfig/diskside-csapi.pc", "include/diskside-csapi/cs.h"]
        has_llvm = shutil.which("llvm-config-19") is not None
        shells = ["bash-completion/completions/diskside", "zsh/site-functions/_diskside", "fish/vendor_completions.d/diskside.fish"]
        wanted += [f"share/{completion}" for completion in shells]
        pages = {place for place in places if place.startswith("share/man/man1/diskside")}
        self.assertTrue({"share/man/man1/diskside.1", "share/man/man1/diskside-run.1"} <= pages, pages)
        self.assertEqual(places - pages, {*wanted, *(["bin/diskside-llvm"] if has_llvm else [])})
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

        asked = ["pkg-config", "--cflags", "--libs", "diskside-csapi"]
        csapi = subprocess.run(asked, check=True, capture_output=True, text=True, env=environment).stdout.split()
        source = shutil.copy(ROOT / "crates/csapi/examples/grep.c", self.directory)
        subprocess.run(["cc", "-Wall", "-Werror", source, "-o", self.directory / "grep", *csapi], check=True, cwd=self.directory)
        library = {"LD_LIBRARY_PATH": f"{prefix}/lib"}
        done = subprocess.run([self.directory / "grep", source, "x"], capture_output=True, text=True, env=library, check=False)
        self.assertIn("in no directory that DISKSIDE_CSX says", done.stderr)

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

        # A function of one's own: compiled by hand against the installed headers, or by the command, which needs none.
        flags = subprocess.run(
            ["pkg-config", "--variable=functions_cflags", "diskside"], check=True, capture_output=True, text=True, env=environment
        ).stdout.split()
        source = self.write("twice.bpf.c", FUNCTION)
        clang = os.environ.get("DISKSIDE_CLANG", "clang")
        subprocess.run([clang, *flags, "-Werror", "-c", source, "-o", self.directory / "twice.o"], check=True)
        cache = {"XDG_CACHE_HOME": str(self.directory / "cache"), "XDG_STATE_HOME": str(self.directory / "state")}
        bare = {"PATH": os.environ["PATH"], **cache}
        tiers = [[], ["--tier", "llvm"]] if has_llvm else [[]]
        for function in ("twice.o", "twice.bpf.c"):
            for tier in tiers:
                command = [prefix / "bin/diskside", "run", self.directory / function, data, *tier]
                done = subprocess.run(command, capture_output=True, env=bare, check=False)
                self.assertEqual(done.stdout, struct.pack("<3q", 10, -14, 22), (command, done.stderr))

        # A program elsewhere has the optimising tier, too, where the commands are in PATH.
        if has_llvm:
            program = self.directory / "tier"
            source = self.write("tier.c", TIER)
            flags = found.stdout.split()
            subprocess.run(["cc", "-Wall", "-Werror", source, "-o", program, *flags], check=True)
            bare = {"PATH": f"{prefix}/bin", "LD_LIBRARY_PATH": f"{prefix}/lib", **cache}
            done = subprocess.run([program, data], capture_output=True, text=True, env=bare, check=False)
            self.assertEqual(done.stdout, "llvm\n", done.stderr)
            del bare["PATH"]
            done = subprocess.run([program, data], capture_output=True, text=True, env=bare, check=False)
            self.assertIn("diskside-llvm", done.stderr)

    def test_a_prefix_that_is_not_from_the_root_is_refused(self):
        done = subprocess.run([ROOT / "scripts/install", "--prefix", "here"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--prefix here: name it from the root", done.stderr)
