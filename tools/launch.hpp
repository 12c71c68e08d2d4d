#pragma once
// How the ranks of a command run: as its threads, as processes that it starts, or as processes started elsewhere.
#include <moecl/communicator.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/commands.hpp"

namespace moecl::cli {

class Launch {
 public:
  /// Adds --ranks, --launch, --join, --rank, --ranks-per-process and --deadline.
  void add_to(CLI::App& command, int& ranks);
  /// Errors: invalid_argument  options that contradict each other
  void check(int ranks) const;

  /// "threads", "processes", "mpi"
  std::string name() const;
  std::chrono::milliseconds deadline() const;
  /// Whether this process is one of several with ranks.
  bool is_one_of_many() const { return mpi_ || !group_.empty(); }
  /// The ranks of this process, of `ranks` in all.
  std::vector<int> local(int ranks) const;
  /// The number of processes on this node, of `ranks` ranks in all, as far as their launcher tells it.
  int processes_here(int ranks) const;
  /// The number of this process among them.
  int process_here() const;
  /// Whether this process prints the results.
  bool tells() const { return !is_one_of_many() || rank_ == 0; }

  /// Calls `body` here, or in processes that it starts. @return  the exit code for all of them
  int run(int ranks, const std::function<int()>& body) const;
  /// Joins the next group of this command, with the ranks of this process. @param streams  of these ranks
  /// Errors: as RankGroup::join
  RankGroup join(int ranks, const std::vector<StreamView>& streams, const GroupOptions& options) const;

 private:
  /// Sets the number of ranks of all MPI processes, once both options are known.
  void count_ranks_of_mpi(int& ranks);

  bool mpi_ = false;
  int processes_ = 1;  ///< number of MPI processes
  std::string kind_ = "threads", group_;
  int rank_ = -1;  ///< first rank of this process
  int ranks_each_ = 1;
  double deadline_s_ = 30;
};

/// Whether another rank of MPI reports an error, so that it is reported once.
bool told_elsewhere(ExitCode code, std::string_view what);

}  // namespace moecl::cli
