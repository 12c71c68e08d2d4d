#ifndef MOECL_LAUNCHER_END_H
#define MOECL_LAUNCHER_END_H

/* For a job that is about to be aborted: leaves a process behind that makes the launchers of this node end, mpirun or
   its daemon. Launchers wait for daemons on other nodes as long as TCP does: a quarter of an hour beyond a cut cable.
   So after half of `grace_ms` the process shuts their connections to other nodes, which they take for the end of the
   daemons there. If the system does not allow that, or if it does not help, the process kills the launchers and what
   they started after the other half, but at the earliest some seconds later, since a machine may be busy. */
void moecl_end_launcher(int grace_ms);

#endif
