#!/usr/bin/env python3
"""Checks that what the pages (*.md) name exists; writes their C and C++ programs to files for a test to compile.
A block below a line that ends in a link to a source file is a part of that file, word for word.

usage: check_docs.py [ROOT]
       check_docs.py [ROOT] --extract FOLDER     writes readme_1.cpp, host_embedding_1.c, ... and prints their names

In each page every backticked path, name and option, every link, and every command of a block is looked up: paths in the
tree (build/ is made, and what a bundle holds is not in the tree), names as words in the sources, options in the program
or script that the line runs. A line has at most WIDTH columns. From README.md every page is at most CLICKS links away.
Pages of ELSEWHERE tell of trees that are gone, or of data: of them links and lines are looked at.
"""
import argparse
import pathlib
import posixpath
import re
import sys

WIDTH = 240
CLICKS = 2
ELSEWHERE = re.compile(r"(bench/results|tests/data)/.*|CHANGELOG\.md")
FORMS = ".github"  # GitHub shows its pages
FLOORS = ("runtime", "quant", "kernels_cl", "dispatch", "host", "tools", "bench", "tests", "cmake")
OTHERS = ("pocl_",)  # names of a driver's sources
MADE = ("build/", "bin/", "lib/", "share/", "~", "$", "/")
PATH = re.compile(r"(\./)?[\w.~$-]*[\w-]+(/[\w.*-]+)+/?|[\w-]+\.(md|py|txt|json|cmake|sh|cpp|hpp|cl|clh|h|c)")
NAME = re.compile(r"[A-Za-z_]\w*((::|\.)~?\w+)*(\(\))?")


def pages(root):
    """Names of all pages, README.md first."""
    def below(folder):
        for entry in folder.iterdir():
            if entry.name.startswith(".") and entry.name != FORMS or entry == root / "build":  # in which others write
                continue
            if entry.is_dir():
                yield from below(entry)
            elif entry.suffix == ".md":
                yield entry.relative_to(root).as_posix()

    return sorted(below(root), key=lambda name: (name != "README.md", name))


def source_text(root):
    """Every file of the tree that can define a name: code, scripts, build files."""
    files = [root / "CMakeLists.txt", root / "CMakePresets.json"]
    for floor in FLOORS:
        for file in sorted((root / floor).rglob("*")):
            parts = file.relative_to(root).parts
            if file.is_file() and file.suffix != ".md" and "data" not in parts and parts[:2] != ("bench", "results"):
                files.append(file)
    return {f.relative_to(root).as_posix(): f.read_text(encoding="utf-8", errors="replace") for f in files if f.exists()}


def blocks(text):
    """(language, first line number, body) of each fenced block."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield found.group(1), text.count("\n", 0, found.start()) + 2, found.group(2)


def quotations(name, text):
    """(first line number, file from the root, body) of each block that quotes a source file."""
    for found in re.finditer(r"\]\(([^)#]+\.(?:cpp|c|yml))\)[:.]?\n+```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), found.group(1)))
        yield text.count("\n", 0, found.start(2)) + 1, path, found.group(2)


def unindented(text):
    return "\n".join(["", *(line.strip() for line in text.splitlines()), ""])


def without_blocks(text):
    """The prose, every line at its number."""
    return re.sub(r"^```.*?^```$", lambda m: "\n" * m.group().count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def links(name, text):
    """(line number, file from the root, anchor) of each link that stays in the tree."""
    for number, line in enumerate(without_blocks(text).splitlines(), 1):
        for path, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", re.sub(r"`[^`]*`", "", line)):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            yield number, target, anchor


def anchors(text):
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Checker:
    def __init__(self, root):
        self.root = root
        self.sources = source_text(root)
        self.words = set(re.findall(r"\w+", "\n".join(self.sources.values())))
        self.command_text = "\n".join(t for n, t in self.sources.items() if re.match(r"tools/\w+\.[ch]pp", n))

    def check_path(self, path, folder=""):
        """A path from the root; a bare file name may be beside the page, in `folder`."""
        path = path.removeprefix("./")
        if path.startswith(MADE) or "/" not in path and (self.root / folder / path).exists():
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

    def check_span(self, span, folder):
        """What a backticked span of a page in `folder` names wrongly; empty when nothing."""
        if found := re.fullmatch(r"<(moecl/[\w.]+)>", span):
            known = any(name.endswith("/include/" + found.group(1)) for name in self.sources)
            return "" if known else f"{span} is no header"
        if PATH.fullmatch(span):
            return self.check_path(span, folder)
        if NAME.fullmatch(span):
            missing = [w for w in re.findall(r"\w+", span) if w not in self.words and not w.startswith(OTHERS)]
            return f"nothing in the tree is named {', '.join(missing)}" if missing else ""
        if span.startswith("--"):
            return "" if any(span.split()[0] in text for text in self.sources.values()) else f"nothing has the option {span}"
        return self.check_command(span)

    def check_names(self, text, folder):
        """(line number, problem or nothing) of every command of a block and every backticked span."""
        for language, first, body in blocks(text):
            if language == "sh":
                yield from ((first + i, self.check_command(line)) for i, line in enumerate(body.splitlines()))
        for indented in re.finditer(r"^    (?! )(.+)$", text, re.MULTILINE):
            yield text.count("\n", 0, indented.start()) + 1, self.check_command(indented.group(1))
        for number, line in enumerate(without_blocks(text).splitlines(), 1):
            yield from ((number, self.check_span(span, folder)) for span in re.findall(r"`([^`]+)`", line))

    def check_quotation(self, path, body):
        text = self.sources.get(path, "")
        return "" if unindented(body) in unindented(text) else f"this is not in {path}"

    def check_link(self, target, anchor):
        if wrong := self.check_path(target):
            return wrong
        if anchor and anchor not in anchors((self.root / target).read_text(encoding="utf-8")):
            return f"{target} has no heading #{anchor}"
        return ""

    def check_page(self, name):
        text = (self.root / name).read_text(encoding="utf-8")
        problems = [] if ELSEWHERE.fullmatch(name) else list(self.check_names(text, posixpath.dirname(name)))
        problems += [(number, self.check_link(target, anchor)) for number, target, anchor in links(name, text)]
        problems += [(number, self.check_quotation(path, body)) for number, path, body in quotations(name, text)]
        for number, line in enumerate(text.splitlines(), 1):
            problems.append((number, f"{len(line)} columns, at most {WIDTH}" if len(line) > WIDTH else ""))
        return [f"{name}:{number}: {wrong}" for number, wrong in sorted(problems) if wrong]


def check_clicks(root, names):
    """Pages that are too far from README.md."""
    near = {"README.md"} & set(names)
    for _ in range(CLICKS):
        near |= {target for name in near for _, target, _ in links(name, (root / name).read_text(encoding="utf-8")) if target in names}
    far = [name for name in names if name not in near and not name.startswith(FORMS)]
    return [f"{name}: more than {CLICKS} links away from README.md" for name in far]


def extract(root, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in pages(root):
        text = (root / name).read_text(encoding="utf-8")
        quoted = [body for _, _, body in quotations(name, text)]
        programs = [(language, body) for language, _, body in blocks(text) if language in ("c", "cpp") and body not in quoted]
        for number, (language, body) in enumerate(programs, 1):
            path = folder / f"{name.removesuffix('.md').replace('/', '_').lower()}_{number}.{language}"
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
    names = pages(root)
    problems = [problem for name in names for problem in checker.check_page(name)] + check_clicks(root, names)
    print("\n".join(problems) or f"{len(names)} pages: everything named exists")
    return 1 if problems or not names else 0


if __name__ == "__main__":
    sys.exit(main())
