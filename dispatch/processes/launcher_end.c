#define _GNU_SOURCE /* syscall */
#include "dispatch/processes/launcher_end.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { most_launchers = 4, least_kill_ms = 2500 };

struct launcher {
  pid_t pid;
  int handle; /* a pidfd: `pid` may name another process by then */
};

static int read_text(const char* path, char* text, size_t bytes) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t got = read(file, text, bytes - 1);
  close(file);
  text[got > 0 ? got : 0] = '\0';
  return got > 0;
}

/* Whether that process is a launcher of Open MPI or MPICH, and its parent. */
static int is_launcher(pid_t process, pid_t* parent) {
  static const char* const names[] = {"mpirun", "mpiexec", "orte", "prte", "hydra"};
  char path[64], stat[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
  if (!read_text(path, stat, sizeof stat)) return 0;
  const char* const name = strchr(stat, '(');
  const char* const rest = strrchr(stat, ')');
  if (name == NULL || rest == NULL || sscanf(rest, ") %*c %d", parent) != 1) return 0;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
    if (strncmp(name + 1, names[i], strlen(names[i])) == 0) return 1;
  return 0;
}

static int find_launchers(pid_t process, struct launcher* found) {
  int count = 0;
  for (pid_t parent = 0; count < most_launchers && is_launcher(process, &parent); process = parent) {
    const int handle = (int)syscall(SYS_pidfd_open, process, 0);
    if (handle < 0) break;
    found[count].pid = process;
    found[count++].handle = handle;
  }
  return count;
}

/* Whether all launchers end within that time. */
static int end_within(const struct launcher* launchers, int count, int milliseconds) {
  for (int i = 0; i < count; ++i) {
    struct pollfd ended = {launchers[i].handle, POLLIN, 0};
    if (poll(&ended, 1, milliseconds) == 0) return 0;
  }
  return 1;
}

/* Whether the connection goes to another node: then its two ends have different addresses. */
static int leaves_node(int connection) {
  struct sockaddr_storage here, there;
  socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
  if (getsockname(connection, (struct sockaddr*)&here, &here_bytes) != 0 ||
      getpeername(connection, (struct sockaddr*)&there, &there_bytes) != 0 || here.ss_family != there.ss_family)
    return 0;
  if (here.ss_family == AF_INET)
    return ((struct sockaddr_in*)&here)->sin_addr.s_addr != ((struct sockaddr_in*)&there)->sin_addr.s_addr;
  return here.ss_family == AF_INET6 && memcmp(&((struct sockaddr_in6*)&here)->sin6_addr,
                                              &((struct sockaddr_in6*)&there)->sin6_addr, sizeof(struct in6_addr)) != 0;
}

static void shut_connections(const struct launcher* of) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd", (int)of->pid);
  DIR* const files = opendir(path);
  if (files == NULL) return;
  for (const struct dirent* file; (file = readdir(files)) != NULL;) {
    const int number = atoi(file->d_name);
    const int copy = number > 0 ? (int)syscall(SYS_pidfd_getfd, of->handle, number, 0) : -1;
    if (copy < 0) continue;
    if (leaves_node(copy)) shutdown(copy, SHUT_RD); /* with writing shut too, a write would fail first, as an error */
    close(copy);
  }
  closedir(files);
}

static void kill_with_children(const struct launcher* of) {
  char path[64], text[4096];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)of->pid, (int)of->pid);
  if (end_within(of, 1, 0)) return;
  if (read_text(path, text, sizeof text))
    for (char* child = strtok(text, " "); child != NULL; child = strtok(NULL, " "))
      if (atoi(child) > 1) kill((pid_t)atoi(child), SIGKILL);
  syscall(SYS_pidfd_send_signal, of->handle, SIGKILL, NULL, 0);
}

void moecl_end_launcher(int grace_ms) {
  const pid_t starter = getppid();
  if (fork() != 0) return;
  setsid();                            /* launchers kill the process groups of what they started */
  syscall(SYS_close_range, 0, ~0U, 0); /* launchers take open files for a process that still runs */
  struct launcher launchers[most_launchers];
  const int count = find_launchers(starter, launchers);
  if (!end_within(launchers, count, grace_ms / 2)) {
    for (int i = 0; i < count; ++i) shut_connections(&launchers[i]);
    if (!end_within(launchers, count, grace_ms / 2 > least_kill_ms ? grace_ms / 2 : least_kill_ms))
      for (int i = 0; i < count; ++i) kill_with_children(&launchers[i]);
  }
  _exit(0);
}
