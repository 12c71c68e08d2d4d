"""Roots of Debian for processors that are not this machine's: made, built for, and run in under QEMU's user mode.

No program of the root runs while it is made: its packages are unpacked, not configured, so binfmt_misc is not needed.
"""
import dataclasses
import os
import pathlib
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[1]
NEEDED_TO_BUILD = ("libc6-dev,libstdc++-12-dev,ocl-icd-opencl-dev,opencl-headers,libclblast-dev,libspdlog-dev,nlohmann-json3-dev,libcli11-dev,"
                   "libxxhash-dev,libgtest-dev,libgmock-dev,libbenchmark-dev")
# PoCL asks this file for the CPU and its vectors. QEMU shows that of the machine it runs on. Linux says what else a CPU has.
NEOVERSE_N1 = """processor\t: 0
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""
RV64 = """processor\t: 0
hart\t\t: 0
isa\t\t: rv64imafdc_zicsr_zifencei
mmu\t\t: sv57

"""


@dataclasses.dataclass
class Processor:
    """Names of a processor. `name` is that of GNU and QEMU; Debian's is the key in PROCESSORS."""

    name: str
    cpu: str  # QEMU's
    cpuinfo: str  # what Linux says of one core

    @property
    def triplet(self):
        return f"{self.name}-linux-gnu"


PROCESSORS = {"arm64": Processor("aarch64", "max,sve=off", NEOVERSE_N1), "riscv64": Processor("riscv64", "rv64", RV64)}


def make(root, suite, architecture, packages):
    """Unpacks the suite with `packages` (separated by commas) and what moecl needs to build."""
    processor = PROCESSORS[architecture]
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    subprocess.run([*as_root, "debootstrap", "--foreign", f"--arch={architecture}", "--variant=minbase", f"--include={packages},{NEEDED_TO_BUILD}",
                    suite, root], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*as_root, "chown", "-R", f"{os.geteuid()}:{os.getegid()}", root], check=True)
    archives = root / "var/cache/apt/archives"
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)
    shutil.rmtree(archives)
    # PoCL starts the linker, which the kernel of this machine cannot start by itself.
    linker = root / "usr/bin/ld"
    linker.unlink()
    linker.write_text(f'#!/qemu /bin/dash\nexec /qemu /usr/bin/{processor.triplet}-ld "$@"\n')
    linker.chmod(0o755)
    # CLBlast's file for CMake names libraries by their path in the root.
    for file in root.glob(f"usr/lib/{processor.triplet}/cmake/CLBlast/*.cmake"):
        file.write_text(file.read_text().replace(f"/usr/lib/{processor.triplet}/libOpenCL", f"${{CMAKE_SYSROOT}}/usr/lib/{processor.triplet}/libOpenCL"))
    (root / "qemu").touch()  # where it is bound
    (root / "cpuinfo").write_text(processor.cpuinfo)


def compilers(root, triplet):
    """Prefix of a command. It hides the cross-compilers' own C library, so that they find the root's C library."""
    own = pathlib.Path("/usr") / triplet
    # Static libraries of a newer suite have relocations on which this machine's linker dies: the root's links, under QEMU.
    linker = root / "linker"
    linker.write_text(f'#!/bin/sh\nexec qemu-{triplet.partition("-")[0]}-static -L {root} {root}/usr/bin/{triplet}-ld "$@"\n')
    linker.chmod(0o755)
    shown = [argument for folder in ("bin", "include/c++") for argument in ("--ro-bind", own / folder, own / folder)]
    linked = [argument for library in ("libstdc++.so.6", "libgcc_s.so.1", "libatomic.so.1")
              for argument in ("--symlink", root / "usr/lib" / triplet / library, own / "lib" / library)]
    return ["bwrap", "--dev-bind", "/", "/", "--tmpfs", own, *shown, *linked, "--ro-bind", linker, own / "bin/ld"]


def build(root, architecture, folder, targets):
    """Cross-compiles moecl and the operators' tests for the root."""
    triplet = PROCESSORS[architecture].triplet
    inside = compilers(root, triplet)
    # With that variable ccache makes the root's folders relative, and CMake does not know them again.
    environment = {name: value for name, value in os.environ.items() if name != "CCACHE_BASEDIR"}
    environment |= {"PKG_CONFIG_SYSROOT_DIR": str(root), "PKG_CONFIG_LIBDIR": f"{root}/usr/lib/{triplet}/pkgconfig:{root}/usr/share/pkgconfig"}
    # GCC 12 calls it for atomics of a byte on RISC-V.
    atomic = "-DCMAKE_CXX_STANDARD_LIBRARIES=-Wl,--as-needed,-latomic"
    only = [f"-DCMAKE_FIND_ROOT_PATH_MODE_{what}=ONLY" for what in ("LIBRARY", "INCLUDE", "PACKAGE")]
    plain = [f"-DCMAKE_{kind}_LINKER_FLAGS=-fno-use-linker-plugin" for kind in ("EXE", "MODULE", "SHARED")]  # which is this machine's
    subprocess.run([*inside, "cmake", "--preset", "ci", "-S", SOURCE, "-B", folder, "-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={PROCESSORS[architecture].name}",
                    f"-DCMAKE_C_COMPILER={triplet}-gcc", f"-DCMAKE_CXX_COMPILER={triplet}-g++", f"-DCMAKE_LIBRARY_ARCHITECTURE={triplet}",
                    f"-DCMAKE_SYSROOT={root}", "-DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER", "-DMOECL_TEST_FLOORS=kernels_cl", atomic, *only, *plain], check=True, env=environment, cwd=SOURCE, stdout=subprocess.DEVNULL)
    subprocess.run([*inside, "ninja", "-C", folder, "--quiet", *targets], check=True)


def emulator(root, architecture):
    """(arguments of bwrap, prefix of a command), with which programs of the root run in it."""
    processor = PROCESSORS[architecture]
    binds = ["--ro-bind", f"/usr/bin/qemu-{processor.name}-static", "/qemu", "--ro-bind", root / "cpuinfo", "/proc/cpuinfo", "--setenv", "QEMU_CPU", processor.cpu]
    return binds, ["/qemu"]
