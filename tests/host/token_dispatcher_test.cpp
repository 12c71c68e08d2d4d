// Strategies around experts of the caller's own through the C interface: expert e multiplies its rows by e + 1.
#include <moecl/f16.hpp>
#include <moecl/token_dispatcher.h>

#include <gmock/gmock.h>

#include "tests/host/c_group.hpp"

namespace moecl::test {
namespace {

using DispatcherHandle = Handle<moecl_token_dispatcher, moecl_token_dispatcher_destroy>;

constexpr std::int64_t tokens = 5, hidden = 8;
constexpr std::int32_t top_k = 2, experts = 5;

float input(std::size_t dp_rank, std::size_t element) { return static_cast<float>(dp_rank * 100 + element); }
std::int32_t expert_of(std::size_t dp_rank, std::size_t slot) {
  return slot == 3 ? -1 : static_cast<std::int32_t>((dp_rank + 2 * slot) % experts);
}

moecl_token_dispatcher_options options_of(moecl_strategy strategy) {
  auto options = sized<moecl_token_dispatcher_options>();
  options.hidden = hidden;
  options.experts = experts;
  options.top_k = top_k;
  options.strategy = strategy;
  return options;
}

/// @param dtype  MOECL_F32 or MOECL_F16
moecl_dispatch_args tokens_of(CGroup& on, std::size_t rank, std::size_t dp_rank, moecl_dtype dtype = MOECL_F32) {
  std::vector<float> x, weights;
  std::vector<std::uint16_t> halves;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < tokens * hidden; ++i) x.push_back(input(dp_rank, i));
  for (const float value : x) halves.push_back(f16_from_f32(value));
  for (std::size_t slot = 0; slot < tokens * top_k; ++slot) {
    ids.push_back(expert_of(dp_rank, slot));
    weights.push_back(slot % 2 == 0 ? 2 : 0.5F);
  }
  auto args = sized<moecl_dispatch_args>();
  args.tokens = tokens;
  args.x = dtype == MOECL_F16 ? on.allocate(rank, halves) : on.allocate(rank, x);
  args.ids = on.allocate(rank, ids);
  args.weights = on.allocate(rank, weights);
  return args;
}

/// The same ids in 64 bits.
void widen_ids(CGroup& on, std::size_t rank, moecl_dispatch_args& args) {
  const auto ids = on.read<std::int32_t>(rank, args.ids, static_cast<std::size_t>(args.tokens * top_k));
  args.ids = on.allocate(rank, std::vector<std::int64_t>(ids.begin(), ids.end()));
  args.ids_dtype = MOECL_I64;
}

/// What the experts give back: their result rows or, if they sum, the sum of each token's rows.
std::vector<float> results_of(CGroup& on, std::size_t rank, const moecl_routed_rows& rows,
                              const std::vector<float>& results) {
  if (rows.slot_rows.memory == nullptr) return results;
  const auto slots = on.read<std::int32_t>(rank, rows.slot_rows, static_cast<std::size_t>(rows.tokens * rows.slots));
  std::vector<float> sums(static_cast<std::size_t>(rows.tokens * hidden));
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    for (std::size_t h = 0; slots[slot] >= 0 && h < hidden; ++h)
      sums[slot / static_cast<std::size_t>(rows.slots) * hidden + h] +=
          results[static_cast<std::size_t>(slots[slot]) * hidden + h];
  return sums;
}

/// Runs a rank's experts on the rows. They also multiply each row by the weight that came with it, if any.
moecl_device_array run_experts(CGroup& on, std::size_t rank, const moecl_routed_rows& rows,
                               moecl_dtype dtype = MOECL_F32) {
  const auto elements = static_cast<std::size_t>(rows.source_rows * hidden);
  std::vector<float> x;
  if (dtype == MOECL_F16)
    for (const std::uint16_t half : on.read<std::uint16_t>(rank, rows.x, elements)) x.push_back(f16_to_f32(half));
  else
    x = on.read(rank, rows.x, elements);
  const auto index = on.read<std::int32_t>(rank, rows.index, static_cast<std::size_t>(rows.rows));
  const auto ends = on.read<std::int32_t>(rank, rows.row_ends, static_cast<std::size_t>(rows.local_experts));
  std::vector<float> weights(static_cast<std::size_t>(rows.rows), 1);
  if (rows.weights.memory != nullptr) weights = on.read(rank, rows.weights, weights.size());
  std::vector<float> results(static_cast<std::size_t>(rows.rows * hidden), -1);
  std::size_t row = 0;
  for (std::int32_t e = 0; e < rows.local_experts; ++e)
    for (; row < static_cast<std::size_t>(ends[static_cast<std::size_t>(e)]); ++row)
      for (std::size_t h = 0; h < hidden; ++h)
        results[row * hidden + h] = x[static_cast<std::size_t>(index[row] / rows.index_divisor) * hidden + h] *
                                    static_cast<float>(rows.first_expert + e + 1) * weights[row];
  return on.allocate(rank, results_of(on, rank, rows, results));
}

/// Each strategy with experts that weight, and with experts that sum.
std::vector<std::pair<moecl_strategy, moecl_expert_output>> strategies_and_outputs() {
  std::vector<std::pair<moecl_strategy, moecl_expert_output>> all;
  for (const moecl_strategy strategy :
       {MOECL_STRATEGY_MC2, MOECL_STRATEGY_ALL_GATHER, MOECL_STRATEGY_ALL2ALL_V, MOECL_STRATEGY_MULTICAST})
    for (const moecl_expert_output output : {MOECL_EXPERT_WEIGHTED_ROWS, MOECL_EXPERT_SUMS})
      all.emplace_back(strategy, output);
  return all;
}

std::vector<float> expected_of(std::size_t dp_rank, bool weighted = true) {
  std::vector<float> out;
  for (std::size_t i = 0; i < tokens * hidden; ++i) {
    const std::size_t slot = i / hidden * top_k;
    out.push_back(input(dp_rank, i) * ((weighted ? 2 : 1) * static_cast<float>(expert_of(dp_rank, slot) + 1) +
                                       (weighted ? 0.5F : 1) * static_cast<float>(expert_of(dp_rank, slot + 1) + 1)));
  }
  return out;
}

TEST(CTokenDispatcher, EveryStrategyBringsSumsHome) {
  for (const std::int32_t ranks : {1, 2, 3, 4})
    for (const std::int32_t tp : {1, 2}) {
      if (ranks % tp != 0) continue;
      CGroup on(ranks);
      for (const moecl_strategy strategy :
           {MOECL_STRATEGY_MC2, MOECL_STRATEGY_ALL_GATHER, MOECL_STRATEGY_ALL2ALL_V, MOECL_STRATEGY_MULTICAST})
        for (const std::int32_t in_steps : {0, 1}) {
          SCOPED_TRACE(testing::Message()
                       << ranks << " ranks, tp " << tp << ", strategy " << strategy << ", in steps " << in_steps);
          on.run([&](std::size_t rank, moecl_communicator* communicator) {
            moecl_token_dispatcher_options options = options_of(strategy);
            options.tp = tp;
            options.beside = options.partial_sums = in_steps;
            DispatcherHandle dispatcher;
            ASSERT_OK(moecl_token_dispatcher_create(communicator, &options, dispatcher.out()));
            const std::size_t dp_rank = rank / static_cast<std::size_t>(tp);
            const moecl_device_array out = on.allocate(rank, std::vector<float>(tokens * hidden, -1));
            for (const bool wide : {false, true}) {
              moecl_dispatch_args args = tokens_of(on, rank, dp_rank);
              if (wide) widen_ids(on, rank, args);
              args.fault = on.allocate(rank, std::vector<std::int32_t>(4));
              auto rows = sized<moecl_routed_rows>();
              if (in_steps == 0) {
                ASSERT_OK(moecl_token_dispatch(dispatcher, &args, &rows));
                ASSERT_OK(moecl_token_combine(dispatcher, run_experts(on, rank, rows), out));
              } else {
                ASSERT_OK(moecl_begin_dispatch(dispatcher, &args));
                ASSERT_OK(moecl_dispatch_hook(dispatcher));
                ASSERT_OK(moecl_receive_dispatch(dispatcher, &rows));
                ASSERT_OK(moecl_begin_combine(dispatcher, run_experts(on, rank, rows), out));
                ASSERT_OK(moecl_finish_combine(dispatcher));
              }
              ASSERT_OK(moecl_check_fault(on.streams[rank], args.fault));
              if (in_steps != 0 && tp > 1) {  // out has a part of the tp group's sums
                const std::int32_t first = static_cast<std::int32_t>(dp_rank) * tp, members[] = {first, first + 1};
                CommunicatorHandle group;
                ASSERT_OK(moecl_communicator_part(communicator, members, 2, group.out()));
                ASSERT_OK(moecl_all_reduce(group, out, MOECL_F32, tokens, hidden));
              }
              EXPECT_EQ(on.read(rank, out, tokens * hidden), expected_of(dp_rank)) << "rank " << rank;
            }
          });
          ASSERT_EQ(on.failure(), "");
        }
    }
}

// The experts weight, so the weights travel with the rows, over nodes too. The strategy then adds without weights, or
// the experts sum as well.
TEST(CTokenDispatcher, ExpertsWeightAndSumTheirRowsInEveryStrategy) {
  struct Setting {
    std::int32_t ranks, tp, ranks_per_node, weighted;
    moecl_dtype dtype;  ///< MC2 brings sums home for 16-bit tokens, rows for f32
  };
  for (const Setting& setting :
       {Setting{1, 1, 0, 1, MOECL_F32}, Setting{3, 1, 0, 1, MOECL_F32}, Setting{4, 2, 0, 1, MOECL_F32},
        Setting{4, 1, 2, 1, MOECL_F32}, Setting{2, 1, 0, 0, MOECL_F32}, Setting{2, 1, 0, 1, MOECL_F16}}) {
    CGroup on(setting.ranks);
    for (const auto& [strategy, output] : strategies_and_outputs()) {
      SCOPED_TRACE(testing::Message() << setting.ranks << " ranks, tp " << setting.tp << ", strategy " << strategy
                                      << ", dtype " << setting.dtype << ", weighted " << setting.weighted
                                      << ", experts give " << output);
      on.run([&, strategy = strategy, output = output](std::size_t rank, moecl_communicator* communicator) {
        moecl_token_dispatcher_options options = options_of(strategy);
        options.tp = setting.tp;
        options.ranks_per_node = setting.ranks_per_node;
        options.dtype = setting.dtype;
        options.expert_output = output;
        DispatcherHandle dispatcher;
        ASSERT_OK(moecl_token_dispatcher_create(communicator, &options, dispatcher.out()));
        const std::size_t dp_rank = rank / static_cast<std::size_t>(setting.tp);
        moecl_dispatch_args args = tokens_of(on, rank, dp_rank, setting.dtype);
        if (setting.weighted == 0) args.weights = {};
        auto rows = sized<moecl_routed_rows>();
        ASSERT_OK(moecl_token_dispatch(dispatcher, &args, &rows));
        ASSERT_EQ(rows.weights.memory != nullptr, setting.weighted != 0);
        ASSERT_EQ(rows.slot_rows.memory != nullptr, output == MOECL_EXPERT_SUMS);
        const moecl_device_array out = on.allocate(rank, std::vector<float>(tokens * hidden, -1));
        ASSERT_OK(moecl_token_combine(dispatcher, run_experts(on, rank, rows, setting.dtype), out));
        EXPECT_EQ(on.read(rank, out, tokens * hidden), expected_of(dp_rank, setting.weighted != 0)) << "rank " << rank;
      });
      ASSERT_EQ(on.failure(), "");
    }
  }
}

// Rows in room of equal size for each expert, with their weights, in a step that the ranks agreed about by themselves.
TEST(CTokenDispatcher, BatchedRowsOfCountsThatAreKnown) {
  constexpr std::int64_t room = 12;
  const std::int64_t known[] = {tokens, tokens};
  CGroup on(2);
  for (const auto& [strategy, output] : strategies_and_outputs()) {
    SCOPED_TRACE(testing::Message() << strategy << ", experts give " << output);
    on.run([&, strategy = strategy, output = output](std::size_t rank, moecl_communicator* communicator) {
      moecl_token_dispatcher_options options = options_of(strategy);
      options.batched = 1;
      options.expert_output = output;
      options.rows_per_expert = room;
      DispatcherHandle dispatcher;
      ASSERT_OK(moecl_token_dispatcher_create(communicator, &options, dispatcher.out()));
      moecl_dispatch_args args = tokens_of(on, rank, rank);
      args.tokens_of_ranks = known;
      args.capacity = tokens + 1;
      auto rows = sized<moecl_routed_rows>();
      ASSERT_OK(moecl_token_dispatch(dispatcher, &args, &rows));
      ASSERT_EQ(rows.rows_per_expert, room);
      ASSERT_EQ(rows.rows, room * rows.local_experts);
      const auto x = on.read(rank, rows.x, static_cast<std::size_t>(rows.rows * hidden));
      const auto ends = on.read<std::int32_t>(rank, rows.row_ends, static_cast<std::size_t>(rows.local_experts));
      const auto weights = on.read(rank, rows.weights, static_cast<std::size_t>(rows.rows));
      std::vector<float> results(x.size(), -1);
      for (std::int32_t e = 0; e < rows.local_experts; ++e) {
        const std::int32_t count =
            ends[static_cast<std::size_t>(e)] - (e == 0 ? 0 : ends[static_cast<std::size_t>(e - 1)]);
        for (std::int64_t i = e * room * hidden; i < (e * room + count) * hidden; ++i)
          results[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(i)] *
                                                 static_cast<float>(rows.first_expert + e + 1) *
                                                 weights[static_cast<std::size_t>(i / hidden)];
      }
      const moecl_device_array out = on.allocate(rank, std::vector<float>(tokens * hidden, -1));
      ASSERT_OK(moecl_token_combine(dispatcher, on.allocate(rank, results_of(on, rank, rows, results)), out));
      EXPECT_EQ(on.read(rank, out, tokens * hidden), expected_of(rank)) << "rank " << rank;
    });
    ASSERT_EQ(on.failure(), "");
  }
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    DispatcherHandle dispatcher;
    moecl_token_dispatcher_options options = options_of(MOECL_STRATEGY_MC2);
    options.batched = 1;
    options.rows_per_expert = 9;
    ASSERT_OK(moecl_token_dispatcher_create(communicator, &options, dispatcher.out()));
    moecl_dispatch_args args = tokens_of(on, rank, rank);
    args.tokens_of_ranks = known;
    auto rows = sized<moecl_routed_rows>();
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "an expert has room for 9 rows, and 10 tokens may choose it",
                 moecl_token_dispatch(dispatcher, &args, &rows));
  });
}

TEST(CTokenDispatcher, IdsOf64BitsThatAreNoExpertsAreAFault) {
  CGroup on(1);
  for (const moecl_strategy strategy :
       {MOECL_STRATEGY_MC2, MOECL_STRATEGY_ALL_GATHER, MOECL_STRATEGY_ALL2ALL_V, MOECL_STRATEGY_MULTICAST}) {
    SCOPED_TRACE(strategy);
    const moecl_token_dispatcher_options options = options_of(strategy);
    DispatcherHandle dispatcher;
    ASSERT_OK(moecl_token_dispatcher_create(on.communicators[0], &options, dispatcher.out()));
    moecl_dispatch_args args = tokens_of(on, 0, 0);
    args.ids_dtype = MOECL_I64;
    std::vector<std::int64_t> ids(tokens * top_k, -1);
    ids[3] = (std::int64_t{1} << 32) + 2;  // expert 2, if the upper half were lost
    args.ids = on.allocate(0, ids);
    args.fault = on.allocate(0, std::vector<std::int32_t>(4));
    auto rows = sized<moecl_routed_rows>();
    ASSERT_OK(moecl_token_dispatch(dispatcher, &args, &rows));
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "index 3 of the list is 2147483647, which is out of range",
                 moecl_check_fault(on.streams[0], args.fault));
    const moecl_device_array out = on.allocate(0, std::vector<float>(tokens * hidden, -1));
    ASSERT_OK(moecl_token_combine(dispatcher, run_experts(on, 0, rows), out));
    EXPECT_THAT(on.read(0, out, tokens * hidden), testing::Each(0));
  }
  DispatcherHandle dispatcher;
  const moecl_token_dispatcher_options options = options_of(MOECL_STRATEGY_MC2);
  ASSERT_OK(moecl_token_dispatcher_create(on.communicators[0], &options, dispatcher.out()));
  moecl_dispatch_args args = tokens_of(on, 0, 0);
  args.ids_dtype = MOECL_F32;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "ids_dtype: expected i32 or i64, got f32",
               moecl_begin_dispatch(dispatcher, &args));
}

TEST(CTokenDispatcher, RanksThatDisagreeAboutWhoWeightsAllFail) {
  CGroup on(2);
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    moecl_token_dispatcher_options options = options_of(MOECL_STRATEGY_ALL2ALL_V);
    options.expert_output = rank == 0 ? MOECL_EXPERT_ROWS : MOECL_EXPERT_SUMS;
    DispatcherHandle dispatcher;
    ASSERT_OK(moecl_token_dispatcher_create(communicator, &options, dispatcher.out()));
    const moecl_dispatch_args args = tokens_of(on, rank, rank);
    auto rows = sized<moecl_routed_rows>();
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "expert_output: rank 1 has sums, rank 0 has rows",
                 moecl_token_dispatch(dispatcher, &args, &rows));
  });
}

// What TokenDispatcherWithAll2AllV computes with torch.histc and torch.repeat_interleave, for two ranks with 3 experts.
TEST(CTokenDispatcher, CountsOfExpertsAndExpertsOfRows) {
  CGroup on(1);
  moecl_stream* const stream = on.streams[0];
  const std::vector<std::int32_t> ids = {3, -1, 0, 5, 3, 6, 3}, expected = {1, 0, 0, 3, 0, 1};
  const moecl_device_array counts = on.allocate(0, std::vector<std::int32_t>(6, 77));
  ASSERT_OK(moecl_histogram(stream, on.allocate(0, ids), 0, 7, counts, 6));
  EXPECT_EQ(on.read<std::int32_t>(0, counts, 6), expected);
  const moecl_device_array wide = on.allocate(0, std::vector<std::int64_t>(ids.begin(), ids.end()));
  ASSERT_OK(moecl_histogram(stream, wide, MOECL_I64, 7, counts, 6));
  EXPECT_EQ(on.read<std::int32_t>(0, counts, 6), expected);

  const moecl_device_array ends = on.allocate<std::int32_t>(0, {2, 2, 3, 3, 4, 6}),
                           experts = on.allocate(0, std::vector<std::int32_t>(7));
  ASSERT_OK(moecl_repeat_interleave(stream, ends, 6, 3, experts, 7));
  EXPECT_EQ(on.read<std::int32_t>(0, experts, 7), (std::vector<std::int32_t>{0, 0, 2, 1, 2, 2, -1}));
  ASSERT_OK(moecl_repeat_interleave(stream, ends, 6, 3, {}, 0));

  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "experts: 0 is not positive", moecl_histogram(stream, ends, 0, 6, counts, 0));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "ids_dtype: expected i32 or i64, got f32",
               moecl_histogram(stream, ends, MOECL_F32, 6, counts, 6));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "counts", moecl_histogram(stream, ends, 0, 6, {}, 6));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "modulus: 0", moecl_repeat_interleave(stream, ends, 6, 0, experts, 6));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "stream", moecl_repeat_interleave(nullptr, ends, 6, 3, experts, 6));
}

TEST(CTokenDispatcher, RefusesWhatCannotBe) {
  const auto refuses = [](const char* text, const std::function<void(moecl_token_dispatcher_options&)>& spoil) {
    SCOPED_TRACE(text);
    CGroup on(1);
    moecl_token_dispatcher_options options = options_of(MOECL_STRATEGY_MC2);
    spoil(options);
    DispatcherHandle dispatcher;
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, text,
                 moecl_token_dispatcher_create(on.communicators[0], &options, dispatcher.out()));
    EXPECT_EQ(dispatcher, nullptr);
  };
  using Options = moecl_token_dispatcher_options;
  refuses("options.strategy: 0 is not in [1, 4]", [](Options& o) { o.strategy = MOECL_STRATEGY_AUTO; });
  refuses("options.experts: 0 is not positive", [](Options& o) { o.experts = 0; });
  refuses("options.dtype", [](Options& o) { o.dtype = MOECL_I8; });
  refuses("options.wire: 4 is not in [0, 3]", [](Options& o) { o.wire = 4; });
  refuses("options.expert_output: 3 is not in [0, 2]", [](Options& o) { o.expert_output = 3; });
  refuses("options.rows_per_expert: -1 is negative", [](Options& o) { o.rows_per_expert = -1; });
  refuses("top_k 6 of 5 experts", [](Options& o) { o.top_k = 6; });
  refuses("tp 2 does not divide 1 ranks", [](Options& o) { o.tp = 2; });

  CGroup on(1);
  DispatcherHandle dispatcher;
  const moecl_token_dispatcher_options options = options_of(MOECL_STRATEGY_ALL_GATHER);
  ASSERT_OK(moecl_token_dispatcher_create(on.communicators[0], &options, dispatcher.out()));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "dispatcher: begin_dispatch comes next, not begin_combine",
               moecl_token_combine(dispatcher, {}, {}));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "dispatcher: the pointer is null", moecl_dispatch_hook(nullptr));
}

}  // namespace
}  // namespace moecl::test
