#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "host/checkpoint/model_families.hpp"

namespace moecl {

/// Fields that every family has.
inline constexpr Field<std::int64_t> layers_field{{"num_hidden_layers", "n_layers"}};
inline constexpr Field<std::int64_t> hidden_field{{"hidden_size", "d_model"}};

/// Reads the fields of a config.json that the family table describes. Messages name the file and the field.
class ConfigFields {
 public:
  ConfigFields(const nlohmann::json& config, std::string origin) : config_(config), origin_(std::move(origin)) {}
  /// The same fields for one layer of `layers`: where a list has one value per layer, reads take this layer's value.
  ConfigFields at_layer(std::int64_t layer, std::int64_t layers) const {
    ConfigFields fields = *this;
    fields.layer_ = layer, fields.layers_ = layers;
    return fields;
  }
  /// Whether any list has one number per layer, and these numbers differ.
  bool vary(std::int64_t layers) const;
  const std::string& origin() const noexcept { return origin_; }

  /// Errors: invalid_data  the field is absent without a fallback, of a wrong JSON type, or its names disagree
  std::int64_t integer(const Field<std::int64_t>& field) const;
  double number(const Field<double>& field) const;
  bool boolean(const Field<bool>& field) const;
  std::string text(const Field<const char*>& field) const;
  /// An integer in [1, 2^31).
  std::int64_t size(const Field<std::int64_t>& field) const;
  /// A list of integers; empty when absent.
  std::vector<std::int64_t> integers(const char* name) const;
  /// Layer numbers, ascending; nullopt when the field is absent. The field holds a list of layer numbers, a text
  /// "3,4,5", or the type of each layer: a list of names, or a text with one letter per layer. Types select the layers
  /// whose type is in `types`.
  std::optional<std::vector<std::int64_t>> layers(const char* name, const std::array<const char*, 2>& types) const;
  /// The number of values of a list, or of letters of a text; nullopt when absent.
  std::optional<std::int64_t> length(const char* name) const;
  /// The layers with flag 1 in a list of `layers` flags, each 0 or 1; nullopt when there is no such list.
  std::optional<std::vector<std::int64_t>> flagged(const char* name, std::int64_t layers) const;
  /// Whether config.json has the field and it is null.
  bool is_null(const char* name) const;

 private:
  const nlohmann::json& of_layer(const nlohmann::json& value) const;
  const nlohmann::json* find(const std::array<const char*, 3>& names) const;
  template <class Result, class T, class Accepts>
  Result read(const Field<T>& field, const char* type, Accepts accepts) const;

  std::reference_wrapper<const nlohmann::json> config_;
  std::string origin_;
  std::int64_t layer_ = 0, layers_ = 0;
};

}  // namespace moecl
