#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace moecl {

/// The digest of some bytes. Who differs by mistake differs here.
std::int64_t digest_of(const void* bytes, std::size_t count) noexcept;

/// One thing that all ranks must bring alike to a call. Its value travels; what it is called, and how a value is said,
/// every rank knows.
struct Agreed {
  const char* what;
  std::int64_t value;
  std::string (*said)(std::int64_t value);  ///< of any rank's

  template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Agreed(const char* of, T number) : what(of), value(static_cast<std::int64_t>(number)), said(said_as_number) {}
  /// A choice that has a `name`.
  template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
  Agreed(const char* of, E choice)
      : what(of),
        value(static_cast<std::int64_t>(choice)),
        said([](std::int64_t chosen) { return std::string(name(static_cast<E>(chosen))); }) {}
  /// Of what may be left open.
  template <class T>
  Agreed(const char* of, const std::optional<T>& choice) : Agreed(of, choice.value_or(T{})) {
    if (!choice) value = open;
    said = [](std::int64_t chosen) {
      return chosen == open ? std::string("none") : Agreed("", static_cast<T>(chosen)).text();
    };
  }
  /// This rank's value, as it is said.
  std::string text() const { return said(value); }
  /// Of what is longer than a number, a digest.
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
