#pragma once
// The routed experts of one device: gate/up product -> activation -> down product, over rows that a strategy
// dispatched.
#include <moecl/routed_rows.hpp>
#include <moecl/workspace.hpp>

#include "host/expert_weights.hpp"

namespace moecl {

class Experts {
 public:
  Experts() = default;
  Experts(StreamView stream, WeightUpload& upload, const MoeShape& shape, const std::vector<ExpertMatrices>& experts,
          const MoeLayerOptions& options, dense_backend::Backend batched_backend, const LoadProgress& progress);

  /// Scratch of one call, as offsets into a workspace. The two products' rows share one range: they never live
  /// together.
  struct Layout {
    Layout(WorkspaceLayout& workspace, const MoeShape& shape, std::int64_t rows);
    std::uint64_t product_rows, activated_rows;
  };

  /// @return  Shape: [R, H] f32 in the workspace, in the order of the dispatched rows. Async: 3 kernels a weight
  /// segment
  TensorView run(StreamView stream, const RoutedRows& rows, const Layout& layout, BufferView workspace) const;

  std::uint64_t weight_bytes() const noexcept;
  /// How the weights are stored, for reports.
  std::string format() const;
  std::int64_t segments() const noexcept { return static_cast<std::int64_t>(segments_.size()); }

 private:
  void product(StreamView stream, const RoutedRows& rows, TensorView a, bool dispatched,
               DeviceWeights ExpertSegment::*weights, TensorView BatchedExpertWeights::*batched, TensorView out) const;

  MoeShape shape_;
  std::vector<ExpertSegment> segments_;  ///< empty when CLBlast runs the batched layout
  BatchedExpertWeights batched_;
};

}  // namespace moecl
