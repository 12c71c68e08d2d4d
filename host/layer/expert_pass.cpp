#include "host/layer/expert_pass.hpp"

#include <moecl/gather_rows.hpp>
#include <moecl/group_list.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/trace.hpp>

#include <array>

#include "host/layer/forward_args.hpp"
#include "runtime/check.hpp"
#include "runtime/operands.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

/// The tensors of a pass, as places in its workspace.
struct ExpertPassLayout {
  WorkspaceLayout workspace;
  TensorView row_ends, valid, slot_weights;
  Experts::Layout experts;

  /// @param tokens, slots  The extents of slot_rows: tokens, and slots of each token
  ExpertPassLayout(const LayerParts& parts, std::int64_t rows, std::int64_t tokens, std::int64_t slots)
      : row_ends(workspace.add(DType::i32, {std::max<std::int64_t>(parts.local_experts(), 1)})),
        valid(workspace.add(DType::i32, {rows})),
        slot_weights(workspace.add(DType::f32, {tokens, slots})),
        experts(workspace, parts.experts, rows, rows, parts.experts.result_dtype(rows)) {}
};

TensorView reshaped(const TensorView& view, std::initializer_list<std::int64_t> dims) {
  return {view.buffer, view.dtype, dims};
}

void expect_of(const TensorView& view, const char* what, bool fits, const std::string& expected) {
  require(view.contiguous() && fits, "{}: expected contiguous {}, got {}", what, expected, view);
  expect_memory(view, what);
}

/// Checks x as codes with scales, which must be codes that the layer's first product takes.
void expect_codes(ExpertRows& rows, std::int64_t width, const OperandQuant& how) {
  const std::int64_t sources = rows.x.shape[0], group = rows.x_group;
  const bool as_layer = how.quantized() && !how.static_scale;
  const std::optional<CodeRows> layer = as_layer ? code_rows(how) : std::nullopt;
  const bool mx = group == 32 && rows.x_scale.dtype == DType::u8 && rows.x.dtype == DType::f8_e4m3;
  const bool by_row = group == 0 && rows.x_scale.dtype == DType::f32;
  require(how.quantized()
              ? layer && layer->codes == rows.x.dtype && layer->scale == rows.x_scale.dtype && layer->group == group
              : mx || (by_row && (rows.x.dtype == DType::i8 || rows.x.dtype == DType::f8_e4m3)),
          "x: got {} with scales {} of {} columns (0: a row), but the experts' rows are {}", rows.x, rows.x_scale,
          group, how.quantized() ? describe(how) : "plain or codes as of a wire");
  const std::int64_t scales = group == 0 ? 1 : quotient_up(width, group);
  expect_of(rows.x_scale, "x_scale", rows.x_scale.elements() == sources * scales,
            fmt::format("{}[{}, {}]", name(rows.x_scale.dtype), sources, scales));
  rows.x_scale = group == 0 ? reshaped(rows.x_scale, {sources}) : reshaped(rows.x_scale, {sources, scales});
}

/// Checks x, turns it into [N, L] and sets the counts that follow from its shape.
void expect_x(ExpertRows& rows, const LayerParts& parts) {
  const std::int64_t width = parts.shape.expert_width(), experts = parts.local_experts();
  require(rows.x.rank == 2 || rows.x.rank == 3, "x: expected [N, {}] or [{}, M, {}], got {}", width, experts, width,
          rows.x);
  if (rows.x.rank == 3) {
    const std::int64_t room = rows.x.shape[1];
    expect_of(rows.x, "x", rows.x.shape[0] == experts && rows.x.shape[2] == width,
              fmt::format("[{}, M, {}]", experts, width));
    require(
        (rows.rows_per_expert == 0 || rows.rows_per_expert == room) && (rows.rows == 0 || rows.rows == experts * room),
        "x: {} has room for {} rows of each of {} experts, not {} of {}", rows.x, room, experts, rows.rows_per_expert,
        rows.rows);
    rows.rows_per_expert = room;
    rows.rows = experts * room;
    rows.x = reshaped(rows.x, {rows.rows, width});
  }
  expect_tensor(rows.x, "x", rows.x.dtype, {-1, width});
  expect_memory(rows.x, "x");
  if (rows.rows == 0) rows.rows = rows.index.present() ? rows.index.shape[0] : rows.x.shape[0];
  require(rows.rows_per_expert == 0 || (rows.rows == experts * rows.rows_per_expert && !rows.index.present()),
          "rows: {} of {} experts with room for {} each", rows.rows, experts, rows.rows_per_expert);
  if (rows.index.present()) {
    expect_of(rows.index, "index", rows.index.dtype == DType::i32 && rows.index.elements() == rows.rows,
              fmt::format("i32[{}]", rows.rows));
    require(rows.index_divisor >= 1 && rows.x.shape[0] <= rows.rows,
            "index: of {} rows by {}, expected at most {} rows", rows.x.shape[0], rows.index_divisor, rows.rows);
  } else {
    require(rows.x.shape[0] == rows.rows, "x: expected {} rows, got {}", rows.rows, rows.x);
    rows.index_divisor = 1;
  }
  if (rows.x_scale.present()) return expect_codes(rows, width, parts.options.activations);
  require(rows.x.dtype == parts.options.dtype, "x: expected {}, got {}", name(parts.options.dtype), rows.x);
}

void expect_out(ExpertRows& rows, std::int64_t width) {
  const bool sums = rows.slot_rows.present();
  if (sums)
    expect_of(rows.slot_rows, "slot_rows", rows.slot_rows.dtype == DType::i32 && rows.slot_rows.rank == 2, "i32[M, S]");
  const std::int64_t count = sums ? rows.slot_rows.shape[0] : rows.rows;
  require(is_activation_dtype(rows.out.dtype), "out: expected f32, f16 or bf16, got {}", rows.out);
  expect_of(rows.out, "out",
            rows.out.rank >= 2 && rows.out.shape[static_cast<std::size_t>(rows.out.rank - 1)] == width &&
                rows.out.elements() == count * width,
            fmt::format("[{}, {}]", count, width));
  rows.out = reshaped(rows.out, {count, width});
}

ExpertRows checked_rows(const ExpertRows& given, const LayerParts& parts) {
  ExpertRows rows = given;
  const std::int64_t experts = parts.local_experts();
  expect_x(rows, parts);
  expect_out(rows, parts.shape.expert_width());
  require(rows.row_ends.present() != rows.expert_num_tokens.present(),
          "row_ends and expert_num_tokens: give one of them");
  const TensorView& counts = rows.expert_num_tokens;
  if (counts.present())
    expect_of(counts, "expert_num_tokens",
              (counts.dtype == DType::i32 || counts.dtype == DType::i64) && counts.elements() == experts,
              fmt::format("i32 or i64[{}]", experts));
  else
    expect_of(rows.row_ends, "row_ends",
              rows.row_ends.dtype == DType::i32 && rows.row_ends.elements() == std::max<std::int64_t>(experts, 1),
              fmt::format("i32[{}]", experts));
  if (rows.weights.present()) {
    expect_of(rows.weights, "weights", rows.weights.dtype == DType::f32 && rows.weights.elements() == rows.rows,
              fmt::format("f32[{}]", rows.rows));
    rows.weights = reshaped(rows.weights, {rows.rows, 1});
  }
  require(rows.expected_rows >= 0, "expected_rows: {} is negative", rows.expected_rows);
  if (rows.fault.present()) expect_tensor(rows.fault, "fault", DType::i32, {4}), expect_memory(rows.fault, "fault");
  if (rows.rows > 0 && rows.rows_per_expert == 0 && parts.experts.needs_batches())
    fail(ErrorCode::unsupported,
         "x: CLBlast multiplies these experts, which takes rows in room of equal size: [{}, M, {}]", experts,
         parts.shape.expert_width());
  require(!rows.x_scale.present() || !parts.experts.needs_batches(), "x: CLBlast takes no codes, got {}", rows.x);
  return rows;
}

void expect_apart(const ExpertRows& rows, BufferView workspace) {
  using enum Access;
  moecl::expect_apart(std::array{Operand("x", read, rows.x), Operand("x_scale", read, rows.x_scale),
                                 Operand("index", read, rows.index), Operand("row_ends", read, rows.row_ends),
                                 Operand("expert_num_tokens", read, rows.expert_num_tokens),
                                 Operand("weights", read, rows.weights), Operand("slot_rows", read, rows.slot_rows),
                                 Operand("out", written, rows.out), Operand("fault", written, rows.fault),
                                 Operand("workspace", written, workspace)});
}

std::int64_t expected_of(const ExpertRows& rows) { return rows.expected_rows == 0 ? rows.rows : rows.expected_rows; }

ExpertPassPlans::Form form_of(const ExpertRows& rows) {
  using Operand = PassForm::Operand;
  return {rows.x.shape[0],
          rows.rows,
          rows.rows_per_expert,
          expected_of(rows),
          rows.x_group,
          rows.slot_rows.elements(),
          rows.index_divisor,
          {Operand::of(rows.x), Operand::of(rows.x_scale), Operand::of(rows.index), Operand::of(rows.weights),
           Operand::of(rows.slot_rows), Operand::of(rows.out)}};
}

TensorView ends_of_counts(StreamView stream, const ExpertRows& rows, TensorView row_ends) {
  const std::int64_t experts = row_ends.shape[0];
  group_list::Read counts{
      reshaped(rows.expert_num_tokens, {experts}), group_list::Kind::counts, rows.rows, false, row_ends, rows.fault};
  counts.rows_per_group = rows.rows_per_expert;
  group_list::enqueue(stream, counts);
  return row_ends;
}

/// Weights of the slots. Those of slots without a row are undefined, since nothing reads them.
TensorView weights_of_slots(StreamView stream, const TensorView& of_rows, const TensorView& slots, TensorView weights) {
  gather_rows::Args gather;
  gather.x = of_rows;
  gather.index = slots;
  gather.out = reshaped(weights, {slots.shape[0], 1});
  gather_rows::enqueue(stream, gather);
  return weights;
}

}  // namespace

std::shared_ptr<ExpertPassPlans::Plans> ExpertPassPlans::find(const Form& form) {
  const std::lock_guard lock(mutex_);
  if (const auto found = plans_.find(form); found != plans_.end()) return found->second;
  if (plans_.size() >= most_plans) plans_.clear();
  return plans_[form] = std::make_shared<Plans>();
}

std::uint64_t expert_pass_bytes(const LayerParts& parts, std::int64_t rows, std::int64_t slots) {
  require(rows >= 0 && slots >= 0, "workspace: {} rows, {} slots", rows, slots);
  return ExpertPassLayout(parts, rows, 1, slots).workspace.total_bytes();
}

void run_expert_pass(StreamView stream, const LayerParts& parts, ExpertPassPlans& plans, const ExpertRows& given,
                     Submit submit) {
  ExpertRows rows = checked_rows(given, parts);
  const bool sums = rows.slot_rows.present(), none = parts.local_experts() == 0 || rows.rows == 0;
  const std::int64_t tokens = sums ? rows.slot_rows.shape[0] : 0, each = sums ? rows.slot_rows.shape[1] : 0;
  const ExpertPassLayout layout(parts, rows.rows, tokens, each);
  const std::uint64_t needed = layout.workspace.total_bytes();
  require(rows.workspace.size_bytes >= needed && rows.workspace.handle != nullptr,
          "workspace: {} rows need {} bytes, got {}", rows.rows, needed, rows.workspace.size_bytes);
  expect_workspace_start(rows.workspace);
  const BufferView memory = rows.workspace.slice(0, needed);
  expect_apart(rows, memory);

  const Trace::Span span(stream.trace, "experts");
  if (rows.out.elements() == 0 || (none && !sums)) return enqueue_marker(stream, submit);
  if (submit.wait.count != 0) enqueue_marker(stream, {submit.wait, nullptr});
  const Submit last{{}, submit.done};
  const auto of_form = plans.find(form_of(rows));
  const bool as_they_are =
      !sums && !rows.weights.present() && (rows.out.dtype == DType::f32 || rows.out.dtype == layout.experts.result);
  combine::Args sum;
  sum.out = rows.out;
  if (none) {  // sums of no rows
    sum.rows = TensorView(memory, DType::f32, {0, rows.out.shape[1]});
  } else {
    if (!rows.row_ends.present()) rows.row_ends = ends_of_counts(stream, rows, tensor_in(memory, layout.row_ends));
    sum.rows = parts.experts.run(stream, rows, {expected_of(rows), rows.rows}, layout.experts, memory, of_form->experts,
                                 as_they_are ? rows.out : TensorView());
  }
  if (as_they_are) return enqueue_marker(stream, last);
  if (sums) {
    sum.slot_rows = reshaped(rows.slot_rows, {tokens * each});
    if (rows.weights.present() && !none)
      sum.weights = weights_of_slots(stream, rows.weights, sum.slot_rows, tensor_in(memory, layout.slot_weights));
  } else {
    sum.slot_rows = tensor_in(memory, layout.valid);
    sum.weights = rows.weights;
    index_vectors::enqueue(stream, index_vectors::ValidRows{rows.row_ends, rows.rows_per_expert, sum.slot_rows});
  }
  enqueue_planned(stream, sum, of_form->out, last);
}

}  // namespace moecl
