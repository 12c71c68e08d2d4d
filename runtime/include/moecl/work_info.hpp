#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace moecl {

/// What a command does: computes, or moves bytes.
enum class WorkKind : std::uint8_t { kernel, transfer };

/// Facts about a command for traces and benchmarks.
struct WorkInfo {
  std::string_view name;     ///< operator or transfer: "grouped_gemm"
  std::string_view variant;  ///< kernel variant that was chosen
  std::string shape;         ///< "[33, 96] x [8, 160, 96]"
  std::uint64_t bytes = 0;   ///< minimum of bytes moved
  std::uint64_t flops = 0;
  WorkKind kind = WorkKind::kernel;
};

}  // namespace moecl
