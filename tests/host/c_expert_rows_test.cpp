// A layer's experts in the caller's own exchange, through the C interface: they give the golden's routed output.
#include <moecl/run_experts.h>

#include <gmock/gmock.h>

#include "tests/host/c_layers.hpp"

namespace moecl::test {
namespace {

using DispatcherHandle = Handle<moecl_token_dispatcher, moecl_token_dispatcher_destroy>;

constexpr std::int64_t qwen_hidden = 64, qwen_top_k = 4;
constexpr std::int32_t qwen_experts = 16;
constexpr const char* qwen_name = "qwen2-moe-e16k4";

/// One rank: a dispatcher sends its tokens, the layer's experts compute the rows, the dispatcher combines the results.
class RankedExperts {
 public:
  RankedExperts(CGroup& on, std::size_t rank, moecl_parallel_layer* layer, const CGolden& golden, std::int64_t first,
                std::int64_t tokens)
      : on_(on),
        rank_(rank),
        layer_(layer),
        tokens_(tokens),
        x_(on.allocate(rank, rows_of<float>(golden.x, qwen_hidden, first, tokens))),
        ids_(on.allocate(rank, rows_of<std::int64_t>(golden.ids, qwen_top_k, first, tokens))),
        weights_(on.allocate(rank, rows_of<float>(golden.weights, qwen_top_k, first, tokens))) {}

  /// @param options  the caller sets the strategy, the layout, and whether experts weight and sum
  std::vector<float> pass(moecl_communicator* communicator, moecl_token_dispatcher_options options) {
    options.hidden = qwen_hidden;
    options.experts = qwen_experts;
    options.top_k = static_cast<std::int32_t>(qwen_top_k);
    DispatcherHandle dispatcher;
    EXPECT_OK(moecl_token_dispatcher_create(communicator, &options, dispatcher.out()));
    auto args = sized<moecl_dispatch_args>();
    args.tokens = tokens_;
    args.x = x_;
    args.ids = ids_;
    args.ids_dtype = MOECL_I64;
    args.weights = weights_;
    auto rows = sized<moecl_routed_rows>();
    EXPECT_OK(moecl_token_dispatch(dispatcher, &args, &rows));
    const moecl_device_array out =
        on_.allocate(rank_, std::vector<float>(static_cast<std::size_t>(tokens_ * qwen_hidden)));
    EXPECT_OK(moecl_token_combine(dispatcher, experts_on(rows), out));
    return on_.read(rank_, out, static_cast<std::size_t>(tokens_ * qwen_hidden));
  }

 private:
  moecl_device_array experts_on(const moecl_routed_rows& rows) {
    const bool sums = rows.slot_rows.memory != nullptr;
    std::uint64_t bytes = 0;
    EXPECT_OK(moecl_parallel_layer_experts_workspace_bytes(layer_, rows.rows, rows.tokens * rows.slots, &bytes));
    auto args = sized<moecl_expert_args>();
    args.rows = &rows;
    args.out = on_.allocate(
        rank_, std::vector<float>(static_cast<std::size_t>((sums ? rows.tokens : rows.rows) * qwen_hidden), -1));
    args.workspace = on_.allocate(rank_, std::vector<std::uint8_t>(bytes));
    EXPECT_OK(moecl_parallel_layer_run_experts(layer_, &args, 0, nullptr, nullptr));
    return args.out;
  }

  CGroup& on_;
  std::size_t rank_;
  moecl_parallel_layer* layer_;
  std::int64_t tokens_;
  moecl_device_array x_, ids_, weights_;
};

TEST(CExpertRowsTest, AreTheGoldenBetweenDispatchAndCombine) {
  const CGolden golden(qwen_name);
  for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
    CGroup on(static_cast<std::int32_t>(ranks));
    CLayers layers(on);
    layers.load(qwen_name, sized<moecl_parallel_options>());
    for (const moecl_strategy strategy : c_strategies)
      for (const moecl_expert_output output : {MOECL_EXPERT_ROWS, MOECL_EXPERT_WEIGHTED_ROWS, MOECL_EXPERT_SUMS})
        for (const std::int32_t batched : {0, 1}) {
          SCOPED_TRACE(testing::Message() << ranks << " ranks, strategy " << strategy << ", experts give " << output
                                          << ", batched " << batched);
          std::vector<std::vector<float>> of_rank(static_cast<std::size_t>(ranks));
          on.run([&](std::size_t rank, moecl_communicator* communicator) {
            const std::int64_t r = static_cast<std::int64_t>(rank), first = 33 * r / ranks,
                               tokens = 33 * (r + 1) / ranks - first;
            auto options = sized<moecl_token_dispatcher_options>();
            options.strategy = strategy;
            options.expert_output = output;
            options.batched = batched;
            of_rank[rank] =
                RankedExperts(on, rank, layers.of_rank[rank], golden, first, tokens).pass(communicator, options);
          });
          ASSERT_EQ(on.failure(), "");
          std::vector<double> routed;
          for (const std::vector<float>& rows : of_rank) routed.insert(routed.end(), rows.begin(), rows.end());
          EXPECT_LE(relative_error(routed, golden.routed), 1e-5);
        }
  }
}

// A runtime with a dispatch of its own: x [E, M, L] with counts, on one device.
TEST(CExpertRowsTest, TakeTheCallersBatches) {
  constexpr std::int64_t room = 33;
  const CGolden golden(qwen_name);
  CGroup on(1);
  LayerHandle layer;
  ASSERT_OK(moecl_layer_load(on.streams[0], golden_dir(qwen_name).c_str(), -1, nullptr, layer.out()));
  std::vector<float> x(static_cast<std::size_t>(qwen_experts * room * qwen_hidden),
                       std::numeric_limits<float>::quiet_NaN());
  std::vector<std::int64_t> counts(qwen_experts), row_of_slot;
  for (std::size_t slot = 0; slot < golden.ids.size(); ++slot) {
    const auto id = static_cast<std::int64_t>(golden.ids[slot]);
    const std::int64_t row = id * room + counts[static_cast<std::size_t>(id)]++;
    std::copy_n(golden.x.begin() + static_cast<std::ptrdiff_t>(slot) / qwen_top_k * qwen_hidden, qwen_hidden,
                x.begin() + row * qwen_hidden);
    row_of_slot.push_back(row);
  }
  auto rows = sized<moecl_routed_rows>();
  rows.rows = rows.source_rows = qwen_experts * room;
  rows.rows_per_expert = room;
  rows.x = on.allocate(0, x);
  auto args = sized<moecl_expert_args>();
  args.rows = &rows;
  args.expert_num_tokens = on.allocate(0, counts);
  args.expert_num_tokens_dtype = MOECL_I64;
  args.expected_rows = 33 * qwen_top_k;
  args.out = on.allocate(0, std::vector<float>(x.size()));
  std::uint64_t bytes = 0;
  ASSERT_OK(moecl_layer_experts_workspace_bytes(layer, rows.rows, 0, &bytes));
  args.workspace = on.allocate(0, std::vector<std::uint8_t>(bytes));
  args.fault = on.allocate(0, std::vector<std::int32_t>(4));
  cl_event done = nullptr;
  ASSERT_OK(moecl_layer_run_experts(layer, on.streams[0], &args, 0, nullptr, &done));
  EXPECT_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
  clReleaseEvent(done);
  ASSERT_OK(moecl_check_fault(on.streams[0], args.fault));
  const std::vector<float> given = on.read(0, args.out, x.size());
  std::vector<double> routed(golden.routed.size());
  for (std::size_t slot = 0; slot < row_of_slot.size(); ++slot)
    for (std::int64_t h = 0; h < qwen_hidden; ++h)
      routed[slot / qwen_top_k * qwen_hidden + static_cast<std::size_t>(h)] +=
          golden.weights[slot] *
          static_cast<double>(given[static_cast<std::size_t>(row_of_slot[slot] * qwen_hidden + h)]);
  EXPECT_LE(relative_error(routed, golden.routed), 1e-5);

  const auto refused = [&](const char* text, const std::function<void(moecl_routed_rows&, moecl_expert_args&)>& spoil) {
    moecl_routed_rows bad = rows;
    moecl_expert_args with = args;
    with.rows = &bad;
    spoil(bad, with);
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, text,
                 moecl_layer_run_experts(layer, on.streams[0], &with, 0, nullptr, nullptr));
  };
  using Rows = moecl_routed_rows&;
  using Args = moecl_expert_args&;
  refused("args.rows: the pointer is null", [](Rows, Args a) { a.rows = nullptr; });
  refused("args.rows: -1 rows", [](Rows r, Args) { r.rows = -1; });
  refused("rows: 528 of 16 experts with room for 32 each", [](Rows r, Args) { r.rows_per_expert = 32; });
  refused("give one of them", [](Rows r, Args a) { r.row_ends = a.expert_num_tokens; });
  refused("out_dtype", [](Rows, Args a) { a.out_dtype = MOECL_I8; });
  refused("expert_num_tokens_dtype: expected i32 or i64", [](Rows, Args a) { a.expert_num_tokens_dtype = MOECL_F16; });
  refused("x_group: -1 is negative", [](Rows r, Args a) { r.x_scale = r.x, a.x_group = -1; });
  refused("workspace: workspace_bytes 8 of no cl_mem", [](Rows, Args a) { a.workspace = {}, a.workspace_bytes = 8; });
}

}  // namespace
}  // namespace moecl::test
