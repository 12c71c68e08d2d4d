#include "host/npu/operator.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>

#include "host/npu/describe_activation.hpp"
#include "host/npu/describe_distribute.hpp"
#include "host/npu/describe_gating.hpp"
#include "host/npu/describe_matmul.hpp"
#include "host/npu/describe_quant.hpp"
#include "host/npu/describe_routing.hpp"
#include "runtime/check.hpp"

namespace moecl::npu {
namespace {

/// The value of a parameter as text.
template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
    std::string text;
    for (const std::int64_t item : value) text += fmt::format("{}{}", text.empty() ? "" : ", ", item);
    return "[" + text + "]";
  } else if constexpr (std::is_same_v<T, std::optional<DType>>) {
    return value ? name(*value) : "none";
  } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
    return value ? std::to_string(*value) : "none";
  } else {
    return fmt::format("{}", value);
  }
}

/// The value as text in the notation of a case file.
std::string text_of(const Value& value) {
  return std::visit(
      [](const auto& held) {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::string>)
          return '"' + held + '"';
        else
          return text_of(held);
      },
      value);
}

/// The type of a field in the C struct.
template <class T>
constexpr const char* c_type_of() {
  if constexpr (std::is_same_v<T, TensorView>)
    return "moecl_tensor";
  else if constexpr (std::is_same_v<T, TensorList>)
    return "moecl_tensor_list";
  else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
    return "moecl_int_list";
  else if constexpr (std::is_same_v<T, std::string>)
    return "const char*";
  else if constexpr (std::is_same_v<T, double>)
    return "double";
  else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::optional<std::int64_t>>)
    return "int64_t";
  else
    return "int32_t";
}

template <class T>
constexpr const char* c_values_of() {
  if constexpr (std::is_same_v<T, std::optional<std::int64_t>>)
    return "MOECL_NONE: none";
  else if constexpr (std::is_same_v<T, std::optional<DType>>)
    return "a moecl_dtype, 0: none";
  else if constexpr (std::is_same_v<T, std::string>)
    return "NULL: empty";
  else if constexpr (std::is_same_v<T, bool>)
    return "1 or 0";
  else
    return "";
}

struct Lister {
  std::vector<FieldInfo>& list;

  template <class T>
  void input(const char* field, T&, const char* text) {
    list.push_back({FieldKind::input, field, text, "", std::is_same_v<T, TensorList>, {}, c_type_of<T>()});
  }
  template <class T>
  void parameter(const char* field, T& value, const char* text) {
    list.push_back({FieldKind::parameter, field, text, text_of(value), false, {}, c_type_of<T>(), c_values_of<T>()});
  }
  template <class T, std::size_t N>
  void choice(const char* field, T& value, const char* text, const std::array<const char*, N>& names) {
    list.push_back({FieldKind::parameter,
                    field,
                    text,
                    names[static_cast<std::size_t>(value)],
                    false,
                    {names.begin(), names.end()},
                    c_type_of<T>()});
  }
  template <class T>
  void output(const char* field, T&, const char* text) {
    list.push_back({FieldKind::output, field, text, "", std::is_same_v<T, TensorList>, {}, c_type_of<T>()});
  }
};

struct SetInput {
  std::string_view wanted;
  const TensorView& view;
  bool& found;

  void input(const char* field, TensorView& to, const char*) {
    if (wanted == field) to = view, found = true;
  }
  void input(const char* field, TensorList& to, const char*) {
    if (wanted == field) to.push_back(view), found = true;
  }
  template <class... Rest>
  void parameter(const Rest&...) {}
  template <class... Rest>
  void choice(const Rest&...) {}
  template <class... Rest>
  void output(const Rest&...) {}
};

struct SetParameter {
  std::string_view wanted;
  const Value& value;
  bool& found;

  template <class... Rest>
  void input(const Rest&...) {}
  template <class... Rest>
  void output(const Rest&...) {}

  template <class T>
  void parameter(const char* field, T& to, const char*) {
    if (wanted != field) return;
    found = true;
    if constexpr (std::is_same_v<T, double>) {
      if (const auto* number = std::get_if<std::int64_t>(&value)) return void(to = static_cast<double>(*number));
    } else if constexpr (std::is_same_v<T, bool>) {
      if (const auto* number = std::get_if<std::int64_t>(&value); number != nullptr && (*number == 0 || *number == 1))
        return void(to = *number == 1);
    } else if constexpr (std::is_same_v<T, std::optional<DType>>) {
      const auto* text = std::get_if<std::string>(&value);
      require(text != nullptr && dtype_from_name(*text), "{}: expected a dtype, got {}", field, text_of(value));
      return void(to = dtype_from_name(*text));
    } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
      const auto* number = std::get_if<std::int64_t>(&value);
      require(number != nullptr, "{}: expected a whole number, got {}", field, text_of(value));
      return void(to = *number);
    }
    if constexpr (std::is_constructible_v<Value, T>) {
      const T* same = std::get_if<T>(&value);
      require(same != nullptr, "{}: expected {}, got {}", field,
              std::is_same_v<T, bool>           ? "true or false"
              : std::is_same_v<T, std::int64_t> ? "a whole number"
              : std::is_same_v<T, double>       ? "a number"
              : std::is_same_v<T, std::string>  ? "text"
                                                : "a list of whole numbers",
              text_of(value));
      to = *same;
    }
  }
  template <class T, std::size_t N>
  void choice(const char* field, T& to, const char*, const std::array<const char*, N>& names) {
    if (wanted != field) return;
    found = true;
    const auto* text = std::get_if<std::string>(&value);
    const auto* same = text == nullptr ? names.end() : std::find(names.begin(), names.end(), *text);
    require(same != names.end(), "{}: expected one of {}, got {}", field, names, text_of(value));
    to = static_cast<T>(same - names.begin());
  }
};

struct CollectOutputs {
  std::vector<BoundCall::Output>& list;

  template <class... Rest>
  void input(const Rest&...) {}
  template <class... Rest>
  void parameter(const Rest&...) {}
  template <class... Rest>
  void choice(const Rest&...) {}
  void output(const char* field, TensorView& view, const char*) {
    if (view.present()) list.push_back({field, &view, false});
  }
  void output(const char* field, TensorList& views, const char*) {
    for (TensorView& view : views) list.push_back({field, &view, true});
  }
};

template <class Args>
constexpr bool is_collective =
    std::is_invocable_v<decltype(Describe<Args>::run), Communicator&, const Args&, const Call&>;

template <class Args>
class Bound final : public BoundCall {
 public:
  void set_input(std::string_view input, const TensorView& view) override {
    bool found = false;
    visit_fields(args_, SetInput{input, view, found});
    require(found, "{}: no input '{}'", Describe<Args>::name, input);
  }
  void set_parameter(std::string_view parameter, const Value& value) override {
    bool found = false;
    visit_fields(args_, SetParameter{parameter, value, found});
    require(found, "{}: no parameter '{}'", Describe<Args>::name, parameter);
  }
  void infer() override {
    try {
      npu::infer(args_);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", Describe<Args>::name, error.what()));
    }
  }
  std::vector<Output> outputs() override {
    std::vector<Output> list;
    visit_fields(args_, CollectOutputs{list});
    return list;
  }
  std::uint64_t workspace_bytes(const Device& device) const override { return npu::workspace_bytes(args_, device); }
  OperatorCost cost() const override { return npu::cost(args_); }
  void enqueue([[maybe_unused]] StreamView stream, [[maybe_unused]] const Call& how) const override {
    if constexpr (is_collective<Args>)
      fail(ErrorCode::invalid_argument, "{}: called by one rank alone", Describe<Args>::name);
    else
      Describe<Args>::run(stream, args_, how);
  }
  void enqueue([[maybe_unused]] Communicator& ranks, [[maybe_unused]] const Call& how) const override {
    if constexpr (is_collective<Args>)
      Describe<Args>::run(ranks, args_, how);
    else
      fail(ErrorCode::invalid_argument, "{}: not called by ranks together", Describe<Args>::name);
  }

 private:
  Args args_;
};

template <class Args>
Operator described(const char* family) {
  using About = Describe<Args>;
  Operator about{family,
                 About::name,
                 About::summary,
                 About::rounding,
                 {About::refused.begin(), About::refused.end()},
                 {},
                 is_collective<Args>,
                 [] { return std::unique_ptr<BoundCall>(std::make_unique<Bound<Args>>()); }};
  Args defaults;
  visit_fields(defaults, Lister{about.fields});
  return about;
}

template <class... Args>
void add(std::vector<Operator>& to, const char* family) {
  (to.push_back(described<Args>(family)), ...);
}

}  // namespace

std::vector<Operator> operators() {
  std::vector<Operator> all;
  add<MoeInitRoutingArgs, MoeInitRoutingV2Args, MoeComputeExpertTokensArgs, MoeTokenPermuteArgs, MoeTokenUnpermuteArgs,
      MoeReRoutingArgs, MoeFinalizeRoutingArgs>(all, "routing");
  add<MoeGatingTopKArgs, MoeGatingTopKSoftmaxArgs, MoeGatingTopKSoftmaxV2Args>(all, "gating");
  add<DynamicQuantArgs, DynamicQuantAsymmetricArgs, DynamicMxQuantArgs>(all, "quant");
  add<SwigluArgs, DequantSwigluQuantArgs, CAscendDequantSwigluQuantArgs>(all, "activation");
  add<QuantMatmulArgs, GroupedMatmulArgs, GroupedMatmulSwigluQuantArgs, GroupedMatmulSwigluQuantV2Args,
      CAscendGroupedMatmulSwigluQuantArgs, GroupedMatmulFinalizeRoutingArgs>(all, "matmul");
  add<MoeDistributeDispatchArgs, MoeDistributeDispatchV2Args, MoeDistributeCombineArgs, MoeDistributeCombineV2Args>(
      all, "distribute");
  return all;
}

Operator find_operator(std::string_view name) {
  std::vector<Operator> all = operators();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Operator& about) { return name == about.name; });
  if (found == all.end())
    fail(ErrorCode::unsupported, "operator '{}' is none of the {} that `moecl op --list` names", name, all.size());
  return std::move(*found);
}

}  // namespace moecl::npu
