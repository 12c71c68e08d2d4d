"""tools/test_report.py on small results: what counts as passed and as failed, and what of a failed test is shown.

usage: test_report_test.py TEST_REPORT.py
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

REPORT = pathlib.Path(sys.argv.pop(1)).resolve()


class TestReport(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        (self.build / "results").mkdir()
        self.suite = xml.etree.ElementTree.Element("testsuite")
        self.devices([])

    def devices(self, devices):
        """Makes a `moecl` command that prints `devices`."""
        command = self.build / "moecl"
        command.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(devices)}\nEND\n")
        command.chmod(0o755)

    def ran(self, name, seconds=1.0, status="run", output=""):
        """Adds a test to the results of ctest."""
        case = xml.etree.ElementTree.SubElement(self.suite, "testcase", name=name, time=str(seconds), status=status)
        xml.etree.ElementTree.SubElement(case, "system-out").text = output

    def counted(self, name, tests, failures=0, errors=0, disabled=0, **kernels):
        """Writes the results of a GoogleTest process."""
        report = {"tests": tests, "failures": failures, "errors": errors, "disabled": disabled}
        report.update({f"kernels on {platform}": str(count) for platform, count in kernels.items()})
        (self.build / "results" / (name.replace("/", ".") + ".json")).write_text(json.dumps(report))

    def report(self, *platforms):
        """(exit status, lines) of the report."""
        xml.etree.ElementTree.ElementTree(self.suite).write(self.build / "results" / "ctest.xml")
        done = subprocess.run([sys.executable, REPORT, self.build, *platforms], stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def test_cases_of_a_process_count_each_and_another_test_as_one(self):
        self.ran("host/a_test")
        self.counted("host/a_test", tests=7, disabled=2)
        self.ran("tools/b_test")
        self.assertEqual(self.report(), (0, ["slowest: tools/b_test 1 s, host/a_test 1 s", "6 passed, 0 failed"]))

    def test_failures_and_errors_of_cases_count(self):
        self.ran("host/a_test", status="fail")
        self.counted("host/a_test", tests=7, failures=2, errors=1)
        self.ran("tools/b_test", status="fail")
        status, lines = self.report()
        self.assertEqual((status, lines[-1]), (1, "4 passed, 4 failed"))

    def test_a_process_that_died_has_failed_though_its_cases_passed(self):
        self.ran("host/a_test", status="fail")
        self.counted("host/a_test", tests=7)
        status, lines = self.report()
        self.assertEqual((status, lines[-1]), (1, "7 passed, 1 failed"))

    def test_nothing_run_is_no_success(self):
        self.assertEqual(self.report(), (1, ["slowest: ", "0 passed, 0 failed"]))

    def test_a_platform_without_kernels_is_a_failure(self):
        self.ran("host/a_test")
        self.counted("host/a_test", tests=1, pocl=3)
        self.ran("host/b_test")
        self.counted("host/b_test", tests=1, pocl=4, other=1)
        self.assertEqual(self.report("pocl")[0], 0)
        status, lines = self.report("pocl", "rusticl")
        self.assertEqual((status, lines[1:]),
                         (1, ["kernels launched on pocl: 7", "kernels launched on rusticl: 0",
                              "that is none, and so a failure", "kernels launched on other: 1", "2 passed, 1 failed"]))

    def test_a_program_that_does_not_build_is_a_failure(self):
        self.ran("host/a_test")
        self.devices([{"name": "CPU"},
                      {"name": "GPU", "does_not_build": [{"program": "combine", "kernel": "combine/64x1x1", "why": "signal 6"}]}])
        status, lines = self.report()
        self.assertEqual((status, lines[1:]),
                         (1, ["does not build on GPU: combine combine/64x1x1: signal 6", "1 passed, 1 failed"]))

    def test_the_twelve_slowest_are_named(self):
        for seconds in range(20):
            self.ran(f"test_{seconds}", seconds)
        slowest = self.report()[1][0]
        self.assertTrue(slowest.startswith("slowest: test_19 19 s, test_18 18 s, "))
        self.assertTrue(slowest.endswith(", test_8 8 s"))

    def test_failures_are_shown_with_what_follows_and_the_end(self):
        noise = [f"line {i}" for i in range(50)]
        self.ran("a", status="fail", output="\n".join(
            [*noise, "a_test.cpp:7: Failure", "expected 1", "", "got 2", *noise, "the end", ""]))
        self.assertEqual(self.report()[1][:8], ["a failed:", "  a_test.cpp:7: Failure", "  expected 1", "  got 2", "  line 0",
                                                "  line 1", "  the end", "slowest: a 1 s"])

    def test_many_failures_are_cut(self):
        self.ran("a", status="fail", output="\n".join(f"a_test.cpp:{i}: Failure" for i in range(30)))
        self.assertEqual(self.report()[1][1:13], [f"  a_test.cpp:{i}: Failure" for i in (*range(11), 29)])

    def test_output_without_a_known_failure_is_shown_from_its_end(self):
        self.ran("a", status="fail", output="\n".join(f"line {i}" for i in range(30)))
        self.assertEqual(self.report()[1][1:13], [f"  line {i}" for i in range(18, 30)])
        self.ran("b", status="fail")
        self.assertIn("b failed:", self.report()[1])


if __name__ == "__main__":
    unittest.main()
