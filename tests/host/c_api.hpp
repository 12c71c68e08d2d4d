#pragma once
// For tests of the C interface: failed calls, and OpenCL objects of the caller.
#include <moecl/moecl.h>
#include <moecl/opencl.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/devices.hpp"

/// The call fails with that status, and this thread's message has that text.
#define EXPECT_FAILS(expected_status, text, call)                                     \
  do {                                                                                \
    EXPECT_EQ(call, expected_status) << moecl_last_error_message();                   \
    EXPECT_THAT(std::string(moecl_last_error_message()), ::testing::HasSubstr(text)); \
  } while (false)
#define EXPECT_OK(call) EXPECT_EQ(call, MOECL_OK) << moecl_last_error_message()
#define ASSERT_OK(call) ASSERT_EQ(call, MOECL_OK) << moecl_last_error_message()

namespace moecl::test {

/// A struct of the C interface with its size set.
template <class T>
T sized() {
  T value{};
  value.size_bytes = sizeof(T);
  return value;
}

/// Owns a handle of the C interface.
template <class T, moecl_status (*destroy)(T*)>
class Handle {
 public:
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }
  void reset() { EXPECT_EQ(destroy(std::exchange(handle_, nullptr)), MOECL_OK); }
  operator T*() const { return handle_; }
  /// Where a call puts a new handle; the old one is destroyed.
  T** out() {
    reset();
    return &handle_;
  }

 private:
  T* handle_ = nullptr;
};
using ContextHandle = Handle<moecl_context, moecl_context_destroy>;
using StreamHandle = Handle<moecl_stream, moecl_stream_destroy>;
using LayerHandle = Handle<moecl_layer, moecl_layer_destroy>;

/// A cl_context and an in-order queue as an embedder makes them.
struct CallersQueue {
  explicit CallersQueue(const TestDevice& on) {
    cl_device_id device = on.context->devices().front().handle;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
    queue = clCreateCommandQueue(context, device, 0, nullptr);
    EXPECT_NE(queue, nullptr);
  }
  CallersQueue(const CallersQueue&) = delete;
  CallersQueue& operator=(const CallersQueue&) = delete;
  ~CallersQueue() {
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
  }

  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
};

}  // namespace moecl::test
