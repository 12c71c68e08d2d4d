"""Builds and runs an example against the package."""
import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout


class MoeclTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        CMakeToolchain(self).generate()

    def build(self):
        cmake = CMake(self)
        examples = os.path.join(self.dependencies["moecl"].package_folder, "share", "moecl", "examples")
        cmake.configure(build_script_folder=examples)
        cmake.build(target="weights_from_memory_from_c")

    def test(self):
        self.run(os.path.join(self.build_folder, "weights_from_memory_from_c"), env="conanrun")
