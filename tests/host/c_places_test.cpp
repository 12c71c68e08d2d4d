// Places through the C interface: other tables, experts that move, a memory budget.
#include <moecl/layer_builder.h>

#include <gmock/gmock.h>

#include <numeric>

#include "tests/host/c_layers.hpp"

namespace moecl::test {
namespace {

using MigrationHandle = Handle<moecl_expert_migration, moecl_expert_migration_destroy>;

constexpr const char* model = "qwen2-moe-e16k4";

/// Two ranks of eight experts each, and each rank's half of the tokens.
class CPlacesTest : public testing::Test {
 protected:
  void load(const moecl_layer_options* options = nullptr, moecl_lost_experts lost = MOECL_LOST_REFUSED,
            const std::int32_t* shares = nullptr) {
    auto parallel = sized<moecl_parallel_options>();
    parallel.shares = shares;
    parallel.strategy = MOECL_STRATEGY_MC2;
    parallel.lost_experts = lost;
    layers_.load(model, parallel, options);
    const std::vector<double> input = golden_values(model, "hidden_states");
    const std::int64_t tokens = std::ssize(input) / layers_.info(0).hidden;
    inputs_ = dealt(input, layers_.info(0).hidden, 2, {tokens / 2, tokens - tokens / 2});
  }
  /// The outputs of all tokens.
  std::vector<float> pass() {
    std::vector<float> all;
    for (const CLayers::Pass& of : layers_.forward(inputs_)) all.insert(all.end(), of.out.begin(), of.out.end());
    return all;
  }
  static std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }
  /// Experts 3 and 12 change places.
  static std::vector<std::int32_t> swapped() {
    std::vector<std::int32_t> table(16);
    std::iota(table.begin(), table.end(), 0);
    std::swap(table[3], table[12]);
    return table;
  }
  std::string map(std::size_t rank) const {
    char text[128] = "unset";
    EXPECT_OK(moecl_parallel_layer_expert_map(layers_.of_rank[rank], text, sizeof(text)));
    return text;
  }

  CGroup on_{2};
  CLayers layers_{on_};
  std::vector<std::vector<double>> inputs_;
};

TEST_F(CPlacesTest, ExpertsMoveBesidePasses) {
  load();
  const std::vector<float> before = pass();
  EXPECT_LE(relative_error(doubles(before), golden_values(model, "output")), 1e-5);
  const std::vector<std::int32_t> target = swapped();
  std::vector<MigrationHandle> moves(2);
  on_.run([&](std::size_t rank, moecl_communicator*) {
    EXPECT_OK(moecl_expert_migration_create(layers_.of_rank[rank], target.data(), 16, 1, moves[rank].out()));
  });
  std::int64_t left[2] = {1, 1};
  for (int steps = 0; left[0] > 0 && steps < 4; ++steps) {
    on_.run([&](std::size_t rank, moecl_communicator*) {
      EXPECT_OK(moecl_expert_migration_step(moves[rank], &left[rank]));
    });
    EXPECT_EQ(pass(), before);
    EXPECT_THAT(map(0), testing::HasSubstr("3->3"));
  }
  EXPECT_EQ(left[0], 0);
  EXPECT_EQ(left[1], 0);
  on_.run([&](std::size_t rank, moecl_communicator*) { EXPECT_OK(moecl_expert_migration_commit(moves[rank])); });
  EXPECT_EQ(pass(), before);
  EXPECT_THAT(map(0), testing::HasSubstr("3->12"));
  EXPECT_THAT(map(1), testing::HasSubstr("->3,"));
  on_.run([&](std::size_t rank, moecl_communicator*) {
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "committed before", moecl_expert_migration_commit(moves[rank]));
  });
  for (MigrationHandle& handle : moves) handle.reset();
}

TEST_F(CPlacesTest, AMigrationThatIsGivenUpLeavesTheOldTable) {
  load();
  const std::vector<float> before = pass();
  const std::vector<std::int32_t> target = swapped();
  {
    std::vector<MigrationHandle> moves(2);
    on_.run([&](std::size_t rank, moecl_communicator*) {
      std::int64_t left = 0;
      EXPECT_OK(moecl_expert_migration_create(layers_.of_rank[rank], target.data(), 16, 0, moves[rank].out()));
      EXPECT_OK(moecl_expert_migration_step(moves[rank], &left));
    });
    EXPECT_EQ(pass(), before);
  }
  EXPECT_EQ(pass(), before);
  EXPECT_THAT(map(0), testing::HasSubstr("3->3"));
}

TEST_F(CPlacesTest, PackedExpertsStandWhereATableSays) {
  load();
  const std::vector<float> before = pass();
  const std::vector<std::int32_t> target = swapped();
  std::vector<std::byte> packed[2];
  const std::int32_t place[2] = {3, 4};  // of experts 3 and 12
  on_.run([&](std::size_t rank, moecl_communicator*) {
    std::uint64_t bytes = 0;
    EXPECT_OK(moecl_parallel_layer_packed_expert_bytes(layers_.of_rank[rank], &bytes));
    packed[rank].resize(bytes);
    EXPECT_OK(
        moecl_parallel_layer_export_packed_expert(layers_.of_rank[rank], place[rank], packed[rank].data(), bytes));
  });
  on_.run([&](std::size_t rank, moecl_communicator*) {
    const std::vector<std::byte>& other = packed[1 - rank];
    EXPECT_OK(
        moecl_parallel_layer_replace_packed_expert(layers_.of_rank[rank], place[rank], other.data(), other.size()));
    EXPECT_OK(moecl_parallel_layer_update_expert_map(layers_.of_rank[rank], target.data(), 16, 0));
  });
  EXPECT_EQ(pass(), before);
  std::vector<std::int32_t> told(16);
  EXPECT_OK(moecl_parallel_layer_places(layers_.of_rank[1], told.data(), 16));
  EXPECT_EQ(told, target);
}

TEST_F(CPlacesTest, ATableThatCannotBeLeavesTheOldOne) {
  const struct {
    const char* expected;
    std::int32_t count;
    std::int32_t at_0;
  } cases[] = {{"expected 16 places, got 15", 15, 0}, {"expert 0", 16, 1}, {"16", 16, 16}};
  for (const auto& [expected, count, at_0] : cases) {
    CGroup on(2);
    CLayers layers(on);
    layers.load(model, sized<moecl_parallel_options>());
    std::vector<std::int32_t> table(16);
    std::iota(table.begin(), table.end(), 0);
    table[0] = at_0;
    on.run([&, expected = expected, count = count](std::size_t rank, moecl_communicator*) {
      EXPECT_FAILS(MOECL_INVALID_ARGUMENT, expected,
                   moecl_parallel_layer_update_expert_map(layers.of_rank[rank], table.data(), count, 0));
    });
    std::vector<std::int32_t> told(16);
    EXPECT_OK(moecl_parallel_layer_places(layers.of_rank[0], told.data(), 16));
    EXPECT_EQ(told[0], 0);
  }
}

TEST_F(CPlacesTest, ExpertsMayBeGone) {
  for (const moecl_lost_experts lost : {MOECL_LOST_REFUSED, MOECL_LOST_MASKED}) {
    load(nullptr, lost);
    const std::vector<float> before = pass();
    std::vector<std::int32_t> table = swapped();
    std::swap(table[3], table[12]);
    table[5] = -1;
    on_.run([&](std::size_t rank, moecl_communicator*) {
      EXPECT_OK(moecl_parallel_layer_update_expert_map(layers_.of_rank[rank], table.data(), 16, 1));
    });
    if (lost == MOECL_LOST_MASKED) {
      EXPECT_GT(relative_error(doubles(pass()), doubles(before)), 1e-4);
      continue;
    }
    // Tokens of expert 5 set the fault word of their rank.
    std::int32_t refused = 0;
    std::mutex mutex;
    on_.run([&](std::size_t rank, moecl_communicator*) {
      auto args = sized<moecl_forward_args>();
      args.tokens = std::ssize(inputs_[rank]) / layers_.info(rank).hidden;
      args.x = on_.allocate<float>(rank, {inputs_[rank].begin(), inputs_[rank].end()});
      args.out = on_.allocate(rank, std::vector<float>(inputs_[rank].size()));
      args.fault = on_.allocate(rank, std::vector<std::int32_t>(4));
      EXPECT_OK(moecl_parallel_layer_forward(layers_.of_rank[rank], &args));
      const moecl_status status = moecl_check_fault(on_.streams[rank], args.fault);
      const std::lock_guard lock(mutex);
      if (status != MOECL_OK) {
        ++refused;
        EXPECT_THAT(std::string(moecl_last_error_message()), testing::HasSubstr("expert"));
      }
    });
    EXPECT_GE(refused, 1);
  }
}

/// Two ranks have a layer, and a third loads its experts in a group of its own. Then all three form one group.
TEST(CGrowthTest, ARankMoreTakesPlaces) {
  const std::vector<double> input = golden_values(model, "hidden_states"), output = golden_values(model, "output");
  std::vector<std::int32_t> table(16);
  std::iota(table.begin(), table.end(), 0);
  table.insert(table.end(), {4, 5, 6, 7, 8, 9, 10, 11});
  CGroup on(3);
  CLayers layers(on);
  GroupHandle pair, alone;
  moecl_stream* const streams[] = {on.streams[0], on.streams[1], on.streams[2]};
  ASSERT_OK(moecl_rank_group_create(streams, 2, nullptr, pair.out()));
  ASSERT_OK(moecl_rank_group_create(streams + 2, 1, nullptr, alone.out()));
  on.run([&](std::size_t rank, moecl_communicator*) {
    CommunicatorHandle before;
    EXPECT_OK(moecl_rank_group_communicator(rank < 2 ? pair : alone, rank < 2 ? static_cast<std::int32_t>(rank) : 0,
                                            before.out()));
    auto parallel = sized<moecl_parallel_options>();
    parallel.strategy = MOECL_STRATEGY_MC2;
    parallel.expert_of_place = rank < 2 ? table.data() : table.data() + 16;
    parallel.places = rank < 2 ? 16 : 8;
    ParallelLayerHandle none;
    if (rank == 2) {
      EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "parallel.places: 8 of 16 experts",
                   moecl_parallel_layer_load(before, golden_dir(model).c_str(), -1, &parallel, nullptr, none.out()));
      alone.reset();
      EXPECT_OK(moecl_rank_group_create(streams + 2, 1, nullptr, alone.out()));
      EXPECT_OK(moecl_rank_group_communicator(alone, 0, before.out()));
      parallel.may_lack = 1;
    }
    EXPECT_OK(moecl_parallel_layer_load(before, golden_dir(model).c_str(), -1, &parallel, nullptr,
                                        layers.of_rank[rank].out()));
  });
  const std::int64_t hidden = layers.info(0).hidden, tokens = std::ssize(input) / hidden;
  const auto error_of_all = [&](const std::vector<std::int64_t>& each) {
    std::vector<double> got;
    for (const CLayers::Pass& of : layers.forward(dealt(input, hidden, 3, each)))
      got.insert(got.end(), of.out.begin(), of.out.end());
    return relative_error(got, output);
  };
  on.run([&](std::size_t rank, moecl_communicator* grown) {
    EXPECT_OK(moecl_parallel_layer_in_group(layers.of_rank[rank], grown, table.data(), 24, 0));
  });
  pair.reset(), alone.reset();
  EXPECT_LE(error_of_all({tokens / 3, tokens / 3, tokens - 2 * (tokens / 3)}), 1e-5);
  EXPECT_EQ(layers.info(2).first_place, 16);
  EXPECT_EQ(layers.info(2).all_places, 24);
  EXPECT_GT(layers.info(2).bytes_received, 0U);
  // The third rank leaves again, and the other two go on.
  ASSERT_OK(moecl_rank_group_create(streams, 2, nullptr, pair.out()));
  layers.of_rank[2].reset();
  on.run([&](std::size_t rank, moecl_communicator*) {
    if (rank == 2) return;
    CommunicatorHandle left;
    EXPECT_OK(moecl_rank_group_communicator(pair, static_cast<std::int32_t>(rank), left.out()));
    EXPECT_OK(moecl_parallel_layer_in_group(layers.of_rank[rank], left, table.data(), 16, 0));
  });
  EXPECT_LE(error_of_all({tokens / 2, tokens - tokens / 2, 0}), 1e-5);
}

TEST_F(CPlacesTest, AGroupThatCannotTakeALayerLeavesIt) {
  load();
  const std::vector<float> before = pass();
  std::vector<std::int32_t> table(18);
  std::iota(table.begin(), table.end(), 0);
  table[16] = table[17] = 0;
  moecl_stream* const streams[] = {on_.streams[0], on_.streams[1]};
  const auto refused = [&](const char* expected, std::int32_t count) {
    GroupHandle other;
    ASSERT_OK(moecl_rank_group_create(streams, 2, nullptr, other.out()));
    on_.run([&](std::size_t rank, moecl_communicator*) {
      CommunicatorHandle there;
      EXPECT_OK(moecl_rank_group_communicator(other, static_cast<std::int32_t>(rank), there.out()));
      EXPECT_NE(moecl_parallel_layer_in_group(layers_.of_rank[rank], there, table.data(), count, 0), MOECL_OK);
      EXPECT_THAT(std::string(moecl_last_error_message()), testing::HasSubstr(expected));
    });
    EXPECT_EQ(pass(), before);
  };
  refused("9 places here, the layer has 8", 18);
  refused("expert 15 has no place", 15);
  refused("count: 1 places of 2 ranks", 1);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "communicator: the pointer is null",
               moecl_parallel_layer_in_group(layers_.of_rank[0], nullptr, table.data(), 16, 0));
}

TEST_F(CPlacesTest, SharesOfUnlikeDevices) {
  load();
  const std::vector<float> equal = pass();
  const double rates[] = {4.5, 1.5};
  std::int32_t shares[2] = {};
  EXPECT_OK(moecl_shares_by_rates(16, rates, 2, shares));
  EXPECT_EQ(shares[0], 12);
  EXPECT_EQ(shares[1], 4);
  load(nullptr, MOECL_LOST_REFUSED, shares);
  EXPECT_EQ(pass(), equal);
  EXPECT_EQ(map(1), "0->12, 1->13, 2->14, 3->15");
  EXPECT_LT(layers_.info(1).weight_bytes, layers_.info(0).weight_bytes);

  const double negative[] = {1, -1};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "a rank's rate is -1", moecl_shares_by_rates(16, negative, 2, shares));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "out_shares", moecl_shares_by_rates(16, rates, 2, nullptr));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "rates", moecl_shares_by_rates(16, nullptr, 2, shares));
  on_.run([&](std::size_t /*rank*/, moecl_communicator* communicator) {
    ParallelLayerHandle none;
    auto parallel = sized<moecl_parallel_options>();
    const std::int32_t others[] = {12, 3};
    parallel.shares = others;
    EXPECT_FAILS(
        MOECL_INVALID_ARGUMENT, "15 experts in all, the layer has 16",
        moecl_parallel_layer_load(communicator, golden_dir(model).c_str(), -1, &parallel, nullptr, none.out()));
  });
}

TEST_F(CPlacesTest, ABudgetHasTheBitsOfTheWholeLayer) {
  load();
  const std::vector<float> whole = pass();
  auto options = sized<moecl_layer_options>();
  for (const moecl_missed_experts missed : {MOECL_MISSED_AUTO, MOECL_MISSED_FETCHED, MOECL_MISSED_IN_PLACE})
    for (const moecl_residency policy : {MOECL_RESIDENCY_LEAST_STALE, MOECL_RESIDENCY_LRU, MOECL_RESIDENCY_STATIC}) {
      const std::vector<float> loads = {1, 2, 3, 4, 5, 6, 7, 8};
      options.memory_budget_percent = 25;
      options.residency = policy;
      options.missed_experts = missed;
      options.resident_loads = policy == MOECL_RESIDENCY_STATIC ? loads.data() : nullptr;
      options.resident_loads_count = policy == MOECL_RESIDENCY_STATIC ? 8 : 0;
      load(&options);
      EXPECT_EQ(pass(), whole);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        auto told = sized<moecl_residency_counts>();
        EXPECT_OK(moecl_parallel_layer_residency(layers_.of_rank[rank], &told));
        EXPECT_EQ(told.resident, 2);
        EXPECT_GE(told.misses, 6) << "eight experts have rows";
        EXPECT_EQ(told.fetched_bytes, static_cast<std::uint64_t>(told.misses) * (told.budget_bytes / 2));
      }
    }
  options.missed_experts = 3;
  on_.run([&](std::size_t /*rank*/, moecl_communicator* communicator) {
    ParallelLayerHandle none;
    const auto parallel = sized<moecl_parallel_options>();
    EXPECT_FAILS(
        MOECL_INVALID_ARGUMENT, "options.missed_experts",
        moecl_parallel_layer_load(communicator, golden_dir(model).c_str(), -1, &parallel, &options, none.out()));
  });
}

TEST_F(CPlacesTest, PrefetchesOverRanks) {
  load();
  const std::vector<float> whole = pass();
  auto options = sized<moecl_layer_options>();
  options.memory_budget_percent = 50;
  options.missed_experts = MOECL_MISSED_FETCHED;
  load(&options);
  on_.run([&](std::size_t rank, moecl_communicator*) {
    // Rank 1 brings a token whose experts are known.
    const std::vector<std::int32_t> chosen = {1, 6, 9, 14};
    const std::vector<float> weigh(4, 0.25F);
    auto args = sized<moecl_forward_args>();
    args.tokens = rank == 1 ? 1 : 0;
    args.x = on_.allocate(rank, std::vector<float>(static_cast<std::size_t>(layers_.info(rank).hidden)));
    args.ids = on_.allocate(rank, chosen), args.weights = on_.allocate(rank, weigh);
    cl_event done = nullptr;
    EXPECT_OK(moecl_parallel_layer_prefetch(layers_.of_rank[rank], &args, 0, nullptr, &done));
    EXPECT_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
    auto told = sized<moecl_residency_counts>();
    EXPECT_OK(moecl_parallel_layer_residency(layers_.of_rank[rank], &told));
    EXPECT_EQ(told.prefetched, 2);
  });
  EXPECT_EQ(pass(), whole);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "layer: the pointer is null",
               moecl_parallel_layer_prefetch(nullptr, nullptr, 0, nullptr, nullptr));
  on_.run([&](std::size_t rank, moecl_communicator*) {
    EXPECT_NE(moecl_parallel_layer_prefetch(layers_.of_rank[rank], nullptr, 0, nullptr, nullptr), MOECL_OK);
    EXPECT_THAT(std::string(moecl_last_error_message()), testing::HasSubstr("args"));
  });
}

TEST_F(CPlacesTest, TakesAndTellsPlaces) {
  CGroup on(2);
  CLayers layers(on);
  const std::vector<std::int32_t> places = {5, 4, 3, 2, 1, 0, 6, 7, 5, 5};  // of eight experts; expert 5 has three
  auto parallel = sized<moecl_parallel_options>();
  parallel.expert_of_place = places.data();
  parallel.places = static_cast<std::int32_t>(places.size());
  layers.load("mixtral-e8k2", parallel);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(layers.info(rank).all_places, 10);
    EXPECT_EQ(layers.info(rank).places, 5);
    std::vector<std::int32_t> told(10);
    EXPECT_OK(moecl_parallel_layer_places(layers.of_rank[rank], told.data(), 10));
    EXPECT_EQ(told, places);
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "count: expected 10 places, got 9",
                 moecl_parallel_layer_places(layers.of_rank[rank], told.data(), 9));
    char text[64] = "unset";
    EXPECT_OK(moecl_parallel_layer_expert_map(layers.of_rank[rank], text, sizeof(text)));
    EXPECT_STREQ(text, rank == 0 ? "0->5, 1->4, 2->3, 3->2, 4->1" : "0->0, 1->6, 2->7, 3->5, 4->5");
  }
  const std::vector<double> input = golden_values("mixtral-e8k2", "hidden_states"),
                            output = golden_values("mixtral-e8k2", "output");
  const std::ptrdiff_t hidden = layers.info(0).hidden, half = 5 * hidden;
  const auto passes = layers.forward({{input.begin(), input.begin() + half}, {input.begin() + half, input.end()}});
  std::vector<double> got(passes[0].out.begin(), passes[0].out.end());
  got.insert(got.end(), passes[1].out.begin(), passes[1].out.end());
  EXPECT_LE(relative_error(got, output), 1e-5);
}

}  // namespace
}  // namespace moecl::test
