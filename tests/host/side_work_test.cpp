// Work beside a stream, and a layer's shared experts as such work.
#include "host/layer/side_work.hpp"

#include <moecl/trace.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "runtime/user_event.hpp"
#include "tests/devices.hpp"
#include "tests/host/c_golden.hpp"
#include "tests/host/files.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

class SideWorkTest : public OnEveryDevice {
 protected:
  SideWorkTest() : memory_(*device().context, 64) { enqueue_fill(stream_, memory_.view(), 0); }
  void fill(StreamView stream, int value) const {
    enqueue_fill(stream, memory_.view(), static_cast<std::uint8_t>(value));
  }
  int first_byte() const {
    std::uint8_t value = 0;
    read_blocking(stream_, memory_.view().slice(0, 1), &value, 1);
    return value;
  }
  void wait_for(StreamView stream, const UserEvent& event) const {
    _cl_event* const handle = event.handle();
    enqueue_marker(stream, {{&handle, 1}, nullptr});
  }
  const Stream stream_{*device().context};
  Buffer memory_;
};
MOECL_ON_EVERY_DEVICE(SideWorkTest);

TEST_P(SideWorkTest, BeginsAfterItsStreamAndEndsBeforeWhatFollowsItsJoin) {
  UserEvent before(*device().context), within(*device().context);
  wait_for(stream_, before);
  fill(stream_, 1);
  SideWork work(stream_, [&](StreamView side) {
    wait_for(side, within);
    fill(side, 2);
  });
  const Event beside = stream_.view().side().record();
  work.join();
  fill(stream_, 3);
  const Event all = stream_.view().record();
  stream_.view().side().flush();
  stream_.view().flush();
  within.complete();
  EXPECT_FALSE(beside.is_complete());
  before.complete();
  all.wait();
  beside.wait();
  EXPECT_EQ(first_byte(), 3);
}

TEST_P(SideWorkTest, RunsWhileItsStreamIsHeldBack) {
  UserEvent gate(*device().context);
  SideWork work(stream_, [&](StreamView side) { fill(side, 2); });
  wait_for(stream_, gate);
  const Event beside = stream_.view().side().record();
  stream_.view().side().flush();
  stream_.view().flush();
  beside.wait();
  work.join();
  gate.complete();
  EXPECT_EQ(first_byte(), 2);
}

/// When the stream has ended, the side work that may use the caller's memory has ended too.
TEST_P(SideWorkTest, IsWaitedForAfterAnError) {
  UserEvent gate(*device().context);
  EXPECT_THROW(SideWork(stream_,
                        [&](StreamView side) {
                          wait_for(side, gate);
                          fill(side, 2);
                          throw std::runtime_error("refused");
                        }),
               std::runtime_error);
  const Event all = stream_.view().record();
  stream_.view().flush();
  for (int ms = 0; ms < 20; ++ms) {
    EXPECT_FALSE(all.is_complete());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  gate.complete();
  all.wait();
  EXPECT_EQ(first_byte(), 2);
}

/// The kernels of a trace by queue.
std::map<std::pair<int, int>, std::set<std::string>> kernels_by_queue(Trace& trace) {
  const TempDir dir;
  trace.write_chrome_json(dir.file("trace.json"));
  const auto events = nlohmann::json::parse(read_text(dir.file("trace.json")))["traceEvents"];
  std::map<std::pair<int, int>, std::set<std::string>> found;
  for (const nlohmann::json& event : events)
    if (event.value("cat", "") == "kernel" && event["ph"] == "X")
      found[{event["pid"], event["tid"]}].insert(event["name"].get<std::string>());
  return found;
}

class SharedBesideTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(SharedBesideTest);

TEST_P(SharedBesideTest, SharedExpertsGiveTheSameOnAQueueOfTheirOwn) {
  ContextOptions options;
  options.trace = true;
  const bool routes_in_chunks = device().caps().nv_compute_capability >= 70;
  for (const char* name : {"deepseek-v3-e32k8-g8", "qwen2-moe-e16k4"}) {
    SCOPED_TRACE(name);
    Model model(name);
    const std::vector<double> expected = golden_values(name, "output");
    Outputs got[2];
    for (const bool beside : {false, true}) {
      model.options.shared_beside = beside;
      TestDevice traced{Context::create({device().context->devices().front()}, options), {}, ""};
      traced.stream = Stream(*traced.context);
      const MoeLayer layer(traced.stream, model.config.shape, model.weights(0, model.config.shape.experts),
                           model.options);
      EXPECT_THAT(layer.report().shared_queue, HasSubstr(beside ? "a queue of their own" : "the queue of the pass"));
      traced.context->trace()->clear();
      got[beside] = run_layer(traced, layer, model.input);
      EXPECT_LE(relative_error(got[beside].out, expected), 1e-5);
      const auto kernels = kernels_by_queue(*traced.context->trace());
      ASSERT_EQ(kernels.size(), beside ? 2U : 1U);
      const char* const routing = routes_in_chunks && !beside ? "route_tokens" : "gating_top_k";
      for (const auto& [queue, names] : kernels)
        EXPECT_EQ(names.count("combine"), names.count(routing)) << "routing and sum are on one queue";
    }
    EXPECT_EQ(got[0], got[1]);
  }
}

TEST_P(SharedBesideTest, ALayerThatForbidsOneLaunchRoutesInSeveral) {
  ContextOptions options;
  options.trace = true;
  TestDevice traced{Context::create({device().context->devices().front()}, options), {}, ""};
  traced.stream = Stream(*traced.context);
  Model model("qwen2-moe-e16k4");
  model.options.shared_beside = false;
  for (const bool one_launch : {true, false}) {
    model.options.one_launch = one_launch;
    const MoeLayer layer(traced.stream, model.config.shape, model.weights(0, model.config.shape.experts),
                         model.options);
    traced.context->trace()->clear();
    run_layer(traced, layer, model.input);
    const bool waits = one_launch && device().caps().nv_compute_capability >= 70;
    for (const auto& [queue, names] : kernels_by_queue(*traced.context->trace()))
      EXPECT_EQ(names.count("route_tokens"), waits ? 1U : 0U);
  }
}

TEST_P(SharedBesideTest, IsChosenByTheDevice) {
  Model model("qwen2-moe-e16k4");
  const bool nvidia = device().caps().nv_compute_capability > 0;
  for (const char* most : {"up to 256 tokens", "up to 4096 tokens"}) {
    const MoeLayer layer(device().stream, model.config.shape, model.weights(0, model.config.shape.experts),
                         model.options);
    EXPECT_THAT(layer.report().shared_queue, HasSubstr(nvidia ? most : "no NVIDIA GPU"));
    const QuantScheme codes = scheme_named("int8_w8a8").value();
    model.options.quantize = codes.weights, model.options.activations = codes.activations;
  }
  const Model without("mixtral-e8k2");
  const MoeLayer none(device().stream, without.config.shape, without.weights(0, without.config.shape.experts),
                      without.options);
  EXPECT_EQ(none.report().shared_queue, "");
}

}  // namespace
}  // namespace moecl::test
