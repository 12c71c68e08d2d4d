#include <moecl/context.hpp>
#include <moecl/expert_migration.hpp>

#include <algorithm>
#include <map>

#include "runtime/check.hpp"

namespace moecl {

namespace {

/// One expert that moves from one rank to another.
struct Move {
  std::int32_t expert, from, to;
};

/// Steps in which each rank receives at most `most` experts (0: no limit). A step is sorted by sender and expert.
std::vector<std::vector<Move>> steps_of(const std::vector<std::vector<ExpertFlow>>& batches, std::int64_t most) {
  std::vector<std::vector<Move>> steps;
  std::vector<std::map<std::int32_t, std::int64_t>> received;  // [step][rank]
  for (const std::vector<ExpertFlow>& batch : batches)
    for (const ExpertFlow& flow : batch)
      for (const std::int32_t expert : flow.experts) {
        std::size_t step = 0;
        while (step < steps.size() && most > 0 && received[step][flow.to] >= most) ++step;
        if (step == steps.size()) steps.emplace_back(), received.emplace_back();
        steps[step].push_back({expert, flow.from, flow.to});
        ++received[step][flow.to];
      }
  for (std::vector<Move>& step : steps)
    std::stable_sort(step.begin(), step.end(), [](const Move& a, const Move& b) {
      return std::pair(a.from, a.expert) < std::pair(b.from, b.expert);
    });
  return steps;
}

}  // namespace

struct ExpertMigration::State {
  ParallelLayer& layer;
  PlacementPlan target;
  Communicator beside;
  std::int32_t rank, ranks, each;  ///< each: places of a rank
  std::uint64_t expert_bytes = 0;
  std::vector<std::vector<Move>> steps;
  std::size_t next = 0;
  std::map<std::int32_t, std::int64_t> arrivals;  ///< of this rank: the index of each expert in `came`
  Buffer came, goes, kept;
  MigrationProgress progress;

  State(ParallelLayer& of, const PlacementPlan& wanted, const MigrationOptions& options)
      : layer(of), target(wanted), beside(of.rank().ep.beside()), rank(beside.rank()), ranks(beside.size()), each(0) {
    const ExpertRank& here = layer.rank();
    target.check();
    if (here.sharding != ExpertSharding::experts)
      fail(ErrorCode::unsupported, "migration: ranks have parts of every expert");
    require(target.physical() == here.experts && target.logical() == layer.shape().experts,
            "migration: {} experts at {} places, the layer has {} at {}", target.logical(), target.physical(),
            layer.shape().experts, here.experts);
    require(target.physical() % ranks == 0, "migration: {} ranks do not share {} places equally", ranks,
            target.physical());
    each = target.physical() / ranks;
    for (std::int64_t place = layer.expert_places(); place < each; ++place)
      require(target.logical_of[static_cast<std::size_t>(rank * each + place)] < 0,
              "migration: rank {} has memory for {} experts, and one at its place {}", rank, layer.expert_places(),
              place);
    expert_bytes = layer.expert_bytes();
    beside.share("migration", {},
                 {{"experts by place", target.logical_of},
                  {"bytes of an expert", expert_bytes},
                  {"bytes_per_step", options.bytes_per_step}});
    const std::uint64_t most =
        options.bytes_per_step == 0 ? 0 : std::max<std::uint64_t>(options.bytes_per_step / expert_bytes, 1);
    steps = steps_of(schedule_moves(layer_table(), target.logical_of, ranks), static_cast<std::int64_t>(most));
    std::size_t most_sent = 0;
    for (const std::vector<Move>& step : steps) {
      std::size_t sent = 0;
      for (const Move& move : step) {
        if (move.to == rank) arrivals.emplace(move.expert, static_cast<std::int64_t>(arrivals.size()));
        sent += move.from == rank;
      }
      most_sent = std::max(most_sent, sent);
      progress.moves += std::ssize(step);
    }
    Context& context = *beside.stream().context;
    came = Buffer(context, arrivals.size() * expert_bytes);
    goes = Buffer(context, most_sent * expert_bytes);
    beside.fork();  // after the writes of the weights that leave
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Waits, since commands under way use the memory of this object.
  ~State() {
    try {
      beside.stream().finish();
    } catch (const Error&) {  // a failed device has no commands under way
    }
  }

  std::vector<std::int32_t> layer_table() const {
    if (!layer.placement().logical_of.empty()) return layer.placement().logical_of;
    return place_experts({layer.shape().experts}).logical_of;
  }
  /// This rank's first place with the expert in a table.
  std::int64_t place_in(const std::vector<std::int32_t>& table, std::int32_t expert) const {
    const auto begin = table.begin() + rank * each;
    return std::find(begin, begin + each, expert) - begin;
  }
  BufferView arrived(std::int64_t number) const {
    return came.view().slice(static_cast<std::uint64_t>(number) * expert_bytes, expert_bytes);
  }
  void step(const std::vector<Move>& moves);
  void commit();
};

void ExpertMigration::State::step(const std::vector<Move>& moves) {
  Communicator::Blocks sends{std::vector<std::uint64_t>(static_cast<std::size_t>(ranks)),
                             std::vector<std::uint64_t>(static_cast<std::size_t>(ranks))},
      receives = sends;
  const std::vector<std::int32_t> table = layer_table();
  std::uint64_t sent = 0;
  for (std::int32_t peer = 0; peer < ranks; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    sends.offsets[at] = sent;
    for (const Move& move : moves) {
      if (move.from == rank && move.to == peer) {
        layer.copy_expert_out(beside.stream(), place_in(table, move.expert), goes.view().slice(sent, expert_bytes));
        sent += expert_bytes;
      }
      if (move.from != peer || move.to != rank) continue;
      if (receives.bytes[at] == 0)
        receives.offsets[at] = static_cast<std::uint64_t>(arrivals.at(move.expert)) * expert_bytes;
      receives.bytes[at] += expert_bytes;
      progress.bytes += expert_bytes;
    }
    sends.bytes[at] = sent - sends.offsets[at];
  }
  beside.all_to_all_v(goes.view(), sends, came.view(), receives);
  beside.stream().flush();
  progress.moved += std::ssize(moves);
}

void ExpertMigration::State::commit() {
  const std::vector<std::int32_t> table = layer_table();
  const StreamView stream = beside.rank_stream();
  // Experts that change their place on this rank are all read before the first write.
  std::vector<std::pair<std::int64_t, BufferView>> writes;
  std::vector<std::pair<std::int64_t, std::int64_t>> local;  // from, to
  for (std::int64_t place = 0; place < each; ++place) {
    const auto at = static_cast<std::size_t>(rank * each + place);
    const std::int32_t expert = target.logical_of[at];
    if (expert < 0 || expert == table[at]) continue;
    if (const auto came_here = arrivals.find(expert); came_here != arrivals.end())
      writes.emplace_back(place, arrived(came_here->second));
    else
      local.emplace_back(place_in(table, expert), place);
  }
  kept = Buffer(*stream.context, local.size() * expert_bytes);
  beside.share("commit", {}, {{"experts by place", target.logical_of}});
  beside.join();
  for (std::size_t i = 0; i < local.size(); ++i) {
    const BufferView room = kept.view().slice(i * expert_bytes, expert_bytes);
    layer.copy_expert_out(stream, local[i].first, room);
    writes.emplace_back(local[i].second, room);
  }
  for (const auto& [place, from] : writes) layer.copy_expert_in(place, from);
  layer.update_expert_map(target);
  progress.committed = true;
}

ExpertMigration::ExpertMigration(ParallelLayer& layer, const PlacementPlan& target, const MigrationOptions& options) {
  layer.rank().ep.together([&] { state_ = std::make_unique<State>(layer, target, options); });
}
ExpertMigration::~ExpertMigration() = default;
ExpertMigration::ExpertMigration(ExpertMigration&&) noexcept = default;
ExpertMigration& ExpertMigration::operator=(ExpertMigration&&) noexcept = default;

bool ExpertMigration::step() {
  State& of = *state_;
  if (of.next == of.steps.size()) return false;
  of.beside.together([&] { of.step(of.steps[of.next]); });
  return ++of.next < of.steps.size();
}

void ExpertMigration::commit() {
  State& of = *state_;
  of.beside.together([&] {
    require(!of.progress.committed, "migration: committed before");
    require(of.next == of.steps.size(), "migration: {} of {} experts have moved", of.progress.moved, of.progress.moves);
    of.commit();
  });
}

MigrationProgress ExpertMigration::progress() const noexcept { return state_->progress; }

}  // namespace moecl
