"""The recorded operator cases of tests/data, and how their outputs are compared: by the rules that they bring."""
import json
import pathlib
import re
import struct

import ml_dtypes
import numpy

OPERATORS = pathlib.Path(__file__).parents[1] / "data" / "operators"
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "I64": "<i8", "I32": "<i4", "I8": "i1",
         "U8": "u1", "BOOL": "?"}


def load(path):
    data = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack_from("<Q", data)[0]
    return {name: numpy.frombuffer(data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]],
                                   numpy.dtype(TYPES[entry["dtype"]])).reshape(entry["shape"]).copy()
            for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}


class Case:
    def __init__(self, path):
        self.about = json.loads(path.read_text())
        self.operator = self.about["operator"]
        self.tensors = load(path.with_suffix(".safetensors"))

    def inputs(self, rank=""):
        """By name; a list's are name.0, name.1, ..."""
        found = {}
        for name, array in self.tensors.items():
            part = re.fullmatch(re.escape(rank) + r"in\.(\w+?)(?:\.(\d+))?", name)
            if part is not None:
                found.setdefault(part[1], []).append(array) if part[2] else found.update({part[1]: array})
        return found

    def parameters(self, known):
        """Those that the function has."""
        return {name: value for name, value in self.about["parameters"].items() if name in known}

    def check(self, results, rank=""):
        """How many outputs were compared. `results` by name."""
        compared = 0
        for name, rule in self.about["compare"].items():
            if not name.startswith(rank + "out.") or rule["kind"] == "private":
                continue
            field, _, index = name[len(rank) + 4:].partition(".")
            result = results[field][int(index)] if index else results[field]
            if isinstance(result, list):
                result = result[0]
            part = self.about["defined"].get(name, "all")
            rows = slice(*part["rows"]) if isinstance(part, dict) and "rows" in part else slice(None)
            if part != "all" and not isinstance(part, dict):
                continue
            expected, got = self.tensors[name][rows], numpy.asarray(result)[rows]
            assert got.shape == expected.shape and got.dtype == expected.dtype, (name, got.shape, got.dtype)
            agree(got, expected, rule, f"{self.about['case']} {name}")
            compared += 1
        return compared


def agree(got, expected, rule, what):
    kind = rule["kind"]
    if kind == "exact" and "fallback" not in rule:
        numpy.testing.assert_array_equal(got.view(f"u{got.itemsize}"), expected.view(f"u{got.itemsize}"), what)
        return
    if kind == "exact":
        rule = rule["fallback"]
    if kind == "abs_unpacked":
        return
    got, expected = got.astype("f8"), expected.astype("f8")
    unit = {"ulp": 2.0**-7}.get(kind, rule.get("rtol", 0))
    numpy.testing.assert_allclose(got, expected, rtol=unit, atol=rule.get("atol", rule.get("tol", 1e-6)), err_msg=what)
