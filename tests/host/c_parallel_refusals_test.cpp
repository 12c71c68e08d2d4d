// What layers over ranks refuse through the C interface.
#include <moecl/parallel_layer.h>

#include <gmock/gmock.h>

#include "tests/host/c_layers.hpp"

namespace moecl::test {
namespace {

TEST(CParallelRefusalsTest, RefusesWhatCannotBe) {
  const std::string dir = golden_dir("qwen2-moe-e16k4");
  using Options = moecl_parallel_options;
  /// A refusal ends the group, so that nobody waits for this rank.
  const auto refuses = [&](moecl_status status, const char* text, const std::function<void(Options&)>& spoil) {
    SCOPED_TRACE(text);
    CGroup on(2);
    auto options = sized<Options>();
    spoil(options);
    ParallelLayerHandle layer;
    EXPECT_FAILS(status, text,
                 moecl_parallel_layer_load(on.communicators[1], dir.c_str(), -1, &options, nullptr, layer.out()));
    EXPECT_EQ(layer, nullptr);
    EXPECT_THAT(on.failure(), testing::AllOf(testing::StartsWith("rank 1: "), testing::HasSubstr(text)));
  };
  const moecl_status invalid = MOECL_INVALID_ARGUMENT;
  refuses(invalid, "size_bytes is 0", [](Options& o) { o.size_bytes = 0; });
  refuses(invalid, "parallel.strategy: 5 is not in [0, 4]", [](Options& o) { o.strategy = 5; });
  refuses(invalid, "parallel.expert_sharding: 2 is not in [0, 1]", [](Options& o) { o.expert_sharding = 2; });
  refuses(invalid, "parallel.placement: -1 is not in [0, 1]", [](Options& o) { o.placement = -1; });
  refuses(invalid, "parallel.wire: 4 is not in [0, 3]", [](Options& o) { o.wire = 4; });
  refuses(invalid, "parallel.shared_sharding: 3 is not in [0, 2]", [](Options& o) { o.shared_sharding = 3; });
  refuses(invalid, "parallel.tp: 3 does not divide 2 ranks", [](Options& o) { o.tp = 3; });
  refuses(invalid, "parallel.pcp: 4 does not divide 2 groups of tp", [](Options& o) { o.pcp = 4; });
  refuses(invalid, "parallel.sp: 2 is neither 1 nor tp, 1", [](Options& o) { o.sp = 2; });
  refuses(invalid, "parallel.may_lack: goes with expert_of_place", [](Options& o) { o.may_lack = 1; });
  refuses(invalid, "redundant", [](Options& o) { o.redundant_experts = 1; });
  refuses(invalid, "dbo_prefill_token_threshold: -1 is negative",
          [](Options& o) { o.dbo_prefill_token_threshold = -1; });
  refuses(invalid, "dbo_decode_token_threshold: -2 is negative", [](Options& o) { o.dbo_decode_token_threshold = -2; });
  refuses(invalid, "parallel.rules: 6 is not in [0, 5]", [](Options& o) { o.rules = 6; });
  refuses(invalid, "-4 tokens", [](Options& o) { o.max_tokens = -4; });
  refuses(invalid, "nodes of 3 do not divide 2 ranks", [](Options& o) { o.ranks_per_node = 3; });
  refuses(invalid, "ranks that divide every expert have all of them",
          [](Options& o) { o.expert_sharding = MOECL_SHARD_INTERMEDIATE, o.redundant_experts = 2; });
  refuses(MOECL_UNSUPPORTED, "strategy mc2: sends tokens to whole experts",
          [](Options& o) { o.expert_sharding = MOECL_SHARD_INTERMEDIATE, o.strategy = MOECL_STRATEGY_MC2; });

  moecl_parallel_layer* made = nullptr;
  EXPECT_FAILS(invalid, "communicator: the pointer is null",
               moecl_parallel_layer_load(nullptr, dir.c_str(), -1, nullptr, nullptr, &made));
  EXPECT_FAILS(invalid, "layer: the pointer is null", moecl_parallel_layer_forward(nullptr, nullptr));
  EXPECT_FAILS(invalid, "layer: the pointer is null", moecl_parallel_layer_reload(nullptr, dir.c_str(), -1));
  EXPECT_FAILS(invalid, "layer: the pointer is null", moecl_parallel_layer_describe(nullptr, nullptr));
}

TEST(CParallelRefusalsTest, ARefusedPassEndsTheGroup) {
  const auto refuses = [](const char* text, const std::function<void(moecl_forward_args&, moecl_device_array)>& spoil) {
    SCOPED_TRACE(text);
    CGroup on(2);
    CLayers layers(on);
    layers.load("qwen2-moe-e16k4", sized<moecl_parallel_options>());
    on.run([&](std::size_t rank, moecl_communicator*) {
      auto args = sized<moecl_forward_args>();
      args.tokens = 2;
      args.x = on.allocate(rank, std::vector<float>(128));
      args.out = on.allocate(rank, std::vector<float>(128));
      if (rank == 1) spoil(args, args.out);
      const moecl_status status = moecl_parallel_layer_forward(layers.of_rank[rank], &args);
      EXPECT_EQ(status, rank == 1 ? MOECL_INVALID_ARGUMENT : MOECL_DEADLINE_EXCEEDED);
      EXPECT_THAT(moecl_last_error_message(), testing::HasSubstr(text));
    });
    EXPECT_THAT(on.failure(), testing::StartsWith("rank 1: "));
  };
  using Args = moecl_forward_args&;
  refuses("ids and weights: give both or neither", [](Args a, moecl_device_array any) { a.ids = any; });
  refuses("workspace: its size depends on max_tokens_across_dp",
          [](Args a, moecl_device_array any) { a.workspace = any; });
  refuses("workspace: workspace_bytes 8 of no cl_mem", [](Args a, moecl_device_array) { a.workspace_bytes = 8; });
  refuses("ids_dtype: expected i32 or i64, got f32", [](Args a, moecl_device_array) { a.ids_dtype = MOECL_F32; });
  refuses("logits_dtype", [](Args a, moecl_device_array) { a.logits_dtype = MOECL_I32; });
  refuses("out: absent", [](Args a, moecl_device_array) { a.out = {}; });
  refuses("give one of them", [](Args a, moecl_device_array any) { a.given_logits = a.ids = a.weights = any; });
  refuses("x: 3 rows of 256 bytes do not fit", [](Args a, moecl_device_array) { a.tokens = 3; });
  const CallersQueue other(*devices()[0]);
  cl_mem foreign = clCreateBuffer(other.context, CL_MEM_READ_WRITE, 4, nullptr, nullptr);
  refuses("finished: the cl_mem belongs to another cl_context",
          [&](Args a, moecl_device_array) { a.finished.memory = foreign; });
  clReleaseMemObject(foreign);
}

}  // namespace
}  // namespace moecl::test
