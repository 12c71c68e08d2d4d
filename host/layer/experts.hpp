#pragma once
// The routed experts of one device. For rows that a strategy dispatched they compute the gate/up product (ungated
// experts: up), the activation and the down product.
#include <moecl/plain_expert.hpp>
#include <moecl/routed_rows.hpp>
#include <moecl/workspace.hpp>

#include <optional>

#include "host/layer/activated_product.hpp"
#include "host/layer/expert_weights.hpp"
#include "host/layer/queue_turns.hpp"
#include "host/layer/row_quant.hpp"
#include "host/layer/wave_copies.hpp"

namespace moecl {

/// Plans of all steps of the routed experts, for passes of one form.
struct ExpertPlans : FirstPlans {
  PlannedVariants<std::vector<grouped_gemm::Plan>> second;  ///< of each segment
};

class Experts {
 public:
  Experts() = default;
  /// Allocates memory for experts of this shape and format.
  Experts(StreamView stream, const MoeShape& shape, const std::vector<ExpertMatrices>& experts,
          const MoeLayerOptions& options, dense_backend::Backend batched_backend);

  /// Errors: invalid_argument  the memory is for experts of another format
  void expect(const std::vector<ExpertMatrices>& experts) const;
  /// Overwrites the weights with experts of the same format.
  /// @return  The error that MoeLayerOptions::quantize makes
  QuantizationError load(WeightUpload& upload, const std::vector<ExpertMatrices>& experts,
                         const LoadProgress& progress);
  /// The same for one expert, the `number`-th here. Errors: invalid_argument  it has a down bias without memory for
  /// one, or lacks one that there is memory for
  QuantizationError load(WeightUpload& upload, std::int64_t number, const ExpertMatrices& expert);

  /// How the device stores an expert, in words; and the memory of the number-th expert's parts.
  std::string packing() const;
  std::vector<BufferView> parts(std::int64_t number) const;
  /// The number-th expert as plain numbers. Stops the host
  PlainExpert plain(StreamView stream, std::int64_t number) const;

  /// The dtype of the second product's rows if only a sum reads them. It is bf16, like in vLLM's kernels, if tensor
  /// cores round the rows between the products to bf16, the device's cache cannot keep so many f32 rows, and the second
  /// product's sums are so long that both roundings together stay within half a step of bf16. Otherwise it is f32.
  DType result_dtype(std::int64_t rows) const noexcept;
  /// Scratch of one call, as places in a workspace. The rows of the two products share one range: they never live
  /// together.
  struct Layout {
    /// @param source_rows  N of RoutedRows::x, from which the dispatched rows are read
    /// @param result       dtype of the rows that `run` returns
    Layout(WorkspaceLayout& workspace, const Experts& experts, std::int64_t source_rows, std::int64_t rows,
           DType result = DType::f32);
    TensorView product_rows, activated_rows;
    DType result;
    RowQuant::Layout input, activated;
  };

  /// The step with which `run` would quantize the tokens first. A caller may run it in a kernel with other work, and
  /// then give its codes and scales as `x` and `x_scale` of the rows. None if the product takes no codes.
  /// @param x  Shape: [N, H], with N = source_rows of the layout
  std::optional<RowQuant::Step> token_codes(TensorView x, const Layout& layout, BufferView workspace) const {
    if (!input_quant_.gives_codes()) return std::nullopt;
    return input_quant_.step(x, {}, layout.input, workspace);
  }

  /// Numbers of rows, of all experts here together.
  struct Counts {
    std::int64_t expected;  ///< decides the choice of variants, wherever rows came from
    std::int64_t most;      ///< that the tokens can have; a window may have room for more
  };
  /// @return  Shape: [R, H] in the workspace, dtype Layout::result, in the order of the dispatched rows. Async: 2
  /// kernels per weight segment; one for the activation if the first product cannot apply it; those of RowQuant twice,
  /// or once if the first product makes the codes of the second
  /// @param out    optional: takes the result, contiguous
  /// @param plans  of passes for which `in_waves` gives the same
  TensorView run(StreamView stream, const RoutedRows& rows, Counts counts, const Layout& layout, BufferView workspace,
                 ExpertPlans& plans, TensorView out = {}) const;
  /// Whether experts with at most so many rows together go through the slots in waves: they may outnumber the slots.
  bool in_waves(std::int64_t most_rows) const noexcept;

  /// If experts have a budget, brings those that a later pass has rows of to their slots. Does nothing if such a pass
  /// would go in waves. Never overlaps with passes on other queues. Async: a claim, and a kernel for each kind of piece
  /// @param rows  upper bound of the rows of all experts
  void prefetch(StreamView stream, TensorView row_ends, std::int64_t rows) const;

  /// The work of `run` as two products and the quantization between them, if any, for a launch that does all of it.
  /// `run` reads the tokens, or their codes, in place. Requires one weight segment without a budget, and an activation
  /// that the first product can apply. None: the experts do not allow it.
  struct Products {
    grouped_gemm::Args gate_up, down;
    quantize_groups::Args activated;  ///< absent if rows are plain
  };
  std::optional<Products> products(const RoutedRows& rows, const Layout& layout, BufferView workspace) const;

  /// Whether rows must have the batched layout, since CLBlast multiplies.
  bool needs_batches() const noexcept { return batched_.gate_up.present(); }
  /// Whether plain rows are multiplied by weights of 8 bits or fewer.
  bool are_weight_only() const noexcept {
    return !segments_.empty() && bits(segments_.front().down.type()) <= 8 && !input_quant_.gives_codes();
  }
  std::uint64_t weight_bytes() const noexcept;
  /// How the weights are stored, for reports.
  std::string format() const;
  /// The layout of the panels: "n_major", "k_major; down n_major"; "row_major" for CLBlast.
  std::string layout() const;
  /// The reason for this layout, for people.
  std::string layout_reason() const;
  /// Size of one expert as one run of device memory; 0: there are no experts here.
  std::uint64_t expert_bytes() const;
  /// Copies the number-th expert to such a run. Async
  void copy_out(StreamView stream, std::int64_t number, BufferView to) const;
  /// The reverse. Passes that are enqueued on the stream from now on use the new weights. Async
  void copy_in(StreamView stream, std::int64_t number, BufferView from);
  /// Empties the slots, after experts were written to the memory that holds all of them. Async
  void forget(StreamView stream) const;
  bool limited() const noexcept { return !segments_.empty() && segments_.front().gate_up.limited(); }
  /// The number of experts that device memory holds at a time.
  std::int64_t resident() const noexcept;
  std::uint64_t resident_bytes() const noexcept;
  /// What is done about the other experts: a name of MissedExperts; empty without a budget.
  std::string missed() const;
  /// Stops the host.
  ResidencyCounts residency(StreamView stream) const;
  std::string activations() const { return input_quant_.description(); }
  std::int64_t segments() const noexcept { return static_cast<std::int64_t>(segments_.size()); }

 private:
  const ExpertSegment& segment_of(std::int64_t number) const;
  void run_batched(StreamView stream, const RoutedRows& rows, const ProductRows& a, const AfterProduct& after,
                   const ProductRows& down_in, TensorView down, ExpertPlans& plans) const;

  /// Experts of one product launch: all of a segment, or as many as there are slots for.
  struct Wave {
    std::size_t segment;
    std::int64_t first, count;
    std::size_t half = 0;  ///< of the slots, if waves alternate between two halves
  };
  /// Makes the lists of waves once, so that a warm pass allocates nothing for them.
  void plan_waves(const DeviceCaps& caps);
  /// Before the first product: gives slots to the experts with rows, for both products.
  void claim(StreamView stream, const RoutedRows& rows) const;
  /// Claims slots for the experts of a wave and fetches them, before the wave's product.
  void bring(StreamView stream, std::optional<WaveCopies>& copies, const Wave& wave,
             DeviceWeights ExpertSegment::*weights, const RoutedRows& rows, std::int64_t most_rows) const;
  std::optional<WaveCopies> wave_copies(StreamView stream, bool in_turn) const;
  /// If the waves are not in turn, the claim of gate_up serves both products.
  const ExpertCache& claimed(const Wave& wave, DeviceWeights ExpertSegment::*weights, bool in_turn) const {
    return (in_turn ? segments_[wave.segment].*weights : segments_[wave.segment].gate_up).cache();
  }

  grouped_gemm::Args product_of(const Wave& wave, DeviceWeights ExpertSegment::*weights, bool in_turn,
                                const RoutedRows& rows, const ProductRows& a, bool dispatched, TensorView out) const;

  std::int64_t product_width() const noexcept { return shape_.activation.input_width(shape_.intermediate); }

  MoeShape shape_;
  DType dtype_ = DType::f32;
  OperandQuant quantize_;
  RowQuant input_quant_, activated_quant_;
  std::vector<ExpertSegment> segments_;  ///< empty if CLBlast runs the batched layout
  std::vector<Wave> whole_, in_turn_;    ///< one wave per segment; and waves that fit the slots
  bool in_halves_ = false;               ///< waves alternate between two halves of the slots
  // Experts with a budget: one stream at a time makes passes, and another one makes prefetches beside them.
  mutable Stream copies_;      ///< the queue of copies for waves in halves
  mutable QueueTurns turns_;   ///< orders passes and prefetches
  mutable bool torn_ = false;  ///< a pass failed between a claim and its copies: slots may hold wrong weights
  BatchedExpertWeights batched_;
  DType activated_dtype_ = DType::f32;  ///< of the rows between the products
  DType rounded_ = DType::f32;          ///< what kernels round rows to before they multiply them
  std::uint64_t kept_bytes_ = 0;        ///< most bytes of rows that the device's cache keeps
};

}  // namespace moecl
