#pragma once
#include <moecl/workspace.hpp>

namespace moecl {

/// The caller's tensor where there is one, else that of the workspace.
inline TensorView given_or(const TensorView& given, BufferView workspace, const TensorView& place) {
  return given.present() ? given : tensor_in(workspace, place);
}

}  // namespace moecl
