#!/usr/bin/env python3
"""Fails on an #include that climbs the floors, on modules that include each other in a circle, on an include of no known
file, and on a name that is not snake_case.

usage: check_layers.py [ROOT]

A file includes only its own floor and the floors below it. The rooms of `host`, its folders, show each other public
headers alone, but for SEES. The rooms of `kernels_cl` stand in the order of KERNEL_ROOMS: each includes itself and those
before it, and has at most MOST_FILES files a folder. Public headers (<moecl/x.hpp>, in <floor>/include/moecl/) are
on the floor they stand on and include only the standard library and each other, but for the two named below. Examples
are installed: they know public headers, and files beside them, by their bare names.
"""
import collections
import pathlib
import re
import sys

EXAMPLES = "host/examples"
FLOORS = {"runtime": 1, "quant": 2, "kernels_cl": 3, "dispatch": 4, "host": 5, "tests/oracle": 6, "tests/cases": 6, EXAMPLES: 7,
          "tools": 7, "bench": 7, "tests": 7}
SEES = {("npu", "c_api")}  # (a room of host, a room whose private headers it includes): both have C entries
KERNEL_ROOMS = ["common", "quantize", "rows", "routing", "exchange", "gemm", "fused", "ascend"]
MOST_FILES = 20  # a folder of kernels_cl that is no include folder
SHOWS_OPENCL = {"opencl.hpp", "moecl.h"}  # the public headers that may include <CL/cl.h>
SOURCES = {".hpp", ".cpp", ".h", ".c", ".cl", ".clh"}
FOREIGN = re.compile(r"(CL|fuzzer|gtest|gmock|benchmark|spdlog|fmt|nlohmann|CLI|sys)/|(xxhash|clblast|clblast_c|cblas|cpuid|fcntl|unistd|dlfcn|pthread|poll|sched|spawn|link|unwind|linux/futex|mpi|dirent|signal|netinet/in|omp|ggml(-cpu|-cpp)?)\.h|dnnl\.hpp")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SNAKE_CASE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
DATA = {"data", "corpus", "__pycache__"}  # folders
NAMED_BY_OTHERS = {"CMakeLists.txt", "Makefile", "Containerfile"}


def floor_of(path):
    """The oracle and the cases are a floor below the programs that share them. Examples are on the top floor."""
    part = "/".join(path.parts[:2])
    return part if part in FLOORS else path.parts[0]


def room_of(path):
    """The folder of a floor that a private file stands in; empty where there is none."""
    return path.parts[1] if len(path.parts) > 2 and path.parts[1] != "include" else ""


def project_files(root):
    """Files of the floors, relative to the root. Data is left out: its makers named it."""
    for floor in (name for name in FLOORS if "/" not in name):
        for path in sorted((root / floor).rglob("*")):
            relative = path.relative_to(root)
            if path.is_file() and not DATA & set(relative.parts):
                yield relative


def check_include(path, quote, name, files, public):
    """What is wrong with the include; empty if nothing is."""
    in_public_header = "include" in path.parts
    if quote == "<" and not name.startswith("moecl/"):
        if in_public_header:
            standard = re.fullmatch(r"[a-z0-9_]+(\.h)?", name) and not FOREIGN.fullmatch(name)
            allowed = standard or (name == "CL/cl.h" and path.name in SHOWS_OPENCL)
            return "" if allowed else f"public headers do not include <{name}>"
        known = FOREIGN.match(name) or re.fullmatch(r"[a-z0-9_]+|(std|float|string|math|limits)[a-z]*\.h", name)
        return "" if known else f"<{name}> is no header this project uses"
    target = public.get(name) if quote == "<" else path.parent / name if floor_of(path) == EXAMPLES else pathlib.PurePath(name)
    if quote == '"' and in_public_header:
        return f'public headers include by <moecl/...>, not "{name}"'
    if target is None or target not in files:
        return f"{name} is no file of the project"
    if FLOORS[floor_of(target)] > FLOORS[floor_of(path)]:
        return f"{floor_of(path)} (floor {FLOORS[floor_of(path)]}) includes {target} of {floor_of(target)} (floor {FLOORS[floor_of(target)]})"
    return check_rooms(path, target)


def check_rooms(path, target):
    rooms = room_of(path), room_of(target)
    if floor_of(path) != floor_of(target) or not all(rooms) or rooms[0] == rooms[1]:
        return ""
    if floor_of(path) == "host" and rooms not in SEES:
        return f"host/{rooms[0]} includes {target} of host/{rooms[1]}"
    if floor_of(path) == "kernels_cl" and KERNEL_ROOMS.index(rooms[0]) < KERNEL_ROOMS.index(rooms[1]):
        return f"kernels_cl/{rooms[0]} includes {target} of kernels_cl/{rooms[1]}, a later room"
    return ""


def check_kernel_rooms(files):
    """Unknown rooms of kernels_cl, and folders with too many files."""
    folders = collections.Counter(path.parent for path in files if floor_of(path) == "kernels_cl" and room_of(path))
    for folder, count in sorted(folders.items()):
        if folder.parts[1] not in KERNEL_ROOMS + ["tuning"]:
            yield f"{folder}: is no room of KERNEL_ROOMS"
        if count > MOST_FILES:
            yield f"{folder}: {count} files, at most {MOST_FILES}"


def module_of(path, rooms):
    """(floor, room, name). Headers and sources of one name are one module, in any folder of their floor. So a private
    header of an operator, which kernels that do more share, has the operator's name."""
    name = path.name.split(".")[0]
    places = rooms[floor_of(path), name]
    room = str(path.parent) if path.parts[1:3] != ("include", "moecl") else min(places, default="")
    return floor_of(path), room, name


def knots_of(includes):
    """Sets of modules that reach each other: Tarjan's strongly connected components of more than one."""
    index, low, stack, knots = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(includes[module]):
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            knot = stack[stack.index(module):]
            del stack[stack.index(module):]
            if len(knot) > 1:
                knots.append(sorted(knot))

    for module in sorted(includes):
        if module not in index:
            visit(module)
    return knots


def check_knots(includes, files):
    """`includes`: pairs of files."""
    rooms, modules = collections.defaultdict(set), collections.defaultdict(set)
    for path in files:
        if path.suffix in SOURCES and path.parts[1:3] != ("include", "moecl"):
            rooms[floor_of(path), path.name.split(".")[0]].add(str(path.parent))
    for path, target in includes:
        a, b = module_of(path, rooms), module_of(target, rooms)
        modules[a] |= {b} - {a}
        modules[b] |= set()
    for knot in knots_of(modules):
        yield f"modules include each other: {', '.join('/'.join(part for part in module[1:] if part) for module in knot)}"


def check(root):
    sys.setrecursionlimit(10000)
    files = {pathlib.PurePath(f) for f in project_files(root)}
    includes = []
    public, problems = {}, list(check_kernel_rooms(files))
    for path in sorted(files):
        if not (SNAKE_CASE.fullmatch(path.name) or path.name in NAMED_BY_OTHERS or path.suffix == ".md"):
            problems.append(f"{path}: the name is not snake_case")
        if path.parts[1:3] == ("include", "moecl"):
            other = public.setdefault("moecl/" + path.name, path)
            if other != path:
                problems.append(f"{path}: public headers are flat and unique, {other} has this name")
    for path in sorted(files):
        if path.suffix not in SOURCES:
            continue
        text = (root / path).read_text(encoding="utf-8")
        for found in INCLUDE.finditer(text):
            target = public.get(found.group(2)) if found.group(1) == "<" else pathlib.PurePath(found.group(2))
            if target in files:
                includes.append((path, target))
            wrong = check_include(path, found.group(1), found.group(2), files, public)
            if wrong:
                line = text.count("\n", 0, found.start(2)) + 1
                problems.append(f"{path}:{line}: {wrong}")
    problems += check_knots(includes, files)
    return len(files), problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    count, problems = check(root)
    print("\n".join(problems) or f"{count} files keep to their floors")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
