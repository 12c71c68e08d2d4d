// A layer over ranks through the C interface, with the caller's routing and the caller's weights: the goldens.
#include <moecl/parallel_layer.h>

#include <gmock/gmock.h>

#include "tests/host/c_layers.hpp"

namespace moecl::test {
namespace {

TEST(CRoutingTest, TakesRawWeightsOtherWeightsAndFinishedTokens) {
  RawWeights raw;
  const std::vector<double> input = golden_values(golden_name, "hidden_states"),
                            golden = golden_values(golden_name, "output");
  CGroup on(3);
  CLayers layers(on);
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    ASSERT_OK(moecl_parallel_layer_create(communicator, &raw.desc, nullptr, nullptr, layers.of_rank[rank].out()));
  });
  const auto output = [&](const std::vector<std::uint8_t>& finished = {}) {
    std::vector<double> all;
    for (const CLayers::Pass& pass : layers.forward(dealt(input, 96, 3, {11, 11, 11}), finished)) {
      all.insert(all.end(), pass.out.begin(), pass.out.end());
      if (finished.empty()) continue;
      EXPECT_THAT(pass.ids, testing::Each(-1));
      EXPECT_THAT(pass.routed, testing::Each(0));
    }
    return all;
  };
  const std::vector<double> first = output();
  EXPECT_LE(relative_error(first, golden), 1e-5);
  output(std::vector<std::uint8_t>(11, 1));

  std::reverse(raw.down.begin(), raw.down.end());  // with the next line: the f32 numbers in reverse order
  for (auto number = raw.down.begin(); number != raw.down.end(); number += 4) std::reverse(number, number + 4);
  for (const ParallelLayerHandle& layer : layers.of_rank) EXPECT_OK(moecl_parallel_layer_replace(layer, &raw.desc));
  EXPECT_GT(relative_error(output(), golden), 1e-2);
  const std::string dir = golden_dir(golden_name), other = golden_dir("mixtral-e8k2");
  for (const ParallelLayerHandle& layer : layers.of_rank)
    EXPECT_OK(moecl_parallel_layer_reload(layer, dir.c_str(), -1));
  EXPECT_EQ(output(), first);
  raw.desc.experts = 31;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "31 experts, the layer has 32",
               moecl_parallel_layer_replace(layers.of_rank[0], &raw.desc));
  EXPECT_NE(moecl_parallel_layer_reload(layers.of_rank[0], other.c_str(), -1), MOECL_OK);
  EXPECT_EQ(output(), first);  // the group is whole
}

TEST(CRoutingTest, TakesTheCallersRouting) {
  CGroup on(2);
  CLayers layers(on);
  auto options = sized<moecl_parallel_options>();
  options.redundant_experts = 2;  // an expert's place is not its number
  layers.load("qwen2-moe-e16k4", options);
  const auto inputs = dealt(golden_values("qwen2-moe-e16k4", "hidden_states"), 64, 2, {20, 13});
  const std::vector<CLayers::Pass> own = layers.forward(inputs), given = layers.forward(inputs, {}, own);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(given[rank].out, own[rank].out);
    EXPECT_EQ(given[rank].routed, own[rank].routed);
  }
  std::vector<CLayers::Pass> reversed = own;
  for (CLayers::Pass& pass : reversed) std::reverse(pass.weights.begin(), pass.weights.end());
  EXPECT_NE(layers.forward(inputs, {}, reversed)[0].out, own[0].out);
}

TEST(CRoutingTest, TakesRoutingInEveryFormAndGivesPartsApart) {
  const std::string name = "qwen2-moe-e16k4";
  const CGolden golden(name);
  for (const std::int32_t ranks : {1, 2, 3, 4, 8}) {
    CGroup on(ranks);
    CLayers layers(on);
    layers.load(name, sized<moecl_parallel_options>());
    for (const moecl_strategy strategy : c_strategies)
      for (const int form : {0, 1, 2, 3}) {  // logits, ids, ids of 64 bits, the router; the last chooses in 64 bits
        SCOPED_TRACE(testing::Message() << ranks << " ranks, strategy " << strategy << ", form " << form);
        std::vector<std::vector<double>> out(4);
        std::vector<std::vector<double>> parts[4];
        for (auto& of_ranks : parts) of_ranks.resize(static_cast<std::size_t>(ranks));
        on.run([&](std::size_t rank, moecl_communicator*) {
          const std::int64_t each = ranks == 8 ? 5 : 11,
                             first = std::min(static_cast<std::int64_t>(rank) * each, std::int64_t{33}),
                             tokens = rank + 1 == on.streams.size() ? 33 - first : std::min(each, 33 - first);
          const auto places = static_cast<std::size_t>(layers.info(rank).places);
          const bool wide = form >= 2;
          auto args = sized<moecl_forward_args>();
          args.tokens = tokens;
          args.x = on.allocate(rank, rows_of<float>(golden.x, 64, first, tokens));
          args.ids_dtype = wide ? MOECL_I64 : MOECL_I32;
          if (form == 0) args.given_logits = on.allocate(rank, rows_of<float>(golden.logits, 16, first, tokens));
          if (form == 1) args.ids = on.allocate(rank, rows_of<std::int32_t>(golden.ids, 4, first, tokens));
          if (form == 2) args.ids = on.allocate(rank, rows_of<std::int64_t>(golden.ids, 4, first, tokens));
          if (form == 1 || form == 2)
            args.weights = on.allocate(rank, rows_of<float>(golden.weights, 4, first, tokens));
          const auto elements = static_cast<std::size_t>(tokens * 64), slots = static_cast<std::size_t>(tokens * 4);
          if (form == 3) args.topk_ids = on.allocate(rank, std::vector<std::int64_t>(slots));
          if (form != 1) args.out = on.allocate(rank, std::vector<float>(elements));
          args.routed_out = on.allocate(rank, std::vector<float>(elements));
          args.shared_out = on.allocate(rank, std::vector<float>(elements));
          args.expert_num_tokens = wide ? on.allocate(rank, std::vector<std::int64_t>(places))
                                        : on.allocate(rank, std::vector<std::int32_t>(places));
          args.expert_load = on.allocate(rank, std::vector<std::int64_t>(places, 1));  // the pass adds to these
          auto step = sized<moecl_step>();
          step.strategy = strategy;
          ASSERT_OK(moecl_parallel_layer_forward_step(layers.of_rank[rank], &args, &step));
          std::vector<double> load;
          for (const std::int64_t rows : on.read<std::int64_t>(rank, args.expert_load, places))
            load.push_back(static_cast<double>(rows - 1));
          const auto keep = [&](std::size_t part, const auto& values) {
            parts[part][rank].assign(values.begin(), values.end());
          };
          if (form != 1) keep(0, on.read(rank, args.out, elements));
          keep(1, on.read(rank, args.routed_out, elements));
          keep(2, on.read(rank, args.shared_out, elements));
          if (wide)
            keep(3, on.read<std::int64_t>(rank, args.expert_num_tokens, places));
          else
            keep(3, on.read<std::int32_t>(rank, args.expert_num_tokens, places));
          EXPECT_EQ(load, parts[3][rank]);
          if (form == 3) {
            EXPECT_EQ(on.read<std::int64_t>(rank, args.topk_ids, slots),
                      rows_of<std::int64_t>(golden.ids, 4, first, tokens));
          }
        });
        ASSERT_EQ(on.failure(), "");
        for (std::size_t part = 0; part < 4; ++part)
          for (const std::vector<double>& of_rank : parts[part])
            out[part].insert(out[part].end(), of_rank.begin(), of_rank.end());
        if (form != 1) {
          EXPECT_LE(relative_error(out[0], golden.out), 1e-5);
        }
        EXPECT_LE(relative_error(out[1], golden.routed), 1e-5);
        EXPECT_LE(relative_error(out[2], golden.shared), 1e-5);
        EXPECT_EQ(out[3], golden.counts);
      }
  }
}

}  // namespace
}  // namespace moecl::test
