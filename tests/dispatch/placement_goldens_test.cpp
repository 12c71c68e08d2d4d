// Maps, replica choices and transfers as vLLM 0.33 has them: recorded answers of tests/data/eplb/placement.
#include <moecl/error.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/physical_experts.hpp>
#include <moecl/placement_plan.hpp>

#include <gmock/gmock.h>

#include "host/checkpoint/json_file.hpp"
#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

JsonDocument recorded(const std::string& name) { return read_json_file(data_path("eplb/placement/" + name)); }

TEST(PlacementGoldens, ExpertMaps) {
  const JsonDocument document = recorded("expert_maps.json");
  int compared = 0;
  for (const nlohmann::json& c : document.root["cases"]) {
    SCOPED_TRACE(c.dump().substr(0, 120));
    const auto ranks = c["ep_size"].get<std::int32_t>(), experts = c["experts"].get<std::int32_t>();
    const auto placement = placement_from_name(c["requested"].get<std::string>());
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const ExpertMap map = ExpertMap::make(experts, ranks, rank, placement, c["fused_shared"].get<std::int32_t>());
      const nlohmann::json &expected = c["expected"], &of_map = expected["expert_map"][static_cast<std::size_t>(rank)],
                           &of_mask = expected["expert_mask"][static_cast<std::size_t>(rank)];
      EXPECT_EQ(std::ssize(map.global_of) - c["fused_shared"].get<std::int32_t>(),
                expected["local_experts"][static_cast<std::size_t>(rank)].get<std::int32_t>());
      if (!of_map.is_null()) {
        EXPECT_EQ(map.local_of, of_map.get<Ints>());
      }
      if (!of_mask.is_null()) {
        EXPECT_EQ(map.mask, of_mask.get<Ints>());
      }
      ++compared;
    }
    const auto redundant = c["redundant"].get<std::int32_t>();
    if (placement == ExpertPlacement::linear && experts % ranks == 0) {
      EXPECT_EQ(place_experts({c["logical_experts"].get<std::int32_t>(), ranks, 1, redundant}).logical_of,
                c["expected"]["initial_physical_to_logical"].get<Ints>());
    }
  }
  EXPECT_GT(compared, 40);
}

class ReplicaGoldens : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(ReplicaGoldens);

TEST_P(ReplicaGoldens, TokensChooseAndAreCounted) {
  const JsonDocument document = recorded("replica_choice.json");
  const auto flat = [](const nlohmann::json& rows) {
    Ints all;
    for (const nlohmann::json& row : rows)
      for (const nlohmann::json& id : row) all.push_back(id.get<std::int32_t>());
    return all;
  };
  for (const nlohmann::json& c : document.root["cases"]) {
    SCOPED_TRACE(c.dump().substr(0, 120));
    const auto experts = c["experts"].get<std::int32_t>();
    const auto tokens = c["tokens"].get<std::int64_t>(), top_k = c["top_k"].get<std::int64_t>();
    const PlacementPlan plan = place_as_given(c["physical_to_logical"].get<Ints>(), experts);
    EXPECT_EQ(plan.replicas, c["replicas"].get<Ints>());
    const ReplicaTable table = replica_table(plan, ReplicaChoice::token_hash, 0, 1);
    for (std::int32_t e = 0; e < experts; ++e) {
      const auto first = table.places.begin() + e * table.choices;
      EXPECT_EQ(Ints(first, first + table.counts[static_cast<std::size_t>(e)]),
                c["logical_to_physical"][static_cast<std::size_t>(e)].get<Ints>());
    }
    const Ints ids = flat(c["topk_ids"]);
    const GuardedTensor given(device(), DType::i32, {tokens, top_k}, ids),
        places(device(), DType::i32, {experts, table.choices}, table.places),
        counts(device(), DType::i32, {experts}, table.counts), physical(device(), DType::i32, {tokens, top_k});
    physical_experts::enqueue(device().stream, {given, places, counts, 0, physical, {}});
    const Ints got = physical.read<std::int32_t>();
    EXPECT_EQ(got, flat(c["expected"]["physical_ids"]));
    if (!c["record"].get<bool>()) continue;
    const std::int64_t counted = c["unpadded_tokens"].is_null() ? tokens : c["unpadded_tokens"].get<std::int64_t>();
    const GuardedTensor load(device(), DType::i64, {plan.physical()},
                             std::vector<std::int64_t>(static_cast<std::size_t>(plan.physical())));
    index_vectors::enqueue(device().stream, index_vectors::KeyCounts{physical.view().rows(0, counted), load});
    EXPECT_EQ(load.read<std::int64_t>(), c["expected"]["place_counts"].get<std::vector<std::int64_t>>());
  }
}

TEST(PlacementGoldens, Transfers) {
  const JsonDocument document = recorded("transfers.json");
  for (const nlohmann::json& c : document.root["cases"]) {
    SCOPED_TRACE(c.dump().substr(0, 120));
    const auto batches = schedule_moves(c["old"].get<Ints>(), c["new"].get<Ints>(), c["ranks"].get<std::int32_t>());
    nlohmann::json got = nlohmann::json::array();
    std::int64_t moves = 0;
    for (const auto& batch : batches) {
      nlohmann::json& flows = got.emplace_back(nlohmann::json::array());
      for (const ExpertFlow& flow : batch) {
        flows.push_back({{"from", flow.from}, {"to", flow.to}, {"experts", flow.experts}});
        moves += std::ssize(flow.experts);
      }
    }
    EXPECT_EQ(got, c["expected"]["batches"]);
    EXPECT_EQ(moves, c["expected"]["moves"].get<std::int64_t>());
  }
  EXPECT_THAT(
      [] {
        schedule_moves({0, 0}, {0, 1}, 2);
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("expert 1 is wanted, and no rank has it")));
}

TEST(ReplicaTableTest, RanksTakeTheirOwnAndShareTheOthers) {
  // Expert 0 on ranks 0, 1 and 2; expert 1 on rank 0; expert 2 on ranks 1 and 2.
  const PlacementPlan plan = place_as_given({0, 1, 0, 2, 0, 2, 1, 1}, 3);
  const auto of_rank = [&](std::int32_t rank) { return replica_table(plan, ReplicaChoice::per_rank, rank, 4).places; };
  EXPECT_EQ(of_rank(0), (Ints{0, 1, 3}));
  EXPECT_EQ(of_rank(1), (Ints{2, 6, 3}));
  EXPECT_EQ(of_rank(3), (Ints{0, 6, 5}));
}

TEST(ReplicaTableTest, SharesByNeedLevelTheRanks) {
  // Expert 0 has 60 of 100 tokens and a place on both ranks; without shares by need rank 0 would have 60 tokens.
  const PlacementPlan plan = place_as_given({0, 1, 0, 2}, 3);
  const ReplicaTable table = replica_table(plan, ReplicaChoice::by_need, 0, 2, {60, 30, 10});
  EXPECT_EQ(table.counts, (Ints{16, 1, 1}));
  const auto at_0 = std::count(table.places.begin(), table.places.begin() + 16, 0);
  EXPECT_NEAR(30 + 60.0 * static_cast<double>(at_0) / 16, 50, 60.0 / 16);
  EXPECT_THAT([&] { replica_table(plan, ReplicaChoice::by_need, 0, 2, {1}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("loads of 1 experts, the plan has 3")));
}

TEST(PlacementGoldens, WhatIsLeftOfAGroup) {
  const PlacementPlan plan = place_as_given({0, 1, 2, 3, 0, 2}, 4), left = without_ranks(plan, 3, {1});
  EXPECT_EQ(left.logical_of, (Ints{0, 1, 0, 2}));
  EXPECT_EQ(left.replicas, (Ints{2, 1, 1, 0}));
  EXPECT_EQ(left.gone(), Ints{3});
  left.check();
  const PlacementPlan free = place_what_is_left({0, -1, 2}, 3);
  free.check();
  EXPECT_EQ(free.gone(), Ints{1});
  EXPECT_THAT([&] { without_ranks(plan, 3, {3}); }, testing::ThrowsMessage<Error>(testing::HasSubstr("rank 3 of 3")));
}

}  // namespace
}  // namespace moecl::test
