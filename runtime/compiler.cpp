#include "runtime/compiler.hpp"

#include <CL/cl.h>

#include <algorithm>
#include <thread>

#include "runtime/check.hpp"
#include "runtime/child_process.hpp"
#include "runtime/compile_messages.hpp"
#include "runtime/platforms.hpp"

namespace moecl {
namespace {

/// Index of a device among those of its platform. Code for a sub-device is compiled for the whole device.
std::size_t position_of(const Device& device) {
  cl_device_id root = device.handle;
  for (cl_device_id parent = root; parent != nullptr;) {
    root = parent;
    check_cl(clGetDeviceInfo(root, CL_DEVICE_PARENT_DEVICE, sizeof(parent), &parent, nullptr), "clGetDeviceInfo");
  }
  const std::vector<cl_device_id> all = devices_of(device.platform);
  return static_cast<std::size_t>(std::find(all.begin(), all.end(), root) - all.begin());
}

}  // namespace

std::string Trial::target() const {
  return fmt::format("{}/{}x{}x{}{}", kernel, local[0], local[1], local[2], wide ? "/wide" : "");
}

std::string Trial::text() const {
  std::string text = target();
  for (const KernelArg& arg : args) switch (arg.kind) {
      case KernelArg::Kind::memory:
        text += *static_cast<void* const*>(arg.value) == nullptr ? " n" : " m";
        break;
      case KernelArg::Kind::local:
        text += fmt::format(" l{}", arg.size_bytes);
        break;
      case KernelArg::Kind::value:
        text += fmt::format(" s{}", arg.size_bytes);
        break;
    }
  return text;
}

std::shared_ptr<Compiler> Compiler::shared() {
  static std::mutex mutex;
  static std::weak_ptr<Compiler> living;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Compiler> compiler = living.lock();
  if (compiler == nullptr) living = compiler = std::shared_ptr<Compiler>(new Compiler);
  return compiler;
}

Compiler::Compiler() : free_(std::max<std::ptrdiff_t>(std::thread::hardware_concurrency(), 1)) {}

Compiler::~Compiler() = default;

Compiled Compiler::compile(const Device& device, std::string_view name, std::string_view source,
                           const std::string& options, const std::vector<std::string>& trials,
                           std::chrono::milliseconds deadline) {
  const std::string message =
      message_of(CompileRequest{device.caps.platform_name, device.caps.platform_version, position_of(device),
                                std::string(name), std::string(source), options, trials});
  free_.acquire();
  struct Release {
    std::counting_semaphore<>& free;
    ~Release() { free.release(); }
  } const release{free_};
  for (;;) {
    std::unique_ptr<ChildProcess> helper;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        helper = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    const bool is_new = helper == nullptr;
    if (is_new) {
      try {
        helper = std::make_unique<ChildProcess>(helper_program(), std::vector<std::string>{"compile"});
      } catch (const Error& error) {
        return {Compiled::Outcome::unusable, {}, error.what(), 0};
      }
    }
    try {
      Compiled compiled = answer_from(helper->ask(message, deadline));
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(helper));
      return compiled;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::invalid_data)
        return {Compiled::Outcome::unusable, {}, std::string("the helper's answer: ") + error.what(), 0};
      if (!is_new && helper->ended_well()) continue;  // the helper had been idle for too long
      return {helper->was_stopped() ? Compiled::Outcome::stopped : Compiled::Outcome::died, {}, error.what(), 0};
    }
  }
}

}  // namespace moecl
