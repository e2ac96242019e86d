"""Control groups of both versions, as far as that can be looked at without another kernel."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import groups  # noqa: E402

LINE = "30 20 0:{n} {root} {mount} rw - {kind} {kind} rw,{options}\n"
V1 = LINE.format(n=1, root="/", mount="/g/cpu,cpuacct", kind="cgroup", options="cpu,cpuacct")
V2 = LINE.format(n=2, root="/", mount="/g/unified", kind="cgroup2", options="nsdelegate")
HYBRID = (V1 + V2, "3:cpu,cpuacct:/a/b\n0::/c\n")


class Hierarchies(unittest.TestCase):
    def found(self, controller, mounts, own):
        found = groups.Hierarchy.of(controller, mounts, own)
        return found.version, found.own

    def test_a_controller_is_looked_for_in_both_versions(self):
        self.assertEqual(self.found("cpu", *HYBRID), (1, "/g/cpu,cpuacct/a/b"))
        self.assertEqual(self.found("memory", *HYBRID), (2, "/g/unified/c"))
        self.assertEqual(self.found("cpu", V2, "0::/user.slice/x.scope\n"), (2, "/g/unified/user.slice/x.scope"))

    def test_a_container_sees_a_part_of_the_tree(self):
        part = LINE.format(n=2, root="/docker/1", mount="/g", kind="cgroup2", options="x")
        self.assertEqual(self.found("cpu", part, "0::/docker/1/x\n"), (2, "/g/x"))
        self.assertEqual(self.found("cpu", part, "0::/elsewhere\n"), (2, "/g"))

    def test_none_is_said(self):
        with self.assertRaisesRegex(groups.NoGroup, "controller cpu"):
            groups.Hierarchy.of("cpu", "", "0::/\n")

    def test_settings_are_those_of_the_version(self):
        self.assertEqual(groups.settings(2, "cpu", 0.25), {"cpu.max": "5000 20000"})
        self.assertEqual(groups.settings(1, "cpu", 0.1), {"cpu.cfs_period_us": 20000, "cpu.cfs_quota_us": 2000})
        self.assertEqual(groups.settings(2, "memory", 5e6), {"memory.max": 5000000})
        self.assertEqual(groups.settings(1, "memory", 4096), {"memory.limit_in_bytes": 4096})


class Parents(unittest.TestCase):
    """A tree of version 2: files take the place of the kernel's."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.mount = directory.name
        self.own = os.path.join(self.mount, "user.slice/x.scope")
        os.makedirs(self.own)

    def say(self, path, name, text):
        groups.write(os.path.join(self.mount, path, f"cgroup.{name}"), text)

    def parent(self, controller):
        return groups.parent(groups.Hierarchy(2, self.mount, self.own), controller)

    def test_the_nearest_group_that_passes_the_controller_on_is_taken_as_it_is(self):
        self.say("", "subtree_control", "cpu memory")
        self.say("user.slice", "subtree_control", "memory")
        self.say("user.slice/x.scope", "subtree_control", "")
        with self.parent("memory") as path:
            self.assertEqual(path, os.path.join(self.mount, "user.slice"))
        with self.parent("cpu") as path:
            self.assertEqual(path, self.mount)

    def test_one_that_could_is_made_to_and_no_longer_afterwards(self):
        self.say("", "controllers", "cpu io memory")
        with self.parent("cpu") as path:
            self.assertEqual(path, self.mount)
            self.assertEqual(groups.words(os.path.join(path, "cgroup.subtree_control")), ["+cpu"])
        self.assertEqual(groups.words(os.path.join(self.mount, "cgroup.subtree_control")), ["-cpu"])

    def test_a_controller_that_nobody_has_is_named(self):
        self.say("", "controllers", "io")
        with self.assertRaisesRegex(groups.NoGroup, r"version 2\) has the controller cpu"), self.parent("cpu"):
            self.fail("it has none")


class Real(unittest.TestCase):
    def test_a_group_of_this_machine_limits_what_runs_in_it(self):
        try:
            with groups.group("memory", 64 << 20) as path:
                limits = [groups.words(os.path.join(path, name)) for name in ("memory.max", "memory.limit_in_bytes")]
                self.assertIn([str(64 << 20)], limits)
            self.assertFalse(os.path.exists(path))
        except groups.NoGroup as why:
            self.skipTest(str(why))


if __name__ == "__main__":
    unittest.main()
