// One rank of a layer over processes. growth.py starts it, and sends it one command per line. Each line gets one
// answer. While loading, the worker asks before each expert.
#include <moecl/checkpoint.hpp>
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/device_tensor.hpp>
#include <moecl/expert_migration.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/parallel_layer.hpp>
#include <moecl/safetensors.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace moecl;

void tell(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

class Worker {
 public:
  Worker(const std::string& model, std::string name, std::int32_t rank, std::int32_t size, double percent)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        checkpoint_(Checkpoint::open(model)),
        config_(checkpoint_.config().layer(checkpoint_.config().first_moe_layer())),
        input_(SafetensorsFile::open(model + "/golden.safetensors").tensor("hidden_states").in_memory()),
        context_(Context::create({select_devices("", "").front()})),
        stream_(*context_) {
    options_.dtype = DType::f32;
    options_.budget.percent = percent;
  }
  ~Worker() { stream_.view().finish(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// @return  the answer. @param table  for the commands that take one
  std::string answer(const std::string& command, const std::vector<std::int32_t>& table) {
    if (command == "join") group_ = RankGroup::join(name_, rank_, size_, stream_, patient());
    if (command == "alone") group_ = RankGroup({stream_});
    if (command == "shrink") group_ = group_->shrink();
    if (command == "rejoin") group_ = group_->rejoin();
    if (command == "make") make(placed(table));
    if (command == "regroup") {
      const PlacementPlan placement = placed(table);
      *layer_ = std::move(*layer_).in_group(rank_of(placement), placement);
    }
    if (command == "move") {
      moves_ = std::make_unique<ExpertMigration>(*layer_, placed(table), MigrationOptions{1});
    }
    if (command == "step") return moves_->step() ? "more" : "all";
    if (command == "commit") {
      moves_->commit();
      moves_.reset();
    }
    if (command == "places") return fmt::format("{}", fmt::join(layer_->placement().logical_of, ","));
    return command == "pass" ? pass() : "done";
  }
  /// After an error: no command of the layer may still be running.
  void settle() { stream_.view().finish(); }

 private:
  /// On a machine with other work, processes may take long to join.
  static GroupOptions patient() {
    GroupOptions options;
    options.deadline = std::chrono::seconds(60);
    return options;
  }
  PlacementPlan placed(const std::vector<std::int32_t>& table) const {
    return place_what_is_left(table, config_.shape.experts);
  }
  ExpertRank rank_of(const PlacementPlan& placement) {
    return {group_->communicator(group_->local_ranks().front()), 1, placement.physical()};
  }
  void make(const PlacementPlan& placement) {
    const ExpertRank rank = rank_of(placement);
    const auto first = placement.logical_of.begin() + rank.first_expert;
    layer_ = std::make_unique<ParallelLayer>(
        rank, ParallelPlan{StrategyKind::mc2, placement}, config_.shape,
        find_layer_weights(checkpoint_, config_, std::vector<std::int64_t>(first, first + rank.local_experts)),
        options_, [](std::int64_t, std::int64_t) {
          tell("loading");
          std::string go_on;
          std::getline(std::cin, go_on);
        });
  }
  /// Runs a pass of this rank's share of the tokens. @return  its rows of the output, as hexadecimal digits of their
  /// bytes
  std::string pass() {
    const Communicator& ranks = layer_->rank().ep;
    const std::int64_t hidden = config_.shape.hidden, tokens = input_.shape[0],
                       first = tokens * ranks.rank() / ranks.size(),
                       count = tokens * (ranks.rank() + 1) / ranks.size() - first;
    const DeviceTensor x(*context_, DType::f32, {count, hidden}), out(*context_, DType::f32, {count, hidden});
    std::vector<std::uint32_t> rows(static_cast<std::size_t>(count * hidden));
    const auto* const values = reinterpret_cast<const float*>(input_.data.memory());
    write_blocking(stream_, x.view.buffer, values + first * hidden, x.view.size_bytes());
    ParallelLayer::Forward args;
    args.x = x, args.out = out;
    layer_->forward(args);
    ranks.wait(stream_.view().record());
    read_blocking(stream_, out.view.buffer, rows.data(), out.view.size_bytes());
    return fmt::format("{:08x}", fmt::join(rows, ""));
  }

  std::string name_;
  std::int32_t rank_, size_;
  Checkpoint checkpoint_;
  MoeLayerConfig config_;
  HostTensor input_;
  MoeLayerOptions options_;
  std::unique_ptr<Context> context_;
  Stream stream_;
  std::optional<RankGroup> group_;
  std::unique_ptr<ParallelLayer> layer_;
  std::unique_ptr<ExpertMigration> moves_;
};

}  // namespace

/// MODEL NAME RANK SIZE PERCENT
int main(int, char** argv) try {
  Worker worker(argv[1], argv[2], std::stoi(argv[3]), std::stoi(argv[4]), std::stod(argv[5]));
  for (std::string line; std::getline(std::cin, line);) try {
      std::istringstream words(line);
      std::string command;
      words >> command;
      std::vector<std::int32_t> table;
      for (std::int32_t expert = 0; words >> expert;) table.push_back(expert);
      tell(worker.answer(command, table));
    } catch (const std::exception& error) {
      worker.settle();
      tell(fmt::format("error {}", error.what()));
    }
  return 0;
} catch (const std::exception& error) {
  tell(fmt::format("error {}", error.what()));
  return 1;
}
