#!/usr/bin/env bash
# CHANGELOG.md begins with the version that is built; a commit with a tag vX is version X, and has its day there.
#
# usage: version_test.sh VERSION
set -euo pipefail
version=$1
cd "$(dirname "$0")/../.."
heading=$(grep -m 1 '^## ' CHANGELOG.md)
[[ $heading =~ ^"## $version, "(not yet released|[0-9]{4}-[0-9]{2}-[0-9]{2})$ ]] || { echo "CHANGELOG.md begins with '$heading', not with $version" >&2; exit 1; }
tag=$(git describe --tags --exact-match --match 'v*' 2>/dev/null) || exit 0 # an archive without git has no tags either
[[ $tag == "v$version" && $heading != *"not yet"* ]] || { echo "$tag is not '$heading'" >&2; exit 1; }
