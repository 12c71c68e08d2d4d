#pragma once
// Compares an operator of moecl::npu with its oracle: guarded outputs, poisoned workspace, both tail modes.
#include <moecl/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "host/npu/describe.hpp"
#include "tests/devices.hpp"
#include "tests/sampling.hpp"

namespace moecl::test {

/// What an output must hold.
struct Expected {
  std::vector<double> values;
  std::vector<bool> defined;          ///< elements that the operator writes; empty: all
  double absolute = 0, relative = 0;  ///< |got - value| <= absolute + relative * |value|; NaN agrees with NaN
};

/// The number of random cases that a property test runs on a device, as OnEveryDevice::takes samples.
inline int property_cases(const TestDevice& device) {
  return all_cases() ? 200 : &device == devices().front().get() ? 60 : 20;
}

/// Whole numbers of [least, most].
inline std::int64_t between(std::mt19937_64& engine, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(engine);
}
template <class T>
const T& one_of(std::mt19937_64& engine, const std::vector<T>& choices) {
  return choices[static_cast<std::size_t>(between(engine, 0, static_cast<std::int64_t>(choices.size()) - 1))];
}

/// Why a call is refused before anything is enqueued; empty: it is accepted.
template <class Args>
std::string refusal_of(Args args, const TestDevice& device) {
  try {
    infer(args);
    (void)workspace_bytes(args, device.record());
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

namespace detail {

inline void compare(const char* name, const std::vector<double>& got, const Expected& expected, npu::Tail tail,
                    DType dtype) {
  ASSERT_EQ(got.size(), expected.values.size()) << name;
  const unsigned char fill = tail == npu::Tail::zero ? 0 : 0x5a;
  const double untouched = tail == npu::Tail::poison && is_activation_dtype(dtype)
                               ? std::nan("")
                               : decode(dtype, std::vector<unsigned char>(size_bytes(dtype), fill)).front();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool defined = expected.defined.empty() || expected.defined[i];
    const double wanted = defined ? expected.values[i] : untouched;
    if (got[i] == wanted || (std::isnan(got[i]) && std::isnan(wanted))) continue;
    ASSERT_TRUE(defined) << name << "[" << i << "] is outside the defined part but was written: " << got[i];
    ASSERT_LE(std::abs(got[i] - wanted), expected.absolute + expected.relative * std::abs(wanted))
        << name << "[" << i << "] is " << got[i] << ", expected " << wanted;
  }
}

}  // namespace detail

/// @param expected  one for each output, in the order of the operator's fields; {} if `infer` leaves the output absent
template <class Args>
void expect_outputs(const TestDevice& device, Args args, const std::vector<Expected>& expected,
                    npu::Validation validation = npu::Validation::strict) {
  infer(args);
  const std::uint64_t size_bytes = workspace_bytes(args, device.record());
  const GuardedTensor workspace(device, DType::i8, {static_cast<std::int64_t>(size_bytes) + 256});
  for (const npu::Tail tail : {npu::Tail::poison, npu::Tail::zero}) {
    SCOPED_TRACE(tail == npu::Tail::poison ? "poisoned" : "zeroed");
    std::vector<std::unique_ptr<GuardedTensor>> outputs;
    std::vector<const char*> names;
    npu::for_each_output(args, [&](const char* name, TensorView& view) {
      outputs.push_back(
          std::make_unique<GuardedTensor>(device, view.dtype, std::initializer_list<std::int64_t>{view.elements()}));
      view.buffer = outputs.back()->view().buffer;
      names.push_back(name);
    });
    ASSERT_EQ(outputs.size(), expected.size());
    const GuardedTensor fault(device, DType::i32, {4}, std::vector<std::int32_t>(4));
    npu::Call how;
    how.workspace = workspace.view().buffer;
    const std::uint64_t skip = (256 - how.workspace.offset_bytes % 256) % 256;
    how.workspace = how.workspace.slice(skip, size_bytes);
    how.tail = tail;
    how.validation = validation;
    how.fault = fault;
    npu::Describe<Args>::run(device.stream, args, how);
    ASSERT_EQ(fault.read<std::int32_t>()[0], 0) << "fault at " << fault.read<std::int32_t>()[1];
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      detail::compare(names[i], outputs[i]->values(), expected[i], tail, outputs[i]->view().dtype);
      if (::testing::Test::HasFatalFailure()) return;
    }
    workspace.check_guards();
  }
}

}  // namespace moecl::test
