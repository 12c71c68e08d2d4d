#!/usr/bin/env python3
"""Follows a section of an ADDING page to the letter, on a copy of the tree.

usage: adding_test.py BUILD_DIR SCRATCH_DIR PAGE HEADING

The section's `sh` blocks are run. Its `diff` blocks are applied: patches without numbers, with a line "@@" between the
hunks of a file. The text that a hunk replaces must be in the file exactly once. The lines of the indented block run
last. There `cmake --build` compiles the changed files and each test source that a line names. It links them in front of
the objects of BUILD_DIR, because the linker takes the first definition of a name. BUILD_DIR must be built.
"""
import concurrent.futures
import filecmp
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, SCRATCH = (pathlib.Path(argument).absolute() for argument in sys.argv[1:3])
PAGE, HEADING = sys.argv[3:5]
COPY = SCRATCH / "tree"
MADE = COPY / "build/ci"
NOT_COPIED = {ROOT / "build", ROOT / ".git", ROOT / "bench/results", ROOT / "tests/data"}
LINKED = "tests/data"
# The sources of the tests' program that every test needs.
FRAME = ("tests_main.cpp", "devices.cpp", "host/files.cpp", "host/file_reads.cpp", "runtime/driver_calls.cpp", "runtime/blocking_calls.cpp")


def run(*command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=COPY, check=False, **how)
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, command))}: status {done.returncode}\n{done.stdout[-8000:]}")
    return done.stdout


def copy_tree():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    shutil.copytree(ROOT, COPY, symlinks=True, ignore=lambda folder, names: {n for n in names if pathlib.Path(folder) / n in NOT_COPIED})
    (COPY / LINKED).symlink_to(ROOT / LINKED)


def section():
    """Its blocks (kind, text), in order: `sh`, `diff`, and "" for the last, indented one."""
    text = (ROOT / PAGE).read_text()
    body = re.search(rf"^## {re.escape(HEADING)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL).group(1)
    fenced = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
    found = [(kind, re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)) for indent, kind, block in fenced.findall(body)]
    last = re.findall(r"^    (\S.*)$", fenced.sub("", body), re.MULTILINE)
    if not last or not any(kind == "diff" for kind, _ in found):
        sys.exit(f"{PAGE}, {HEADING}: a section has blocks of diff, and commands to try it")
    return [*found, ("", "\n".join(last))]


def edits(part):
    """(old, new) texts of the hunks of one file."""
    for hunk in re.split(r"^@@\n", part, flags=re.MULTILINE):
        lines = hunk.splitlines()
        yield ("\n".join(line[1:] for line in lines if line[:1] != sign) for sign in "+-")


def apply(diff):
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        name, hunks = part.split("\n", 1)
        text = (COPY / name).read_text()
        for old, new in edits(hunks):
            if text.count(f"\n{old}\n") != 1:
                sys.exit(f"{PAGE}, {HEADING}: this is in {name} {text.count(old)} times, not once:\n{old}")
            text = text.replace(f"\n{old}\n", f"\n{new}\n")
        (COPY / name).write_text(text)


def changed():
    """Files that the section made or changed, from the root."""
    files = (file for file in COPY.rglob("*") if file.is_file() and COPY / LINKED not in file.parents)
    return [name for name in (file.relative_to(COPY) for file in files)
            if not (ROOT / name).exists() or not filecmp.cmp(ROOT / name, COPY / name, shallow=False)]


def commands():
    """(source, command) of all sources. Sources of a unity build are compiled one by one here."""
    for entry in json.loads((MADE / "compile_commands.json").read_text()):
        file, command = pathlib.Path(entry["file"]), entry["command"]
        yield file, command
        if file.parent.name == "Unity":
            for together in map(pathlib.Path, re.findall(r'^#include "(.*)"', file.read_text(), re.MULTILINE)):
                base = MADE if MADE in together.parents else COPY
                output = file.parent.parent / "alone" / together.relative_to(base)
                yield together, re.sub(r" -o \S+", f" -o {output.relative_to(MADE)}.o", command).replace(str(file), str(together))


def compile_sources(names):
    """Compiles as CMake would: (target, object) of each. For a kernel's text, it compiles the generated source."""
    made = {COPY / name if name.suffix not in (".cl", ".json") else MADE / f"kernels_cl/{name.name}.cpp" for name in names}
    found = {file: command for file, command in commands() if file in made}
    if missing := [file for file in made if file.suffix in (".cpp", ".c") and file not in found]:
        sys.exit(f"{PAGE}, {HEADING}: CMake does not compile {missing}")
    if texts := [file.relative_to(MADE) for file in found if MADE in file.parents]:
        run("ninja", "-C", MADE, *texts)
    matches = [re.search(r" -o (\S*CMakeFiles/(\w+)\.dir/\S+)", command) for command in found.values()]
    for match in matches:
        (MADE / match.group(1)).parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CCACHE_BASEDIR": str(COPY), "CCACHE_NOHASHDIR": "1"}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda command: run("bash", "-c", f"cd {MADE} && {command}", env=environment), found.values()))
    return [(match.group(2), match.group(1)) for match in matches]


def link(target, ours):
    """Links `target` as BUILD_DIR does, with `ours` first. Of the tests' sources only `ours` are linked."""
    command = run("ninja", "-C", BUILD, "-t", "commands", target).splitlines()[-1]
    words = shlex.split(command.split("&&")[1])
    if target == "moecl_tests":
        words = [word for word in words if not word.endswith(".o")]
    at = words.index("-o")
    output = MADE / words[at + 1]
    words[at + 1] = str(output)
    words[at:at] = [*(str(MADE / one) for one in ours), "-Wl,-z,muldefs"]
    subprocess.run(words, cwd=BUILD, check=True)


def build(sources):
    launchers = re.findall(r"^(CMAKE_C\w*_COMPILER_LAUNCHER):\w+=(.+)", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    run("cmake", "--preset", "ci", *(f"-D{name}={value}" for name, value in launchers))
    shutil.rmtree(MADE / "moecl_helpers", ignore_errors=True)
    (MADE / "moecl_helpers").symlink_to(BUILD / "moecl_helpers")
    tests = [pathlib.Path("tests") / name for name in (*FRAME, *sources)]
    ours = compile_sources([name for name in changed() if name.parts[0] != "build" and name.suffix in (".cpp", ".c", ".cl", ".json")] + tests)
    of_library = [name for target, name in ours if target in ("moecl", "moecl_kernel_sources", "moecl_cases")]
    link("moecl_command", of_library + [name for target, name in ours if target in ("moecl_command", "moecl_benchmarks")])
    link("moecl_tests", of_library + [name for target, name in ours if target == "moecl_tests"])


def main():
    copy_tree()
    for kind, block in section():
        if kind == "sh":
            run("bash", "-e", "-c", block)
        elif kind == "diff":
            apply(block)
        else:
            lines = block.splitlines()
            if lines[0] != "cmake --build --preset ci":
                sys.exit(f"{PAGE}, {HEADING}: the first command builds")
            build(re.findall(r"--source=(\S+)", block))
            for line in lines[1:]:
                print(f"--- {line}", flush=True)
                print(run("bash", "-e", "-o", "pipefail", "-c", line)[-2000:], flush=True)


if __name__ == "__main__":
    main()
