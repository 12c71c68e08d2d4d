"""Conan 2: conan create tools/package/conan --build=missing

Dependencies come from the system's package manager, as tools/setup installs them.
"""
import os
import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy
from conan.tools.system.package_manager import Apt

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Moecl(ConanFile):
    name = "moecl"
    description = "Mixture-of-Experts layers on OpenCL devices"
    license = "Apache-2.0"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def set_version(self):
        self.version = re.search(r"project\(moecl VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)

    def export_sources(self):
        for part in ("CMakeLists.txt", "*.md", "LICENSE", "runtime/*", "quant/*", "kernels_cl/*", "dispatch/*", "host/*", "tools/*",
                     "bench/README.md", "tests/data/goldens/mixtral-e8k2/*"):
            copy(self, part, src=ROOT, dst=self.export_sources_folder)

    def layout(self):
        self.folders.build = self.conf.get("user.moecl:build_folder", default="build")
        self.folders.generators = os.path.join(self.folders.build, "conan")

    def system_requirements(self):
        Apt(self).install(["ocl-icd-opencl-dev", "libclblast-dev", "libspdlog-dev", "nlohmann-json3-dev", "libxxhash-dev"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TOOLS", "TESTS", "BENCH"):
            toolchain.variables[f"MOECL_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package has its own moeclConfig.cmake
        self.cpp_info.builddirs = ["lib/cmake/moecl"]
        self.cpp_info.libs = ["moecl"]
