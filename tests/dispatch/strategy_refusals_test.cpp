// What strategies refuse: what cannot travel, ranks that disagree, and experts that do not exist.
#include <moecl/strategy.hpp>

#include <gmock/gmock.h>

#include <utility>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

class StrategyRefusalsTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count) {
    return {count, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport}};
  }
};
INSTANTIATE_TEST_SUITE_P(Places, StrategyRefusalsTest, testing::ValuesIn(settings_with_fake),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(StrategyRefusalsTest, RefusesWhatCannotTravel) {
  Ranks on = make(4);
  const Error ended = error_of([&] {
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, 8);
      const auto refusal = [&](StrategyKind kind) {
        return std::string(error_of([&] { Strategy::make(kind, rank, {12, 2, DType::f32, WireFormat::int8}); }).what());
      };
      EXPECT_THAT(refusal(StrategyKind::mc2), testing::HasSubstr("wire int8 groups columns by 8, hidden is 12"));
      EXPECT_NO_THROW(Strategy::make(StrategyKind::all2all_v, rank, {12, 2, DType::f32, WireFormat::int8}));
      EXPECT_THAT(error_of([&] { ExpertRank(world, 1, 8, ExpertSharding::experts, 3); }).what(),
                  testing::HasSubstr("nodes of 3 ranks do not divide 4 ranks"));
    });
  });
  EXPECT_THAT(ended.what(), testing::HasSubstr("wire int8 groups columns by 8, hidden is 12"));
}

TEST_P(StrategyRefusalsTest, RanksThatDisagreeAboutTheWireAllFail) {
  Ranks on = make(2);
  for (const std::string& text : failures(on, [](Communicator& world) {
         const ExpertRank rank(world, 1, 8);
         const WireFormat wire = world.rank() == 1 ? WireFormat::int8 : WireFormat::none;
         const StreamView stream = world.stream();
         const DeviceTensor x(stream, DType::f32, {1, 8}), ids(stream, DType::i32, {1, 2}, {0, 1}),
             weights(stream, DType::f32, {1, 2}, {1, 1});
         Strategy::make(StrategyKind::mc2, rank, {8, 2, DType::f32, wire})->dispatch(stream, {x, ids, weights, {}});
       }))
    EXPECT_THAT(text, testing::HasSubstr("dispatch: wire: rank 1 has int8, rank 0 has none"));
}

TEST_P(StrategyRefusalsTest, RanksThatDisagreeAboutTheStrategyOrTheCodesAllFail) {
  const auto texts = [&](bool kinds_differ) {
    Ranks on = make(2);
    return failures(on, [&](Communicator& world) {
      const ExpertRank rank(world, 1, 8);
      const StreamView stream = world.stream();
      const bool odd = world.rank() == 1;
      const DeviceTensor x(stream, odd && !kinds_differ ? DType::i8 : DType::f8_e4m3, {1, 8}),
          ids(stream, DType::i32, {1, 2}, {0, 1}), weights(stream, DType::f32, {1, 2}, {1, 1}),
          scale(stream, DType::f32, {1}, {1});
      Strategy::make(odd && kinds_differ ? StrategyKind::multicast : StrategyKind::all_gather, rank, {8, 2, DType::f32})
          ->dispatch(stream, {x, ids, weights, {}, scale});
    });
  };
  for (const std::string& text : texts(false))
    EXPECT_THAT(text, testing::HasSubstr("dispatch: x: rank 1 has i8, rank 0 has f8_e4m3"));
  for (const std::string& text : texts(true))
    EXPECT_THAT(text, testing::HasSubstr("dispatch: strategy: rank 1 has multicast, rank 0 has allgather"));
}

TEST_P(StrategyRefusalsTest, AnExpertThatDoesNotExistIsAFault) {
  for (const auto& [ranks_per_node, dtype] : {std::pair{4, DType::i32}, {2, DType::i32}, {4, DType::i64}}) {
    Ranks on = make(4);
    on.group.run([&, ranks_per_node = ranks_per_node, dtype = dtype](Communicator& world) {
      const ExpertRank rank(world, 1, 8, ExpertSharding::experts, ranks_per_node);
      const StreamView stream = world.stream();
      const double wrong = world.rank() == 2 ? 8 : 7;
      const DeviceTensor x(stream, DType::f32, {1, 8}, std::vector<double>(8, 1)),
          ids(stream, dtype, {1, 2}, {0, wrong}), weights(stream, DType::f32, {1, 2}, {1, 1}),
          fault(stream, DType::i32, {4}, {0, 0, 0, 0});
      Strategy::make(StrategyKind::mc2, rank, {8, 2, DType::f32})->dispatch(stream, {x, ids, weights, fault});
      const std::vector<double> word = fault.values(stream);
      EXPECT_EQ(word[0] != 0, world.rank() == 2);
      EXPECT_EQ(word[1], world.rank() == 2 ? 1 : 0);
      EXPECT_EQ(word[2], world.rank() == 2 ? 8 : 0);
    });
  }
}

}  // namespace
}  // namespace moecl::test
