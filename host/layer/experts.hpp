#pragma once
// The routed experts of one device: gate/up product (of ungated ones: up) -> activation -> down product, over rows that
// a strategy dispatched.
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

/// Plans of the steps of routed experts, for passes of one form.
struct ExpertPlans : FirstPlans {
  PlannedVariants<std::vector<grouped_gemm::Plan>> second;  ///< of each segment
};

class Experts {
 public:
  Experts() = default;
  /// Memory for such experts.
  Experts(StreamView stream, const MoeShape& shape, const std::vector<ExpertMatrices>& experts,
          const MoeLayerOptions& options, dense_backend::Backend batched_backend);

  /// Errors: invalid_argument  experts of the same shape that are stored otherwise
  void expect(const std::vector<ExpertMatrices>& experts) const;
  /// Writes experts of that form where the old ones are.
  /// @return  How far MoeLayerOptions::quantize leads from them
  QuantizationError load(WeightUpload& upload, const std::vector<ExpertMatrices>& experts,
                         const LoadProgress& progress);
  /// The same of one, the `number`-th here. Errors: invalid_argument  it has a bias that there is no memory for, or
  /// none
  QuantizationError load(WeightUpload& upload, std::int64_t number, const ExpertMatrices& expert);

  /// One of them as the device has it: in words, and where its bytes stand.
  std::string packing() const;
  std::vector<BufferView> parts(std::int64_t number) const;
  /// One of them as plain numbers. Stops the host
  PlainExpert plain(StreamView stream, std::int64_t number) const;

  /// How the second product's rows are stored where nothing but a sum reads them: as bf16, like vLLM's kernels, where
  /// tensor cores round the rows between the products to it, the device's cache does not keep so many rows, and the
  /// first rounding is lost in sums so long that both stay within half a step of bf16; else as f32.
  DType result_dtype(std::int64_t rows) const noexcept;
  /// Scratch of one call: places in a workspace. The two products' rows share one range: they never live
  /// together.
  struct Layout {
    /// @param source_rows  N, of the rows that the dispatched ones are read from
    /// @param result       of the rows that `run` returns
    Layout(WorkspaceLayout& workspace, const Experts& experts, std::int64_t source_rows, std::int64_t rows,
           DType result = DType::f32);
    TensorView product_rows, activated_rows;
    DType result;
    RowQuant::Layout input, activated;
  };

  /// The codes of the tokens that `run` would make first, for a caller who makes them with something else and hands
  /// them over as `x` and `x_scale` of the rows; none where the product takes no codes.
  /// @param x  Shape: [N, H], source_rows of the layout
  std::optional<RowQuant::Step> token_codes(TensorView x, const Layout& layout, BufferView workspace) const {
    if (!input_quant_.gives_codes()) return std::nullopt;
    return input_quant_.step(x, {}, layout.input, workspace);
  }

  /// Rows of all experts here together.
  struct Counts {
    std::int64_t expected;  ///< that variants are chosen by, wherever rows came from
    std::int64_t most;      ///< that tokens can have, where a window has room for more
  };
  /// @return  Shape: [R, H] f32 in the workspace, in the order of the dispatched rows. Async: 2 kernels a weight
  /// segment, one for the activation where the first product cannot apply it, and those of RowQuant twice, once where
  /// it makes the codes of the second
  /// @param out    optional: takes the result, contiguous
  /// @param plans  of passes that go in_waves alike
  TensorView run(StreamView stream, const RoutedRows& rows, Counts counts, const Layout& layout, BufferView workspace,
                 ExpertPlans& plans, TensorView out = {}) const;
  /// Whether experts with so many rows together go through their slots in waves: they may be more than there are slots.
  bool in_waves(std::int64_t most_rows) const noexcept;

  /// Brings the experts that a pass to come may have rows of, if experts take turns; nothing where such a pass would
  /// stream them in waves. Passes on other queues come before and after. Async: a claim, and a kernel for each kind of
  /// piece
  /// @param rows  bounds the rows of all experts
  void prefetch(StreamView stream, TensorView row_ends, std::int64_t rows) const;

  /// What `run` enqueues of tokens, or their codes, that it reads in place, where it is two products and codes of the
  /// rows between them, if any: weights in one segment, and an activation that the first can apply.
  struct Products {
    grouped_gemm::Args gate_up, down;
    quantize_groups::Args activated;  ///< absent where rows are plain
  };
  std::optional<Products> products(const RoutedRows& rows, const Layout& layout, BufferView workspace) const;

  /// Whether rows must stand in room of equal size: CLBlast multiplies.
  bool needs_batches() const noexcept { return batched_.gate_up.present(); }
  /// Whether rows that are no codes meet weights of 8 bits or fewer.
  bool are_weight_only() const noexcept {
    return !segments_.empty() && bits(segments_.front().down.type()) <= 8 && !input_quant_.gives_codes();
  }
  std::uint64_t weight_bytes() const noexcept;
  /// How the weights are stored, for reports.
  std::string format() const;
  /// How their panels stand: "n_major", "k_major; down n_major"; "row_major" as CLBlast has them.
  std::string layout() const;
  /// Why, for people.
  std::string layout_reason() const;
  /// An expert as one run of device memory; 0: there are no experts here.
  std::uint64_t expert_bytes() const;
  /// Copies the number-th expert to such a run. Async
  void copy_out(StreamView stream, std::int64_t number, BufferView to) const;
  /// The reverse: passes on the stream from here on have it. Async
  void copy_in(StreamView stream, std::int64_t number, BufferView from);
  /// Experts were written where they are at home: slots have none of them. Async
  void forget(StreamView stream) const;
  bool limited() const noexcept { return !segments_.empty() && segments_.front().gate_up.limited(); }
  /// Of those in device memory together.
  std::int64_t resident() const noexcept;
  std::uint64_t resident_bytes() const noexcept;
  /// What is done about the others: a name of MissedExperts; empty without a budget.
  std::string missed() const;
  /// Stops the host.
  ResidencyCounts residency(StreamView stream) const;
  std::string activations() const { return input_quant_.description(); }
  std::int64_t segments() const noexcept { return static_cast<std::int64_t>(segments_.size()); }

 private:
  const ExpertSegment& segment_of(std::int64_t number) const;
  void run_batched(StreamView stream, const RoutedRows& rows, const ProductRows& a, const AfterProduct& after,
                   const ProductRows& down_in, TensorView down, ExpertPlans& plans) const;

  /// Experts whose weights a product finds in device memory: all of a segment, or as many as there are slots for.
  struct Wave {
    std::size_t segment;
    std::int64_t first, count;
    std::size_t half = 0;  ///< of the slots, where waves take turns in both
  };
  /// Made once: a warm pass allocates nothing for it.
  void plan_waves(const DeviceCaps& caps);
  /// Experts with rows come to slots before the first product, for both.
  void claim(StreamView stream, const RoutedRows& rows) const;
  /// Brings a wave of experts that take turns, before its product.
  void bring(StreamView stream, std::optional<WaveCopies>& copies, const Wave& wave,
             DeviceWeights ExpertSegment::*weights, const RoutedRows& rows, std::int64_t most_rows) const;
  std::optional<WaveCopies> wave_copies(StreamView stream, bool in_turn) const;
  /// Of products that are not in turn one claim serves both.
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
  std::vector<ExpertSegment> segments_;  ///< empty when CLBlast runs the batched layout
  std::vector<Wave> whole_, in_turn_;    ///< a wave a segment; where there are fewer slots, waves that fit
  bool in_halves_ = false;               ///< waves take turns in both halves of the slots
  // Passes of experts with a budget go through one stream at a time, prefetches beside them through another.
  mutable Stream copies_;      ///< of waves in halves
  mutable QueueTurns turns_;   ///< of passes and prefetches
  mutable bool torn_ = false;  ///< a pass ended between a claim and its copies: slots may have what they should not
  BatchedExpertWeights batched_;
  DType activated_dtype_ = DType::f32;  ///< of the rows between the two products
  DType rounded_ = DType::f32;          ///< what kernels make of rows that they multiply
  std::uint64_t kept_bytes_ = 0;        ///< of rows that stay in the device's cache
};

}  // namespace moecl
