#pragma once
// Operators by name, for callers that do not know them at compile time: the command line, OPERATORS.md, doctor.
#include <moecl/communicator.hpp>
#include <moecl/npu.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "host/npu/describe.hpp"

namespace moecl::npu {

/// The value of a parameter. Choices and dtypes are text.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

enum class FieldKind : std::uint8_t { input, parameter, output };

struct FieldInfo {
  FieldKind kind = FieldKind::input;
  std::string name, text;
  std::string by_default = {};            ///< default of a parameter, as text
  bool list = false;                      ///< a list of tensors
  std::vector<std::string> choices = {};  ///< the values of a parameter that is an enumeration
  const char* c_type = "";                ///< type in the struct of the C interface
  const char* c_values = "";              ///< what the values mean in C, if they differ from the ones here
};

/// The arguments of one call, by name.
class BoundCall {
 public:
  virtual ~BoundCall() = default;
  /// Called once for each tensor of a list, in order. Errors: invalid_argument  no such input
  virtual void set_input(std::string_view name, const TensorView& view) = 0;
  /// Errors: invalid_argument  no such parameter, or the value does not fit it
  virtual void set_parameter(std::string_view name, const Value& value) = 0;
  virtual void infer() = 0;
  struct Output {
    std::string name;
    TensorView* view;
    bool list;
  };
  /// The outputs that `infer` made present. The caller sets their memory.
  virtual std::vector<Output> outputs() = 0;
  virtual std::uint64_t workspace_bytes(const Device& device) const = 0;
  virtual OperatorCost cost() const = 0;
  /// Errors: invalid_argument  the operator is collective
  virtual void enqueue(StreamView stream, const Call& how) const = 0;
  /// Errors: invalid_argument  the operator is not collective
  virtual void enqueue(Communicator& ranks, const Call& how) const = 0;
};

struct Operator {
  const char* family;  ///< names the header that declares it: routing, ...
  const char *name, *summary, *rounding;
  std::vector<Refusal> refused;
  std::vector<FieldInfo> fields;
  bool collective;  ///< called by all ranks of a group
  std::unique_ptr<BoundCall> (*bind)();
};

/// In the order of OPERATORS.md.
std::vector<Operator> operators();
/// Errors: unsupported  no operator has this name
Operator find_operator(std::string_view name);

}  // namespace moecl::npu
