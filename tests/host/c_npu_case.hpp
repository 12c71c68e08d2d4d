#pragma once
// A recorded case of an operator through the C interface, in cl_mem objects of the caller.
#include <moecl/npu.h>

#include <list>

#include "host/npu/describe.hpp"
#include "tests/host/c_api.hpp"
#include "tests/host/files.hpp"
#include "tools/operator_case.hpp"

namespace moecl::test {

inline constexpr std::pair<DType, std::int32_t> c_dtypes[] = {
    {DType::f32, MOECL_F32}, {DType::f16, MOECL_F16},      {DType::bf16, MOECL_BF16}, {DType::i8, MOECL_I8},
    {DType::u8, MOECL_U8},   {DType::boolean, MOECL_BOOL}, {DType::i32, MOECL_I32},   {DType::i64, MOECL_I64}};

inline std::int32_t c_dtype(DType dtype) {
  for (const auto& [type, number] : c_dtypes)
    if (type == dtype) return number;
  ADD_FAILURE() << name(dtype) << " has no number";
  return 0;
}

inline DType dtype_of(std::int32_t wanted) {
  for (const auto& [type, number] : c_dtypes)
    if (number == wanted) return type;
  ADD_FAILURE() << wanted << " is no dtype";
  return DType::f32;
}

struct CallersCase {
  CallersQueue caller;
  cli::OperatorCase recorded;
  std::list<cl_mem> memory;
  std::list<std::vector<moecl_tensor>> lists;
  std::list<std::vector<std::int64_t>> ints;

  CallersCase(const TestDevice& device, const std::string& name)
      : caller(device), recorded(cli::OperatorCase::open(data_path("operators/" + name + ".json"))) {}
  CallersCase(const CallersCase&) = delete;
  CallersCase& operator=(const CallersCase&) = delete;
  ~CallersCase() {
    for (cl_mem held : memory) clReleaseMemObject(held);
  }

  static constexpr std::uint64_t offset_bytes = 64;  ///< where each tensor stands in its cl_mem

  /// Memory with those bytes at the offset.
  cl_mem allocate(std::vector<std::byte> bytes) {
    bytes.insert(bytes.begin(), offset_bytes, std::byte{0x5a});
    memory.push_back(
        clCreateBuffer(caller.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes.size(), bytes.data(), nullptr));
    EXPECT_NE(memory.back(), nullptr);
    return memory.back();
  }
  moecl_tensor upload(const std::string& name) {
    const HostTensor tensor = recorded.tensors.tensor(name);
    moecl_tensor to{allocate({tensor.data, tensor.data + tensor.size_bytes}), offset_bytes, c_dtype(tensor.dtype),
                    static_cast<std::int32_t>(tensor.shape.size()),           {},           {}};
    std::copy(tensor.shape.begin(), tensor.shape.end(), to.shape);
    return to;
  }
};

inline std::size_t bytes_of(const moecl_tensor& tensor) {
  std::size_t bytes = size_bytes(dtype_of(tensor.dtype));
  for (int d = 0; d < tensor.rank; ++d) bytes *= static_cast<std::size_t>(tensor.shape[d]);
  return bytes;
}

/// Sets inputs and parameters of a C struct by the names of the case, and gives lists of outputs room.
struct SetFromCase {
  CallersCase& from;

  void input(const char* name, moecl_tensor& to, const char*) {
    const std::string key = std::string("in.") + name;
    if (from.recorded.tensors.has(key)) to = from.upload(key);
  }
  void input(const char* name, moecl_tensor_list& to, const char*) {
    std::vector<moecl_tensor>& list = from.lists.emplace_back();
    const std::string key = std::string("in.") + name;
    if (from.recorded.tensors.has(key)) list.push_back(from.upload(key));
    for (std::string item = key + ".0"; from.recorded.tensors.has(item); item = key + "." + std::to_string(list.size()))
      list.push_back(from.upload(item));
    to = {list.data(), static_cast<std::int64_t>(list.size())};
  }
  template <class T>
  void parameter(const char* name, T& to, const char*) {
    const nlohmann::json value = from.recorded.rules["parameters"].value(name, nlohmann::json());
    if (value.is_null()) return;
    if constexpr (std::is_same_v<T, moecl_int_list>) {
      std::vector<std::int64_t>& list = from.ints.emplace_back(value.get<std::vector<std::int64_t>>());
      to = {list.data(), static_cast<std::int64_t>(list.size())};
    } else if (value.is_string()) {
      to = static_cast<T>(c_dtype(*dtype_from_name(value.get<std::string>())));
    } else {
      to = value.get<T>();
    }
  }
  template <class Names>
  void choice(const char* name, std::int32_t& to, const char*, const Names& names) {
    const nlohmann::json value = from.recorded.rules["parameters"].value(name, nlohmann::json());
    if (value.is_null()) return;
    const auto* const found = std::find(names.begin(), names.end(), value.get<std::string>());
    ASSERT_NE(found, names.end()) << name;
    to = static_cast<std::int32_t>(found - names.begin());
  }
  void output(const char*, moecl_tensor&, const char*) {}
  void output(const char*, moecl_tensor_list& to, const char*) {
    std::vector<moecl_tensor>& room = from.lists.emplace_back(4);
    to = {room.data(), static_cast<std::int64_t>(room.size())};
  }
};

/// Calls each(name in the case, tensor) for every output that the plan gave.
template <class F>
struct PlannedOutputs {
  const CallersCase& of;
  F each;

  template <class... Rest>
  void input(const Rest&...) {}
  template <class... Rest>
  void parameter(const Rest&...) {}
  template <class... Rest>
  void choice(const Rest&...) {}
  void output(const char* name, moecl_tensor& tensor, const char*) {
    if (tensor.rank != 0) each(std::string("out.") + name, tensor);
  }
  void output(const char* name, moecl_tensor_list& list, const char*) {
    const std::string key = std::string("out.") + name;
    const bool plain = list.count == 1 && of.recorded.tensors.has(key);
    for (std::int64_t i = 0; i < list.count; ++i) each(plain ? key : key + "." + std::to_string(i), list.items[i]);
  }
};

template <class Args, class CArgs, class F>
void for_each_planned(const CallersCase& of, CArgs& args, F each) {
  PlannedOutputs<F> visit{of, each};
  npu::Describe<Args>::fields(args, visit);
}

/// The outputs agree with the case by its own rules, and there are no others.
template <class Args, class CArgs>
void expect_outputs(CallersCase& of, CArgs& args) {
  std::vector<cli::OutputTensor> outputs;
  for_each_planned<Args>(of, args, [&](const std::string& name, const moecl_tensor& tensor) {
    EXPECT_TRUE(of.recorded.tensors.has(name)) << name;
    std::vector<std::byte> bytes(bytes_of(tensor));
    if (!bytes.empty()) {
      ASSERT_EQ(clEnqueueReadBuffer(of.caller.queue, tensor.memory, CL_TRUE, tensor.offset_bytes, bytes.size(),
                                    bytes.data(), 0, nullptr, nullptr),
                CL_SUCCESS);
    }
    outputs.push_back({name, dtype_of(tensor.dtype), {tensor.shape, tensor.shape + tensor.rank}, std::move(bytes)});
  });
  const std::vector<cli::OutputVerdict> verdicts = cli::check_outputs(of.recorded, outputs);
  EXPECT_EQ(verdicts.size(), outputs.size());
  for (const cli::OutputVerdict& verdict : verdicts) EXPECT_EQ(verdict.difference, "") << verdict.name;
}

/// The three functions of an operator.
template <class CArgs>
struct COperator {
  moecl_status (*defaults)(CArgs*);
  moecl_status (*plan)(moecl_stream*, CArgs*, std::uint64_t*);
  moecl_status (*call)(moecl_stream*, const CArgs*, const moecl_call*, std::uint32_t, cl_event const*, cl_event*);
};

/// Plans and calls the operator between two events, and compares what it gives.
template <class Args, class CArgs>
void run_case(const TestDevice& device, const char* name, const COperator<CArgs>& with) {
  SCOPED_TRACE(name);
  CallersCase of(device, name);
  ContextHandle context;
  StreamHandle stream;
  ASSERT_OK(moecl_context_wrap(of.caller.context, nullptr, context.out()));
  ASSERT_OK(moecl_stream_wrap(context, of.caller.queue, stream.out()));
  CArgs args = sized<CArgs>();
  ASSERT_OK(with.defaults(&args));
  SetFromCase set{of};
  npu::Describe<Args>::fields(args, set);
  std::uint64_t workspace_bytes = 0;
  ASSERT_OK(with.plan(stream, &args, &workspace_bytes));
  for_each_planned<Args>(of, args, [&](const std::string&, moecl_tensor& tensor) {
    tensor.memory = of.allocate(std::vector<std::byte>(bytes_of(tensor), std::byte{0x5a}));
    tensor.offset_bytes = CallersCase::offset_bytes;
  });

  moecl_call how = sized<moecl_call>();
  how.workspace.memory = of.allocate(std::vector<std::byte>(workspace_bytes));
  how.fault = {of.allocate(std::vector<std::byte>(16)), CallersCase::offset_bytes};
  cl_event start = clCreateUserEvent(of.caller.context, nullptr), done = nullptr;
  ASSERT_OK(with.call(stream, &args, &how, 1, &start, &done));
  ASSERT_EQ(clSetUserEventStatus(start, CL_COMPLETE), CL_SUCCESS);
  ASSERT_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
  clReleaseEvent(start);
  clReleaseEvent(done);
  EXPECT_OK(moecl_check_fault(stream, how.fault));
  expect_outputs<Args>(of, args);
}

}  // namespace moecl::test
