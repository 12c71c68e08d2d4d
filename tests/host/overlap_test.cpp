// While rows of one micro-batch travel, the kernels of the other micro-batch and of the shared experts run. The proof
// is an exchange that cannot end before the test lets it.
#include <moecl/trace.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "host/layer/layer_pass.hpp"
#include "runtime/user_event.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

/// A command of a trace.
struct Command {
  std::string name;
  bool transfer = false;
  double enqueued = 0, begin = 0, end = 0;
  int host_thread = 0;
  std::pair<int, int> queue;
};

/// Every command of the trace that has an arrow from the call that enqueued the command.
std::vector<Command> commands_of(const nlohmann::json& trace) {
  std::map<std::int64_t, Command> by_flow;
  std::map<std::pair<std::pair<int, int>, double>, nlohmann::json> runs;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "X" && (event["cat"] == "kernel" || event["cat"] == "transfer"))
      runs[{{event["pid"], event["tid"]}, event["ts"].get<double>()}] = event;
    if (phase == "s") {
      by_flow[event["id"]].enqueued = event["ts"];
      by_flow[event["id"]].host_thread = event["tid"];
    }
    if (phase == "f") {
      by_flow[event["id"]].queue = {event["pid"], event["tid"]};
      by_flow[event["id"]].begin = event["ts"];
    }
  }
  std::vector<Command> commands;
  for (auto& [flow, command] : by_flow) {
    const auto run = runs.find({command.queue, command.begin});
    if (run == runs.end()) continue;
    command.name = run->second["name"];
    command.transfer = run->second["cat"] == "transfer";
    command.end = command.begin + run->second["dur"].get<double>();
    commands.push_back(command);
  }
  return commands;
}

class OverlapTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(OverlapTest);

/// Whether the event completes without any help.
bool completes(const Event& event) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!event.is_complete()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST_P(OverlapTest, KernelsRunWhileTheExchangeIsUnderWay) {
  const Model model("qwen2-moe-e16k4");
  const Outputs expected = of_one_rank(device(), model);
  ContextOptions traced;
  traced.trace = true;
  const std::unique_ptr<Context> context = Context::create({device().context->devices().front()}, traced);
  const Stream streams[] = {Stream(*context), Stream(*context)};
  RankGroup group({streams[0], streams[1]}, {std::chrono::milliseconds(120000), TransportKind::shared_context});
  UserEvent gate(*context);
  const std::int64_t tokens = 8;  // of each rank; halves of 4
  std::vector<double> out(static_cast<std::size_t>(2 * tokens * model.hidden()));

  group.run([&](Communicator& world) {
    const ExpertRank rank(world, 1, model.config.shape.experts);
    const StreamView stream = world.stream();
    const ParallelPlan plan{StrategyKind::mc2, place_experts({model.config.shape.experts})};
    const LayerParts parts(stream, model.config.shape,
                           model.weights(plan.placement, rank.first_expert, rank.local_experts), rank.local_experts,
                           model.options, {});
    const ExpertRank lanes[] = {rank.beside(), rank.beside()};
    const ExpertProblem problem{model.hidden(), model.config.shape.router.top_k, DType::f32};
    LayerPlans plans;
    const std::unique_ptr<Strategy> strategies[] = {Strategy::make(plan.strategy, lanes[0], problem),
                                                    Strategy::make(plan.strategy, lanes[1], problem)};
    StepMemory memory[2];
    const auto begin = model.input.begin() + world.rank() * tokens * model.hidden();
    const DeviceTensor x(stream, DType::f32, {tokens, model.hidden()}, {begin, begin + tokens * model.hidden()}),
        result(stream, DType::f32, {tokens, model.hidden()});
    const auto half = [&](std::int64_t i) {
      MoeLayer::Forward args;
      args.x = x.view.rows(i * tokens / 2, tokens / 2);
      args.out = result.view.rows(i * tokens / 2, tokens / 2);
      return LayerPass(stream, {parts, plans, *strategies[i], &memory[i]}, args, {});
    };
    LayerPass batches[] = {half(0), half(1)};
    // Nothing of the first batch leaves rank 1 before the gate opens.
    _cl_event* const closed = gate.handle();
    if (world.rank() == 1) enqueue_marker(lanes[0].ep.stream(), {{&closed, 1}, nullptr});
    batches[0].route();
    batches[1].route();
    batches[0].run_shared();
    batches[1].run_shared();
    const Event computed = stream.record();
    stream.flush();
    EXPECT_TRUE(completes(computed)) << "rank " << world.rank() << ": kernels wait for an exchange they do not need";
    world.share("computed", {});
    if (world.rank() == 0) gate.complete();
    world.share("open", {});
    for (LayerPass& batch : batches) batch.run_experts();
    for (LayerPass& batch : batches) batch.finish();
    const std::vector<double> mine = result.values(stream);
    std::copy(mine.begin(), mine.end(), out.begin() + world.rank() * tokens * model.hidden());
  });
  EXPECT_LE(relative_error(out, {expected.out.begin(), expected.out.begin() + static_cast<std::ptrdiff_t>(out.size())}),
            1e-6);

  const std::string path = testing::TempDir() + "/overlap_" + device().label + ".json";
  context->trace()->write_chrome_json(path);
  const std::vector<Command> commands = commands_of(nlohmann::json::parse(std::ifstream(path)));
  std::filesystem::remove(path);
  // Kernels that ran wholly while a copy of the same rank was under way, from its enqueue to its end.
  std::set<std::string> beside_a_copy;
  for (const Command& copy : commands)
    for (const Command& kernel : commands)
      if (copy.transfer && !kernel.transfer && copy.host_thread == kernel.host_thread && copy.queue != kernel.queue &&
          copy.enqueued < kernel.begin && kernel.end < copy.end)
        beside_a_copy.insert(kernel.name);
  EXPECT_THAT(beside_a_copy, testing::IsSupersetOf({"gating_top_k", "grouped_gemm", "gated_activation"}));
}

}  // namespace
}  // namespace moecl::test
