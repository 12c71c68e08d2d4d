#pragma once
// A recorded case of an operator through the C interface, in cl_mem objects of the caller.
#include <moecl/npu.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <numeric>

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

inline std::int64_t elements_of(const moecl_tensor& tensor) {
  return std::accumulate(tensor.shape, tensor.shape + tensor.rank, std::int64_t{1}, std::multiplies<>());
}

/// Strides of a caller's tensor with gaps: `apart` elements from one to the next in a row, `more` between rows.
struct Gaps {
  int tensor = -1;  ///< which one, in the order of the fields
  std::int64_t apart = 1, more = 0;
};

inline void set_strides(moecl_tensor& tensor, const Gaps& gaps) {
  std::int64_t stride = gaps.apart;
  for (int d = tensor.rank; d-- > 0; stride = stride * tensor.shape[d] + (d + 1 == tensor.rank ? gaps.more : 0))
    tensor.stride[d] = stride;
}

/// Where each element stands. All strides zero: contiguous.
inline std::vector<std::size_t> places_of(moecl_tensor tensor) {
  if (std::all_of(tensor.stride, tensor.stride + tensor.rank, [](std::int64_t s) { return s == 0; }))
    set_strides(tensor, {});
  std::vector<std::size_t> places;
  for (std::int64_t i = 0; i < elements_of(tensor); ++i) {
    std::int64_t place = 0, rest = i;
    for (int d = tensor.rank; d-- > 0; rest /= tensor.shape[d]) place += rest % tensor.shape[d] * tensor.stride[d];
    places.push_back(static_cast<std::size_t>(place));
  }
  return places;
}

struct CallersCase {
  CallersQueue caller;
  cli::OperatorCase recorded;
  Gaps gaps;
  std::int32_t rank;                 ///< in the group that makes the call together; -1: a call by one rank
  std::vector<std::string> tensors;  ///< the inputs, then the outputs
  std::list<cl_mem> memory;
  std::list<std::vector<moecl_tensor>> lists;
  std::list<std::vector<std::int64_t>> ints;
  std::vector<cli::OutputTensor> outputs;  ///< set by a call that succeeded

  CallersCase(const TestDevice& device, const std::string& name, const Gaps& with_gaps, std::int32_t of_rank = -1)
      : caller(device),
        recorded(cli::OperatorCase::open(data_path("operators/" + name + ".json"))),
        gaps(with_gaps),
        rank(of_rank) {}
  CallersCase(const CallersCase&) = delete;
  CallersCase& operator=(const CallersCase&) = delete;
  ~CallersCase() {
    for (cl_mem held : memory) clReleaseMemObject(held);
  }

  /// The name of a tensor in the case, for example from "in" and "x". The first version's `expand_idx` stands beside
  /// the second's.
  std::string key(const char* kind, const std::string& name) const {
    return (rank < 0 ? "" : "rank" + std::to_string(rank) + ".") + kind + "." + name +
           (name == "expand_idx" ? "_v1" : "");
  }

  static constexpr std::uint64_t offset_bytes = 64;  ///< where each tensor stands in its cl_mem

  /// Memory with those bytes at the offset.
  moecl_device_array allocate(std::vector<std::byte> bytes) {
    bytes.insert(bytes.begin(), offset_bytes, std::byte{0x5a});
    memory.push_back(
        clCreateBuffer(caller.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes.size(), bytes.data(), nullptr));
    EXPECT_NE(memory.back(), nullptr);
    return {memory.back(), offset_bytes};
  }
  /// Gives the tensor of that name memory with those elements, or with bytes of 0x5A if there are none. Sets strides if
  /// it has gaps.
  void place(const std::string& name, moecl_tensor& tensor, const std::byte* elements) {
    if (static_cast<int>(tensors.size()) == gaps.tensor) set_strides(tensor, gaps);
    tensors.push_back(name);
    const std::size_t size = size_bytes(dtype_of(tensor.dtype));
    const std::vector<std::size_t> places = places_of(tensor);
    std::vector<std::byte> bytes(places.empty() ? 0 : (places.back() + 1) * size, std::byte{0x5a});
    for (std::size_t i = 0; i < places.size() && elements != nullptr; ++i)
      std::memcpy(&bytes[places[i] * size], elements + i * size, size);
    const moecl_device_array at = allocate(std::move(bytes));
    tensor.memory = at.memory, tensor.offset_bytes = at.offset_bytes;
  }
  moecl_tensor upload(const std::string& name) { return upload(name, recorded.tensors.tensor(name)); }
  moecl_tensor upload(const std::string& name, const HostTensor& from) {
    moecl_tensor to{nullptr, 0, c_dtype(from.dtype), static_cast<std::int32_t>(from.shape.size()), {}, {}};
    std::copy(from.shape.begin(), from.shape.end(), to.shape);
    place(name, to, from.in_memory().data.memory());
    return to;
  }
  /// The tensor's elements. Expects that the bytes between them have not changed.
  std::vector<std::byte> download(const moecl_tensor& tensor) {
    const std::size_t size = size_bytes(dtype_of(tensor.dtype));
    const std::vector<std::size_t> places = places_of(tensor);
    std::vector<std::byte> elements;
    if (places.empty()) return elements;
    std::vector<std::byte> bytes((places.back() + 1) * size);
    EXPECT_EQ(clEnqueueReadBuffer(caller.queue, tensor.memory, CL_TRUE, tensor.offset_bytes, bytes.size(), bytes.data(),
                                  0, nullptr, nullptr),
              CL_SUCCESS);
    for (const std::size_t place : places) {
      elements.insert(elements.end(), &bytes[place * size], &bytes[place * size] + size);
      std::fill_n(&bytes[place * size], size, std::byte{0x5a});
    }
    EXPECT_THAT(bytes, ::testing::Each(std::byte{0x5a}));
    return elements;
  }
};

/// Sets inputs and parameters of a C struct by the names of the case, and gives memory to lists of outputs.
struct SetFromCase {
  CallersCase& from;

  void input(const char* name, moecl_tensor& to, const char*) {
    const std::string key = from.key("in", name);
    if (from.recorded.tensors.has(key)) to = from.upload(key);
    if (name == std::string_view("expand_idx")) {  // the output of the dispatch case of the same name
      std::string dispatch = from.recorded.path;
      dispatch.replace(dispatch.find("_combine_"), 9, "_dispatch_");
      to = from.upload(key, cli::OperatorCase::open(dispatch).tensors.tensor(from.key("out", name)));
    }
  }
  void input(const char* name, moecl_tensor_list& to, const char*) {
    std::vector<moecl_tensor>& list = from.lists.emplace_back();
    const std::string key = from.key("in", name);
    if (from.recorded.tensors.has(key)) list.push_back(from.upload(key));
    for (std::string item = key + ".0"; from.recorded.tensors.has(item); item = key + "." + std::to_string(list.size()))
      list.push_back(from.upload(item));
    to = {list.data(), static_cast<std::int64_t>(list.size())};
  }
  template <class T>
  void parameter(const char* name, T& to, const char*) {
    nlohmann::json value = from.recorded.rules["parameters"].value(name, nlohmann::json());
    if (name == std::string_view("ep_rank_id")) value = from.rank;
    if (value.is_null()) return;
    if constexpr (std::is_same_v<T, const char*>) {
      FAIL() << name << ": no case names its group";
    } else if constexpr (std::is_same_v<T, moecl_int_list>) {
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
    if (tensor.rank != 0) each(of.key("out", name), tensor);
  }
  void output(const char* name, moecl_tensor_list& list, const char*) {
    const std::string key = of.key("out", name);
    const bool plain = list.count == 1 && of.recorded.tensors.has(key);
    for (std::int64_t i = 0; i < list.count; ++i) each(plain ? key : key + "." + std::to_string(i), list.items[i]);
  }
};

template <class Args, class CArgs, class F>
void for_each_planned(const CallersCase& of, CArgs& args, F each) {
  PlannedOutputs<F> visit{of, each};
  npu::Describe<Args>::fields(args, visit);
}

/// Expects that the outputs agree with the case by its own rules. Returns the number of compared outputs.
inline std::size_t expect_outputs(const cli::OperatorCase& recorded, const std::vector<cli::OutputTensor>& outputs) {
  for (const cli::OutputTensor& output : outputs) EXPECT_TRUE(recorded.tensors.has(output.name)) << output.name;
  const std::vector<cli::OutputVerdict> verdicts = cli::check_outputs(recorded, outputs);
  for (const cli::OutputVerdict& verdict : verdicts) EXPECT_EQ(verdict.difference, "") << verdict.name;
  return verdicts.size();
}

/// The three functions of an operator that is called with a stream, or with a communicator.
template <class CArgs, class On = moecl_stream>
struct COperator {
  moecl_status (*defaults)(CArgs*);
  moecl_status (*plan)(On*, CArgs*, std::uint64_t*);
  moecl_status (*call)(On*, const CArgs*, const moecl_call*, std::uint32_t, cl_event const*, cl_event*);
};

struct Outcome {
  moecl_status call = MOECL_OK, fault = MOECL_OK;
};

/// Plans and calls the operator between two events. `of` gets the outputs, unless the call is refused or finds a fault.
template <class Args, class CArgs, class On>
Outcome run_case_on(On* on, moecl_stream* stream, CallersCase& of, const COperator<CArgs, On>& with,
                    const std::function<void(CArgs&, moecl_call&)>& change = {}) {
  CArgs args = sized<CArgs>();
  EXPECT_OK(with.defaults(&args));
  SetFromCase set{of};
  npu::Describe<Args>::fields(args, set);
  std::uint64_t workspace_bytes = 0;
  if (const moecl_status refused = with.plan(on, &args, &workspace_bytes); refused != MOECL_OK) return {refused};
  for_each_planned<Args>(of, args,
                         [&](const std::string& name, moecl_tensor& tensor) { of.place(name, tensor, nullptr); });

  moecl_call how = sized<moecl_call>();
  // The workspace begins at a multiple of 256: not at the offset.
  how.workspace.memory = of.allocate(std::vector<std::byte>(workspace_bytes)).memory;
  how.fault = of.allocate(std::vector<std::byte>(16));
  if (change) change(args, how);
  cl_event start = clCreateUserEvent(of.caller.context, nullptr), done = nullptr;
  const moecl_status status = with.call(on, &args, &how, 1, &start, &done);
  EXPECT_EQ(clSetUserEventStatus(start, CL_COMPLETE), CL_SUCCESS);
  clReleaseEvent(start);
  if (status != MOECL_OK) return {status};
  EXPECT_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
  clReleaseEvent(done);
  const moecl_status fault = moecl_check_fault(stream, how.fault);
  if (fault == MOECL_OK)
    for_each_planned<Args>(of, args, [&](const std::string& name, const moecl_tensor& tensor) {
      of.outputs.push_back(
          {name, dtype_of(tensor.dtype), {tensor.shape, tensor.shape + tensor.rank}, of.download(tensor)});
    });
  return {MOECL_OK, fault};
}

/// The same on a context and queue of the caller. Compares the outputs, too.
template <class Args, class CArgs>
Outcome run_case(CallersCase& of, const COperator<CArgs>& with,
                 const std::function<void(CArgs&, moecl_call&)>& change = {}) {
  ContextHandle context;
  StreamHandle stream;
  EXPECT_OK(moecl_context_wrap(of.caller.context, nullptr, context.out()));
  EXPECT_OK(moecl_stream_wrap(context, of.caller.queue, stream.out()));
  const Outcome outcome = run_case_on<Args, CArgs, moecl_stream>(stream, stream, of, with, change);
  if (outcome.call == MOECL_OK && outcome.fault == MOECL_OK) {
    EXPECT_EQ(expect_outputs(of.recorded, of.outputs), of.outputs.size());
  }
  return outcome;
}

}  // namespace moecl::test
