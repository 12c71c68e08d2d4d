// Layers whose tensors come one by one, and single experts out of them, through the C interface.
#include <moecl/layer_builder.h>

#include <gmock/gmock.h>

#include "tests/devices.hpp"
#include "tests/host/c_golden.hpp"
#include "tests/host/c_group.hpp"

namespace moecl::test {
namespace {

using BuilderHandle = Handle<moecl_layer_builder, moecl_layer_builder_destroy>;
using ParallelHandle = Handle<moecl_parallel_layer, moecl_parallel_layer_destroy>;

std::int32_t c_number(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return MOECL_F16;
    case DType::bf16:
      return MOECL_BF16;
    case DType::i8:
      return MOECL_I8;
    case DType::u8:
      return MOECL_U8;
    case DType::i32:
      return MOECL_I32;
    case DType::i64:
      return MOECL_I64;
    case DType::f8_e4m3:
      return MOECL_F8_E4M3;
    default:
      EXPECT_EQ(dtype, DType::f32);
      return MOECL_F32;
  }
}

std::vector<HostTensor> tensors_of(const char* golden) {
  const SafetensorsFile file = SafetensorsFile::open(golden_dir(golden) + "/model.safetensors");
  std::vector<HostTensor> tensors;
  for (const std::string& name : file.names()) tensors.push_back(file.tensor(name).in_memory());
  return tensors;
}

moecl_named_tensor c_tensor(const HostTensor& from) {
  auto tensor = sized<moecl_named_tensor>();
  tensor.name = from.name.c_str();
  tensor.dtype = c_number(from.dtype);
  tensor.rank = static_cast<std::int32_t>(from.shape.size());
  std::copy(from.shape.begin(), from.shape.end(), tensor.shape);
  tensor.data = from.data.memory();
  return tensor;
}

class CLayerBuilderTest : public OnEveryDevice {
 protected:
  void SetUp() override {
    ASSERT_OK(moecl_context_wrap(device().context->handle(), nullptr, context_.out()));
    ASSERT_OK(moecl_stream_wrap(context_, device().stream.view().queue, stream_.out()));
    options_.dtype = MOECL_F32;
    options_.plain_activations = 1;
  }
  void check(moecl_layer* layer, const char* golden) {
    auto info = sized<moecl_layer_info>();
    ASSERT_OK(moecl_layer_describe(layer, &info));
    const std::vector<double> input = golden_values(golden, "hidden_states");
    const std::int64_t tokens = static_cast<std::int64_t>(input.size()) / info.hidden;
    std::uint64_t bytes = 0;
    ASSERT_OK(moecl_layer_workspace_bytes(layer, tokens, &bytes));
    const GuardedTensor x = upload(device(), DType::f32, {tokens, info.hidden}, input);
    const GuardedTensor out(device(), DType::f32, {tokens, info.hidden});
    const Buffer workspace(*device().context, bytes);
    auto args = sized<moecl_forward_args>();
    args.tokens = tokens;
    args.x = {x.view().buffer.handle, x.view().buffer.offset_bytes};
    args.out = {out.view().buffer.handle, out.view().buffer.offset_bytes};
    args.workspace = {workspace.handle(), 0};
    ASSERT_OK(moecl_layer_forward(layer, stream_, &args, 0, nullptr, nullptr));
    EXPECT_LE(relative_error(out.values(), golden_values(golden, "output")), 1e-5);
  }
  std::int32_t missing(const BuilderHandle& builder, std::string* names = nullptr) {
    std::int32_t count = -1;
    char text[4096] = "";
    EXPECT_OK(moecl_layer_builder_missing(builder, &count, text, sizeof(text)));
    if (names != nullptr) *names = text;
    return count;
  }

  ContextHandle context_;
  StreamHandle stream_;
  moecl_layer_options options_ = sized<moecl_layer_options>();
};
MOECL_ON_EVERY_DEVICE(CLayerBuilderTest);

TEST_P(CLayerBuilderTest, IsTheGoldenByTheNamesOfTheCheckpoint) {
  for (const char* golden : {"qwen2-moe-e16k4", "gpt-oss-mxfp4-e8k4", "deepseek-v3-fp8block-e8k4",
                             "qwen3-moe-gptq-e8k4", "qwen3-moe-ct-nvfp4-e8k2"}) {
    SCOPED_TRACE(golden);
    BuilderHandle builder;
    ASSERT_OK(
        moecl_layer_builder_open(stream_, (golden_dir(golden) + "/config.json").c_str(), -1, &options_, builder.out()));
    std::int32_t others = 0;
    for (const HostTensor& tensor : tensors_of(golden)) {
      // Memory that is not lent may change once the call returns.
      std::vector<std::byte> bytes(tensor.data.memory(), tensor.data.memory() + tensor.size_bytes);
      moecl_named_tensor given = c_tensor(tensor);
      given.data = bytes.data();
      std::int32_t taken = -1;
      ASSERT_OK(moecl_layer_builder_set(builder, &given, &taken));
      others += 1 - taken;
      std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
    }
    EXPECT_GT(others, 0);  // the file has more of the model than this layer
    EXPECT_EQ(missing(builder), 0);
    LayerHandle layer;
    ASSERT_OK(moecl_layer_builder_finish(builder, layer.out()));
    check(layer, golden);
  }
}

TEST_P(CLayerBuilderTest, TakesShardsAndExpertsFromDeviceMemory) {
  const char* const golden = "mixtral-awq-e4k2";
  const MoeLayerConfig config = Checkpoint::open(golden_dir(golden)).config().layer(0);
  auto desc = sized<moecl_layer_desc>();
  desc.hidden = config.shape.hidden;
  desc.intermediate = config.shape.intermediate;
  desc.experts = config.shape.experts;
  desc.top_k = config.shape.router.top_k;
  desc.renormalise = 1;
  desc.router.data = &desc;  // not null: a router will come
  auto stored = sized<moecl_stored_weights>();
  stored.form = MOECL_FORM_AWQ;
  stored.weights.dtype = MOECL_U4;
  stored.weights.group_columns = 128;
  stored.weights.zero_points = 1;
  BuilderHandle builder;
  ASSERT_OK(moecl_layer_builder_create(stream_, &desc, &stored, &options_, builder.out()));
  std::string names;
  EXPECT_EQ(missing(builder, &names), 1 + 4 * 3 * 3);
  EXPECT_EQ(names.rfind("router.weight\nexperts.0.w1.qweight\n", 0), 0U) << names;
  LayerHandle layer;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "37 tensors are missing: router.weight, ",
               moecl_layer_builder_finish(builder, layer.out()));

  const std::string prefix = "model.layers.0.block_sparse_moe.", experts = prefix + "experts.";
  for (const HostTensor& tensor : tensors_of(golden)) {
    if (tensor.name.rfind(prefix, 0) != 0) continue;
    moecl_named_tensor given = c_tensor(tensor);
    const std::string rest = tensor.name.substr(tensor.name.rfind(experts, 0) == 0 ? experts.size() : prefix.size());
    const std::string shard = rest.substr(2, 2), name = rest.substr(rest.rfind('.') + 1);
    given.name = name.c_str();
    given.shard = rest[0] == 'g' ? "router" : shard.c_str();
    given.expert = rest[0] == 'g' ? 0 : rest[0] - '0';
    const Buffer memory(*device().context, tensor.size_bytes);
    enqueue_write(device().stream, memory.view(), tensor.data.memory(), tensor.size_bytes);
    given.data = nullptr;
    given.memory = {memory.handle(), 0};
    ASSERT_OK(moecl_layer_builder_set(builder, &given, nullptr));
  }
  ASSERT_OK(moecl_layer_builder_finish(builder, layer.out()));
  check(layer, golden);

  // Exports an expert as numbers; packs it and puts it back into its place.
  const MoeShape& shape = config.shape;
  const auto numbers = static_cast<std::size_t>(shape.hidden * shape.intermediate);
  std::vector<float> gate(numbers), up(numbers), down(numbers), before;
  auto plain = sized<moecl_plain_expert>();
  plain.gate = gate.data();
  plain.up = up.data();
  plain.down = down.data();
  ASSERT_OK(moecl_layer_export_expert(layer, stream_, 2, &plain));
  before = down;
  std::uint64_t bytes = 0;
  ASSERT_OK(moecl_layer_packed_expert_bytes(layer, &bytes));
  std::vector<unsigned char> second(bytes), third(bytes);
  ASSERT_OK(moecl_layer_export_packed_expert(layer, stream_, 1, second.data(), bytes));
  ASSERT_OK(moecl_layer_export_packed_expert(layer, stream_, 2, third.data(), bytes));
  ASSERT_OK(moecl_layer_replace_packed_expert(layer, stream_, 2, second.data(), bytes));
  ASSERT_OK(moecl_layer_export_expert(layer, stream_, 2, &plain));
  EXPECT_NE(down, before);
  ASSERT_OK(moecl_layer_replace_packed_expert(layer, stream_, 2, third.data(), bytes));
  check(layer, golden);
  plain.up_bias = up.data();
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "the expert has no up bias",
               moecl_layer_export_expert(layer, stream_, 2, &plain));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "bytes: expected",
               moecl_layer_export_packed_expert(layer, stream_, 1, second.data(), bytes - 1));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "replace packed expert: expected",
               moecl_layer_replace_packed_expert(layer, stream_, 2, third.data(), bytes - 1));
}

TEST_P(CLayerBuilderTest, SaysWhatIsWrong) {
  const std::string path = golden_dir("mixtral-awq-e4k2") + "/config.json";
  BuilderHandle builder;
  EXPECT_FAILS(MOECL_IO_ERROR, "nowhere.json",
               moecl_layer_builder_open(stream_, "nowhere.json", -1, &options_, builder.out()));
  auto desc = sized<moecl_layer_desc>();
  desc.hidden = desc.intermediate = 32;
  desc.experts = desc.top_k = 2;
  auto stored = sized<moecl_stored_weights>();
  stored.scheme = "int3";
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "\"int3\" is no scheme",
               moecl_layer_builder_create(stream_, &desc, &stored, &options_, builder.out()));
  options_.dtype = 0;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "options.dtype: say one",
               moecl_layer_builder_create(stream_, &desc, nullptr, &options_, builder.out()));
  ASSERT_OK(moecl_layer_builder_open(stream_, path.c_str(), -1, &options_, builder.out()));
  auto tensor = sized<moecl_named_tensor>();
  tensor.name = "model.layers.0.block_sparse_moe.gate.weight";
  tensor.dtype = MOECL_F32;
  tensor.rank = 5;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "give data or memory", moecl_layer_builder_set(builder, &tensor, nullptr));
  tensor.data = path.data();
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "tensor.rank: 5", moecl_layer_builder_set(builder, &tensor, nullptr));
  tensor.rank = 2;
  tensor.shape[0] = tensor.shape[1] = std::int64_t{1} << 40;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "tensor.shape: ", moecl_layer_builder_set(builder, &tensor, nullptr));
  tensor.shard = "w1";
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "tensor.shard: \"w1\", but the builder knows the names of a checkpoint",
               moecl_layer_builder_set(builder, &tensor, nullptr));
  LayerHandle layer;
  ParallelHandle parallel;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "tensors are missing", moecl_layer_builder_finish(builder, layer.out()));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "of no rank", moecl_layer_builder_finish_rank(builder, parallel.out()));
}

TEST(CLayerBuilderOfRanksTest, EveryRankTakesItsShare) {
  const char* const golden = "qwen2-moe-e16k4";
  const std::vector<double> input = golden_values(golden, "hidden_states"), expected = golden_values(golden, "output");
  const std::vector<float> x(input.begin(), input.end());
  for (const std::int32_t sharding : {MOECL_SHARD_EXPERTS, MOECL_SHARD_INTERMEDIATE}) {
    CGroup on(2);
    on.run([&](std::size_t rank, moecl_communicator* ranks) {
      auto parallel = sized<moecl_parallel_options>();
      parallel.tp = 2;
      parallel.expert_sharding = sharding;
      parallel.strategy = MOECL_STRATEGY_ALL_GATHER;
      auto options = sized<moecl_layer_options>();
      options.dtype = MOECL_F32;
      BuilderHandle builder;
      ASSERT_OK(moecl_layer_builder_open_rank(ranks, (golden_dir(golden) + "/config.json").c_str(), -1, &parallel,
                                              &options, builder.out()));
      for (const HostTensor& tensor : tensors_of(golden)) {
        const moecl_named_tensor given = c_tensor(tensor);
        ASSERT_OK(moecl_layer_builder_set(builder, &given, nullptr));
      }
      ParallelHandle layer;
      ASSERT_OK(moecl_layer_builder_finish_rank(builder, layer.out()));
      auto info = sized<moecl_parallel_layer_info>();
      ASSERT_OK(moecl_parallel_layer_describe(layer, &info));
      EXPECT_EQ(info.places, sharding == MOECL_SHARD_EXPERTS ? 8 : 16);
      auto args = sized<moecl_forward_args>();
      args.tokens = static_cast<std::int64_t>(x.size()) / info.hidden;
      args.x = on.allocate(rank, x);
      args.out = on.allocate(rank, std::vector<float>(x.size()));
      ASSERT_OK(moecl_parallel_layer_forward(layer, &args));
      const std::vector<float> out = on.read(rank, args.out, x.size());
      EXPECT_LE(relative_error(std::vector<double>(out.begin(), out.end()), expected), 1e-5);
      std::uint64_t bytes = 0;
      ASSERT_OK(moecl_parallel_layer_packed_expert_bytes(layer, &bytes));
      std::vector<unsigned char> packed(bytes), again(bytes);
      ASSERT_OK(moecl_parallel_layer_export_packed_expert(layer, 3, packed.data(), bytes));
      ASSERT_OK(moecl_parallel_layer_replace_packed_expert(layer, 4, packed.data(), bytes));
      ASSERT_OK(moecl_parallel_layer_export_packed_expert(layer, 4, again.data(), bytes));
      EXPECT_EQ(packed, again);
      const std::int64_t width = sharding == MOECL_SHARD_EXPERTS ? info.intermediate : info.intermediate / 2;
      std::vector<float> up(static_cast<std::size_t>(width * info.hidden));
      auto plain = sized<moecl_plain_expert>();
      plain.up = up.data();
      ASSERT_OK(moecl_parallel_layer_export_expert(layer, 4, &plain));
      EXPECT_NE(up, std::vector<float>(up.size()));
    });
  }
}

}  // namespace
}  // namespace moecl::test
