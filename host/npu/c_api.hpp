#pragma once
// Converts the C structs of the operators, by the descriptions that the command line uses too. A C struct and its C++
// Args have the same members: walking the fields of both in the same order pairs them.
#include <moecl/npu.h>

#include <optional>
#include <variant>

#include "host/c_api/c_api.hpp"
#include "host/c_api/ranks.hpp"
#include "host/npu/describe.hpp"
#include "host/npu/distribute.hpp"
#include "host/npu/operator.hpp"

namespace moecl::c_api {

/// A pointer to a member of a C struct.
using CField = std::variant<moecl_tensor*, moecl_tensor_list*, std::int64_t*, double*, std::int32_t*, moecl_int_list*,
                            const char**>;

struct CFields {
  std::vector<CField>& list;

  template <class T>
  void input(const char*, T& field, const char*) {
    list.emplace_back(&field);
  }
  template <class T>
  void parameter(const char*, T& field, const char*) {
    list.emplace_back(&field);
  }
  template <class T, class Names>
  void choice(const char*, T& field, const char*, const Names&) {
    list.emplace_back(&field);
  }
  template <class T>
  void output(const char*, T& field, const char*) {
    list.emplace_back(&field);
  }
};

/// The C fields in order. A visitor of the C++ fields takes the C field of each.
struct FieldPairs {
  std::vector<CField> fields;
  std::size_t next = 0;

  template <class T>
  T& take() {
    return *std::get<T*>(fields.at(next++));
  }
};

TensorView to_view(const Context& context, const moecl_tensor& from, const char* what);
npu::TensorList to_list(const Context& context, const moecl_tensor_list& from, const char* what);
std::vector<std::int64_t> to_ints(const moecl_int_list& from, const char* what);
/// Sets dtype, rank, shape and strides. The memory stays.
void describe_output(const TensorView& from, moecl_tensor& to);
void describe_outputs(const npu::TensorList& from, moecl_tensor_list& to, const char* what);

struct ReadC {
  const Context& context;
  FieldPairs& c;

  void input(const char* name, TensorView& to, const char*) { to = to_view(context, c.take<moecl_tensor>(), name); }
  void input(const char* name, npu::TensorList& to, const char*) {
    to = to_list(context, c.take<moecl_tensor_list>(), name);
  }
  void parameter(const char*, std::int64_t& to, const char*) { to = c.take<std::int64_t>(); }
  void parameter(const char*, double& to, const char*) { to = c.take<double>(); }
  void parameter(const char* name, bool& to, const char*) {
    const std::int32_t value = c.take<std::int32_t>();
    require(value == 0 || value == 1, "{}: {} is neither 0 nor 1", name, value);
    to = value == 1;
  }
  void parameter(const char* name, std::optional<DType>& to, const char*) {
    to = to_dtype(c.take<std::int32_t>(), name);
  }
  void parameter(const char*, std::optional<std::int64_t>& to, const char*) {
    const std::int64_t value = c.take<std::int64_t>();
    to = value == MOECL_NONE ? std::nullopt : std::optional(value);
  }
  void parameter(const char* name, std::vector<std::int64_t>& to, const char*) {
    to = to_ints(c.take<moecl_int_list>(), name);
  }
  void parameter(const char*, std::string& to, const char*) { to = text_or_empty(c.take<const char*>()); }
  template <class T, std::size_t N>
  void choice(const char* name, T& to, const char*, const std::array<const char*, N>&) {
    const std::int32_t value = c.take<std::int32_t>();
    require(value >= 0 && value < static_cast<std::int32_t>(N), "{}: {} is not in [0, {})", name, value, N);
    to = static_cast<T>(value);
  }
  void output(const char* name, TensorView& to, const char* text) { input(name, to, text); }
  void output(const char* name, npu::TensorList& to, const char* text) { input(name, to, text); }
};

struct WriteDefaults {
  FieldPairs& c;

  template <class T>
  void input(const char*, T&, const char*) {
    ++c.next;
  }
  void parameter(const char*, std::int64_t& from, const char*) { c.take<std::int64_t>() = from; }
  void parameter(const char*, double& from, const char*) { c.take<double>() = from; }
  void parameter(const char*, bool& from, const char*) { c.take<std::int32_t>() = from ? 1 : 0; }
  void parameter(const char*, std::optional<DType>& from, const char*) {
    c.take<std::int32_t>() = from ? number_of(*from) : 0;
  }
  void parameter(const char*, std::optional<std::int64_t>& from, const char*) {
    c.take<std::int64_t>() = from.value_or(MOECL_NONE);
  }
  void parameter(const char*, std::vector<std::int64_t>&, const char*) { c.take<moecl_int_list>() = {}; }
  void parameter(const char*, std::string&, const char*) { c.take<const char*>() = nullptr; }
  template <class T, std::size_t N>
  void choice(const char*, T& from, const char*, const std::array<const char*, N>&) {
    c.take<std::int32_t>() = static_cast<std::int32_t>(from);
  }
  template <class T>
  void output(const char*, T&, const char*) {
    ++c.next;
  }
};

struct WriteOutputs {
  FieldPairs& c;

  template <class... Rest>
  void input(const Rest&...) {
    ++c.next;
  }
  template <class... Rest>
  void parameter(const Rest&...) {
    ++c.next;
  }
  template <class... Rest>
  void choice(const Rest&...) {
    ++c.next;
  }
  void output(const char*, TensorView& from, const char*) { describe_output(from, c.take<moecl_tensor>()); }
  void output(const char* name, npu::TensorList& from, const char*) {
    describe_outputs(from, c.take<moecl_tensor_list>(), name);
  }
};

template <class Args, class CArgs>
FieldPairs pair_fields(CArgs& from) {
  FieldPairs pairs;
  CFields collect{pairs.fields};
  npu::Describe<Args>::fields(from, collect);
  return pairs;
}

template <class Args, class CArgs>
moecl_status operator_defaults(CArgs* to) noexcept {
  return guarded([&] {
    CArgs c{};
    Args args;
    FieldPairs pairs = pair_fields<Args>(c);
    npu::visit_fields(args, WriteDefaults{pairs});
    write_struct(c, to, "args");
  });
}

template <class Args, class CArgs>
Args read_args(const Context& context, CArgs& from) {
  Args args;
  FieldPairs pairs = pair_fields<Args>(from);
  npu::visit_fields(args, ReadC{context, pairs});
  return args;
}

/// The stream of the object with which an operator is called: a stream, or a communicator if it is collective.
inline StreamView stream_of(moecl_stream* stream) { return required(stream, "stream").stream; }
inline StreamView stream_of(moecl_communicator* ranks) { return required(ranks, "communicator").communicator.stream(); }

template <class Args, class On, class CArgs>
moecl_status operator_plan(On* called_with, CArgs* c_args, std::uint64_t* out_workspace_bytes) noexcept {
  return guarded([&] {
    const StreamView on = stream_of(called_with);
    std::uint64_t& workspace = required(out_workspace_bytes, "out_workspace_bytes");
    CArgs c = read_struct(c_args, "args");
    Args args = read_args<Args>(*on.context, c);
    infer(args);
    const std::uint64_t needed = workspace_bytes(args, *on.device);
    FieldPairs pairs = pair_fields<Args>(c);
    npu::visit_fields(args, WriteOutputs{pairs});
    write_struct(c, c_args, "args");
    workspace = needed;
  });
}

npu::Call to_call(const Context& context, const moecl_call* from);

template <class Args>
struct CallOf {
  Args args;
  npu::Call how;
  Event done;
};

/// Reads the call. It waits for the caller's events, and signals out_event if the caller wants it.
template <class Args, class CArgs>
void read_call(CallOf<Args>& to, const Context& context, const CArgs* c_args, const moecl_call* how,
               std::uint32_t num_wait_events, _cl_event* const* wait_events, _cl_event** out_event) {
  CArgs c = read_struct(c_args, "args");
  to.args = read_args<Args>(context, c);
  to.how = to_call(context, how);
  to.how.submit = {wait_list(context, num_wait_events, wait_events), out_event != nullptr ? &to.done : nullptr};
}

template <class Args, class CArgs>
moecl_status operator_call(moecl_stream* stream, const CArgs* c_args, const moecl_call* how,
                           std::uint32_t num_wait_events, _cl_event* const* wait_events,
                           _cl_event** out_event) noexcept {
  return guarded([&] {
    const StreamView on = stream_of(stream);
    CallOf<Args> call;
    read_call(call, *on.context, c_args, how, num_wait_events, wait_events, out_event);
    npu::Describe<Args>::run(on, call.args, call.how);
    if (out_event != nullptr) *out_event = call.done.release();
  });
}

/// The same for a call of all ranks. If the struct of one rank cannot be read, all ranks hear of it.
template <class Args, class CArgs>
moecl_status operator_call(moecl_communicator* communicator, const CArgs* c_args, const moecl_call* how,
                           std::uint32_t num_wait_events, _cl_event* const* wait_events,
                           _cl_event** out_event) noexcept {
  return guarded([&] {
    const StreamView on = stream_of(communicator);
    Communicator& ranks = communicator->communicator;
    CallOf<Args> call;
    npu::check_together(ranks, npu::Describe<Args>::name,
                        [&] { read_call(call, *on.context, c_args, how, num_wait_events, wait_events, out_event); });
    npu::Describe<Args>::run(ranks, call.args, call.how);
    if (out_event != nullptr) *out_event = call.done.release();
  });
}

}  // namespace moecl::c_api

// NOLINTBEGIN(bugprone-macro-parentheses): `on` is a type
/// The three C functions of an operator that is called with an object of type `on`.
#define MOECL_C_OPERATOR_ON(on, function, Args)                                                                 \
  moecl_status function##_defaults(function##_args* args) {                                                     \
    return moecl::c_api::operator_defaults<moecl::npu::Args>(args);                                             \
  }                                                                                                             \
  moecl_status function##_plan(on* called_with, function##_args* args, std::uint64_t* out_workspace_bytes) {    \
    return moecl::c_api::operator_plan<moecl::npu::Args>(called_with, args, out_workspace_bytes);               \
  }                                                                                                             \
  moecl_status function(on* called_with, const function##_args* args, const moecl_call* call,                   \
                        std::uint32_t num_wait_events, _cl_event* const* wait_events, _cl_event** out_event) {  \
    return moecl::c_api::operator_call<moecl::npu::Args>(called_with, args, call, num_wait_events, wait_events, \
                                                         out_event);                                            \
  }
// NOLINTEND(bugprone-macro-parentheses)
#define MOECL_C_OPERATOR(function, Args) MOECL_C_OPERATOR_ON(moecl_stream, function, Args)
#define MOECL_C_COLLECTIVE(function, Args) MOECL_C_OPERATOR_ON(moecl_communicator, function, Args)
