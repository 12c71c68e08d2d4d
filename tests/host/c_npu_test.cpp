// The operators through the C interface: recorded cases, with the caller's own cl_context, queue and cl_mem.
#include <moecl/npu_activation.h>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <list>

#include "host/npu/describe_activation.hpp"
#include "tests/host/c_api.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

std::int32_t c_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MOECL_F32;
    case DType::f16:
      return MOECL_F16;
    case DType::bf16:
      return MOECL_BF16;
    case DType::i8:
      return MOECL_I8;
    case DType::i32:
      return MOECL_I32;
    case DType::i64:
      return MOECL_I64;
    default:
      return MOECL_BOOL;
  }
}

/// Tensors of a recorded case in cl_mem objects of the caller.
struct CallersTensors {
  CallersQueue caller;
  SafetensorsFile file;
  nlohmann::json parameters;
  std::list<cl_mem> memory;
  std::list<std::vector<moecl_tensor>> lists;

  CallersTensors(const TestDevice& device, const std::string& name)
      : caller(device), file(SafetensorsFile::open(data_path("operators/" + name + ".safetensors"))) {
    parameters = nlohmann::json::parse(read_text(data_path("operators/" + name + ".json"))).at("parameters");
  }
  ~CallersTensors() {
    for (cl_mem held : memory) clReleaseMemObject(held);
  }

  cl_mem allocate(std::size_t size_bytes) {
    memory.push_back(
        clCreateBuffer(caller.context, CL_MEM_READ_WRITE, std::max<std::size_t>(size_bytes, 1), nullptr, nullptr));
    EXPECT_NE(memory.back(), nullptr);
    return memory.back();
  }
  moecl_tensor upload(const HostTensor& tensor) {
    moecl_tensor to{
        allocate(tensor.size_bytes), 0, c_dtype(tensor.dtype), static_cast<std::int32_t>(tensor.shape.size()), {}, {}};
    std::copy(tensor.shape.begin(), tensor.shape.end(), to.shape);
    if (tensor.size_bytes != 0) {
      EXPECT_EQ(clEnqueueWriteBuffer(caller.queue, to.memory, CL_TRUE, 0, tensor.size_bytes, tensor.data, 0, nullptr,
                                     nullptr),
                CL_SUCCESS);
    }
    return to;
  }
};

/// Sets inputs and parameters of a C struct by the names of the case.
struct SetFromCase {
  CallersTensors& from;

  void input(const char* name, moecl_tensor& to, const char*) {
    if (from.file.has(std::string("in.") + name)) to = from.upload(from.file.tensor(std::string("in.") + name));
  }
  void input(const char* name, moecl_tensor_list& to, const char*) {
    std::vector<moecl_tensor>& list = from.lists.emplace_back();
    if (from.file.has(std::string("in.") + name))
      list.push_back(from.upload(from.file.tensor(std::string("in.") + name)));
    to = {list.data(), static_cast<std::int64_t>(list.size())};
  }
  template <class T>
  void parameter(const char* name, T& to, const char*) {
    if (!from.parameters.contains(name) || from.parameters[name].is_null()) return;
    const nlohmann::json& value = from.parameters[name];
    if constexpr (std::is_same_v<T, moecl_int_list>)
      ints = value.get<std::vector<std::int64_t>>(), to = {ints.data(), static_cast<std::int64_t>(ints.size())};
    else if (value.is_string())
      to = static_cast<T>(c_dtype(*dtype_from_name(value.get<std::string>())));
    else
      to = value.get<T>();
  }
  template <class T, class Names>
  void choice(const char* name, T& to, const char*, const Names& names) {
    if (!from.parameters.contains(name)) return;
    const auto text = from.parameters[name].get<std::string>();
    to = static_cast<T>(std::find(names.begin(), names.end(), text) - names.begin());
  }
  template <class T>
  void output(const char*, T& to, const char*) {
    if constexpr (std::is_same_v<T, moecl_tensor_list>) to = {room.data(), static_cast<std::int64_t>(room.size())};
  }

  std::vector<std::int64_t> ints;
  std::vector<moecl_tensor> room = std::vector<moecl_tensor>(4);
};

/// Gives the planned outputs memory, and afterwards compares every bit with the case.
struct Outputs {
  CallersTensors& from;
  bool compare;

  template <class... Rest>
  void input(const Rest&...) {}
  template <class... Rest>
  void parameter(const Rest&...) {}
  template <class... Rest>
  void choice(const Rest&...) {}
  void output(const char* name, moecl_tensor_list& list, const char* text) {
    ASSERT_EQ(list.count, 1);
    output(name, list.items[0], text);
  }
  void output(const char* name, moecl_tensor& to, const char*) {
    const std::string key = std::string("out.") + name;
    ASSERT_EQ(from.file.has(key), to.rank != 0) << key;
    if (to.rank == 0) return;
    const HostTensor expected = from.file.tensor(key);
    if (!compare) return void(to.memory = from.allocate(expected.size_bytes));
    EXPECT_EQ(to.dtype, c_dtype(expected.dtype)) << key;
    EXPECT_EQ(std::vector<std::int64_t>(to.shape, to.shape + to.rank), expected.shape) << key;
    std::vector<unsigned char> bytes(expected.size_bytes), wanted(expected.size_bytes);
    ASSERT_EQ(
        clEnqueueReadBuffer(from.caller.queue, to.memory, CL_TRUE, 0, bytes.size(), bytes.data(), 0, nullptr, nullptr),
        CL_SUCCESS);
    std::memcpy(wanted.data(), expected.data, wanted.size());
    const std::vector<double> got = decode(expected.dtype, bytes), reference = decode(expected.dtype, wanted);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], reference[i], 0x1p-7 * std::abs(reference[i]) + (expected.dtype == DType::i8 ? 1 : 1e-30))
          << key << "[" << i << "]";
  }
};

class CNpuTest : public OnEveryDevice {
 protected:
  template <class Args, class CArgs>
  void run_case(const char* name, moecl_status (*defaults)(CArgs*),
                moecl_status (*plan)(moecl_stream*, CArgs*, std::uint64_t*),
                moecl_status (*call)(moecl_stream*, const CArgs*, const moecl_call*, std::uint32_t, cl_event const*,
                                     cl_event*)) {
    SCOPED_TRACE(name);
    CallersTensors tensors(device(), name);
    ContextHandle context;
    StreamHandle stream;
    ASSERT_OK(moecl_context_wrap(tensors.caller.context, nullptr, context.out()));
    ASSERT_OK(moecl_stream_wrap(context, tensors.caller.queue, stream.out()));
    CArgs args = sized<CArgs>();
    ASSERT_OK(defaults(&args));
    SetFromCase set{tensors, {}};
    npu::Describe<Args>::fields(args, set);
    std::uint64_t workspace_bytes = 0;
    ASSERT_OK(plan(stream, &args, &workspace_bytes));
    Outputs give{tensors, false};
    npu::Describe<Args>::fields(args, give);

    moecl_call how = sized<moecl_call>();
    how.workspace.memory = workspace_bytes == 0 ? nullptr : tensors.allocate(workspace_bytes);
    how.fault.memory = tensors.allocate(16);
    const std::int32_t no_fault[4] = {};
    ASSERT_EQ(
        clEnqueueWriteBuffer(tensors.caller.queue, how.fault.memory, CL_TRUE, 0, 16, no_fault, 0, nullptr, nullptr),
        CL_SUCCESS);
    cl_event start = clCreateUserEvent(tensors.caller.context, nullptr), done = nullptr;
    ASSERT_OK(call(stream, &args, &how, 1, &start, &done));
    ASSERT_EQ(clSetUserEventStatus(start, CL_COMPLETE), CL_SUCCESS);
    ASSERT_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(start);
    clReleaseEvent(done);
    EXPECT_OK(moecl_check_fault(stream, how.fault));
    Outputs compare{tensors, true};
    npu::Describe<Args>::fields(args, compare);
  }
};
MOECL_ON_EVERY_DEVICE(CNpuTest);

#define RUN_CASE(Args, function, name) run_case<npu::Args>(name, function##_defaults, function##_plan, function)

TEST_P(CNpuTest, RecordedCases) { RUN_CASE(SwigluArgs, moecl_swiglu, "npu_swiglu/last_bf16"); }

TEST_P(CNpuTest, RefusesWhatIsWrong) {
  CallersQueue caller(device());
  ContextHandle context;
  StreamHandle stream;
  ASSERT_OK(moecl_context_wrap(caller.context, nullptr, context.out()));
  ASSERT_OK(moecl_stream_wrap(context, caller.queue, stream.out()));
  moecl_swiglu_args args{};
  std::uint64_t workspace_bytes = 0;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "size_bytes is 0", moecl_swiglu_defaults(&args));
  args = sized<moecl_swiglu_args>();
  ASSERT_OK(moecl_swiglu_defaults(&args));
  EXPECT_EQ(args.dim, -1);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: expected f32, f16 or bf16",
               moecl_swiglu_plan(stream, &args, &workspace_bytes));
  args.x = {nullptr, 0, MOECL_F32, 2, {3, 4}, {}};
  ASSERT_OK(moecl_swiglu_plan(stream, &args, &workspace_bytes));
  EXPECT_EQ(args.y.rank, 2);
  EXPECT_EQ(args.y.shape[1], 2);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "npu_swiglu: x: f32[3, 4] needs 12 elements, its memory has 0 bytes",
               moecl_swiglu(stream, &args, nullptr, 0, nullptr, nullptr));
  args.x.dtype = 77;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: 77 is no moecl_dtype", moecl_swiglu_plan(stream, &args, &workspace_bytes));
  args.x.rank = 5;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "x: rank 5 is not in [0, 4]",
               moecl_swiglu_plan(stream, &args, &workspace_bytes));
  moecl_call how = sized<moecl_call>();
  how.tail = 9;
  args.x = {nullptr, 0, MOECL_F32, 2, {0, 4}, {}};
  ASSERT_OK(moecl_swiglu_plan(stream, &args, &workspace_bytes));
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "call.tail: 9", moecl_swiglu(stream, &args, &how, 0, nullptr, nullptr));
  EXPECT_OK(moecl_swiglu(stream, &args, nullptr, 0, nullptr, nullptr));
}

}  // namespace
}  // namespace moecl::test
