#pragma once
// Describes the fields of every operator by name, in one place. The command line binds the fields, OPERATORS.md lists
// them, the C interface converts them, and every call checks its outputs by them.
#include <moecl/npu.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace moecl::npu {

/// A feature of the NPU's operator that moecl refuses.
struct Refusal {
  const char *what, *why;
};

inline constexpr std::array<const char*, 5> round_modes = {"rint", "round", "floor", "ceil", "trunc"};

/// Specialised for each Args:
///   static constexpr const char *name, *summary, *rounding;   rounding: which variant is the default
///   static constexpr std::array<Refusal, N> refused;
///   static constexpr auto run = &the_operator;
///   template <class A, class V> static void fields(A& args, V& visit);
/// `fields` calls, in order, visit.input(name, field, text), visit.parameter(name, field, text), visit.choice(name,
/// field, text, names) for enumerations and visit.output(name, field, text). An input whose text starts with "optional"
/// may be absent. A is the C++ Args or the C struct: both have the same members.
template <class Args>
struct Describe;

template <class Args, class V>
void visit_fields(Args& args, V visitor) {
  Describe<std::remove_const_t<Args>>::fields(args, visitor);
}

/// Calls f(name, TensorView) for every tensor that is present.
template <class F>
struct TensorVisitor {
  bool inputs, outputs;
  F each;

  template <class T>
  void input(const char* name, T& field, const char*) {
    if (inputs) visit(name, field);
  }
  template <class T>
  void output(const char* name, T& field, const char*) {
    if (outputs) visit(name, field);
  }
  template <class... Rest>
  void parameter(const Rest&...) {}
  template <class... Rest>
  void choice(const Rest&...) {}

 private:
  template <class T>
  void visit(const char* name, T& field) {
    if constexpr (std::is_same_v<std::remove_const_t<T>, TensorList>)
      for (auto& view : field) each(name, view);
    else
      each(name, field);
  }
};

template <class Args, class F>
void for_each_input(Args& args, F each) {
  visit_fields(args, TensorVisitor<F>{true, false, each});
}
template <class Args, class F>
void for_each_output(Args& args, F each) {
  visit_fields(args, TensorVisitor<F>{false, true, each});
}

}  // namespace moecl::npu
