"""tools/test_root.py: a program that does not build in the root is a failure, although the tests took the next variant.

usage: test_root_test.py TEST_ROOT.py
"""
import contextlib
import importlib.util
import io
import json
import subprocess
import sys
import unittest

SCRIPT = sys.argv.pop(1)
DEAD = {"program": "route_tokens", "kernel": "route_tokens/64x1x1", "why": "signal 6"}


class DeadPrograms(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("test_root", SCRIPT)
        self.script = importlib.util.module_from_spec(spec)
        arguments, sys.argv = sys.argv, [SCRIPT, "build", "suite"]
        spec.loader.exec_module(self.script)
        sys.argv = arguments

    def counts(self, status, devices):
        """((passed, failed), text) of what `moecl devices --json` says."""
        with contextlib.redirect_stdout(io.StringIO()) as text:
            return self.script.dead_programs(subprocess.CompletedProcess([], status, json.dumps(devices))), text.getvalue()

    def test_each_is_a_failure(self):
        self.assertEqual(self.counts(0, [{"name": "cpu"}, {"name": "gpu"}]), ((0, 0), ""))
        counts, text = self.counts(0, [{"name": "cpu", "does_not_build": [DEAD, DEAD]}, {"name": "gpu", "does_not_build": [DEAD]}])
        self.assertEqual(counts, (0, 3))
        self.assertIn("does not build on gpu: route_tokens route_tokens/64x1x1: signal 6", text)

    def test_a_command_that_fails_is_a_failure(self):
        self.assertEqual(self.counts(4, []), ((0, 1), ""))

    def test_it_is_asked_for(self):
        asked = []
        self.script.make_root = self.script.unpack_bundle = lambda: None
        self.script.counted = self.script.operator = lambda *_: (1, 0)

        def run(*command):
            asked.append(command[1:])
            return subprocess.CompletedProcess([], 0, json.dumps([{"name": "cpu", "does_not_build": [DEAD]}]))

        self.script.run = run
        with contextlib.redirect_stdout(io.StringIO()) as text:
            self.assertEqual(self.script.main(), 1)
        self.assertEqual(asked[-1], ("devices", "--json"))
        self.assertRegex(text.getvalue().splitlines()[-1], r"^\d+ passed, 1 failed$")


if __name__ == "__main__":
    unittest.main()
