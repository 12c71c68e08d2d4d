#include "runtime/operands.hpp"

#include <moecl/opencl.hpp>

#include <gmock/gmock.h>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using enum Access;

class OperandsTest : public OnEveryDevice {
 protected:
  static std::string overlap(Access first, const TensorView& a, Access second, const TensorView& b) {
    const std::array operands{Operand("a", first, a), Operand("b", second, b)};
    try {
      expect_apart(operands);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  }
  static std::string overlap(const TensorView& a, const TensorView& b) { return overlap(read, a, written, b); }
  TensorView floats(std::uint64_t offset_bytes, std::int64_t rows, std::int64_t columns) const {
    return {memory_.view().slice(offset_bytes, memory_.size_bytes() - offset_bytes), DType::f32, {rows, columns}};
  }

  const Buffer memory_{*device().context, 1 << 16};
};
MOECL_ON_EVERY_DEVICE(OperandsTest);

TEST_P(OperandsTest, NamesBothAndTheirBytes) {
  EXPECT_EQ(overlap(floats(0, 4, 8), floats(128, 4, 8)), "");
  EXPECT_EQ(overlap(floats(0, 4, 8), floats(124, 4, 8)),
            "a and b overlap: bytes [0, 128) and [124, 252) of one buffer");
  EXPECT_EQ(overlap(floats(124, 4, 8), floats(0, 4, 8)),
            "a and b overlap: bytes [124, 252) and [0, 128) of one buffer");
  const Buffer other(*device().context, 256);
  EXPECT_EQ(overlap(floats(0, 4, 8), TensorView(other.view(), DType::f32, {4, 8})), "");
}

TEST_P(OperandsTest, InputsMayOverlapInputs) {
  EXPECT_EQ(overlap(read, floats(0, 4, 8), read, floats(0, 4, 8)), "");
  EXPECT_NE(overlap(written, floats(0, 4, 8), written, floats(0, 4, 8)), "");
}

TEST_P(OperandsTest, WhatHasNoElementsOverlapsNothing) {
  EXPECT_EQ(overlap(floats(0, 0, 8), floats(0, 4, 8)), "");
  EXPECT_EQ(overlap({}, floats(0, 4, 8)), "");
}

TEST_P(OperandsTest, ColumnsOfOneMatrixMayBeTwoTensors) {
  TensorView left = floats(0, 4, 8), right = floats(32, 4, 8);
  left.stride[0] = right.stride[0] = 16;
  EXPECT_EQ(overlap(left, right), "");
  EXPECT_EQ(overlap(right, left), "");
  TensorView across = floats(28, 4, 8);
  across.stride[0] = 16;
  EXPECT_NE(overlap(left, across), "");
  EXPECT_NE(overlap(across, right), "");
}

TEST_P(OperandsTest, SubBuffersAreWhereTheyLieInTheirParent) {
  const auto part = [&](std::size_t origin, std::size_t size) {
    const cl_buffer_region region{origin, size};
    cl_int status = CL_SUCCESS;
    cl_mem handle = clCreateSubBuffer(memory_.handle(), 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    EXPECT_EQ(status, CL_SUCCESS);
    Buffer buffer = Buffer::borrow(handle);
    clReleaseMemObject(handle);
    return buffer;
  };
  const Buffer first = part(0, 8192), second = part(4096, 8192), third = part(8192, 8192);
  const auto matrix = [](const Buffer& in) { return TensorView(in.view(), DType::f32, {8, 256}); };
  EXPECT_EQ(overlap(matrix(first), matrix(second)), "a and b overlap: bytes [0, 8192) and [4096, 12288) of one buffer");
  EXPECT_EQ(overlap(matrix(first), matrix(third)), "");
  EXPECT_NE(overlap(matrix(second), floats(12284, 1, 1)), "");
  EXPECT_EQ(overlap(matrix(second), floats(12288, 1, 1)), "");
}

}  // namespace
}  // namespace moecl::test
