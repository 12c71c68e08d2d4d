#!/usr/bin/env python3
"""Checks that what the documents name exists; writes their C and C++ programs to files for a test to compile.

usage: check_docs.py [ROOT]
       check_docs.py [ROOT] --extract FOLDER     writes readme_1.cpp, readme_2.c, ... and prints their names

In each of the documents every backticked path, name and option, every link, and every command of a block is looked up:
paths in the tree (build/ is made, and what a bundle holds is not in the tree), names as words in the sources, options in
the program or script that the line runs.
"""
import argparse
import pathlib
import re
import sys

DOCUMENTS = ("README.md", "DESIGN.md", "dispatch/STRATEGIES.md")
FLOORS = ("runtime", "quant", "kernels_cl", "dispatch", "host", "tools", "bench", "tests", "cmake")
MADE = ("build/", "bin/", "lib/", "~", "$", "/")
PATH = re.compile(r"(\./)?[\w.~$-]*[\w-]+(/[\w.*-]+)+/?|[\w-]+\.(md|py|txt|json|cmake|sh|cpp|hpp|cl|clh|h|c)")
NAME = re.compile(r"[A-Za-z_]\w*((::|\.)~?\w+)*(\(\))?")


def source_text(root):
    """Every file of the tree that can define a name: code, scripts, build files."""
    files = [root / "CMakeLists.txt", root / "CMakePresets.json"]
    for floor in FLOORS:
        files += [f for f in sorted((root / floor).rglob("*")) if f.is_file() and "data" not in f.relative_to(root).parts]
    return {f.relative_to(root).as_posix(): f.read_text(encoding="utf-8", errors="replace") for f in files if f.exists()}


def blocks(text):
    """(language, first line number, body) of each fenced block."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield found.group(1), text.count("\n", 0, found.start()) + 2, found.group(2)


class Checker:
    def __init__(self, root):
        self.root = root
        self.sources = source_text(root)
        self.words = set(re.findall(r"\w+", "\n".join(self.sources.values())))
        self.command_text = "\n".join(t for n, t in self.sources.items() if re.match(r"tools/\w+\.[ch]pp", n))

    def check_path(self, path):
        path = path.removeprefix("./")
        if path.startswith(MADE):
            return ""
        return "" if any(self.root.glob(path.rstrip("/"))) else f"{path} is not in the tree"

    def check_command(self, line):
        """A line that runs the moecl command or a script of the tree: its subcommand and options exist."""
        words = line.split("#")[0].split()
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        if not words:
            return ""
        program = words[0].removeprefix("./")
        if pathlib.PurePath(program).name in ("moecl", "$moecl"):
            known, where = self.command_text, "moecl"
            if len(words) > 1 and not words[1].startswith("-") and f'add_subcommand("{words[1]}"' not in known:
                return f"moecl has no subcommand {words[1]}"
        elif program in self.sources:
            known, where = self.sources[program], program
        else:
            return ""
        for option in re.findall(r"(?<!\S)--[\w-]+", line.split("#")[0]):
            if option not in known and option != "--help":
                return f"{where} has no option {option}"
        return ""

    def check_span(self, span):
        """What a backticked span names wrongly; empty when nothing."""
        if found := re.fullmatch(r"<(moecl/[\w.]+)>", span):
            known = any(name.endswith("/include/" + found.group(1)) for name in self.sources)
            return "" if known else f"{span} is no header"
        if PATH.fullmatch(span):
            return self.check_path(span)
        if NAME.fullmatch(span):
            missing = [w for w in re.findall(r"\w+", span) if w not in self.words]
            return f"nothing in the tree is named {', '.join(missing)}" if missing else ""
        if span.startswith("--"):
            return "" if any(span.split()[0] in text for text in self.sources.values()) else f"nothing has the option {span}"
        return self.check_command(span)

    def check_document(self, name):
        text = (self.root / name).read_text(encoding="utf-8")
        folder = pathlib.PurePath(name).parent  # links start there, backticked paths at the root
        problems = []
        for language, first, body in blocks(text):
            if language == "sh":
                problems += [(first + i, self.check_command(line)) for i, line in enumerate(body.splitlines())]
        for indented in re.finditer(r"^    (?! )(.+)$", text, re.MULTILINE):
            problems.append((text.count("\n", 0, indented.start()) + 1, self.check_command(indented.group(1))))
        prose = re.sub(r"^```.*?^```$", lambda m: "\n" * m.group().count("\n"), text, flags=re.MULTILINE | re.DOTALL)
        for number, line in enumerate(prose.splitlines(), 1):
            problems += [(number, self.check_span(span)) for span in re.findall(r"`([^`]+)`", line)]
            problems += [(number, self.check_path((folder / link).as_posix())) for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", line)]
        return [f"{name}:{number}: {wrong}" for number, wrong in problems if wrong]


def extract(root, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in DOCUMENTS:
        text = (root / name).read_text(encoding="utf-8") if (root / name).exists() else ""
        programs = [(language, body) for language, _, body in blocks(text) if language in ("c", "cpp")]
        for number, (language, body) in enumerate(programs, 1):
            path = folder / f"{pathlib.PurePath(name).stem.lower()}_{number}.{language}"
            path.write_text(body)
            print(path)


def main():
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    options.add_argument("--extract", type=pathlib.Path)
    arguments = options.parse_args()
    root = arguments.root
    if arguments.extract:
        extract(root, arguments.extract)
        return 0
    checker = Checker(root)
    documents = [name for name in DOCUMENTS if (root / name).exists()]
    problems = [problem for name in documents for problem in checker.check_document(name)]
    print("\n".join(problems) or f"{', '.join(documents)}: everything named exists")
    return 1 if problems or not documents else 0


if __name__ == "__main__":
    sys.exit(main())
