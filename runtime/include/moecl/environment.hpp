#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace moecl {

/// An environment variable, its meaning, and what applies while it is unset.
struct EnvironmentVariable {
  std::string_view name, meaning, fallback;
};

/// Every environment variable that the library reads. ContextOptions sets the same options and takes precedence.
inline constexpr std::array<EnvironmentVariable, 9> environment_variables{{
    {"MOECL_CACHE", "keep compiled programs on disk: on, off", "on"},
    {"MOECL_CACHE_DIR", "folder of compiled programs", "$XDG_CACHE_HOME/moecl/cl, else $HOME/.cache/moecl/cl"},
    {"MOECL_COMPILE", "where drivers compile kernels: helper (a process whose death is an error), in_process",
     "helper"},
    {"MOECL_COMPILE_DEADLINE", "longest wait for a helper to compile a program, in seconds", "300"},
    {"MOECL_CPU_FEATURES",
     "instruction sets that kernels for CPUs may take, of those that there are: avx2, avx_vnni, avx512, avx512_vnni, "
     "avx512_bf16, amx_int8, amx_bf16, neon_dot, neon_i8mm, neon_bf16 between commas",
     "all"},
    {"MOECL_LOG", "least level that is logged: debug, info, warning, error, off", "warning"},
    {"XDG_CACHE_HOME", "absolute folder of the user's caches", "$HOME/.cache"},
    {"XDG_DATA_HOME", "absolute folder of the user's data: what moecl tune measured", "$HOME/.local/share"},
    {"HOME", "the user's folder, for those of caches and data", "no disk cache, shipped tuning"},
}};

/// The value of a variable of the table; nullopt when it is unset or empty.
/// Errors: invalid_argument  the table has no such name
std::optional<std::string> environment(std::string_view name);

}  // namespace moecl
