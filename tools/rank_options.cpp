#include "tools/rank_options.hpp"

#include <moecl/error.hpp>

#include <fmt/ranges.h>

#include "tools/commands.hpp"
#include "tools/rank_devices.hpp"

namespace moecl::cli {
namespace {

void refuse_ranks_unless(bool condition, const std::string& message) {
  if (!condition) throw Error(ErrorCode::invalid_argument, message);
}

}  // namespace

void RankOptions::add_to(CLI::App& command) {
  launch.add_to(command, ranks);
  command.add_option("--tp", tp, "tensor-parallel size")->check(whole_number(1))->capture_default_str();
  command.add_option("--dp", dp, "data-parallel size (default: ranks / tp)")->check(whole_number(1));
  command.add_flag("--ep,!--no-ep", expert_parallel,
                   "expert-parallel over all ranks; else each has a part of every expert");
  command.add_option("--strategy", strategy, "how tokens travel")
      ->check(one_of({"auto", "mc2", "allgather", "all2allv", "multicast"}))
      ->capture_default_str();
  command
      .add_option("--rules", rules, "what --strategy auto follows: vllm-ascend's rules for a machine, or moecl's own")
      ->check(one_of({"a2", "a3", "a5", "310p", "moecl"}))
      ->capture_default_str();
  command.add_option("--topology", topology, "ranks of each node, all the same (default: one node)")
      ->delimiter(',')
      ->type_name("A,B,...");
  command
      .add_option("--wire", wire,
                  "codes that hidden states travel to experts as; results come back in f32, but for int8 with mc2")
      ->check(one_of({"none", "int8", "fp8", "mxfp8"}))
      ->capture_default_str();
  add_transport(command, transport);
}

ParallelPlan RankOptions::plan() const {
  ParallelPlan plan;
  if (strategy == "auto")
    plan.rules = strategy_rules_from_name(rules);
  else
    plan.strategy = strategy_from_name(strategy);
  plan.wire = wire_format_from_name(wire);
  return plan;
}

RankGroup RankOptions::group(const std::vector<StreamView>& streams) const {
  GroupOptions options;
  options.transport = transport;
  options.deadline = launch.deadline();
  if (launch.is_one_of_many()) return launch.join(ranks, streams, options);
  return RankGroup(streams, options);
}

void RankOptions::check() const {
  launch.check(ranks);
  refuse_ranks_unless(ranks % tp == 0, fmt::format("--tp {}: does not divide {} ranks", tp, ranks));
  refuse_ranks_unless(dp_size() * tp == ranks,
                      fmt::format("--ranks {} is not --tp {} times --dp {}", ranks, tp, dp_size()));
  refuse_ranks_unless(
      ranks == 1 || expert_parallel || (strategy != "mc2" && strategy != "all2allv"),
      "--strategy " + strategy + " without --ep: parts of experts need every token: allgather or multicast");
  for (const int node : topology)
    refuse_ranks_unless(node >= 1 && node == topology.front(),
                        fmt::format("--topology {}: expected nodes of one size", fmt::join(topology, ",")));
  refuse_ranks_unless(topology.empty() || static_cast<int>(topology.size()) * topology.front() == ranks,
                      fmt::format("--topology {}: not the nodes of {} ranks", fmt::join(topology, ","), ranks));
  refuse_ranks_unless(!transport || ranks > 1, "--transport: ranks exchange with --ranks above 1");
  refuse_ranks_unless(wire == "none" || ranks > 1, "--wire " + wire + ": rows travel with --ranks above 1");
}

}  // namespace moecl::cli
