#pragma once

namespace moecl {

/// The products of tile registers (AMX) that the host's CPU has and that this process may use.
struct TileProducts {
  bool int8 = false, bf16 = false;
};

/// Asks Linux to let this process use tile registers, as it must before any thread's first use; once granted, always.
///
/// Source: Linux, Documentation/arch/x86/xstate.rst; Intel SDM volume 2, CPUID leaf 7
TileProducts allow_tile_registers();

}  // namespace moecl
