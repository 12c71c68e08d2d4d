#include <moecl/combine.hpp>
#include <moecl/gating_top_k.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/route_tokens.hpp>
#include <moecl/trace.hpp>
#include <moecl/tuned_choices.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cases/self_test.hpp"
#include "tests/devices.hpp"

namespace moecl::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

Device device(DeviceType type, std::uint32_t float_width) {
  DeviceCaps caps;
  caps.platform_name = "Some Platform", caps.vendor = "Maker", caps.name = "A1", caps.type = type;
  caps.preferred_float_width = float_width, caps.max_work_group_size = 256;
  return {.caps = caps};
}

Device with(Device device, const std::vector<tuning::Table>& tables) {
  device.tuning = tuning::read_from(tables, device.caps);
  return device;
}

/// A table of one entry, which matches every device.
tuning::Table table(const std::string& choices) {
  return {fmt::format(R"({{"entries": [{{"match": {{}}, "measured_on": "it", "choices": {{{}}}}}]}})", choices),
          "here"};
}

std::string variant_for(const Device& device, std::int64_t rows, DType a, CodeType weights) {
  grouped_gemm::Args args;
  args.a.dtype = a, args.weights.type = weights, args.weights.n = 64;
  return grouped_gemm::select(args, {"", {rows, 1}}, device);
}

const tuning::Table user{R"({"entries": [
  {"match": {"vendor": "Maker"}, "measured_on": "vendor",
   "choices": {"combine/lanes": 8, "gather_rows/lanes": 8, "grouped_gemm/bf16/bf16/t0_gemv": 4}},
  {"match": {"device": "A1"}, "measured_on": "device",
   "choices": {"combine/lanes": 32, "grouped_gemm/f32/f32/t0_gemv": 40}}]})",
                         "the user's"};
const tuning::Table shipped{R"({"entries": [
  {"match": {}, "measured_on": "default", "choices": {"gather_rows/lanes": 2, "quantize_rows/lanes": 128}}]})",
                            "shipped"};

TEST(TunedChoicesTest, EachChoiceIsOfTheClosestEntryOfTheFirstTableThatHasIt) {
  const Device tuned = with(device(DeviceType::gpu, 1), {user, shipped});
  EXPECT_THAT(tuned.tuning.problems, IsEmpty());
  const TunedChoice* combine = tuning::find_lanes(tuned.tuning, "combine");
  ASSERT_NE(combine, nullptr);
  EXPECT_EQ(combine->value, 32);
  EXPECT_EQ(combine->origin, "device, measured on device (the user's)");
  EXPECT_EQ(tuning::find_lanes(tuned.tuning, "gather_rows")->value, 8);
  EXPECT_EQ(tuning::find_lanes(tuned.tuning, "gather_rows")->origin, "vendor, measured on vendor (the user's)");
  EXPECT_EQ(tuning::find_lanes(tuned.tuning, "quantize_rows")->value, 128);
  EXPECT_EQ(tuning::find_lanes(tuned.tuning, "quantize_rows")->origin, "default, measured on default (shipped)");
  EXPECT_EQ(tuning::find_lanes(tuned.tuning, "gating_top_k"), nullptr);

  EXPECT_EQ(variant_for(tuned, 40, DType::f32, CodeType::f32), "t0_gemv");
  EXPECT_EQ(variant_for(tuned, 41, DType::f32, CodeType::f32), "t0_local");
  EXPECT_EQ(variant_for(tuned, 5, DType::bf16, CodeType::bf16), "t0_local");
  EXPECT_EQ(variant_for(tuned, 16, DType::f16, CodeType::f16), "t0_gemv");  // the default
  EXPECT_EQ(variant_for(tuned, 17, DType::f16, CodeType::f16), "t0_local");
}

TEST(TunedChoicesTest, DescribesEveryChoiceAndWhereItComesFrom) {
  const Device tuned = with(device(DeviceType::gpu, 1), {user, shipped});
  std::vector<std::string> lines;
  for (const auto& part : {tuning::describe(tuned), grouped_gemm::describe_choices(tuned)})
    for (const tuning::Line& line : part)
      lines.push_back(fmt::format("{}: {}, {}", line.name, line.value, line.origin.substr(0, line.origin.find(','))));
  EXPECT_THAT(
      lines,
      ElementsAre(
          "gating_top_k/lanes: 32, default", "gather_rows/lanes: 8, vendor", "quantize_rows/lanes: 128, default",
          "quantize_groups/lanes: 32 to 256, by the group, default", "gated_activation/lanes: 64, default",
          "combine/lanes: 32, device", "grouped_gemm/f32/f32/t0_gemv: up to 40 rows, device",
          "grouped_gemm/f32/f32/t0_local: any rows, default", "grouped_gemm/f16/f16/t0_gemv: up to 16 rows, default",
          "grouped_gemm/f16/f16/t0_local: any rows, default", "grouped_gemm/bf16/bf16/t0_gemv: up to 4 rows, vendor",
          "grouped_gemm/bf16/bf16/t0_local: any rows, default", "grouped_gemm/i8/i8/t0_gemv: up to 16 rows, default",
          "grouped_gemm/i8/i8/t0_local: any rows, default", "grouped_gemm/bf16/i8/t0_gemv: up to 16 rows, default",
          "grouped_gemm/bf16/i8/t0_local: any rows, default"));
}

TEST(TunedChoicesTest, OnCpusAVariantIsForAllRowsOrNone) {
  const Device wide = device(DeviceType::cpu, 16), narrow = device(DeviceType::cpu, 8);
  const auto t0_tile = [](const char* most_rows) {
    return table(fmt::format(R"("grouped_gemm/f32/f32/t0_tile": {})", most_rows));
  };
  EXPECT_EQ(variant_for(wide, 1, DType::f32, CodeType::f32), "t0_tile");
  EXPECT_EQ(variant_for(narrow, 1, DType::f32, CodeType::f32), "t0_tile16");
  for (const std::int64_t rows : {1, 1000}) {
    EXPECT_EQ(variant_for(with(wide, {t0_tile("0")}), rows, DType::f32, CodeType::f32), "t0_tile16");
    EXPECT_EQ(variant_for(with(narrow, {t0_tile("\"any\"")}), rows, DType::f32, CodeType::f32), "t0_tile");
  }
  const Device refused = with(wide, {t0_tile("16")});
  EXPECT_THAT(refused.tuning.problems, ElementsAre(HasSubstr("must not depend on other rows")));
  EXPECT_EQ(variant_for(refused, 100, DType::f32, CodeType::f32), "t0_tile");
}

TEST(TunedChoicesTest, IgnoresATableWithNonsenseAndSaysWhy) {
  const Device gpu = device(DeviceType::gpu, 1), cpu = device(DeviceType::cpu, 16);
  for (const auto& [text, problem] : std::vector<std::pair<std::string, std::string>>{
           {"", "tuning table"},
           {"[1]", "tuning table"},
           {R"({"entries": [{"match": {}, "measured_on": "it"}]})", "choices"},
           {R"({"entries": [{"match": {}, "measured_on": "it", "choices": 7}]})", "type must be object"},
           {table(R"("frobnicate/lanes": 2)").text, "frobnicate/lanes: there is no such choice"},
           {table(R"("combine/lanes": 3)").text, "combine/lanes: expected a power of two, at most 256, got 3"},
           {table(R"("combine/lanes": 512)").text, "at most 256, got 512"},
           {table(R"("combine/lanes": "many")").text, "expected a whole number, got \"many\""},
           {table(R"("combine/lanes": 32.5)").text, "expected a whole number, got 32.5"},
           {table(R"("grouped_gemm/f32/f32/t1": 1)").text, "no such choice"},
           {table(R"("grouped_gemm/f31/f32/t0_gemv": 1)").text, "no such choice"},
           {table(R"("grouped_gemm/f32/f32/t0_gemv": -1)").text, "-1 rows are negative"},
           {table(R"("grouped_gemm/f32/f32/t0_gemv": "some")").text, "expected a whole number"},
       }) {
    SCOPED_TRACE(text);
    const Device tuned = with(gpu, {{text, "the user's"}, shipped});
    EXPECT_THAT(tuned.tuning.problems, ElementsAre(AllOf(HasSubstr("the user's: ignored: "), HasSubstr(problem))));
    EXPECT_EQ(tuning::find_lanes(tuned.tuning, "gather_rows")->value, 2);
  }
  // If one value is wrong, nothing of the table is taken.
  const Device tuned = with(gpu, {table(R"("combine/lanes": 16, "gather_rows/lanes": 5)"), shipped});
  EXPECT_EQ(tuning::find_lanes(tuned.tuning, "combine"), nullptr);
  // A CPU's router has one work-item a token, so that route_tokens gives the same bits.
  EXPECT_THAT(with(cpu, {table(R"("gating_top_k/lanes": 16)")}).tuning.problems,
              ElementsAre(HasSubstr("expected 1 on a CPU")));
}

TEST(TunedChoicesTest, TheShippedTableIsRight) {
  for (const char* platform : {"NVIDIA CUDA", "Portable Computing Language", "rusticl"})
    for (const DeviceType type : {DeviceType::gpu, DeviceType::cpu}) {
      DeviceCaps caps = device(type, 16).caps;
      caps.platform_name = platform, caps.max_work_group_size = 1024;
      EXPECT_THAT(tuning::read(caps).problems, IsEmpty()) << platform;
    }
}

/// gemm_variants.json has no names of other variants. `variants` ensures that the file has all names.
TEST(TunedChoicesTest, TheDefaultsOfVariantsAreOfVariants) {
  std::vector<std::string> names, with_defaults;
  for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) names.emplace_back(variant.name);
  for (const tuning::VariantDefaults& one : tuning::variant_defaults()) with_defaults.push_back(one.name);
  EXPECT_THAT(with_defaults, UnorderedElementsAreArray(names));
}

/// Makes a context whose devices are tuned by a given table.
class TunedDeviceTest : public OnEveryDevice {
 protected:
  std::unique_ptr<Context> tuned_by(const tuning::Table& table) {
    ContextOptions options;
    options.trace = true;
    options.tuning = [=](const DeviceCaps& caps) { return tuning::read_from({table}, caps); };
    options.log_level = LogLevel::info;
    options.log = [this](LogLevel level, std::string_view line) {
      log_ += fmt::format("{}: {}\n", level == LogLevel::warning ? "warning" : "info", line);
    };
    return Context::create(device().context->devices(), options);
  }
  std::string log_;
};
MOECL_ON_EVERY_DEVICE(TunedDeviceTest);

std::vector<std::string> kernels_of(Context& context) {
  std::vector<std::string> ran;
  for (const WorkSummary& work : context.trace()->summary())
    ran.push_back(fmt::format("{} {}", work.name, work.variant));
  return ran;
}

/// A table changes which kernels run, as the trace shows, but no result.
TEST_P(TunedDeviceTest, RunsWhatTheTableSays) {
  const bool cpu = device().caps().type == DeviceType::cpu;
  const std::string unwanted = grouped_gemm::ranges(DType::f32, CodeType::f32, device().record()).front().variant;
  std::string choices = fmt::format(R"("grouped_gemm/f32/f32/{}": 0)", unwanted);
  for (const char* op : {"combine", "gather_rows", "quantize_groups", "gated_activation", "quantize_rows"})
    choices += fmt::format(R"(, "{}/lanes": {})", op, cpu ? 16 : 1);
  const auto context = tuned_by(table(choices));
  EXPECT_THAT(log_, AllOf(HasSubstr("info: tuned on"), HasSubstr("combine/lanes"),
                          HasSubstr("default, measured on it (here)")));
  const Stream stream(*context);
  for (const auto self_test : {self_test_combine, self_test_gather_rows, self_test_quantize_groups,
                               self_test_gated_activation, self_test_quantize_rows, self_test_grouped_gemm})
    for (const SelfTestResult& result : self_test(stream)) EXPECT_TRUE(result.ok()) << result.op << " " << result.error;
  const Device& tuned = context->devices().front();
  const std::string variant = variant_for(tuned, 1, DType::f32, CodeType::f32);
  EXPECT_NE(variant, unwanted);
  EXPECT_TRUE(grouped_gemm::rows_choose(tuned.caps) || variant_for(tuned, 1000, DType::f32, CodeType::f32) == variant);
  const std::vector<std::string> ran = kernels_of(*context);
  for (const char* op : {"combine", "gather_rows", "gated_activation", "quantize_rows"})
    EXPECT_THAT(ran, Contains(fmt::format("{} {}", op, cpu ? "row_per_group" : "row_per_item")));
  EXPECT_THAT(ran, Contains(fmt::format("quantize_groups {}", cpu ? "groups_per_group" : "row_per_item")));
  EXPECT_THAT(ran, Contains(fmt::format("grouped_gemm {}", variant)));
}

TEST_P(TunedDeviceTest, SaysWhatItIgnores) {
  tuned_by(table(R"("combine/lanes": 12)"));
  EXPECT_THAT(log_, HasSubstr("warning: here: ignored: combine/lanes: expected a power of two"));
}

/// Teams of route_tokens have as many lanes as gating_top_k, so that the weights keep their bits.
TEST_P(TunedDeviceTest, TheRouterGivesTheSameBitsInOneLaunch) {
  if (device().caps().type == DeviceType::cpu) GTEST_SKIP() << "one work-item a token";
  const auto context = tuned_by(table(R"("gating_top_k/lanes": 64)"));
  const Stream stream(*context);
  for (const auto self_test : {self_test_gating_top_k, self_test_route_tokens})
    for (const SelfTestResult& result : self_test(stream)) EXPECT_TRUE(result.ok()) << result.op << " " << result.error;
  constexpr std::int64_t tokens = 5, experts = 200, top_k = 8;
  const DeviceTensor logits(stream, DType::f32, {tokens, experts}, normal(tokens * experts, 1));
  RouterSpec spec{top_k};
  spec.renormalise = true;
  const DeviceTensor ids(stream, DType::i32, {tokens, top_k}), weights(stream, DType::f32, {tokens, top_k}),
      apart(stream, DType::f32, {tokens, top_k}), row_ends(stream, DType::i32, {experts}),
      slots(stream, DType::i32, {tokens * top_k}), rows(stream, DType::i32, {tokens * top_k});
  gating_top_k::enqueue(stream, {logits, {}, ids, apart}, spec);
  route_tokens::Args args;
  args.gating = {logits, {}, ids, weights};
  args.sort.ids = ids;
  args.sort.end_expert = args.sort.total_experts = experts;
  args.sort.row_ends = row_ends;
  args.sort.sorted_slots = slots;
  args.sort.slot_rows = rows;
  ASSERT_EQ(route_tokens::reject_one_launch(args, spec, context->devices().front()), "");
  route_tokens::enqueue(stream, args, spec);
  EXPECT_EQ(weights.values(stream), apart.values(stream));
}

}  // namespace
}  // namespace moecl::test
