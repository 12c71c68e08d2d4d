"""Plants one wrong claim at a time in small pages: check_docs must find each, and nothing in sound ones."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools" / "check_docs.py"
sys.path.insert(0, str(CHECK.parent))
import check_docs
# What a newcomer looks for: the file that has it, and words of that file.
THINGS = {
    "run it in two commands": ("README.md", "./tools/quickstart"),
    "the shortest program": ("README.md", "layer.forward(stream, forward)"),
    "whether my checkpoint loads": ("host/FAMILIES.md", "## Which family runs with which scheme"),
    "use my own context, queue and memory": ("host/examples/own_queue.cpp", "cl_command_queue"),
    "put my own products between dispatch and combine": ("host/examples/own_gemm.cpp", "strategy"),
    "use several devices": ("dispatch/RANKS.md", "## Transports"),
    "test MoE code in CI without an accelerator": ("host/examples/github_actions.yml", "PoCL"),
    "what an error means": ("host/ERRORS.md", "| "),
    "how fast it is, against whom, and how to repeat that": ("bench/README.md", "moecl_bench_peers --shapes"),
    "install a package": ("tools/PACKAGES.md", "cpack"),
    "add an operator": ("kernels_cl/ADDING.md", "## An operator"),
    "why it is built so": ("kernels_cl/DECISIONS.md", "Rejected"),
}
TREE = {
    "runtime/include/moecl/buffer.hpp": "namespace moecl { struct Buffer { void* handle(); }; }",
    "tools/main.cpp": 'app.add_subcommand("run", "");\n  run.add_option("--trace");\n',
    "tools/test": "# usage: tools/test [--preset NAME]",
    "CMakeLists.txt": "", "CMakePresets.json": "",
}
SOUND = """# A page
[pages](runtime/PAGES.md), [here](#a-page), [a heading](runtime/PAGES.md#two-words-more)

`Buffer::handle()` of `<moecl/buffer.hpp>` in `runtime/`, [tests](tools/test), `moecl run --trace x`, `build/release/moecl`
```sh
XDG_CACHE_HOME=x ./tools/test --preset asan   # not --this
cmake --whatever
```
```cpp
int main() {}
```
[main.cpp](tools/main.cpp):
```cpp
run.add_option("--trace");
```
"""
PAGES = {
    "runtime/PAGES.md": "# Pages\n## Two words, more\n[history](../bench/results/day/NOTES.md) of `tools.txt`\n",
    "bench/results/day/NOTES.md": "`Gone` was in `runtime/gone.cpp`\n    moecl gone\n",
    "runtime/tools.txt": "",
    ".github/template.md": "`Buffer`\n",
    "build/made.md": "`Nothing`\n",
}


class CheckDocs(unittest.TestCase):
    def run_check(self, readme, *options, **others):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**TREE, **PAGES, "README.md": readme, **others}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            command = [sys.executable, CHECK, folder, *(str(pathlib.Path(folder, o)) if o == "out" else o for o in options)]
            done = subprocess.run(command, capture_output=True, text=True)
            written = {p.name: p.read_text() for p in pathlib.Path(folder, "out").glob("*")}
            return done.returncode, done.stdout, written

    def test_sound_document_passes(self):
        self.assertEqual(self.run_check(SOUND)[:2], (0, "4 pages: everything named exists\n"))

    def test_each_wrong_claim_is_found(self):
        for planted in ("`Bufffer`", "`Buffer::size()`", "`<moecl/none.hpp>`", "`runtime/none.cpp`", "`none.cpp`", "[x](tools/none)",
                        "[x](#none)", "[x](runtime/PAGES.md#none)", "x" * 241,
                        "`moecl walk`", "`moecl run --none`", "`tools/test --none`", "`--none`", "\n    moecl run --none", "\n```sh\n./tools/test --none\n```",
                        "[x](tools/main.cpp)\n```cpp\nrun.add_option\n```"):
            status, output, _ = self.run_check(SOUND + planted + "\n")
            self.assertEqual((status, output.count("README.md:")), (1, 1), f"{planted}: {output}")

    def test_every_page_is_checked(self):
        for name in ("runtime/PAGES.md", "runtime/OTHER.md", ".github/template.md"):
            status, output, _ = self.run_check(SOUND + "[other](runtime/OTHER.md)\n", **{"runtime/OTHER.md": "", name: PAGES["runtime/PAGES.md"] + "`Bufffer`"})
            self.assertEqual((status, f"{name}:4: " in output), (1, True), output)

    def test_history_and_data_need_their_links_and_width_alone(self):
        for planted in ("[x](none)", "x" * 241):
            status, output, _ = self.run_check(SOUND, **{"bench/results/day/NOTES.md": planted})
            self.assertEqual((status, output.count("bench/results/day/NOTES.md:1:")), (1, 1), output)

    def test_a_name_is_not_defined_by_a_page(self):
        status, output, _ = self.run_check(SOUND + "`OnlyHere`", **{"runtime/PAGES.md": PAGES["runtime/PAGES.md"] + "OnlyHere\n"})
        self.assertEqual((status, output.count("OnlyHere")), (1, 1), output)

    def test_a_page_that_is_three_links_away_is_found(self):
        notes = {"bench/results/day/NOTES.md": "[far](FAR.md)\n", "bench/results/day/FAR.md": ""}
        status, output, _ = self.run_check(SOUND, **notes)
        self.assertEqual((status, output), (1, "bench/results/day/FAR.md: more than 2 links away from README.md\n"))

    def test_programs_are_extracted(self):
        page = {"runtime/PAGES.md": PAGES["runtime/PAGES.md"] + "```c\nint x;\n```\n"}
        self.assertEqual(self.run_check(SOUND, "--extract", "out", **page)[2],
                         {"readme_1.cpp": "int main() {}\n", "runtime_pages_1.c": "int x;\n"})


class OwnPages(unittest.TestCase):
    def test_what_a_stranger_looks_for_is_two_clicks_away(self):
        near = {"README.md"}
        for _ in range(2):
            near |= {target for name in near if name.endswith(".md") for _, target, _ in check_docs.links(name, (ROOT / name).read_text())}
        for thing, (name, words) in THINGS.items():
            with self.subTest(thing):
                self.assertIn(name, near)
                self.assertIn(words, (ROOT / name).read_text())

    def test_first_pages_are_short(self):
        readme = (ROOT / "README.md").read_text().splitlines()
        self.assertLessEqual(next(i for i, line in enumerate(readme, 1) if line.startswith("## ")), 60)
        self.assertLessEqual(len((ROOT / "DESIGN.md").read_text().splitlines()), 150)


if __name__ == "__main__":
    unittest.main()
