#include <moecl/dense_backend.hpp>
#include <moecl/error.hpp>

#include <gmock/gmock.h>

namespace moecl::test {
namespace {

using dense_backend::Backend;
using ::testing::HasSubstr;

DeviceCaps device_named(const std::string& name, DeviceType type) {
  DeviceCaps caps;
  caps.platform_name = "Some Platform", caps.vendor = "Some Vendor", caps.name = name, caps.type = type;
  return caps;
}

constexpr const char* measurements = R"({"entries": [
  {"match": {"device": "fast", "type": "gpu"}, "measured_on": "a fast GPU",
   "dense": [{"grouped_gemm_gflops": 100, "clblast_gflops": 400}, {"grouped_gemm_gflops": 200, "clblast_gflops": 200}],
   "batched": [{"grouped_gemm_gflops": 300, "clblast_gflops": 100}]},
  {"match": {"type": "gpu"}, "measured_on": "some GPU",
   "dense": [{"grouped_gemm_gflops": 10, "clblast_gflops": 5}], "batched": []}]})";

TEST(DenseBackendTest, TakesTheFasterInTheGeometricMeanOfTheFirstMatch) {
  const DeviceCaps fast = device_named("very fast", DeviceType::gpu);
  const dense_backend::Choice dense = dense_backend::select_from(measurements, "dense", fast, DType::f32);
  EXPECT_EQ(dense.backend, Backend::clblast);
  EXPECT_EQ(dense.reason, "2.0 times the speed of grouped_gemm on 2 dense products, measured on a fast GPU");
  EXPECT_EQ(dense_backend::select_from(measurements, "batched", fast, DType::f32).backend, Backend::grouped_gemm);
  const dense_backend::Choice other =
      dense_backend::select_from(measurements, "dense", device_named("slow", DeviceType::gpu), DType::f32);
  EXPECT_EQ(other.backend, Backend::grouped_gemm);
  EXPECT_THAT(other.reason, HasSubstr("some GPU"));
}

TEST(DenseBackendTest, FallsBackToTheGroupedProductAndSaysSo) {
  const dense_backend::Choice unknown =
      dense_backend::select_from(measurements, "dense", device_named("fast", DeviceType::cpu), DType::f32);
  EXPECT_EQ(unknown.backend, Backend::grouped_gemm);
  EXPECT_THAT(unknown.reason, HasSubstr("nothing was measured"));
  const DeviceCaps slow = device_named("slow", DeviceType::gpu);
  EXPECT_EQ(dense_backend::select_from(measurements, "batched", slow, DType::f32).reason, unknown.reason);
  const dense_backend::Choice bf16 =
      dense_backend::select_from(measurements, "dense", device_named("fast", DeviceType::gpu), DType::bf16);
  EXPECT_EQ(bf16.backend, Backend::grouped_gemm);
  EXPECT_THAT(bf16.reason, HasSubstr("bf16"));
}

TEST(DenseBackendTest, SaysWhatIsWrongWithMeasurements) {
  const DeviceCaps caps = device_named("fast", DeviceType::gpu);
  for (const char* text :
       {"", "{}", "[]", R"({"entries": [{}]})", R"({"entries": [{"match": {}, "measured_on": "x"}]})",
        R"({"entries": [{"match": {}, "measured_on": "x", "dense": [{"clblast_gflops": 1}]}]})"}) {
    try {
      dense_backend::select_from(text, "dense", caps, DType::f32);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_data) << text;
    }
  }
}

TEST(DenseBackendTest, ShipsMeasurementsOfPocl) {
  DeviceCaps caps = device_named("pthread-skylake-avx512-AMD EPYC", DeviceType::cpu);
  caps.platform_name = "Portable Computing Language";
  for (const auto select : {dense_backend::select, dense_backend::select_batched}) {
    const dense_backend::Choice choice = select(caps, DType::f32);
    EXPECT_THAT(choice.reason, HasSubstr("measured on"));
    EXPECT_EQ(choice.backend, Backend::grouped_gemm) << "CLBlast is not tuned for CPUs: " << choice.reason;
  }
}

}  // namespace
}  // namespace moecl::test
