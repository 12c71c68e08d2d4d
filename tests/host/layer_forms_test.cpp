// What a layer takes and gives in each form, on one rank and on several with every strategy, against double precision.
#include "tests/host/layer_forms.hpp"

#include <moecl/trace.hpp>

#include <gmock/gmock.h>

#include <deque>
#include <utility>

#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

struct Given {
  std::vector<double> out, routed, shared, rows, ids;
  void append(const Given& more) {
    for (const auto field : {&Given::out, &Given::routed, &Given::shared, &Given::rows, &Given::ids})
      (this->*field).insert((this->*field).end(), (more.*field).begin(), (more.*field).end());
  }
};

/// Runs tokens [first, first + tokens) of a form; `run` gets the arguments that both kinds of layer have.
template <class Run>
Given pass(StreamView stream, const LayerForm& form, std::int64_t first, std::int64_t tokens, bool rows, Run run) {
  const MoeShape& shape = form.layer.shape;
  const std::int64_t top_k = shape.router.top_k, width = shape.expert_width();
  std::deque<DeviceTensor> memory;
  const auto brought = [&](DType dtype, const std::vector<double>& all, std::int64_t columns) {
    if (all.empty()) return TensorView();
    return memory
        .emplace_back(stream, dtype, std::initializer_list<std::int64_t>{tokens, columns},
                      std::vector<double>(all.begin() + first * columns, all.begin() + (first + tokens) * columns))
        .view;
  };
  const auto vector = [](TensorView column) {
    return column.present() ? TensorView(column.buffer, column.dtype, {column.shape[0]}) : column;
  };
  const auto output = [&](DType dtype, std::int64_t count, std::int64_t columns) {
    return memory.emplace_back(stream, dtype, std::initializer_list<std::int64_t>{count, columns}).view;
  };
  const bool codes = !form.scales.empty();
  MoeForward args;
  args.x = brought(form.options.dtype, form.x, shape.hidden);
  args.expert_input = brought(codes ? form.code_dtype : form.options.dtype, form.input, width);
  args.expert_input_scale = brought(form.scale_dtype, form.scales, form.scale_columns());
  if (codes && form.group == 0) args.expert_input_scale = vector(args.expert_input_scale);
  args.given_logits = brought(DType::f32, form.logits, shape.choices());
  args.token_ids = vector(brought(first % 2 == 0 ? DType::i32 : DType::i64, form.token_ids, 1));
  args.ids = brought(DType::i64, form.ids, top_k);
  if (args.ids.present())
    args.weights = brought(DType::f32, form.weights, top_k);
  else
    args.topk_ids = output(DType::i32, tokens, top_k);
  if (!form.out.empty()) args.out = output(DType::f32, tokens, width);
  args.routed_out = output(DType::f32, tokens, width);
  if (!form.shared.empty()) args.shared_out = output(DType::f32, tokens, shape.hidden);
  if (rows) args.expert_rows = output(DType::f32, tokens * top_k, width);
  const DeviceTensor fault(stream, DType::i32, {4}, {0, 0, 0, 0});
  args.fault = fault;
  run(args);
  EXPECT_EQ(fault.values(stream), std::vector<double>(4));
  const auto values = [&](const TensorView& view) {
    for (const DeviceTensor& tensor : memory)
      if (view.present() && tensor.view.buffer.handle == view.buffer.handle) return tensor.values(stream);
    return std::vector<double>();
  };
  return {values(args.out), values(args.routed_out), values(args.shared_out), values(args.expert_rows),
          values(args.topk_ids)};
}

void expect_given(const LayerForm& form, const Given& got) {
  if (form.ids.empty()) {
    EXPECT_EQ(got.ids, form.chosen) << form.name;
  }
  expect_form(form, got.out, form.out, "out");
  expect_form(form, got.routed, form.routed, "routed_out");
  expect_form(form, got.shared, form.shared, "shared_out");
  if (!got.rows.empty()) expect_form(form, got.rows, form.rows, "expert_rows");
}

class LayerFormsTest : public OnEveryDevice {
 protected:
  /// The form's layer, and a workspace for it.
  struct Made {
    MoeLayer layer;
    Buffer workspace;

    Made(StreamView stream, const LayerForm& form)
        : layer(stream, form.layer.shape, form.layer.weights(), form.options),
          workspace(*stream.context, layer.workspace_bytes(form.tokens())) {}
  };
  std::vector<LayerForm> forms() const { return layer_forms(device().caps()); }
};
MOECL_ON_EVERY_DEVICE(LayerFormsTest);

TEST_P(LayerFormsTest, OneRank) {
  const StreamView stream = device().stream;
  for (LayerForm form : forms())
    for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{4}}) {
      if (chunk != 0 && form.tokens() > 64) continue;
      form.options.chunk_tokens = chunk;
      const Made made(stream, form);
      made.layer.compile(stream, 2);
      expect_given(form, pass(stream, form, 0, form.tokens(), true, [&](MoeForward& args) {
                     args.workspace = made.workspace.view();
                     made.layer.forward(stream, args);
                   }));
    }
}

/// No kernel quantizes the first product's rows where the caller brings their codes.
TEST_P(LayerFormsTest, CodesAreNotMadeAgain) {
  ContextOptions options;
  options.trace = true;
  const auto context = Context::create({device().context->devices().front()}, options);
  const Stream stream(*context);
  for (const LayerForm& form : forms()) {
    if (form.scales.empty()) continue;
    const Made made(stream, form);
    const auto kernels = [&](const char* name) {
      std::int64_t count = 0;
      for (const WorkSummary& work : stream.view().trace->summary())
        if (work.name == name) count += static_cast<std::int64_t>(work.count);
      return count;
    };
    const std::int64_t before = kernels("quantize_groups");
    pass(stream, form, 0, form.tokens(), false, [&](MoeForward& args) {
      args.workspace = made.workspace.view();
      made.layer.forward(stream, args);
    });
    EXPECT_LE(kernels("quantize_groups") - before, 1) << form.name;  // the activated rows
  }
}

TEST_P(LayerFormsTest, TokenIdsThatDoNotExistAreAFault) {
  const StreamView stream = device().stream;
  const LayerForm form = forms()[1];
  const Made made(stream, form);
  const DeviceTensor x(stream, DType::f32, {3, form.layer.shape.hidden}, std::vector<double>(96, 1)),
      out(stream, DType::f32, {3, form.layer.shape.hidden}), chosen(stream, DType::i32, {3, 3});
  for (const DType dtype : {DType::i32, DType::i64}) {
    const DeviceTensor ids(stream, dtype, {3}, {0, 50, 49}), fault(stream, DType::i32, {4}, {0, 0, 0, 0});
    MoeForward args;
    args.x = x;
    args.out = out;
    args.token_ids = ids;
    args.topk_ids = chosen;
    args.fault = fault;
    args.workspace = made.workspace.view();
    made.layer.forward(stream, args);
    EXPECT_THAT(error_of([&] { check_fault(stream, fault); }).what(), testing::HasSubstr("50"));
    const std::vector<double> got = chosen.values(stream);
    EXPECT_EQ(std::vector<double>(got.begin() + 3, got.begin() + 6), std::vector<double>(3, -1));
  }
}

TEST_P(LayerFormsTest, RefusesWhatDoesNotFit) {
  const StreamView stream = device().stream;
  const std::vector<LayerForm> all = forms();
  const auto refused = [&](std::size_t form, const char* text, const std::function<void(MoeForward&)>& spoil) {
    const Made made(stream, all[form]);
    std::string told = "nothing";
    pass(stream, all[form], 0, all[form].tokens(), false, [&](MoeForward& args) {
      args.workspace = made.workspace.view();
      spoil(args);
      const std::uint64_t before = device().context->counters().kernels_launched;
      told = error_of([&] { made.layer.forward(stream, args); }).what();
      EXPECT_EQ(device().context->counters().kernels_launched, before);
    });
    EXPECT_THAT(told, testing::HasSubstr(text));
  };
  constexpr std::size_t table = 1, no_router = 3, int8 = 4, block = 6, latent = 9, special = 10;
  refused(table, "token_ids: a table says the experts of this layer", [](MoeForward& a) { a.token_ids = {}; });
  refused(special, "token_ids: the layer has no table", [](MoeForward& a) { a.token_ids = a.topk_ids; });
  refused(no_router, "router_logits: the layer has no router", [](MoeForward& a) {
    a.router_logits = TensorView(a.routed_out.buffer, DType::f32, {9, 6});
  });
  refused(int8, "give given_logits, or ids with weights", [](MoeForward& a) { a.given_logits = {}; });
  refused(int8, "expert_input: expected f32, got i8[9, 256]", [](MoeForward& a) { a.expert_input_scale = {}; });
  refused(int8, "expert_input: expected i8 with scales f32[9], as i8 per row, got f32[9, 256]", [](MoeForward& a) {
    a.expert_input = TensorView(a.routed_out.buffer, DType::f32, {9, 256});
  });
  refused(block, "expected f8_e4m3 with scales f32[9, 2]",
          [](MoeForward& a) { a.expert_input_scale = TensorView(a.expert_input_scale.buffer, DType::f32, {9}); });
  refused(table, "expert_input_scale: of no expert_input", [](MoeForward& a) { a.expert_input_scale = a.x; });
  refused(latent, "expert_input: absent, but the experts take 48 columns and the router 32",
          [](MoeForward& a) { a.expert_input = {}; });
  refused(latent, "x: absent, but the router takes it", [](MoeForward& a) { a.x = {}; });
  refused(latent, "out: the experts give 48 columns and the shared experts 32",
          [](MoeForward& a) { a.out = a.routed_out; });
  refused(special, "expert_rows: expected f32[27, 32], got f32[9, 32]",
          [](MoeForward& a) { a.expert_rows = a.routed_out; });
}

TEST(LayerFormsOfRanksTest, EveryStrategy) {
  const std::vector<std::int64_t> shares[] = {{1}, {4, 5}, {4, 0, 5}, {2, 1, 3, 0}, {1, 1, 0, 1, 1, 1, 1, 0}};
  for (const LayerForm& form : layer_forms(devices()[0]->caps()))
    for (const std::vector<std::int64_t>& share : shares) {
      std::vector<std::int64_t> tokens = share;
      tokens.back() = form.tokens() - std::accumulate(tokens.begin(), tokens.end() - 1, std::int64_t{0});
      Ranks on(static_cast<std::int32_t>(tokens.size()), Ranks::first_device);
      std::vector<std::vector<Given>> of_rank(tokens.size());
      const bool one = tokens.size() == 1;
      on.group.run([&](Communicator& world) {
        const ExpertRank rank(world, 1, form.layer.shape.experts);
        ParallelLayer layer(rank, {}, form.layer.shape, form.layer.weights(rank.first_expert, rank.local_experts),
                            form.options);
        const auto r = static_cast<std::size_t>(world.rank());
        const std::int64_t first = std::accumulate(tokens.begin(), tokens.begin() + world.rank(), std::int64_t{0});
        for (const StrategyKind kind :
             {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
          const bool rows = one || combine_form(kind, form.options.dtype, WireFormat::none) == CombineForm::rows;
          of_rank[r].push_back(pass(world.stream(), form, first, tokens[r], rows,
                                    [&](MoeForward& args) { layer.forward(args, {kind}); }));
        }
        world.stream().finish();
      });
      for (std::size_t i = 0; i < of_rank.front().size(); ++i) {
        SCOPED_TRACE(testing::Message() << tokens.size() << " ranks, strategy " << i);
        Given all;
        for (const std::vector<Given>& passes : of_rank) all.append(passes[i]);
        expect_given(form, all);
      }
    }
}

TEST(LayerFormsOfRanksTest, PartialSumsAddUpToTheWhole) {
  const std::vector<LayerForm> forms = layer_forms(devices()[0]->caps());
  const LayerForm& form = forms[11];  // with experts without products, and shared experts
  for (const StrategyKind kind :
       {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
    Ranks on(2, Ranks::first_device);
    std::vector<Given> parts(2);
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 2, form.layer.shape.experts);
      ParallelLayer layer(rank, {}, form.layer.shape, form.layer.weights(rank.first_expert, rank.local_experts),
                          form.options);
      Step step{kind};
      step.reduce_results = false;
      parts[static_cast<std::size_t>(world.rank())] =
          pass(world.stream(), form, 0, form.tokens(), false, [&](MoeForward& args) { layer.forward(args, step); });
      world.stream().finish();
    });
    Given sum = parts[0];
    for (std::size_t i = 0; i < sum.out.size(); ++i) sum.out[i] += parts[1].out[i];
    for (std::size_t i = 0; i < sum.routed.size(); ++i) sum.routed[i] += parts[1].routed[i];
    expect_form(form, sum.out, form.out, name(kind));
    expect_form(form, sum.routed, form.routed, name(kind));
  }
}

/// Some experts have two places to choose from; experts without products have none.
TEST(LayerFormsOfRanksTest, ExpertsWithoutProductsBesideCopies) {
  const LayerForm form = layer_forms(devices()[0]->caps())[12];
  ParallelPlan plan;
  plan.placement = place_experts({form.layer.shape.experts, 2, 1, 2});
  Ranks on(2, Ranks::first_device);
  std::vector<Given> of_rank(2);
  on.group.run([&](Communicator& world) {
    const ExpertRank rank(world, 1, plan.placement.physical());
    MoeWeights weights = form.layer.weights();
    const std::vector<ExpertMatrices> all = std::exchange(weights.experts, {});
    for (std::int32_t place = rank.first_expert; place < rank.first_expert + rank.local_experts; ++place)
      weights.experts.push_back(
          all[static_cast<std::size_t>(plan.placement.logical_of[static_cast<std::size_t>(place)])]);
    ParallelLayer layer(rank, plan, form.layer.shape, weights, form.options);
    const bool first = world.rank() == 0;
    of_rank[static_cast<std::size_t>(world.rank())] =
        pass(world.stream(), form, first ? 0 : 4, first ? 4 : form.tokens() - 4, true,
             [&](MoeForward& args) { layer.forward(args); });
    world.stream().finish();
  });
  of_rank[0].append(of_rank[1]);
  expect_given(form, of_rank[0]);
}

TEST(LayerFormsOfRanksTest, SumsAreNotRows) {
  const LayerForm form = layer_forms(devices()[0]->caps())[8];
  Ranks on(2, Ranks::first_device);
  const std::vector<std::string> texts = failures(on, [&](Communicator& world) {
    const ExpertRank rank(world, 1, form.layer.shape.experts);
    ParallelLayer layer(rank, {StrategyKind::all_gather}, form.layer.shape,
                        form.layer.weights(rank.first_expert, rank.local_experts), form.options);
    pass(world.stream(), form, 0, form.tokens(), true, [&](MoeForward& args) { layer.forward(args); });
  });
  EXPECT_THAT(texts, testing::Each(testing::HasSubstr("expert_rows: allgather of f32 brings sums home, not rows")));
}

}  // namespace
}  // namespace moecl::test
