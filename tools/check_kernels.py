#!/usr/bin/env python3
"""Fails where a kernel takes its arguments in another way than all others, or than its launcher passes them.

usage: check_kernels.py [ROOT]

A kernel of kernels_cl takes its buffers, then local memory, then `const <name>_args given`, which its first statement
copies. The struct is one of KERNEL_ARGS, without gaps: a driver may leave out the padding at its end. A launcher is a
call of `launch`, or of a function or lambda that ends in `const auto&... operands`, in the .cpp whose name the .cl
file's begins with; it names the kernel, or takes the name from a table. The last identifier of each of its operands is the
kernel's parameter; the last operand is the struct: `<name>_args{...}`, a function that returns one, or a variable of it.
Parameters between #if and #endif may be passed or not. Macros are counted too: at most MOST_DEFINES in 1000 lines.
"""
import itertools
import pathlib
import re
import sys

MOST_BYTES = 1024  # CL_DEVICE_MAX_PARAMETER_SIZE of PoCL
MOST_DEFINES = 23  # in a thousand lines of .cl and .clh
POINTER_BYTES = 8
SIZES = {"long": 8, "int": 4, "float": 4}

COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
STRUCT = re.compile(r"typedef struct \{([^}]*)\} (\w+);")
SIZED = re.compile(r"KERNEL_ARGS\((\w+), (\d+)\)")
KERNEL = re.compile(r"__kernel\b(?:\s+__attribute__\(\(.*?\)\)\))?\s+void\s+(\w+)\s*(?=\()")
OBJECT_MACRO = re.compile(r"^#define (\w+)[ ]+((?:.*\\\n)*.*)$", re.MULTILINE)
CONDITION = re.compile(r"^\s*#\s*if.*\n((?:.*\n)*?)\s*#\s*endif.*$", re.MULTILINE)
FORWARDER = re.compile(r"(?:void (\w+)|auto (\w+) = \[&\])(\([^{;]*?const auto&\.\.\. (\w+)\))")
RETURNS = re.compile(r"\b(\w+_args) (\w+)\((?:const )?([\w:]+)")  # type, function, type of the first argument
OPEN, CLOSE = "([{", ")]}"


def without_comments(text):
    return COMMENT.sub(lambda found: found.group(1) or " ", text)


def bracket_end(text, start):
    """Behind the bracket that closes the one at `start`. Strings have no brackets without partner."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in OPEN) - (text[at] in CLOSE)
        if depth == 0:
            return at + 1
    return len(text)


def parts(text):
    """The parts of `(...)` or `{...}` between commas outside of brackets and strings."""
    found, depth, begin, quoted = [], 0, 1, False
    for at in range(1, len(text) - 1):
        quoted ^= text[at] == '"' and text[at - 1] != "\\"
        if not quoted:
            depth += (text[at] in OPEN) - (text[at] in CLOSE)
            if text[at] == "," and depth == 0:
                found.append(text[begin:at].strip())
                begin = at + 1
    return [part for part in found + [text[begin:-1].strip()] if part]


def last_identifier(text):
    return (re.findall(r"[A-Za-z_]\w*", text) or [""])[-1]


class Structs:
    """The structs of headers that C++ and OpenCL C share."""

    def __init__(self, texts):
        self.members, self.bytes = {}, {}
        for text in texts:
            self.members.update({name: self.fields(body) for body, name in STRUCT.findall(text)})
            self.bytes.update({name: int(size) for name, size in SIZED.findall(text)})

    @staticmethod
    def fields(body):
        for declaration in filter(None, map(str.strip, body.split(";"))):
            kind, names = declaration.split(maxsplit=1)
            yield from [kind] * len(names.split(","))

    def layout(self, name):
        """The sum of the members' bytes and the largest member; None if a member leaves a gap."""
        if name in SIZES:
            return SIZES[name], SIZES[name]
        if name not in self.kinds:
            return None
        end, widest = 0, 1
        for kind in self.kinds[name]:
            of_member = self.layout(kind)
            if of_member is None or end % of_member[1] != 0:
                return None
            end, widest = end + of_member[0], max(widest, of_member[1])
        return (end, widest) if end % widest == 0 else None

    def problems(self):
        self.kinds = {name: list(fields) for name, fields in self.members.items()}
        for name, size in sorted(self.bytes.items()):
            layout = self.layout(name)
            if layout is None:
                yield f"{name}: members of long, int and float, the widest first, do not fill it"
            elif layout[0] != size:
                yield f"{name}: its members have {layout[0]} bytes, KERNEL_ARGS says {size}"


def variants(text):
    """A text with and without what is between #if and #endif; the first has all of it."""
    pieces = CONDITION.split(text)  # every second piece is inside of a condition
    choices = [(piece, "") if i % 2 else (piece,) for i, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def kernels_of(text, macros):
    """(name, variants of the parameters, body) of each kernel. `macros`: those that stand for parameters."""
    for found in KERNEL.finditer(text):
        end = bracket_end(text, found.end())
        parameters = re.sub(r"\b[A-Z_]+\b", lambda name: macros.get(name.group(), name.group()), text[found.end():end])
        begin = text.index("{", end)
        yield found.group(1), [parts(v) for v in variants(parameters)], text[begin:bracket_end(text, begin)]


def check_parameters(parameters, body, structs):
    """What is wrong with a kernel alone."""
    kinds = ["buffer" if re.match(r"(const )?(volatile )?__global\b.*\*", p) else
             "local" if re.match(r"__local\b.*\*", p) else
             "struct" if re.fullmatch(r"const \w+_args given", p) else "scalar" for p in parameters]
    for parameter, kind in zip(parameters, kinds):
        if kind == "scalar":
            yield f"`{parameter}` is no buffer, no local memory and no `const <name>_args given`"
    if "scalar" in kinds:
        return
    if kinds != sorted(kinds, key=["buffer", "local", "struct"].index) or kinds.count("struct") != 1:
        yield "parameters are buffers, then local memory, then one struct"
        return
    name = parameters[-1].split()[1]
    if name not in structs.bytes:
        yield f"{name} is no struct of KERNEL_ARGS"
    elif POINTER_BYTES * (len(parameters) - 1) + structs.bytes[name] > MOST_BYTES:
        yield f"{POINTER_BYTES * (len(parameters) - 1) + structs.bytes[name]} bytes of arguments, at most {MOST_BYTES}"
    if not re.match(rf"\{{\s*const {name} args = given;", body):
        yield f"the first statement is not `const {name} args = given;`"


class Launcher:
    """A .cpp file and the private headers that it includes."""

    def __init__(self, root, path):
        self.text = without_comments((root / path).read_text(encoding="utf-8"))
        self.headers = self.included(root)
        self.calls = list(self.launches())  # (kernel, operands, where); no kernel where it comes from a table

    def included(self, root):
        texts, waiting, seen = [], [self.text], set()
        while waiting:
            for name in set(re.findall(r'#include "(kernels_cl/[^"]+\.hpp)"', waiting.pop())) - seen:
                seen.add(name)
                if (root / name).is_file():
                    texts.append(without_comments((root / name).read_text(encoding="utf-8")))
                    waiting.append(texts[-1])
        return texts

    def calls_of_launchers(self):
        """(function, arguments before the operands, operands, where)"""
        leading = {"launch": 5}  # stream, key, range, submit, info
        for text in [self.text, *self.headers]:
            for function, variable, parameters, _ in FORWARDER.findall(text):
                leading[function or variable] = len(parts(parameters)) - 1
        for found in re.finditer(rf"\b({'|'.join(leading)})(?=\()", self.text):
            arguments = parts(self.text[found.end():bracket_end(self.text, found.end())])
            first = leading[found.group(1)]
            if not arguments or "const auto&..." not in arguments[-1]:
                yield found.group(1), arguments[:first], arguments[first:], found.start()

    def launches(self):
        calls = list(self.calls_of_launchers())
        # Operands that a lambda receives and passes before others.
        packs = [(found.group(1) or found.group(2), found.group(4) + "...") for found in FORWARDER.finditer(self.text)
                 if any(found.group(4) + "..." in operands[:-1] for _, _, operands, where in calls if where > found.start())]
        inner = [function for function, _ in packs]
        for function, before, operands, where in calls:
            names = [name for name in before if re.fullmatch(r'"\w+"', name)]
            names += [parts(key)[-1] for key in before if key.startswith("{&source::")]
            kernel = next((name.strip('"') for name in names if name.startswith('"')), None)
            given = [operands]
            for forwarder, pack in packs:
                if pack in operands[:-1]:
                    at = operands.index(pack)
                    given = [operands[:at] + call[2] + operands[at + 1:] for call in calls if call[0] == forwarder]
            yield from ((kernel, each, where) for each in given
                        if function not in inner and each and not each[-1].endswith("..."))

    def struct_of(self, operand, where):
        """The type of a launch's last operand."""
        if made := re.match(r"(\w+_args)\{", operand):
            return made.group(1)
        before = self.text[:where]
        if re.fullmatch(r"\w+", operand):
            declared = re.findall(rf"\b(\w+)(?:&|)? {operand}(?:\{{| = ([^;]*);|[,)])", before)
            if not declared:
                return ""
            kind, value = declared[-1]
            return self.struct_of(value, where) if kind == "auto" else kind
        call = re.match(r"(?:(\w+)::)?(\w+)\(", operand)
        if not call:
            return ""
        space, function = call.groups()
        texts = [t for t in self.headers if f"namespace moecl::{space} " in t] if space else [self.text, *self.headers]
        given = [f for text in texts for f in RETURNS.findall(text) if f[1] == function]
        if len({kind for kind, *_ in given}) > 1:  # the overload for the type of the first argument
            first = parts(operand[call.end() - 1:])[0]
            types = re.findall(rf"const ([\w:]+)& {re.escape(first)}[,)]", before)
            given = [f for f in given if types and f[2] == types[-1]]
        return given[0][0] if given else ""


def differences(parameters, operands, got):
    """How the operands of a launch, whose struct has type `got`, differ from a kernel's parameters."""
    names = [last_identifier(parameter) for parameter in parameters[:-1]]
    is_local = ["__local" in parameter for parameter in parameters[:-1]] + [False] * len(operands)
    passed = [names[i] if is_local[i] and re.search(r"LocalMemory|_memory\(", operand) else last_identifier(operand)
              for i, operand in enumerate(operands[:-1])]
    if passed != names:
        different = [f"{a} for {b}" for a, b in zip(passed, names) if a != b] + [f"{len(passed)} for {len(names)}"]
        yield f"the launcher passes {different[0]} of ({', '.join(names)})"
    wanted = parameters[-1].split()[1]
    if wanted != got:
        yield f"the launcher passes `{operands[-1]}`, {got or 'no struct that is known'}, expected {wanted}"


def check_launches(name, ways, launcher):
    """What is wrong between a kernel, which takes its parameters in one of several ways, and its launches."""
    calls = [call for call in launcher.calls if call[0] == name] or [call for call in launcher.calls if call[0] is None]
    if not calls:
        yield "is not launched"
    for _, operands, where in calls:
        got = launcher.struct_of(operands[-1], where)
        found = [list(differences(parameters, operands, got)) for parameters in ways]
        if all(found):
            yield from found[0]


def check(root):
    files = sorted(path.relative_to(root) for path in (root / "kernels_cl").rglob("*"))
    raw = {path: (root / path).read_text(encoding="utf-8") for path in files if path.suffix in (".cl", ".clh", ".h")}
    texts = {path: without_comments(text) for path, text in raw.items()}
    structs = Structs(text for path, text in texts.items() if path.suffix == ".h")
    problems = list(structs.problems())
    macros = dict(found for text in texts.values() for found in OBJECT_MACRO.findall(text) if "__global" in found[1])
    macros = {name: value.replace("\\\n", " ") for name, value in macros.items()}
    sources = {path.stem: path for path in files if path.suffix == ".cpp"}
    names, launchers = set(), {}
    for path in (path for path in texts if path.suffix == ".cl"):
        operator = max((stem for stem in sources if path.stem.startswith(stem)), key=len, default=None)
        for name, ways, body in kernels_of(texts[path], macros):
            names.add(name)
            wrong = list(check_parameters(ways[0], body, structs))
            if not wrong and operator is None:
                wrong = ["no .cpp has its name"]
            if not wrong:
                if operator not in launchers:
                    launchers[operator] = Launcher(root, sources[operator])
                wrong = list(check_launches(name, ways, launchers[operator]))
            problems += [f"{path}: {name}: {text}" for text in wrong]
    lines = sum(text.count("\n") for path, text in raw.items() if path.suffix != ".h")
    macro = re.compile(r"^\s*#\s*define\b", re.MULTILINE)
    defines = sum(len(macro.findall(text)) for path, text in raw.items() if path.suffix != ".h")
    if lines and defines * 1000 > MOST_DEFINES * lines:
        problems.append(f"{defines} macros in {lines} lines, at most {MOST_DEFINES} in 1000")
    return names, defines * 1000 / max(lines, 1), problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    names, macros, problems = check(root)
    print("\n".join(problems) or f"{len(names)} kernels agree with their launchers; {macros:.0f} macros in 1000 lines")
    return 1 if problems or not names else 0


if __name__ == "__main__":
    sys.exit(main())
