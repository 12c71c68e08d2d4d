#include <moecl/opencl.hpp>
#include <moecl/workspace.hpp>

#include <gmock/gmock.h>

#include <numeric>

#include "runtime/check.hpp"
#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using ::testing::HasSubstr;

class BufferTest : public OnEveryDevice {
 protected:
  Context& context() const { return *device().context; }
  StreamView stream() const { return device().stream; }
};
MOECL_ON_EVERY_DEVICE(BufferTest);

TEST_P(BufferTest, RefusesMoreThanTheDeviceAllocatesWithNumbers) {
  const std::uint64_t limit = device().caps().max_alloc_bytes;
  const Error error = error_of([&] { Buffer(context(), limit + 1); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr(std::to_string(limit + 1)));
  EXPECT_THAT(error.what(), HasSubstr("at most " + std::to_string(limit)));
}

TEST_P(BufferTest, OfNoBytesOwnsNothingAndTakesEveryCommand) {
  const Buffer empty(context(), 0);
  EXPECT_EQ(empty.handle(), nullptr);
  const std::uint64_t stops = context().counters().host_syncs;
  write_blocking(stream(), empty.view(), nullptr, 0);
  read_blocking(stream(), empty.view(), nullptr, 0);
  enqueue_fill(stream(), empty.view(), 1);
  enqueue_copy(stream(), empty.view(), empty.view());
  EXPECT_EQ(context().counters().host_syncs, stops);
}

TEST_P(BufferTest, MovesBytesAtOffsets) {
  const Buffer from(context(), 64), to(context(), 64);
  std::vector<unsigned char> bytes(64), back(64), expected(64, 0);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(1));
  enqueue_fill(stream(), to.view(), 0);
  enqueue_write(stream(), from.view(), bytes.data(), 64);
  enqueue_copy(stream(), from.view().slice(8, 16), to.view().slice(24, 16));
  enqueue_fill(stream(), to.view().slice(4, 4), 0x04030201);
  read_blocking(stream(), to.view(), back.data(), 64);
  std::copy(bytes.begin() + 8, bytes.begin() + 24, expected.begin() + 24);
  for (unsigned char i = 0; i < 4; ++i) expected[4u + i] = static_cast<unsigned char>(i + 1);
  EXPECT_EQ(back, expected);
}

TEST_P(BufferTest, RefusesRangesThatLeaveAView) {
  const Buffer memory(context(), 16);
  std::array<char, 32> host{};
  const BufferView view = memory.view();
  EXPECT_THAT(error_of([&] { view.slice(8, 9); }).what(), HasSubstr("[8, 8 + 9) leave a view of 16 bytes"));
  EXPECT_EQ(error_of([&] { view.slice(~std::uint64_t{0}, 2); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { view.slice(2, ~std::uint64_t{0}); }).code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error_of([&] { write_blocking(stream(), view, host.data(), 17); }).what(), HasSubstr("17 bytes asked"));
  EXPECT_THAT(error_of([&] { read_blocking(stream(), view, host.data(), 17); }).what(), HasSubstr("17 bytes asked"));
  EXPECT_THAT(error_of([&] { enqueue_copy(stream(), view, view.slice(0, 8)); }).what(),
              HasSubstr("16 bytes to a view of 8"));
  EXPECT_THAT(error_of([&] { enqueue_fill(stream(), view.slice(0, 6), 0x00010002); }).what(),
              HasSubstr("0x10002 for 6 bytes"));
  EXPECT_THAT(error_of([&] { enqueue_fill(stream(), view.slice(1, 4), 0x01020102); }).what(),
              HasSubstr("4 bytes at 1"));
}

TEST_P(BufferTest, WorkspaceGrowsAndNeverShrinks) {
  Workspace workspace;
  EXPECT_EQ(workspace.capacity_bytes(), 0u);
  EXPECT_EQ(workspace.reserve(context(), 100).size_bytes, 100u);
  _cl_mem* const first = workspace.reserve(context(), 50).handle;
  EXPECT_EQ(workspace.reserve(context(), 100).handle, first);
  EXPECT_EQ(workspace.reserve(context(), 200).size_bytes, 200u);
  EXPECT_EQ(workspace.reserve(context(), 1).size_bytes, 1u);
  EXPECT_EQ(workspace.capacity_bytes(), 200u);
}

TEST(WorkspaceLayoutTest, AlignsAndRefusesToOverflow) {
  WorkspaceLayout layout;
  EXPECT_EQ(layout.add(1), 0u);
  EXPECT_EQ(layout.add(257), 256u);
  EXPECT_EQ(layout.add(0), 768u);
  EXPECT_EQ(layout.total_bytes(), 768u);
  EXPECT_EQ(error_of([&] { layout.add(~std::uint64_t{0} >> 1); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(layout.total_bytes(), 768u);
  const TensorView place = layout.add(DType::bf16, {5, 3});
  EXPECT_EQ(layout.total_bytes(), 1024u);
  const TensorView tensor = tensor_in({nullptr, 4096, 1024}, place);
  EXPECT_EQ(tensor.describe(), "bf16[5, 3]");
  EXPECT_EQ(tensor.buffer.offset_bytes, 4096u + 768u);
  EXPECT_EQ(tensor.buffer.size_bytes, 30u);
  EXPECT_THROW(tensor_in({nullptr, 0, 797}, place), Error);
  const std::int64_t many = std::int64_t{1} << 60;
  for (const std::int64_t columns : {std::int64_t{4}, std::int64_t{16}, many, std::int64_t{-1}})
    EXPECT_EQ(error_of([&] { layout.add(DType::f32, {many, columns}); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(layout.total_bytes(), 1024u);
}

/// A driver may allocate as late as the first use, so these statuses mean want of memory in every call.
TEST(CheckTest, TellsWantOfMemoryFromOtherFailures) {
  for (const int status : {CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY}) {
    const Error error = error_of([&] { check_cl(status, "clEnqueueThing"); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_EQ(error.cl_status(), status);
    EXPECT_THAT(error.what(), HasSubstr("clEnqueueThing failed: CL_"));
    EXPECT_THAT(error.what(), HasSubstr("memory"));
  }
  EXPECT_EQ(error_of([] { check_cl(CL_INVALID_VALUE, "x"); }).code(), ErrorCode::device_error);
  EXPECT_THAT(error_of([] { check_cl(-9999, "x"); }).what(), HasSubstr("OpenCL status -9999"));
  check_cl(CL_SUCCESS, "x");
}

}  // namespace
}  // namespace moecl::test
