#ifndef MOECL_LAUNCHER_END_H
#define MOECL_LAUNCHER_END_H

/* For a job that is about to be aborted: leaves a process behind that sees to it that the launchers of this node end,
   mpirun or its daemon. They wait for daemons on other nodes as long as TCP waits, a quarter of an hour beyond a cut
   cable. So after half of `grace_ms` their connections to other nodes are shut, which they take for the daemon's end.
   Where the system does not allow that, or it does not help, they are killed after all of it but some seconds later at
   least, since a machine may be busy, with what they started. */
void moecl_end_launcher(int grace_ms);

#endif
