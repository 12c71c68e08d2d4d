"""What the tests of the `moecl` command stand on: running it, safetensors files, and the golden cases.

A test file is started as `TEST.py MOECL DATA [unittest options]`: the built command and the folder tests/data.
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy

MOECL, DATA = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1", "BOOL": "u1"}


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])


def golden(case):
    return DATA / "goldens" / case


def load(path, raw=False):
    """{name: (stored type, array)}; bf16 is widened to float32, unless `raw`."""
    data = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = numpy.frombuffer(data[start + begin:start + end], TYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16" and not raw:
            values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
        tensors[name] = entry["dtype"], values
    return tensors


def save(path, tensors):
    """tensors: {name: (stored type, array of that type's bits)}"""
    header, data = {}, b""
    for name, (dtype, values) in tensors.items():
        raw = numpy.ascontiguousarray(values).astype(TYPES[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(head)) + head + data)


class CommandTest(unittest.TestCase):
    """Each test has an empty folder of its own, `self.folder`."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def start(self, *arguments, **environment):
        """Runs the command; keywords are environment variables. Removed from stderr: lines of Mesa's log, which warns
        of some kernels only as it compiles them, and lines of progress, which a slow machine prints. If arguments name
        PoCL alone, rusticl is off, because its start takes twice the time of all else in a warm process."""
        alone = {"RUSTICL_ENABLE": ""} if "Portable" in arguments and "rusticl" not in arguments else {}
        done = subprocess.run([MOECL, *map(str, arguments)], env={**os.environ, **alone, **environment}, capture_output=True,
                              encoding="utf-8", errors="backslashreplace", timeout=300)
        done.stderr = re.sub(r"^(MESA: |moecl: [a-z0-9 -]+: ([0-9]+ of [0-9]+ )?after [0-9]).*\n", "", done.stderr, flags=re.MULTILINE)
        return done

    def succeed(self, *arguments, **environment):
        """What the command printed; it must end with 0 and be silent on stderr."""
        done = self.start(*arguments, **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def refused(self, code, expected, *arguments, **environment):
        """`expected` is a part of the line on stderr."""
        before = sorted(self.folder.rglob("*"))
        done = self.start(*arguments, **environment)
        self.assertEqual((done.returncode, done.stdout), (code, ""), f"{arguments}: {done}")
        self.assertRegex(done.stderr, r"\Amoecl: [^\n]{1,1500}\n\Z", arguments)
        self.assertIn(expected, done.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def run_layer(self, model, *options, **environment):
        """JSON summary and output tensors of `moecl run`, PoCL unless the options name a platform."""
        path = self.folder / "output.safetensors"
        platform = () if "--platform" in options else ("--platform", "Portable")
        summary = json.loads(self.succeed("run", model, "--json", "--output", path, *platform, *options, **environment))
        return summary, load(path)

    def assert_close(self, values, expected, tolerance):
        """Largest difference over the largest expected value; NaN is never close."""
        self.assertEqual(values.shape, expected.shape)
        if values.size:
            error = numpy.max(numpy.abs(values.astype(float) - expected)) / numpy.max(numpy.abs(expected))
            self.assertLessEqual(error, tolerance)
