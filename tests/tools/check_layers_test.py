"""Plants one fault at a time in a small sound tree: check_layers must find each, and nothing in the sound tree."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).parents[2] / "tools" / "check_layers.py"
SOUND = {
    "runtime/include/moecl/buffer.hpp": "#include <cstdint>\n",
    "runtime/buffer.cpp": '#include "runtime/check.hpp"\n#include <moecl/buffer.hpp>\n#include <CL/cl.h>\n',
    "runtime/check.hpp": "#include <string>\n",
    "host/include/moecl/layer.hpp": "#include <moecl/buffer.hpp>\n",
    "host/c_api/calls.hpp": "#include <moecl/layer.hpp>\n",
    "host/npu/c_api.cpp": '#include "host/c_api/calls.hpp"\n',
    "host/examples/run.hpp": "#include <moecl/buffer.hpp>\n",
    "host/examples/run.cpp": '#include <moecl/layer.hpp>\n#include "run.hpp"\n',
    "tests/oracle/sort.hpp": "#include <vector>\n",
    "tests/cases/sort.cpp": '#include "tests/oracle/sort.hpp"\n',
    "tests/devices.hpp": "",
    "tools/doctor.cpp": '#include "tests/oracle/sort.hpp"\n',
    "kernels_cl/common/rows.clh": "",
    "kernels_cl/rows/gather.cl": '#include "kernels_cl/common/rows.clh"\n',
}


class CheckLayers(unittest.TestCase):
    def check(self, **planted):
        """Exit status and output for the sound tree with one more file."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**SOUND, **planted.get("files", {})}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True)
            return done.returncode, done.stdout

    def assert_found(self, name, text, expected):
        status, output = self.check(files={name: text})
        self.assertEqual(status, 1, output)
        self.assertIn(f"{name}{expected}", output)
        self.assertEqual(output.count("\n"), 1, output)

    def test_sound_tree_passes(self):
        self.assertEqual(self.check(), (0, f"{len(SOUND)} files keep to their floors\n"))

    def test_upward_arrows(self):
        self.assert_found("runtime/bad.cpp", "\n#include <moecl/layer.hpp>\n", ":2: runtime (floor 1) includes host/include/moecl/layer.hpp")
        self.assert_found("runtime/bad.cpp", '#include "kernels_cl/common/rows.clh"\n', ":1: runtime (floor 1) includes kernels_cl/common/rows.clh")

    def test_circles_of_modules(self):
        status, output = self.check(files={"runtime/check.cpp": '#include "runtime/deep.hpp"\n', "runtime/deep.hpp": "",
                                           "runtime/deep.cpp": '#include "runtime/wide.hpp"\n',
                                           "runtime/wide.hpp": '#include "runtime/check.hpp"\n'})
        self.assertEqual((status, output), (1, "modules include each other: runtime/check, runtime/deep, runtime/wide\n"))
        self.assertEqual(self.check(files={"runtime/check.cpp": '#include <moecl/buffer.hpp>\n'})[0], 1)  # buffer.cpp includes check

    def test_cases_know_no_test(self):
        self.assert_found("tests/cases/bad.cpp", '#include "tests/devices.hpp"\n',
                          ":1: tests/cases (floor 6) includes tests/devices.hpp of tests (floor 7)")

    def test_arrows_between_rooms_of_host(self):
        self.assert_found("host/layer/bad.cpp", '#include "host/c_api/calls.hpp"\n', ":1: host/layer includes host/c_api/calls.hpp of host/c_api")

    def test_rooms_of_kernels(self):
        self.assert_found("kernels_cl/common/bad.cl", '#include "kernels_cl/rows/gather.cl"\n',
                          ":1: kernels_cl/common includes kernels_cl/rows/gather.cl of kernels_cl/rows, a later room")
        status, output = self.check(files={"kernels_cl/attic/bad.cl": ""})
        self.assertEqual((status, output), (1, "kernels_cl/attic: is no room of KERNEL_ROOMS\n"))
        status, output = self.check(files={f"kernels_cl/rows/f{i}.cl": "" for i in range(20)})
        self.assertEqual((status, output), (1, "kernels_cl/rows: 21 files, at most 20\n"))

    def test_unknown_headers(self):
        self.assert_found("host/bad.cpp", "#include <moecl/nothing.hpp>\n", ":1: moecl/nothing.hpp is no file")
        self.assert_found("host/bad.cpp", '#include "check.hpp"\n', ":1: check.hpp is no file")
        self.assert_found("host/bad.cpp", "#include <boost/any.hpp>\n", ":1: <boost/any.hpp> is no header")

    def test_examples_know_no_private_header(self):
        self.assert_found("host/examples/bad.cpp", '#include "host/c_api/calls.hpp"\n',
                          ":1: host/c_api/calls.hpp is no file")

    def test_public_headers_stay_self_contained(self):
        self.assert_found("host/include/moecl/bad.hpp", "#include <CL/cl.h>\n", ":1: public headers do not include <CL/cl.h>")
        self.assert_found("host/include/moecl/bad.hpp", "#include <spdlog/spdlog.h>\n", ":1: public headers do not")
        self.assert_found("runtime/include/moecl/bad.hpp", '#include "runtime/check.hpp"\n', ":1: public headers include by")

    def test_names(self):
        self.assert_found("host/BadName.cpp", "", ": the name is not snake_case")
        self.assert_found("runtime/include/moecl/layer.hpp", "", ": public headers are flat and unique")


if __name__ == "__main__":
    unittest.main()
