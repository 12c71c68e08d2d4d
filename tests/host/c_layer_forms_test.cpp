// The forms of layer_forms_test.cpp through the C interface: one layer, and one over 1 to 8 ranks with every strategy.
#include <moecl/parallel_layer.h>

#include <gmock/gmock.h>

#include <numeric>

#include "tests/cases/device_memory.hpp"
#include "tests/host/c_group.hpp"
#include "tests/host/layer_forms.hpp"

namespace moecl::test {
namespace {

using ParallelHandle = Handle<moecl_parallel_layer, moecl_parallel_layer_destroy>;

moecl_layer_options options_of(const LayerForm& form) {
  auto options = sized<moecl_layer_options>();
  if (!form.scheme.empty()) options.quantize = form.scheme.c_str();
  return options;
}

struct CGiven {
  std::vector<double> out, routed, shared, rows, ids;
  void append(const CGiven& more) {
    for (const auto field : {&CGiven::out, &CGiven::routed, &CGiven::shared, &CGiven::rows, &CGiven::ids})
      (this->*field).insert((this->*field).end(), (more.*field).begin(), (more.*field).end());
  }
};

/// A pass of tokens [first, first + tokens) by a rank; `run` gets the arguments.
template <class Run>
CGiven pass_in_c(CGroup& on, std::size_t rank, const LayerForm& form, std::int64_t first, std::int64_t tokens,
                 bool rows, Run run) {
  const MoeShape& shape = form.layer.shape;
  const std::int64_t top_k = shape.router.top_k, width = shape.expert_width();
  const auto brought = [&](DType dtype, const std::vector<double>& all, std::int64_t columns) {
    if (all.empty() || tokens == 0) return moecl_device_array{};
    return on.allocate<unsigned char>(
        rank, encode(dtype, {all.begin() + first * columns, all.begin() + (first + tokens) * columns}));
  };
  const auto output = [&](std::int64_t elements) {
    return on.allocate(rank, std::vector<float>(static_cast<std::size_t>(elements)));
  };
  const bool codes = !form.scales.empty();
  const DType input = codes ? form.code_dtype : form.options.dtype;
  auto args = sized<moecl_forward_args>();
  args.tokens = tokens;
  args.out_dtype = MOECL_F32;
  args.x = brought(form.options.dtype, form.x, shape.hidden);
  args.expert_input = brought(input, form.input, width);
  if (codes) args.expert_input_dtype = form.code_dtype == DType::i8 ? MOECL_I8 : MOECL_F8_E4M3;
  args.expert_input_scale = brought(form.scale_dtype, form.scales, form.scale_columns());
  args.expert_input_group = form.group;
  args.given_logits = brought(DType::f32, form.logits, shape.choices());
  args.token_ids = brought(DType::i64, form.token_ids, 1);
  args.token_ids_dtype = MOECL_I64;
  args.ids = brought(DType::i32, form.ids, top_k);
  if (args.ids.memory != nullptr)
    args.weights = brought(DType::f32, form.weights, top_k);
  else
    args.topk_ids = on.allocate(rank, std::vector<std::int32_t>(static_cast<std::size_t>(tokens * top_k)));
  if (!form.out.empty()) args.out = output(tokens * width);
  if (tokens > 0) args.routed_out = output(tokens * width);
  if (!form.shared.empty()) args.shared_out = output(tokens * shape.hidden);
  if (rows) args.expert_rows = output(tokens * top_k * width);
  run(args);
  const auto values = [&](moecl_device_array from, std::int64_t count) {
    if (from.memory == nullptr) return std::vector<double>();
    const std::vector<float> read = on.read<float>(rank, from, static_cast<std::size_t>(count));
    return std::vector<double>(read.begin(), read.end());
  };
  CGiven given{values(args.out, tokens * width),
               values(args.routed_out, tokens * width),
               values(args.shared_out, tokens * shape.hidden),
               values(args.expert_rows, tokens * top_k * width),
               {}};
  if (args.topk_ids.memory != nullptr) {
    const std::vector<std::int32_t> ids =
        on.read<std::int32_t>(rank, args.topk_ids, static_cast<std::size_t>(tokens * top_k));
    given.ids.assign(ids.begin(), ids.end());
  }
  return given;
}

void expect_given_in_c(const LayerForm& form, const CGiven& got) {
  if (form.ids.empty()) {
    EXPECT_EQ(got.ids, form.chosen) << form.name;
  }
  expect_form(form, got.out, form.out, "out");
  expect_form(form, got.routed, form.routed, "routed_out");
  expect_form(form, got.shared, form.shared, "shared_out");
  if (!got.rows.empty()) expect_form(form, got.rows, form.rows, "expert_rows");
}

std::vector<LayerForm> forms_in_c() { return layer_forms(devices()[0]->caps()); }

TEST(CLayerFormsTest, OneLayer) {
  CGroup on(1);
  for (const LayerForm& form : forms_in_c()) {
    const moecl_layer_desc desc = form.layer.desc();
    const moecl_layer_options options = options_of(form);
    LayerHandle layer;
    ASSERT_OK(moecl_layer_create(on.streams[0], &desc, &options, layer.out())) << form.name;
    auto info = sized<moecl_layer_info>();
    ASSERT_OK(moecl_layer_describe(layer, &info));
    const MoeShape& shape = form.layer.shape;
    EXPECT_EQ(info.expert_hidden, shape.expert_width());
    EXPECT_EQ(info.vocabulary, shape.vocabulary);
    EXPECT_EQ(info.zero_experts + info.copy_experts + info.const_experts, shape.special_experts());
    EXPECT_EQ(info.choices, shape.choices());
    EXPECT_EQ(info.router_dtype, form.layer.router.empty() ? 0 : MOECL_F32);
    EXPECT_EQ(info.dtype, form.options.dtype == DType::bf16 ? MOECL_BF16 : MOECL_F32);
    std::uint64_t bytes = 0;
    ASSERT_OK(moecl_layer_workspace_bytes(layer, form.tokens(), &bytes));
    expect_given_in_c(form, pass_in_c(on, 0, form, 0, form.tokens(), true, [&](moecl_forward_args& args) {
                        args.workspace = on.allocate(0, std::vector<float>(bytes / sizeof(float) + 1));
                        EXPECT_OK(moecl_layer_forward(layer, on.streams[0], &args, 0, nullptr, nullptr)) << form.name;
                      }));
  }
}

TEST(CLayerFormsTest, EveryStrategy) {
  // Tokens of all ranks but the last, which has the rest.
  const std::vector<std::int64_t> shares[] = {{}, {4}, {0}, {4, 0}, {2, 1, 3}, {1, 1, 0, 1, 1, 1, 1}};
  for (const LayerForm& form : forms_in_c())
    for (const std::vector<std::int64_t>& share : shares) {
      SCOPED_TRACE(testing::Message() << form.name << ", " << share.size() + 1 << " ranks");
      std::vector<std::int64_t> tokens = share;
      tokens.push_back(form.tokens() - std::accumulate(share.begin(), share.end(), std::int64_t{0}));
      CGroup on(static_cast<std::int32_t>(tokens.size()));
      std::vector<std::vector<CGiven>> of_rank(tokens.size());
      on.run([&](std::size_t rank, moecl_communicator* communicator) {
        const moecl_layer_desc desc = form.layer.desc();
        const moecl_layer_options options = options_of(form);
        ParallelHandle layer;
        EXPECT_OK(moecl_parallel_layer_create(communicator, &desc, nullptr, &options, layer.out()));
        const auto before = tokens.begin() + static_cast<std::ptrdiff_t>(rank);
        const std::int64_t first = std::accumulate(tokens.begin(), before, std::int64_t{0});
        for (const std::int32_t strategy :
             {MOECL_STRATEGY_MC2, MOECL_STRATEGY_ALL_GATHER, MOECL_STRATEGY_ALL2ALL_V, MOECL_STRATEGY_MULTICAST}) {
          auto step = sized<moecl_step>();
          step.strategy = strategy;
          const bool rows = strategy == MOECL_STRATEGY_ALL2ALL_V;
          of_rank[rank].push_back(pass_in_c(on, rank, form, first, *before, rows, [&](moecl_forward_args& args) {
            EXPECT_OK(moecl_parallel_layer_forward_step(layer, &args, &step)) << strategy;
          }));
        }
        EXPECT_OK(moecl_stream_finish(on.streams[rank]));
      });
      for (std::size_t i = 0; i < of_rank.front().size(); ++i) {
        CGiven all;
        for (const std::vector<CGiven>& passes : of_rank) all.append(passes[i]);
        expect_given_in_c(form, all);
      }
    }
}

TEST(CLayerFormsTest, RefusesWhatDoesNotFit) {
  const std::vector<LayerForm> forms = forms_in_c();
  CGroup on(1);
  const auto refused = [&](std::size_t number, const char* text,
                           const std::function<void(moecl_forward_args&)>& spoil) {
    const LayerForm& form = forms[number];
    const moecl_layer_desc desc = form.layer.desc();
    const moecl_layer_options options = options_of(form);
    LayerHandle layer;
    ASSERT_OK(moecl_layer_create(on.streams[0], &desc, &options, layer.out()));
    pass_in_c(on, 0, form, 0, form.tokens(), false, [&](moecl_forward_args& args) {
      spoil(args);
      EXPECT_FAILS(MOECL_INVALID_ARGUMENT, text, moecl_layer_forward(layer, on.streams[0], &args, 0, nullptr, nullptr));
    });
  };
  constexpr std::size_t table = 1, int8 = 4, block = 6;
  refused(int8, "expert_input_group: expected 0, as i8 per row, got 128",
          [](moecl_forward_args& a) { a.expert_input_group = 128; });
  refused(block, "expert_input_group: expected 128", [](moecl_forward_args& a) { a.expert_input_group = 0; });
  refused(int8, "expert_input: expected i8", [](moecl_forward_args& a) { a.expert_input_dtype = MOECL_F8_E4M3; });
  refused(table, "token_ids_dtype: expected i32 or i64", [](moecl_forward_args& a) { a.token_ids_dtype = MOECL_F32; });

  moecl_layer_desc desc = forms[table].layer.desc();
  LayerHandle layer;
  std::vector<std::int64_t> ids = forms[table].layer.table;
  ids[7] = 6;
  desc.expert_table.data = ids.data();
  EXPECT_FAILS(MOECL_INVALID_DATA, "expert table: 6 of token id 2 is not in [0, 6)",
               moecl_layer_create(on.streams[0], &desc, nullptr, layer.out()));
  desc = forms[table].layer.desc();
  desc.expert_table = {};
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "expert table: the shape says 50 token ids, the weights have none",
               moecl_layer_create(on.streams[0], &desc, nullptr, layer.out()));
}

TEST(CLayerFormsTest, OneExpertIsReplaced) {
  const LayerForm form = forms_in_c()[8];  // latent experts
  const MoeShape& shape = form.layer.shape;
  const auto matrix_bytes = static_cast<std::size_t>(shape.intermediate * shape.expert_hidden) * sizeof(float);
  moecl_layer_desc whole = form.layer.desc();
  // Expert 4 has the weights of expert 1 until it gets its own.
  std::vector<unsigned char> gate = form.layer.gate, up = form.layer.up, down = form.layer.down;
  for (std::vector<unsigned char>* all : {&gate, &up, &down})
    std::copy_n(all->begin() + static_cast<std::ptrdiff_t>(matrix_bytes), matrix_bytes,
                all->begin() + static_cast<std::ptrdiff_t>(4 * matrix_bytes));
  whole.gate.data = gate.data(), whole.up.data = up.data(), whole.down.data = down.data();
  moecl_layer_desc one = form.layer.desc();
  one.experts = 1;
  one.router = {};
  one.gate.data = form.layer.gate.data() + 4 * matrix_bytes;
  one.up.data = form.layer.up.data() + 4 * matrix_bytes;
  one.down.data = form.layer.down.data() + 4 * matrix_bytes;

  CGroup on(2);
  LayerHandle layer;
  ASSERT_OK(moecl_layer_create(on.streams[0], &whole, nullptr, layer.out()));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "desc.experts: expected 1, got 6",
               moecl_layer_replace_expert(layer, on.streams[0], 4, &whole));
  ASSERT_OK(moecl_layer_replace_expert(layer, on.streams[0], 4, &one));
  std::uint64_t bytes = 0;
  ASSERT_OK(moecl_layer_workspace_bytes(layer, form.tokens(), &bytes));
  expect_given_in_c(form, pass_in_c(on, 0, form, 0, form.tokens(), false, [&](moecl_forward_args& args) {
                      args.workspace = on.allocate(0, std::vector<float>(bytes / sizeof(float) + 1));
                      EXPECT_OK(moecl_layer_forward(layer, on.streams[0], &args, 0, nullptr, nullptr));
                    }));

  for (const std::int32_t sharding : {MOECL_SHARD_EXPERTS, MOECL_SHARD_INTERMEDIATE}) {
    std::vector<CGiven> of_rank(2);
    on.run([&](std::size_t rank, moecl_communicator* communicator) {
      auto parallel = sized<moecl_parallel_options>();
      parallel.expert_sharding = sharding;
      ParallelHandle ranked;
      EXPECT_OK(moecl_parallel_layer_create(communicator, &whole, &parallel, nullptr, ranked.out()));
      const bool whole_experts = sharding == MOECL_SHARD_EXPERTS;
      if (!whole_experts || rank == 1) {  // this rank has expert 4, or a part of it
        EXPECT_OK(moecl_parallel_layer_replace_expert(ranked, whole_experts ? 1 : 4, &one));
      }
      of_rank[rank] =
          pass_in_c(on, rank, form, rank == 0 ? 0 : 4, rank == 0 ? 4 : form.tokens() - 4, false,
                    [&](moecl_forward_args& args) { EXPECT_OK(moecl_parallel_layer_forward(ranked, &args)); });
      EXPECT_OK(moecl_stream_finish(on.streams[rank]));
    });
    of_rank[0].append(of_rank[1]);
    expect_given_in_c(form, of_rank[0]);
  }
}

}  // namespace
}  // namespace moecl::test
