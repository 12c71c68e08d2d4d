#include <CL/cl.h>

#include <map>
#include <poll.h>
#include <sstream>

#include "runtime/check.hpp"
#include "runtime/child_process.hpp"
#include "runtime/compile_messages.hpp"
#include "runtime/compiler.hpp"
#include "runtime/platforms.hpp"
#include "runtime/program_build.hpp"

namespace moecl {
namespace {

/// After this time without a request the helper ends.
constexpr std::chrono::milliseconds idle_time{3000};
/// Memory arguments of kernels are the middle of a buffer, so that an index of -1, which empty problems may give, is
/// inside the buffer.
constexpr std::size_t memory_bytes = 4 << 20;
constexpr cl_buffer_region middle{1 << 20, 2 << 20};
constexpr std::size_t most_arg_bytes = 1024;

/// A context and queue on the device that the requesting process names.
class Target {
 public:
  explicit Target(const CompileRequest& request) {
    for (cl_platform_id platform : platforms()) {
      const std::vector<cl_device_id> devices = devices_of(platform);
      if (request.position >= devices.size()) continue;
      device_ = {platform, devices[request.position], query_caps(platform, devices[request.position])};
      const DeviceCaps& caps = device_.caps;
      if (caps.platform_name == request.platform && caps.platform_version == request.version) break;
      device_ = {};
    }
    if (device_.handle == nullptr)
      fail(ErrorCode::no_device, "the helper finds no device {} of '{}'", request.position, request.platform);
    cl_int status = CL_SUCCESS;
    context_ = clCreateContext(nullptr, 1, &device_.handle, nullptr, nullptr, &status);
    check_cl(status, "clCreateContext");
    queue_ = clCreateCommandQueue(context_, device_.handle, 0, &status);
    check_cl(status, "clCreateCommandQueue");
    cl_mem whole = clCreateBuffer(context_, CL_MEM_READ_WRITE, memory_bytes, nullptr, &status);
    check_cl(status, "clCreateBuffer");
    const cl_int zero = 0;
    check_cl(clEnqueueFillBuffer(queue_, whole, &zero, sizeof(zero), 0, memory_bytes, 0, nullptr, nullptr),
             "clEnqueueFillBuffer");
    memory_ = clCreateSubBuffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &middle, &status);
    check_cl(status, "clCreateSubBuffer");
  }

  std::vector<unsigned char> compile(const CompileRequest& request) {
    Program& program = programs_[{request.source, request.options}];
    if (program.handle == nullptr)
      program.handle = build_from_source(context_, device_, request.name, request.source, request.options);
    for (const std::string& trial : request.trials)
      if (std::find(program.tried.begin(), program.tried.end(), trial) == program.tried.end()) {
        run(program.handle, trial);
        program.tried.push_back(trial);
      }
    return binary_of(program.handle, device_);
  }

 private:
  struct Program {
    cl_program handle = nullptr;
    std::vector<std::string> tried;
  };

  /// See Trial::text.
  void run(cl_program program, const std::string& trial) {
    std::istringstream words(trial);
    std::string target, wide;
    std::getline(words, target, '/');
    const std::string kernel_name = target;
    std::array<std::size_t, 3> local{1, 1, 1};
    char mark = 0;
    words >> local[0] >> mark >> local[1] >> mark >> local[2];
    if (words.peek() == '/') words >> wide;
    cl_int status = CL_SUCCESS;
    cl_kernel kernel = clCreateKernel(program, kernel_name.c_str(), &status);
    // The requesting process reports missing kernels and a wrong number of arguments.
    if (status != CL_SUCCESS) return;
    const std::array<unsigned char, most_arg_bytes> zeros{};
    cl_uint index = 0;
    for (std::string arg; words >> arg; ++index) {
      const std::size_t size = arg == "m" || arg == "n" ? sizeof(memory_) : std::stoul(arg.substr(1));
      const void* value = arg == "m"                    ? static_cast<const void*>(&memory_)
                          : arg[0] == 'l' || arg == "n" ? nullptr
                                                        : static_cast<const void*>(zeros.data());
      if (clSetKernelArg(kernel, index, size, value) != CL_SUCCESS) {
        clReleaseKernel(kernel);
        return;
      }
    }
    std::array<std::size_t, 3> global = local;
    if (!wide.empty()) global[0] = (Trial::wide_grid / local[0] + 1) * local[0];
    status = clEnqueueNDRangeKernel(queue_, kernel, 3, nullptr, global.data(), local.data(), 0, nullptr, nullptr);
    if (status == CL_SUCCESS) clFinish(queue_);
    clReleaseKernel(kernel);
  }

  Device device_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  cl_mem memory_ = nullptr;
  std::map<std::pair<std::string, std::string>, Program> programs_;
};

class Server {
 public:
  Compiled answer(const std::string& message) {
    const auto told = [](Compiled::Outcome outcome, const std::exception& error, int cl_status = 0) {
      return Compiled{outcome, {}, error.what(), cl_status};
    };
    try {
      const CompileRequest request = request_from(message);
      Target* target = nullptr;
      try {
        target = &targets_.try_emplace({request.platform, request.position}, request).first->second;
      } catch (const Error& error) {
        return told(Compiled::Outcome::unusable, error, error.cl_status());
      }
      return {Compiled::Outcome::built, target->compile(request), {}, 0};
    } catch (const Error& error) {
      const bool refused = error.code() == ErrorCode::build_failed;
      return told(refused ? Compiled::Outcome::refused : Compiled::Outcome::unusable, error, error.cl_status());
    } catch (const std::exception& error) {
      return told(Compiled::Outcome::unusable, error);
    }
  }

 private:
  std::map<std::pair<std::string, std::size_t>, Target> targets_;
};

}  // namespace

void serve_compiler(int socket) {
  Server server;
  for (;;) {
    pollfd request{socket, POLLIN, 0};
    if (poll(&request, 1, static_cast<int>(idle_time.count())) == 0) return;
    std::string message;
    if (!receive_message(socket, message) || !send_message(socket, message_of(server.answer(message)))) return;
  }
}

}  // namespace moecl
