#!/usr/bin/env python3
"""Installs the Debian packages on bare systems, and builds and runs the examples there.

usage: test_packages.py BUILD_DIR SUITE...

A SUITE is bookworm, trixie, ... Of this machine's suite the packages are those of BUILD_DIR; of another they are built in
a root of it, in which tools/setup installs what that needs. debootstrap makes the roots in BUILD_DIR/roots, once; their
programs run in bubblewrap. Ends in one line "N passed, N failed".
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(sys.argv[1]).resolve()
AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "--preserve-env"]
WHO = {"DEBFULLNAME": "A Packager", "DEBEMAIL": "packager@debian.org"}
CMAKE = ("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12", "-DMOECL_BUILD_TESTS=OFF", "-DMOECL_BUILD_BENCH=OFF")
EXAMPLES = "/usr/share/moecl/examples"
# What a user has beside the packages, and what is tried.
TOOLS = ("g++", "make", "cmake", "pkg-config", "pocl-opencl-icd", "openmpi-bin")
CHECKS = {
    "command": f"moecl verify {EXAMPLES}/checkpoint --platform Portable",
    "ranks of MPI": f"OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 "
                    f"moecl verify {EXAMPLES}/checkpoint --platform Portable --ranks mpi --ep",
    "examples by CMake": f"cmake -S {EXAMPLES} -B /tmp/cmake && cmake --build /tmp/cmake && ctest --test-dir /tmp/cmake --output-on-failure --no-tests=error",
    "examples by pkg-config": f"make -f {EXAMPLES}/Makefile OUT=/tmp/make check",
    "no file is left": "apt-get purge -y libmoecl[0-9]* libmoecl-dev moecl-tools && ! find /usr /etc /var -name '*moecl*' | grep .",
}


def suite_here():
    return re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE).group(1)


class Root:
    """A system of a suite, in a folder."""

    def __init__(self, folder):
        self.folder = folder

    @classmethod
    def bare(cls, suite):
        root = cls(BUILD / "roots" / f"{suite}-bare")
        if not (root.folder / "made").exists():
            subprocess.run([*AS_ROOT, "rm", "-rf", "--one-file-system", root.folder], check=True)
            root.folder.mkdir(parents=True)
            subprocess.run([*AS_ROOT, "debootstrap", "--variant=minbase", suite, root.folder], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([*AS_ROOT, "touch", root.folder / "made"], check=True)
        return root

    def copy(self, name):
        folder = self.folder.with_name(name)
        subprocess.run([*AS_ROOT, "rm", "-rf", "--one-file-system", folder], check=True)
        subprocess.run([*AS_ROOT, "cp", "-a", self.folder, folder], check=True)
        return Root(folder)

    def run(self, command, **binds):
        """Runs a command in bash, as root. binds: name=folder mounts the folder as /name."""
        inside = ["bwrap", "--cap-add", "ALL", "--bind", self.folder, "/", "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys",
                  "--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf", "--ro-bind", SOURCE, "/source", "--chdir", "/root", "--clearenv"]
        for name, folder in binds.items():
            inside += ["--bind", folder, f"/{name}"]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "POCL_SIGFPE_HANDLER": "0", **WHO}
        for name, value in environment.items():
            inside += ["--setenv", name, value]
        done = subprocess.run([*AS_ROOT, *inside, "bash", "-e", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            print(done.stdout[-4000:])
        return done.returncode

    def install(self, names, **binds):
        apt = "apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0"
        return self.run(f"{apt} update && {apt} install -y --no-install-recommends {names}", **binds)


def packages_of(suite):
    """The folder that has the packages, or None."""
    folder = BUILD / "roots" / f"{suite}-packages"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if suite == suite_here():
        subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", folder], check=True, stdout=subprocess.DEVNULL, env={**os.environ, **WHO})
        return folder
    root, work = Root(BUILD / "roots" / f"{suite}-build"), BUILD / "roots" / f"{suite}-packages-work"  # test_root.py has {suite}-work
    if not (root.folder / "usr/bin/file").exists():
        root = Root.bare(suite).copy(root.folder.name)
        if root.install("dpkg-dev file") or root.run("/source/tools/setup"):
            return None
    work.mkdir(exist_ok=True)
    build = f"cmake -G Ninja -S /source -B /build {' '.join(CMAKE)} && cmake --build /build && cpack --config /build/CPackConfig.cmake -G DEB -B /packages"
    return None if root.run(build, build=work, packages=folder) else folder


def check(suite):
    """Whether each thing that is tried went well."""
    packages = packages_of(suite)
    print(f"{suite}: packages: {'built' if packages else 'FAILED'}", flush=True)
    if packages is None:
        return [False]
    fresh = Root.bare(suite).copy(f"{suite}-fresh")
    results = [fresh.install(f"/packages/*.deb {' '.join(TOOLS)}", packages=packages) == 0]
    print(f"{suite}: install: {'ok' if results[0] else 'FAILED'}", flush=True)
    for what, command in CHECKS.items():
        results.append(results[0] and fresh.run(command, packages=packages) == 0)
        print(f"{suite}: {what}: {'ok' if results[-1] else 'FAILED'}", flush=True)
    return results


def main():
    results = [result for suite in sys.argv[2:] for result in check(suite)]
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
