#pragma once

namespace moecl {

/// The products on tile registers (AMX) that the host's CPU has and this process may use.
struct TileProducts {
  bool int8 = false, bf16 = false;
};

/// Asks Linux for permission to use tile registers. A process needs it before any thread's first use, and keeps it.
///
/// Source: Linux, Documentation/arch/x86/xstate.rst; Intel SDM volume 2, CPUID leaf 7
TileProducts allow_tile_registers();

}  // namespace moecl
