"""Plants one wrong claim at a time in a small README: check_docs must find each, and nothing in a sound one."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).parents[2] / "tools" / "check_docs.py"
TREE = {
    "runtime/include/moecl/buffer.hpp": "namespace moecl { struct Buffer { void* handle(); }; }",
    "tools/main.cpp": 'app.add_subcommand("run", ""); run.add_option("--trace");',
    "tools/test": "# usage: tools/test [--preset NAME]",
    "CMakeLists.txt": "", "CMakePresets.json": "",
}
SOUND = """`Buffer::handle()` of `<moecl/buffer.hpp>` in `runtime/`, [tests](tools/test), `moecl run --trace x`, `build/release/moecl`
```sh
XDG_CACHE_HOME=x ./tools/test --preset asan   # not --this
cmake --whatever
```
```cpp
int main() {}
```
"""


class CheckDocs(unittest.TestCase):
    def run_check(self, readme, *options):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**TREE, "README.md": readme}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            command = [sys.executable, CHECK, folder, *(str(pathlib.Path(folder, o)) if o == "out" else o for o in options)]
            done = subprocess.run(command, capture_output=True, text=True)
            written = {p.name: p.read_text() for p in pathlib.Path(folder, "out").glob("*")}
            return done.returncode, done.stdout, written

    def test_sound_document_passes(self):
        self.assertEqual(self.run_check(SOUND)[:2], (0, "README.md: everything named exists\n"))

    def test_each_wrong_claim_is_found(self):
        for planted in ("`Bufffer`", "`Buffer::size()`", "`<moecl/none.hpp>`", "`runtime/none.cpp`", "`none.cpp`", "[x](tools/none)",
                        "`moecl walk`", "`moecl run --none`", "`tools/test --none`", "`--none`", "\n    moecl run --none", "\n```sh\n./tools/test --none\n```"):
            status, output, _ = self.run_check(SOUND + planted + "\n")
            self.assertEqual((status, output.count("README.md:")), (1, 1), f"{planted}: {output}")

    def test_programs_are_extracted(self):
        self.assertEqual(self.run_check(SOUND, "--extract", "out")[2], {"readme_1.cpp": "int main() {}\n"})


if __name__ == "__main__":
    unittest.main()
