#pragma once
// Groups of ranks for tests of the C interface.
#include <moecl/rank_group.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/host/c_api.hpp"

namespace moecl::test {

using GroupHandle = Handle<moecl_rank_group, moecl_rank_group_destroy>;
using CommunicatorHandle = Handle<moecl_communicator, moecl_communicator_destroy>;

/// A group on the caller's cl_contexts. Rank r is on device r % devices. Ranks of one device share its context.
struct CGroup {
  explicit CGroup(std::int32_t ranks, std::int64_t deadline_ms = 0,
                  const std::vector<const TestDevice*>& on = {devices()[0].get()})
      : streams(static_cast<std::size_t>(ranks)), communicators(streams.size()) {
    for (const TestDevice* device : on)
      EXPECT_OK(moecl_context_wrap(callers.emplace_back(*device).context, nullptr, contexts.emplace_back().out()));
    std::vector<moecl_stream*> handles;
    for (std::size_t rank = 0; rank < streams.size(); ++rank) {
      EXPECT_OK(moecl_stream_create(*std::next(contexts.begin(), place(rank)), 0, streams[rank].out()));
      handles.push_back(streams[rank]);
    }
    auto options = sized<moecl_rank_group_options>();
    options.deadline_ms = deadline_ms;
    EXPECT_OK(moecl_rank_group_create(handles.data(), ranks, &options, group.out()));
    for (std::size_t rank = 0; rank < communicators.size(); ++rank)
      EXPECT_OK(moecl_rank_group_communicator(group, static_cast<std::int32_t>(rank), communicators[rank].out()));
  }
  CGroup(const CGroup&) = delete;
  CGroup& operator=(const CGroup&) = delete;
  ~CGroup() {
    for (cl_mem held : memory) clReleaseMemObject(held);
  }

  std::ptrdiff_t place(std::size_t rank) const { return static_cast<std::ptrdiff_t>(rank % callers.size()); }
  /// Device memory of a rank. Without values it has a few bytes, since a cl_mem cannot be empty.
  template <class T = float>
  moecl_device_array allocate(std::size_t rank, std::vector<T> values) {
    if (values.empty()) values.resize(std::max<std::size_t>(4 / sizeof(T), 1));
    cl_mem made =
        clCreateBuffer(std::next(callers.begin(), place(rank))->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                       values.size() * sizeof(T), values.data(), nullptr);
    EXPECT_NE(made, nullptr);
    const std::lock_guard lock(mutex);
    memory.push_back(made);
    return {made, 0};
  }
  template <class T = float>
  std::vector<T> read(std::size_t rank, moecl_device_array from, std::size_t count) const {
    std::vector<T> values(count);
    if (count == 0) return values;
    cl_command_queue queue = nullptr;
    EXPECT_OK(moecl_stream_native(streams[rank], &queue));
    EXPECT_EQ(clEnqueueReadBuffer(queue, from.memory, CL_TRUE, from.offset_bytes, count * sizeof(T), values.data(), 0,
                                  nullptr, nullptr),
              CL_SUCCESS);
    return values;
  }
  std::string failure() const {
    char text[256] = "unset";
    EXPECT_OK(moecl_rank_group_failure(group, text, sizeof(text)));
    return text;
  }
  /// Runs `body` for each rank in a thread of its own.
  void run(const std::function<void(std::size_t rank, moecl_communicator*)>& body) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < communicators.size(); ++rank)
      threads.emplace_back([&, rank] { body(rank, communicators[rank]); });
    for (std::thread& thread : threads) thread.join();
  }

  std::list<CallersQueue> callers;
  std::list<ContextHandle> contexts;
  std::vector<StreamHandle> streams;
  GroupHandle group;
  std::vector<CommunicatorHandle> communicators;
  std::mutex mutex;
  std::vector<cl_mem> memory;
};

}  // namespace moecl::test
