#!/usr/bin/env bash
# The Debian packages satisfy lintian and apt, and examples build and run against what they hold.
#
# usage: debian_test.sh BUILD_DIR SCRATCH_DIR
set -euo pipefail
build=$(realpath "$1") scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"
DEBFULLNAME="A Packager" DEBEMAIL=packager@debian.org cpack --config "$build/CPackConfig.cmake" -G DEB -B "$scratch" >/dev/null
rm -rf "$scratch/_CPack_Packages"
cd "$scratch"
packages=(./libmoecl[0-9]*.deb ./libmoecl-dev_*.deb ./moecl-tools_*.deb)
lintian --allow-root --fail-on error,warning "${packages[@]}"
apt-get install --simulate --no-install-recommends "${packages[@]}" >apt.log || { cat apt.log >&2; exit 1; }

for package in "${packages[@]}"; do dpkg-deb --extract "$package" unpacked; done
usr=$scratch/unpacked/usr
# Of each MPI there is a plugin here, so that a package has it, which alone needs that MPI.
for plugin in "$build"/moecl_helpers/mpi_*.so; do
  mpi=$(basename "$plugin" .so) mpi=${mpi#mpi_}
  [[ -s $usr/lib/moecl_helpers/mpi_$mpi.so ]] || { echo "no package has mpi_$mpi.so" >&2; exit 1; }
  dpkg-deb --field ./libmoecl[0-9]*-"$mpi"_*.deb Depends | grep -q "lib$mpi"
  if dpkg-deb --field ./libmoecl[0-9].[0-9]_*.deb Depends | grep -i mpi; then echo "the library depends on MPI" >&2; exit 1; fi
done
export LD_LIBRARY_PATH=$usr/lib PKG_CONFIG_SYSROOT_DIR=$scratch/unpacked
PKG_CONFIG_PATH=$(echo "$usr"/lib/*/pkgconfig)
export PKG_CONFIG_PATH
"$usr/bin/moecl" verify "$usr/share/moecl/examples/checkpoint" --platform Portable
make -s -f "$usr/share/moecl/examples/Makefile" OUT="$scratch/examples" EXAMPLES="weights_from_memory_from_c" check
