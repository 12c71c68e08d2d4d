"""Runs every moecl command that stands on a page, in smaller sizes where a page's would take long.

usage: page_commands_test.py MOECL DATA
"""
import os
import re
import subprocess
import sys
import unittest

from command import DATA, MOECL, CommandTest, main

ROOT, BUILD = DATA.parents[1], MOECL.parent
sys.path.insert(0, str(ROOT / "tools"))
import check_docs

STANDS_FOR = {
    "MODEL_DIR": "tests/data/goldens/mixtral-e8k2", "NAME": "Portable", "tests/data/goldens/*": "tests/data/goldens/mixtral-e8k2", "/tmp/": "",
    "--time-limit 60": "--time-limit 2", "--repetitions 5": "--repetitions 2", "--tokens 1,16,128,512": "--tokens 1,16", "--tokens 512": "--tokens 16",
    "--compare Portable rusticl": "--compare Portable rusticl --shapes olmoe-1b-7b --tokens 1",
}
# Options that make a command small: a small released model, with few experts.
SMALL = {"bench": " --min-time 0.001 --experts 8", "generate": " --experts 8"}
MODELS = r"(qwen3-30b-a3b|mixtral-8x7b)(,[\w,.-]+)?(?= |$)"
SLOWER = {"bench": (0, 1), "tune": (0, 1)}  # than the baseline, and too slow to measure anything in the time
BUSY = "the machine was in a slow mode, so its times compare with nothing"


def commands():
    """(page, command, what the page says that it prints)"""
    for name in check_docs.pages(ROOT):
        if check_docs.ELSEWHERE.fullmatch(name) or name.endswith("ADDING.md"):
            continue
        text = (ROOT / name).read_text().replace("\\\n", " ")
        for found in re.finditer(r"^    (?:\$ )?((?:[A-Z_]+=\S+ )*(?:build/ci/)?moecl .*)\n((?:(?!    (?:build/ci/)?moecl )    .*\n|\n)*)", text, re.MULTILINE):
            yield name, re.sub(r" +#.*", "", found.group(1)), found.group(2) if found.group(0).lstrip().startswith("$") else ""


def small(command):
    for words, instead in STANDS_FOR.items():
        command = command.replace(words, instead)
    command = re.sub(MODELS, "olmoe-1b-7b", command)
    command, arrow, file = command.partition(" > ")
    if "--results" not in command:
        command += SMALL.get(re.search(r"moecl (\w+)", command).group(1), "")
    for option, instead in (("--filter", "^layer/"), ("--schemes", "bf16"), ("--tokens", "16")):
        if "--shapes" in command and option not in command:
            command += f" {option} {instead}"
    return command + arrow + file


class PageCommands(CommandTest):
    def test_all(self):
        for name in ("tests", "host"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "build").mkdir()
        (self.folder / "build/ci").symlink_to(BUILD)
        environment = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "XDG_DATA_HOME": str(self.folder)}
        ran = set()
        for page, command, printed in commands():
            short = small(command)
            if short in ran or "--platform NVIDIA" in short and "OPENCL_LAYERS" not in short:
                continue
            with self.subTest(page, command=short):
                if "old.json" in short:
                    (self.folder / "old.json").write_bytes((self.folder / "new.json").read_bytes())
                done = subprocess.run(["bash", "-c", short], cwd=self.folder, env=environment, capture_output=True, text=True)
                if BUSY not in done.stderr:
                    self.assertIn(done.returncode, SLOWER.get(re.search(r"moecl (\w+)", short).group(1), (0,)), done.stderr[-2000:])
                for line in printed.split("\n"):
                    if line.strip() not in ("", "..."):
                        self.assertIn(re.split(r":|  ", line.strip())[0], done.stdout)
            ran.add(short)
        self.assertGreater(len(ran), 15)


if __name__ == "__main__":
    main()
