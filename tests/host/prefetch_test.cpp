// Experts that come to device memory before their pass: the bits stay, and passes on other queues are not disturbed.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "runtime/user_event.hpp"
#include "tests/host/c_golden.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

class PrefetchTest : public OnEveryDevice {
 protected:
  StreamView stream() const { return device().stream; }

  MoeLayer layer_of(const Model& model, double percent, MissedExperts missed = MissedExperts::fetched,
                    ResidencyPolicy policy = ResidencyPolicy::lru) const {
    MoeLayerOptions options = model.options;
    options.budget.percent = percent, options.budget.missed = missed, options.budget.policy = policy;
    return {stream(), model.config.shape, model.weights(0, model.config.shape.experts), options};
  }
  DeviceTensor rows(const Model& model, std::int64_t first, std::int64_t count) const {
    const auto begin = model.input.begin() + first * model.hidden();
    return {stream(), model.options.dtype, {count, model.hidden()}, {begin, begin + count * model.hidden()}};
  }
  Outputs pass(const MoeLayer& layer, const Model& model, std::int64_t first, std::int64_t tokens) const {
    const Buffer workspace(*stream().context, layer.workspace_bytes(tokens));
    return forward<MoeLayer::Forward>(stream(), model, first, tokens, [&](MoeLayer::Forward& args) {
      args.workspace = workspace.view();
      layer.forward(stream(), args);
    });
  }
  /// Prefetches on a queue of its own, and waits for nothing.
  struct Prefetch {
    Prefetch(StreamView beside, const MoeLayer& layer, DeviceTensor of)
        : x(std::move(of)), workspace(*beside.context, layer.workspace_bytes(x.view.shape[0])) {
      MoeInputs tokens;
      tokens.x = x;
      layer.prefetch(beside, tokens, workspace.view());
    }
    DeviceTensor x;
    Buffer workspace;
  };
};
MOECL_ON_EVERY_DEVICE(PrefetchTest);

TEST_P(PrefetchTest, BitsOfTheResidentLayer) {
  const std::pair<const char*, DType> models[] = {
      {"qwen2-moe-e16k4", DType::f32}, {"qwen3-moe-e64k8", DType::f16}, {"gpt-oss-mxfp4-e8k4", DType::f32}};
  const Stream beside = Stream::beside(stream());
  std::size_t number = 0;
  for (const auto& [name, dtype] : models) {
    if (!takes(number++)) continue;
    const Model model(name, dtype);
    const MoeLayer whole(stream(), model.config.shape, model.weights(0, model.config.shape.experts), model.options);
    const Outputs all = pass(whole, model, 0, model.tokens());
    std::vector<Outputs> single;
    for (std::int64_t token = 0; token < 4; ++token) single.push_back(pass(whole, model, token, 1));
    for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place})
      for (const ResidencyPolicy policy : {ResidencyPolicy::lru, ResidencyPolicy::least_stale})
        for (const double percent : {1.0, 60.0}) {
          SCOPED_TRACE(testing::Message()
                       << name << ", " << percent << " %, " << moecl::name(policy) << ", " << moecl::name(missed));
          const MoeLayer layer = layer_of(model, percent, missed, policy);
          for (std::int64_t token = 0; token < 4; ++token) {
            // Prefetches for this token, for others, and for too many.
            const Prefetch own(beside, layer, rows(model, token, 1)),
                other(beside, layer, rows(model, (token + 3) % 5, token % 2 + 1)),
                many(beside, layer, rows(model, 0, model.tokens()));
            EXPECT_TRUE(pass(layer, model, token, 1) == single[static_cast<std::size_t>(token)]) << "token " << token;
            beside.finish();
          }
          const Prefetch before(beside, layer, rows(model, 2, 1));
          EXPECT_TRUE(pass(layer, model, 0, model.tokens()) == all);
          beside.finish();
        }
  }
}

TEST_P(PrefetchTest, CountsWhatItBringsAndWhatThatWasGoodFor) {
  const Model model("qwen3-moe-e64k8");  // 8 experts a token
  const Stream beside = Stream::beside(stream());
  for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place}) {
    SCOPED_TRACE(name(missed));
    const MoeLayer layer = layer_of(model, 25, missed);  // 16 of 64
    const std::uint64_t expert_bytes = layer.report().resident_bytes / 16;
    const auto expect = [&](std::int64_t hits, std::int64_t misses, std::int64_t prefetched, std::int64_t by_it) {
      beside.finish();
      const ResidencyCounts counts = layer.residency(stream());
      EXPECT_EQ(counts.hits, hits);
      EXPECT_EQ(counts.misses, misses);
      EXPECT_EQ(counts.prefetched, prefetched);
      EXPECT_EQ(counts.prefetched_hits, by_it);
      EXPECT_EQ(counts.fetched_bytes, static_cast<std::uint64_t>(misses + prefetched) * expert_bytes);
    };
    const auto experts_of = [&](std::int64_t token) {
      const Outputs told = pass(layer_of(model, 50), model, token, 1);
      return std::set<double>(told.ids.begin(), told.ids.end());
    };
    const std::set<double> of_0 = experts_of(0), of_5 = experts_of(5);
    const auto shared = std::count_if(of_0.begin(), of_0.end(), [&](double e) { return of_5.contains(e); });
    ASSERT_LT(shared, 8);
    const Prefetch first(beside, layer, rows(model, 0, 1));
    expect(0, 0, 8, 0);
    const Prefetch again(beside, layer, rows(model, 0, 1));  // the experts are there
    expect(0, 0, 8, 0);
    pass(layer, model, 0, 1);
    expect(8, 0, 8, 8);
    pass(layer, model, 0, 1);  // hits, but not by prefetching
    expect(16, 0, 8, 8);
    const Prefetch wrong(beside, layer, rows(model, 0, 1));
    pass(layer, model, 5, 1);
    expect(16 + shared, 8 - shared, 8, 8);
    const Prefetch streamed(beside, layer, rows(model, 0, model.tokens()));  // these would come in waves
    expect(16 + shared, 8 - shared, 8, 8);
  }
}

TEST_P(PrefetchTest, TheCallersChoiceSaysWhoComes) {
  const Model model("qwen3-moe-e64k8");
  const MoeLayer layer = layer_of(model, 25);
  const std::vector<double> chosen = {3, 9, 17, 20, 33, 40, 41, 63};
  for (const DType dtype : {DType::i32, DType::i64}) {
    const DeviceTensor ids(stream(), dtype, {1, 8}, chosen),
        weights(stream(), DType::f32, {1, 8}, std::vector<double>(8, 0.125));
    const Buffer workspace(*stream().context, layer.workspace_bytes(1));
    MoeInputs tokens;  // without hidden states
    tokens.ids = ids, tokens.weights = weights;
    layer.prefetch(stream(), tokens, workspace.view());
    EXPECT_EQ(layer.residency(stream()).prefetched, 8);
  }
}

TEST_P(PrefetchTest, ComesAfterThePassThatUsesTheSlots) {
  const Model model("qwen3-moe-e64k8");
  const MoeLayer layer = layer_of(model, 12.5);  // a token needs all 8 slots
  const Outputs expected = pass(layer, model, 0, 1);
  const Stream beside = Stream::beside(stream());
  const DeviceTensor x = rows(model, 0, 1), out(stream(), DType::f32, {1, model.hidden()});
  const Buffer workspace(*stream().context, layer.workspace_bytes(1));
  stream().finish();
  UserEvent gate(*stream().context);
  std::atomic<bool> brought{false};
  // Some devices run a command when it is enqueued, so a thread waits at the gate.
  std::thread passes([&] {
    _cl_event* const closed = gate.handle();
    MoeLayer::Forward args;
    args.x = x, args.out = out, args.workspace = workspace.view();
    layer.forward(stream(), args, {{&closed, 1}, nullptr});
    const Prefetch next(beside, layer, DeviceTensor(beside, DType::f32, {1, model.hidden()}));
    beside.finish();
    brought = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(brought);
  gate.complete();
  passes.join();
  EXPECT_EQ(out.values(stream()), expected.out);
}

TEST_P(PrefetchTest, NeverStopsTheHost) {
  const Model model("qwen2-moe-e16k4");
  const MoeLayer layer = layer_of(model, 50);
  const Stream beside = Stream::beside(stream(), false);
  const DeviceTensor x = rows(model, 0, 1), out(stream(), DType::f32, {1, model.hidden()});
  const Buffer workspace(*stream().context, layer.workspace_bytes(1)),
      second(*stream().context, layer.workspace_bytes(1));
  MoeLayer::Forward args;
  args.x = x, args.out = out, args.workspace = workspace.view();
  for (int pass = 0; pass < 3; ++pass) {
    const std::uint64_t stops = stream().context->counters().host_syncs;
    layer.prefetch(beside, args, second.view());
    layer.forward(stream(), args);
    EXPECT_EQ(stream().context->counters().host_syncs, stops);
    beside.finish();
    stream().finish();
  }
}

TEST_P(PrefetchTest, WithoutABudgetNothingIsEnqueued) {
  const Model model("qwen2-moe-e16k4");
  const MoeLayer whole(stream(), model.config.shape, model.weights(0, 16), model.options);
  const ContextCounters& counters = device().context->counters();
  const std::uint64_t launched = counters.kernels_launched;
  const Prefetch nothing(stream(), whole, rows(model, 0, 2));
  EXPECT_EQ(counters.kernels_launched, launched);
  EXPECT_EQ(whole.residency(stream()).prefetched, 0);
}

TEST_P(PrefetchTest, ReplacedExpertsAreNotTheOldOnes) {
  const Model model("qwen2-moe-e16k4");
  const Stream beside = Stream::beside(stream());
  const MoeWeights weights = model.weights(0, 16);
  MoeWeights turned = weights;
  std::rotate(turned.experts.begin(), turned.experts.begin() + 3, turned.experts.end());
  const MoeLayer whole(stream(), model.config.shape, turned, model.options);
  MoeLayer layer = layer_of(model, 50);
  const Prefetch old(beside, layer, rows(model, 0, 1));
  layer.replace_weights(stream(), turned);
  EXPECT_TRUE(pass(layer, model, 0, 1) == pass(whole, model, 0, 1));
  beside.finish();
}

TEST_P(PrefetchTest, RefusesWhatAPassRefuses) {
  const Model model("qwen2-moe-e16k4");
  const MoeLayer layer = layer_of(model, 50);
  const Buffer workspace(*stream().context, layer.workspace_bytes(1));
  const DeviceTensor x = rows(model, 0, 1), narrow(stream(), DType::f32, {1, 8}), ids(stream(), DType::i32, {1, 4});
  const ContextCounters& counters = device().context->counters();
  const std::uint64_t launched = counters.kernels_launched;
  const auto refused = [&](const MoeInputs& tokens, BufferView memory, const char* expected) {
    EXPECT_THAT([&] { layer.prefetch(stream(), tokens, memory); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(expected)));
  };
  MoeInputs tokens;
  refused(tokens, workspace.view(), "x: absent, but the router takes it");
  tokens.x = narrow;
  refused(tokens, workspace.view(), "x: expected");
  tokens.x = x;
  refused(tokens, {}, "workspace: 1 tokens need");
  tokens.ids = ids;
  refused(tokens, workspace.view(), "ids and weights: give both or neither");
  EXPECT_THAT([&] { layer.prefetch(Stream().view(), tokens, workspace.view()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("prefetch: the stream has no queue")));
  EXPECT_EQ(counters.kernels_launched, launched);
  tokens = {};
  tokens.x = TensorView(x.view.buffer, DType::f32, {0, model.hidden()});
  layer.prefetch(stream(), tokens, {});
  EXPECT_EQ(counters.kernels_launched, launched);
}

}  // namespace
}  // namespace moecl::test
