// Loads of experts that passes count on the device, against PyTorch's choices of experts.
#include <moecl/load_record.hpp>

#include <gmock/gmock.h>

#include "tests/host/c_golden.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

/// How often tokens chose each expert.
std::vector<std::int64_t> loads_of(const std::vector<double>& ids, std::int32_t experts) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(experts));
  for (const double id : ids) ++loads[static_cast<std::size_t>(id)];
  return loads;
}

std::vector<std::int64_t> sum_of(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  std::vector<std::int64_t> sum = a;
  for (std::size_t i = 0; i < b.size(); ++i) sum[i] += b[i];
  return sum;
}

class LoadRecordTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(LoadRecordTest);

TEST_P(LoadRecordTest, PassesOfBothPhasesAreCounted) {
  for (const char* name : {"qwen2-moe-e16k4", "qwen3-moe-e64k8"})
    for (const DType dtype : {DType::f32, DType::f16})  // f16: few tokens may take one launch
      for (const std::int64_t chunk : {0, 5}) {
        SCOPED_TRACE(testing::Message() << name << ", " << moecl::name(dtype) << ", chunks of " << chunk);
        Model model(name, dtype);
        model.options.chunk_tokens = chunk;
        const StreamView stream = device().stream;
        const MoeShape& shape = model.config.shape;
        const MoeLayer layer(stream, shape, model.weights(0, shape.experts), model.options);
        LoadRecord record(stream, 2, shape.experts);
        EXPECT_FALSE(record.told());
        const auto pass = [&](std::int64_t tokens, std::int64_t of, Phase phase) {
          const Buffer workspace(*stream.context, layer.workspace_bytes(tokens));
          const Outputs told = forward<MoeLayer::Forward>(stream, model, 0, tokens, [&](MoeLayer::Forward& args) {
            args.workspace = workspace.view();
            args.expert_load = record.counts(of, phase);
            layer.forward(stream, args);
          });
          return loads_of(told.ids, shape.experts);
        };
        const std::vector<std::int64_t> all = pass(model.tokens(), 1, Phase::prefill), one = pass(1, 1, Phase::decode);
        if (dtype == DType::f32) {  // 16 bits reorder experts with nearly equal scores
          EXPECT_EQ(all, loads_of(golden_values(name, "topk_ids"), shape.experts));
        }
        pass(1, 1, Phase::decode);
        record.ask(stream, true);
        pass(1, 0, Phase::decode);
        stream.finish();
        const PlaceLoads told = record.told().value();
        EXPECT_EQ(told.of(1, Phase::prefill), all);
        EXPECT_EQ(told.of(1, Phase::decode), sum_of(one, one));
        EXPECT_EQ(told.of(1), sum_of(all, sum_of(one, one)));
        EXPECT_EQ(told.of(0), std::vector<std::int64_t>(all.size())) << "asked before that pass";
        record.ask(stream);
        stream.finish();
        EXPECT_EQ(record.told().value().of(0, Phase::decode), one);
        EXPECT_EQ(record.told().value().of(1), std::vector<std::int64_t>(all.size())) << "cleared";
      }
}

TEST_P(LoadRecordTest, OthersAreRefused) {
  EXPECT_THAT([] { LoadRecord(devices().front()->stream, 0, 3); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("0 layers of 3 places")));
  const LoadRecord record(device().stream, 2, 3);
  EXPECT_THAT([&] { record.counts(2, Phase::decode); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("layer 2 of 2")));
  EXPECT_THAT(
      [] {
        loads_of_experts(place_experts({4}), {1, 2}, 3);
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("places [3, 5) of 4")));
}

TEST(LoadRecordOfRanks, FreePlacesAreNobodys) {
  const PlacementPlan plan = place_what_is_left({2, -1, 0, -1}, 3);
  EXPECT_EQ(loads_of_experts(plan, {5, 7, 1, 9}), (std::vector<std::int64_t>{1, 0, 5}));
}

TEST(LoadRecordOfRanks, PlacesAddUpToExperts) {
  const Model model("qwen2-moe-e16k4");
  const std::int64_t half = model.tokens() / 2;
  for (const std::int32_t redundant : {0, 8})
    for (const StrategyKind kind :
         {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
      SCOPED_TRACE(testing::Message() << name(kind) << ", " << redundant);
      Ranks on(2, Ranks::first_device);
      const PlacementPlan placement = place_experts({model.config.shape.experts, 2, 1, redundant});
      std::vector<std::vector<std::int64_t>> of_rank(2);
      std::vector<std::optional<LoadRecord>> records(2);
      for (std::size_t r = 0; r < 2; ++r) {
        const std::int64_t places = placement.physical() / 2;
        records[r].emplace(on.group.communicator(static_cast<std::int32_t>(r)).stream(), 1, places);
      }
      RankedOptions options;
      options.change = [&](ParallelLayer::Forward& args, std::int64_t first) {
        args.expert_load = records[first == 0 ? 0 : 1]->counts(0, Phase::prefill);
      };
      of_ranks(on, model, {kind, placement}, 1, {half, model.tokens() - half}, true, options);
      std::vector<std::int64_t> loads(static_cast<std::size_t>(model.config.shape.experts));
      for (std::size_t r = 0; r < 2; ++r) {
        const StreamView stream = on.group.communicator(static_cast<std::int32_t>(r)).stream();
        records[r]->ask(stream);
        stream.finish();
        loads = sum_of(loads, loads_of_experts(placement, records[r]->told().value().of(0),
                                               static_cast<std::int64_t>(r) * placement.physical() / 2));
      }
      EXPECT_EQ(loads, loads_of(golden_values("qwen2-moe-e16k4", "topk_ids"), model.config.shape.experts));
    }
}

}  // namespace
}  // namespace moecl::test
