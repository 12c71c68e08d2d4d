#!/usr/bin/env python3
"""Checks the recipes of other package managers as far as this machine can.

usage: recipes_test.py CONAN BUILD_DIR SCRATCH_DIR

Conan packages what BUILD_DIR has built, and builds and runs an example against the package; only its own compilation of
moecl is left out. vcpkg and container tools are not here: of their files the syntax is checked, and that what they name
exists.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tools/package"
CONAN, BUILD, SCRATCH = (pathlib.Path(argument).absolute() for argument in sys.argv[1:4])
ONLY_THE_LIBRARY = ("-DMOECL_BUILD_TOOLS=OFF", "-DMOECL_BUILD_TESTS=OFF", "-DMOECL_BUILD_BENCH=OFF")
PORTFILE = """
foreach(name check_linkage cmake_configure cmake_install cmake_config_fixup fixup_pkgconfig install_copyright)
  function(vcpkg_${name})
    list(APPEND seen ${CMAKE_CURRENT_FUNCTION} ${ARGN})
    message("${seen}")
  endfunction()
endforeach()
include(${CURRENT_PORT_DIR}/portfile.cmake)
"""


def version():
    return re.search(r"project\(moecl VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def run(*command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
    if done.returncode:
        raise AssertionError(f"{command}:\n{done.stdout}")
    return done.stdout


def presets(text):
    return re.findall(r"--preset (\w+)", text)


class Recipes(unittest.TestCase):
    def test_conan(self):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        environment = {**os.environ, "CONAN_HOME": str(SCRATCH / "home")}
        run(CONAN, "profile", "detect", env=environment)
        settings = {"user.moecl:build_folder": BUILD, "tools.cmake.cmaketoolchain:generator": "Ninja",
                    "tools.cmake.cmake_layout:test_folder": SCRATCH / "test"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        output = run(CONAN, "export-pkg", PACKAGE / "conan", *options, env=environment)
        self.assertRegex(output, rf"moecl/{re.escape(version())}")
        self.assertRegex(output, r"error .*, at most 1e-05")
        sources = next((SCRATCH / "home").glob("p/*/es"))  # what another machine compiles: all of it is there
        run("cmake", "-G", "Ninja", "-S", sources, "-B", SCRATCH / "build", *ONLY_THE_LIBRARY)
        run("ninja", "-C", SCRATCH / "build", "-n")

    def test_vcpkg(self):
        port = json.loads((PACKAGE / "vcpkg/vcpkg.json").read_text())
        self.assertEqual((port["name"], port["version-semver"]), ("moecl", version()))
        script = SCRATCH.parent / "portfile_calls.cmake"
        script.write_text(PORTFILE)
        folders = [f"-DCURRENT_PORT_DIR={PACKAGE}/vcpkg", f"-DCURRENT_PACKAGES_DIR={SCRATCH.parent}/vcpkg"]
        calls = run("cmake", *folders, "-P", script).splitlines()
        self.assertIn(";".join(("vcpkg_cmake_configure;SOURCE_PATH", str(ROOT), "OPTIONS", *ONLY_THE_LIBRARY)), calls)
        self.assertIn(f"vcpkg_install_copyright;FILE_LIST;{ROOT}/LICENSE", calls)
        self.assertEqual(len(calls), 6)

    def test_container_files(self):
        known = [preset["name"] for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]]
        container = (PACKAGE / "Containerfile").read_text()
        development = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
        for text in (container, development["postCreateCommand"]):
            self.assertIn("tools/setup", text)
            self.assertTrue(presets(text) and set(presets(text)) <= set(known), text)
        self.assertRegex(container, r"COPY \. /moecl\nWORKDIR /moecl")
        self.assertEqual(set(re.findall(r"^[A-Z]+", container, re.MULTILINE)), {"FROM", "RUN", "COPY", "WORKDIR", "ARG", "ENTRYPOINT"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
