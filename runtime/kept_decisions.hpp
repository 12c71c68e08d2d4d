#pragma once
// Keeps what operators decided for arguments of one form, so that they decide only once.
#include <moecl/device.hpp>
#include <moecl/tensor_view.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>

namespace moecl {

/// Everything that a decision depends on, as words. A view gives its type, shape, strides and its offset modulo
/// `alignment`; other values are taken as they are.
class DecisionForm {
 public:
  /// @param maker  An address that no other operator passes
  template <class... Values>
  DecisionForm(const void* maker, const Device& device, const Values&... values) {
    static_assert(2 + (0 + ... + words_of<Values>) <= most_words);
    add(reinterpret_cast<std::uintptr_t>(maker));
    add(reinterpret_cast<std::uintptr_t>(&device));
    (add_value(values), ...);
  }
  bool operator==(const DecisionForm& other) const noexcept;
  std::size_t hash() const noexcept;

 private:
  static constexpr std::uint64_t alignment = 64;  ///< the largest that a kernel's access requires

  void add(std::uint64_t word) noexcept { words_[count_++] = word; }
  void add_value(const TensorView& view) noexcept;
  template <class Value>
  void add_value(const Value& value) noexcept {
    static_assert(std::is_arithmetic_v<Value> || std::is_enum_v<Value>);
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    add(word);
  }

  static constexpr std::size_t words_of_view = 1 + 2 * TensorView::max_rank, most_words = 160;
  template <class Value>
  static constexpr std::size_t words_of = std::is_same_v<Value, TensorView> ? words_of_view : 1;

  std::array<std::uint64_t, most_words> words_;
  std::size_t count_ = 0;
};

/// The decisions of one context. Threads: safe
class KeptDecisions {
 public:
  /// The decision for `form`, which the first caller makes. Errors: as `make`; then nothing is kept
  template <class Decision, class Make>
  std::shared_ptr<const Decision> find(const DecisionForm& form, const Make& make) {
    if (std::shared_ptr<const void> kept = find(form)) return std::static_pointer_cast<const Decision>(kept);
    auto made = std::make_shared<const Decision>(make());
    keep(form, made);
    return made;
  }
  std::uint64_t made() const noexcept;
  std::size_t size() const noexcept;

 private:
  struct Hash {
    std::size_t operator()(const DecisionForm& form) const noexcept { return form.hash(); }
  };
  /// Limits the memory of a program that keeps asking for new forms.
  static constexpr std::size_t most = 1024;

  std::shared_ptr<const void> find(const DecisionForm& form) const;
  void keep(const DecisionForm& form, std::shared_ptr<const void> decision);

  mutable std::mutex mutex_;
  std::unordered_map<DecisionForm, std::shared_ptr<const void>, Hash> kept_;
  std::uint64_t made_ = 0;
};

}  // namespace moecl
