#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace moecl {

/// Digest of `count` bytes, for a comparison between ranks. Inputs that differ by mistake have different digests.
std::int64_t digest_of(const void* bytes, std::size_t count) noexcept;

/// One value that must be the same on all ranks of a call. Only `value` travels between ranks. Every rank knows its
/// name and how to print it.
struct Agreed {
  const char* what;
  std::int64_t value;
  std::string (*said)(std::int64_t value);  ///< the value of any rank as text

  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Agreed(const char* of, T number) : what(of), value(static_cast<std::int64_t>(number)), said(said_as_number) {}
  /// An enum value, printed by its `name`.
  template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
  Agreed(const char* of, E choice)
      : what(of),
        value(static_cast<std::int64_t>(choice)),
        said([](std::int64_t chosen) { return std::string(name(static_cast<E>(chosen))); }) {}
  /// An optional value, which may be unset.
  template <class T>
  Agreed(const char* of, const std::optional<T>& choice) : Agreed(of, choice.value_or(T{})) {
    if (!choice) value = open;
    said = [](std::int64_t chosen) {
      return chosen == open ? std::string("none") : Agreed("", static_cast<T>(chosen)).text();
    };
  }
  /// This rank's value as text.
  std::string text() const { return said(value); }
  /// A list or a string: its digest is compared.
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Agreed(const char* of, const std::vector<T>& list) : Agreed(of, list.data(), list.size()) {}
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Agreed(const char* of, const T* list, std::size_t count)
      : what(of), value(digest_of(list, count * sizeof(T))), said(said_as_digest) {}
  Agreed(const char* of, const std::string& text)
      : what(of), value(digest_of(text.data(), text.size())), said(said_as_digest) {}

 private:
  static constexpr std::int64_t open = std::numeric_limits<std::int64_t>::min();
  static std::string said_as_number(std::int64_t value);
  static std::string said_as_digest(std::int64_t value);
};

}  // namespace moecl
