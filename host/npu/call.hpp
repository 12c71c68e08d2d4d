#pragma once
// Runs an operator: checks its outputs against `infer`, checks its composition, fills tails, enqueues its steps.
#include <moecl/error.hpp>

#include <type_traits>

#include "host/npu/describe.hpp"
#include "host/npu/steps.hpp"
#include "runtime/operands.hpp"

namespace moecl::npu {

/// Errors: invalid_argument  the output is not what `infer` says
void expect_output(const char* name, const TensorView& given, const TensorView& inferred);
/// Errors: as expect_memory. Weights may be a transposed matrix, which needs no copy
void expect_operand_memory(const char* name, const TensorView& view);
void fill_tail(StreamView stream, const TensorView& output, Tail tail);

template <class Args>
void expect_tensors(const Args& args) {
  Args inferred = args;
  infer(inferred);
  std::vector<TensorView> expected;
  for_each_output(inferred, [&](const char*, TensorView& view) { expected.push_back(view); });
  std::size_t next = 0, given = 0;
  for_each_output(args, [&](const char*, const TensorView&) { ++given; });
  require(given == expected.size(), "outputs: expected {} tensors, got {}", expected.size(), given);
  for_each_output(args, [&](const char* name, const TensorView& view) { expect_output(name, view, expected[next++]); });
}

/// Runs `body`. An Error that it throws gets the operator's name in front.
template <class Body>
auto named(const char* name, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", name, error.what()));
  }
}

/// Runs the steps of an operator.
template <class Args>
using Composition = std::type_identity_t<void (*)(Steps& steps, const Args& args)>;

template <class Args>
std::uint64_t measure(const Args& args, const Device& device, Composition<Args> compose) {
  return named(Describe<Args>::name, [&] {
    Steps checking(device, Validation::strict, {});
    compose(checking, args);
    return checking.workspace_bytes();
  });
}

/// Makes all checks of a call that are possible before anything is enqueued.
template <class Args, class Compose>
void check_call(const Device& device, const Args& args, const Call& how, Compose compose) {
  expect_tensors(args);
  for_each_input(args, expect_operand_memory);
  for_each_output(args, expect_operand_memory);
  if (how.fault.present()) expect_tensor(how.fault, "fault", DType::i32, {4});
  Steps checking(device, how.validation, how.fault);
  compose(checking, args);
  require(how.workspace.size_bytes >= checking.workspace_bytes(), "workspace: {} bytes are needed, got {}",
          checking.workspace_bytes(), how.workspace.size_bytes);
  require(how.workspace.offset_bytes % WorkspaceLayout::alignment_bytes == 0,
          "workspace: byte offset {} is no multiple of {}", how.workspace.offset_bytes,
          WorkspaceLayout::alignment_bytes);
  std::vector<Operand> operands{{"fault", Access::written, how.fault},
                                {"workspace", Access::written, how.workspace.slice(0, checking.workspace_bytes())}};
  for_each_input(args,
                 [&](const char* name, const TensorView& view) { operands.emplace_back(name, Access::read, view); });
  for_each_output(
      args, [&](const char* name, const TensorView& view) { operands.emplace_back(name, Access::written, view); });
  expect_apart(operands);
}

/// Enqueues a call that check_call has accepted.
template <class Args, class Compose>
void enqueue_call(StreamView stream, const Args& args, const Call& how, Compose compose) {
  if (how.submit.wait.count != 0) enqueue_marker(stream, {how.submit.wait, nullptr});
  for_each_output(args, [&](const char*, const TensorView& view) { fill_tail(stream, view, how.tail); });
  Steps enqueuing(stream, how);
  compose(enqueuing, args);
  if (how.submit.done != nullptr) enqueue_marker(stream, {{}, how.submit.done});
}

template <class Args>
void call(StreamView stream, const Args& args, const Call& how, Composition<Args> compose) {
  named(Describe<Args>::name, [&] {
    check_call(*stream.device, args, how, compose);
    enqueue_call(stream, args, how, compose);
  });
}

}  // namespace moecl::npu
