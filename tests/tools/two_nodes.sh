#!/usr/bin/env bash
# Two nodes on one machine: network namespaces with a cable between them, in a user namespace of their own. Runs a command
# as a rank of Open MPI on each, or RANKS_EACH of them, over TCP. CUT_AFTER seconds, where it is set, the cable is cut.
# When mpirun has ended, so has everything on both nodes, or a line says what has not.
#
# usage: two_nodes.sh COMMAND...
set -euo pipefail
if [[ ${INSIDE:-} != yes ]]; then
  exec env INSIDE=yes unshare --user --map-root-user --net --uts --pid --fork --kill-child --mount-proc "$0" "$@"
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
hostname node0
unshare --net --uts sleep infinity </dev/null &>/dev/null &
other=$!
until [[ $(readlink /proc/$other/ns/net) != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.01; done
there=(nsenter --target "$other" --net --uts)
ip link add name cable0 type veth peer name cable1 netns "$other"
ip address add 10.77.0.1/24 dev cable0
ip link set cable0 up
ip link set lo up
"${there[@]}" bash -c 'hostname node1; ip address add 10.77.0.2/24 dev cable1; ip link set cable1 up; ip link set lo up'
printf '#!/bin/sh\nshift\nexec %s sh -c "$*"\n' "${there[*]}" >"$scratch/agent"
chmod +x "$scratch/agent"
if [[ -n ${CUT_AFTER:-} ]]; then
  (sleep "$CUT_AFTER" && ip link set cable0 down) </dev/null &>/dev/null &
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
each=${RANKS_EACH:-1}
mpirun.openmpi --host "10.77.0.1:$each,10.77.0.2:$each" -np $((2 * each)) --mca plm_rsh_agent "$scratch/agent" \
  --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "$@" </dev/null && status=0 || status=$?
for _ in {1..60}; do # Open MPI's daemon on a node that was cut off ends some 2 s after mpirun
  left=$(grep -xE 'orted|moecl' /proc/[0-9]*/comm 2>/dev/null) || exit $status
  sleep 0.1
done
echo "two_nodes.sh: still there after mpirun: $left" >&2
exit 1
