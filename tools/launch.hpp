#pragma once
// What the ranks of a command are: threads of it, processes that it starts, or processes that something else starts.
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
  /// --ranks, --launch, --join, --rank, --ranks-per-process and --deadline.
  void add_to(CLI::App& command, int& ranks);
  /// Errors: invalid_argument  options that contradict each other
  void check(int ranks) const;

  /// "threads", "processes", "mpi"
  std::string name() const;
  std::chrono::milliseconds deadline() const;
  /// Whether this process is one of several.
  bool is_one_of_many() const { return mpi_ || !group_.empty(); }
  /// Of so many, those of this process.
  std::vector<int> local(int ranks) const;
  /// Of so many ranks, the processes on this node, as far as their launcher says it.
  int processes_here(int ranks) const;
  /// Which of those this one is.
  int process_here() const;
  /// Whether this process tells the results.
  bool tells() const { return !is_one_of_many() || rank_ == 0; }

  /// Calls `body` here, or in processes of this command; the exit code of all of them.
  int run(int ranks, const std::function<int()>& body) const;
  /// The group of this process' ranks, the next one of this command. @param streams  of those
  /// Errors: as RankGroup::join
  RankGroup join(int ranks, const std::vector<StreamView>& streams, const GroupOptions& options) const;

 private:
  /// Those of all processes, once both options are known.
  void count_ranks_of_mpi(int& ranks);

  bool mpi_ = false;
  int processes_ = 1;  ///< of MPI
  std::string kind_ = "threads", group_;
  int rank_ = -1;  ///< the first of this process
  int ranks_each_ = 1;
  double deadline_s_ = 30;
};

/// Whether another rank of MPI tells of an error, so that it is told once.
bool told_elsewhere(ExitCode code, std::string_view what);

}  // namespace moecl::cli
