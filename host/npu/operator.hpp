#pragma once
// Operators by name, for programs that do not know them at compile time: the command line, the page, doctor.
#include <moecl/communicator.hpp>
#include <moecl/npu.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "host/npu/describe.hpp"

namespace moecl::npu {

/// Text for a choice or a dtype; numbers for all others.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

enum class FieldKind : std::uint8_t { input, parameter, output };

struct FieldInfo {
  FieldKind kind = FieldKind::input;
  std::string name, text;
  std::string by_default = {};            ///< of a parameter, as text
  bool list = false;                      ///< a list of tensors
  std::vector<std::string> choices = {};  ///< of a parameter that is one of them
  const char* c_type = "";                ///< in the struct of the C interface
  const char* c_values = "";              ///< what its values mean there, where they are others than here
};

/// The arguments of one call, by name.
class BoundCall {
 public:
  virtual ~BoundCall() = default;
  /// A list's tensors are set one after the other. Errors: invalid_argument  no such input
  virtual void set_input(std::string_view name, const TensorView& view) = 0;
  /// Errors: invalid_argument  no such parameter, or no value for it
  virtual void set_parameter(std::string_view name, const Value& value) = 0;
  virtual void infer() = 0;
  struct Output {
    std::string name;
    TensorView* view;
    bool list;
  };
  /// Those that `infer` made present; set their memory.
  virtual std::vector<Output> outputs() = 0;
  virtual std::uint64_t workspace_bytes(const Device& device) const = 0;
  virtual OperatorCost cost() const = 0;
  /// Errors: invalid_argument  the operator is collective
  virtual void enqueue(StreamView stream, const Call& how) const = 0;
  /// Errors: invalid_argument  the operator is not
  virtual void enqueue(Communicator& ranks, const Call& how) const = 0;
};

struct Operator {
  const char* family;  ///< of the header that declares it: routing, ...
  const char *name, *summary, *rounding;
  std::vector<Refusal> refused;
  std::vector<FieldInfo> fields;
  bool collective;  ///< called by all ranks of a group
  std::unique_ptr<BoundCall> (*bind)();
};

/// In the order of the page.
std::vector<Operator> operators();
/// Errors: unsupported  there is none of that name
Operator find_operator(std::string_view name);

}  // namespace moecl::npu
