#include "tools/launch.hpp"

#include <moecl/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime/quotient.hpp"
#include "tools/commands.hpp"
#include "tools/rank_devices.hpp"

namespace moecl::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// A process that this one started, with one or more ranks.
struct Child {
  int rank = 0;  ///< the first rank of the process
  pid_t process = 0;
  int messages = -1;  ///< pipe of its stderr; rank 0 writes to this command's stderr
  std::string told;   ///< what it has written so far
  std::optional<int> status;

  bool failed() const { return status && *status != 0; }
  /// The exit code by the command's contract: a process that was killed is a failure of communication.
  int code() const { return WIFEXITED(*status) ? WEXITSTATUS(*status) : int{device_failure}; }
};

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin < all.size(); begin = all.find('\0', begin) + 1)
    arguments.emplace_back(all.c_str() + begin);
  return arguments;
}

Child start(std::vector<std::string> arguments, const std::string& group, int rank) {
  for (const std::string& more : {std::string("--join"), group, std::string("--rank"), std::to_string(rank)})
    arguments.push_back(more);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::array<int, 2> pipe{-1, -1};
  if (rank != 0 && pipe2(pipe.data(), O_CLOEXEC) != 0)
    throw Error(ErrorCode::device_error,
                fmt::format("--launch processes: no pipe for rank {}: {}", rank, std::strerror(errno)));
  const pid_t parent = getpid(), process = fork();
  if (process < 0)
    throw Error(ErrorCode::device_error, fmt::format("--launch processes: rank {}: {}", rank, std::strerror(errno)));
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the command, however the command ends
    if (getppid() != parent) _exit(device_failure);
    if (rank != 0) {
      dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
      dup2(pipe[1], STDERR_FILENO);
    }
    execv("/proc/self/exe", argv.data());
    _exit(device_failure);
  }
  if (pipe[1] >= 0) {
    close(pipe[1]);
    fcntl(pipe[0], F_SETFL, O_NONBLOCK);
  }
  return {rank, process, pipe[0], {}, {}};
}

void listen(std::vector<Child>& children) {
  std::vector<pollfd> waited;
  for (const Child& child : children) waited.push_back({child.messages, POLLIN, 0});
  constexpr int milliseconds = 10;
  poll(waited.data(), waited.size(), milliseconds);
  for (Child& child : children) {
    std::array<char, 4096> part{};
    ssize_t count = 0;
    while (child.messages >= 0 && (count = read(child.messages, part.data(), part.size())) > 0)
      child.told.append(part.data(), static_cast<std::size_t>(count));
    if (child.messages >= 0 && count == 0) close(std::exchange(child.messages, -1));
    int status = 0;
    if (!child.status && waitpid(child.process, &status, WNOHANG) == child.process) child.status = status;
  }
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

/// Reports the failure, unless rank 0 has done so itself.
void tell_failure(const std::vector<Child>& children, std::size_t first) {
  const Child& told = children.front();
  if (told.failed() && WIFEXITED(*told.status)) return;
  for (const Child& child : children)
    if (const std::string line = last_line(child.told); !line.empty() && child.failed()) {
      fmt::print(stderr, "{}\n", line);
      return;
    }
  const int status = *children[first].status, rank = children[first].rank;
  report(WIFSIGNALED(status)
             ? fmt::format("rank {} was ended by signal {} ({})", rank, WTERMSIG(status), strsignal(WTERMSIG(status)))
             : fmt::format("rank {} ended with status {}", rank, WEXITSTATUS(status)));
}

/// Runs the ranks of this command as processes. If one fails, the others are ended, but may first report what they
/// know.
int run_processes(int ranks, int ranks_each, const std::string& group) {
  const std::vector<std::string> arguments = own_arguments();
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; rank += ranks_each) children.push_back(start(arguments, group, rank));
  // Time for rank 0 to say why. What rank 0 has said, the other ranks need not say.
  constexpr std::chrono::milliseconds grace{3000}, after_rank_0{300};
  std::optional<std::size_t> first;
  Clock::time_point end{};
  const auto ended = [](const Child& child) { return child.status.has_value(); };
  while (!std::all_of(children.begin(), children.end(), ended)) {
    const bool told = ended(children.front());
    listen(children);
    for (std::size_t i = 0; i < children.size() && !first; ++i)
      if (children[i].failed()) first = i, end = Clock::now() + grace;
    if (first && !told && ended(children.front())) end = std::min(end, Clock::now() + after_rank_0);
    if (!first || Clock::now() < end) continue;
    for (const Child& child : children)
      if (!child.status) kill(child.process, SIGKILL);
  }
  listen(children);
  if (!first) return done;
  tell_failure(children, *first);
  int code = device_failure;  // a more specific code replaces it
  for (const Child& child : children)
    if (child.failed()) code = std::min(code, child.code());
  return code;
}

/// The number of this process, or -1 without MPI; and the ranks of each process.
int process_of_mpi = -1, ranks_each_of_mpi = 1;

/// The value that the launcher of Open MPI or MPICH set.
std::optional<int> launched(const char* by_openmpi, const char* by_mpich) {
  for (const char* name : {by_openmpi, by_mpich})
    if (const char* const text = std::getenv(name); text != nullptr) return std::atoi(text);
  return std::nullopt;
}

void refuse_launch_unless(bool condition, const std::string& message) {
  if (!condition) throw Error(ErrorCode::invalid_argument, message);
}

}  // namespace

void Launch::add_to(CLI::App& command, int& ranks) {
  command
      .add_option_function<std::string>(
          "--ranks",
          [this, &ranks](const std::string& text) {
            mpi_ = text == "mpi";
            if (!mpi_) {
              ranks = std::stoi(text);
              return;
            }
            const std::optional<int> processes = launched("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
                                     process = launched("OMPI_COMM_WORLD_RANK", "PMI_RANK");
            refuse_launch_unless(processes && process,
                                 "--ranks mpi: no mpirun of Open MPI or MPICH has started this process");
            process_of_mpi = *process;
            processes_ = *processes;
            count_ranks_of_mpi(ranks);
          },
          "parallel group of tp * dp ranks; mpi: the processes that mpirun has started")
      ->check([](const std::string& text) { return text == "mpi" ? std::string() : whole_number(1, most_ranks)(text); })
      ->type_name("N|mpi")
      ->default_str("1");
  command.add_option("--launch", kind_, "what a rank is: a thread, or a process that this one starts")
      ->check(one_of({"threads", "processes"}))
      ->capture_default_str();
  CLI::Option* const join = command.add_option(
      "--join", group_, "this process is one rank of the group of that name, whose others are started elsewhere");
  join->type_name("NAME");
  command.add_option("--rank", rank_, "which rank it is, or the first that it has")
      ->check(whole_number(0, most_ranks - 1))
      ->needs(join);
  command
      .add_option_function<int>(
          "--ranks-per-process",
          [this, &ranks](int each) {
            ranks_each_ = each;
            count_ranks_of_mpi(ranks);
          },
          "ranks that are threads of each process, but for the last one")
      ->check(whole_number(1, most_ranks))
      ->default_str("1");
  command.add_option("--deadline", deadline_s_, "longest wait for a peer, in seconds")
      ->check(seconds(0.01, 86400))
      ->capture_default_str();
}

void Launch::count_ranks_of_mpi(int& ranks) {
  if (!mpi_) return;
  ranks = processes_ * ranks_each_;
  rank_ = process_of_mpi * ranks_each_;
  ranks_each_of_mpi = ranks_each_;
}

void Launch::check(int ranks) const {
  refuse_launch_unless(!mpi_ || (group_.empty() && kind_ == "threads"),
                       "--ranks mpi: mpirun starts the ranks, without --launch and --join");
  refuse_launch_unless(
      group_.empty() || (rank_ >= 0 && rank_ < ranks),
      fmt::format("--join {}: --rank {} is not in [0, {}): --ranks says how many there are", group_, rank_, ranks));
  const bool threads = group_.empty() && kind_ == "threads";
  constexpr int most_joined = 64;
  refuse_launch_unless(threads || ranks <= most_joined,
                       fmt::format("--ranks {}: at most {} ranks of processes are a group", ranks, most_joined));
  refuse_launch_unless(
      ranks_each_ == 1 || mpi_ || !threads,
      fmt::format("--ranks-per-process {}: with --launch processes, --join or --ranks mpi", ranks_each_));
}

std::string Launch::name() const { return mpi_ ? "mpi" : is_one_of_many() ? "processes" : kind_; }

std::chrono::milliseconds Launch::deadline() const {
  return std::chrono::milliseconds(static_cast<std::int64_t>(deadline_s_ * 1e3));
}

int Launch::run(int ranks, const std::function<int()>& body) const {
  if (is_one_of_many() || kind_ == "threads" || ranks == 1) return body();
  check(ranks);
  return run_processes(ranks, ranks_each_,
                       fmt::format("launch-{}-{}", getpid(), Clock::now().time_since_epoch().count()));
}

std::vector<int> Launch::local(int ranks) const {
  const int first = is_one_of_many() ? rank_ : 0;
  std::vector<int> all(static_cast<std::size_t>(is_one_of_many() ? std::min(ranks_each_, ranks - first) : ranks));
  std::iota(all.begin(), all.end(), first);
  return all;
}

int Launch::processes_here(int ranks) const {
  if (mpi_) return launched("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS").value_or(1);
  return is_one_of_many() ? quotient_up(ranks, ranks_each_) : 1;
}

int Launch::process_here() const {
  if (mpi_) return launched("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID").value_or(0);
  return is_one_of_many() ? rank_ / ranks_each_ : 0;
}

RankGroup Launch::join(int ranks, const std::vector<StreamView>& streams, const GroupOptions& options) const {
  if (mpi_) {
    RankGroup group = RankGroup::from_mpi(nullptr, streams, options);
    refuse_launch_unless(group.size() == ranks,
                         fmt::format("--ranks-per-process {}: the processes have {} ranks in all, not {} each",
                                     ranks_each_, group.size(), ranks_each_));
    return group;
  }
  static int groups = 0;  // a command may make several groups, one after the other
  const std::string name = fmt::format("{}.{}", group_, groups++);
  std::vector<RankGroup::Joining> joining;
  for (std::size_t i = 0; i < streams.size(); ++i) joining.push_back({rank_ + static_cast<int>(i), streams[i]});
  RankGroup group = RankGroup::join(name, joining, ranks, options);
  if (rank_ == 0) RankGroup::remove(name);  // all ranks have joined, and none will join again
  return group;
}

/// Errors that all ranks see are told by process 0; if that one is lost, by the next.
bool told_elsewhere(ExitCode code, std::string_view what) {
  if (process_of_mpi <= 0) return false;
  if (code != device_failure) return true;
  const auto says = [what](std::string_view words) { return what.find(words) != std::string_view::npos; };
  if (says("has not begun within")) {  // which is lost, nobody knows: the first one left ends the others
    std::this_thread::sleep_for(std::chrono::seconds(2) * process_of_mpi);
    return false;
  }
  if (!says("the group of ranks ended")) return false;
  bool lost = false;
  for (int rank = 0; rank < ranks_each_of_mpi; ++rank) lost = lost || says(fmt::format("rank {} of MPI ", rank));
  return process_of_mpi > 1 || !lost || says("has left the group");
}

}  // namespace moecl::cli
