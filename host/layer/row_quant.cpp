#include "host/layer/row_quant.hpp"

#include <moecl/code_numbers.hpp>
#include <moecl/context.hpp>

#include "runtime/check.hpp"

namespace moecl {
namespace {

using quantize_groups::ScaleRule;

bool is_per_row(const OperandQuant& how) { return how.group.rows != ScaleGroup::whole; }
std::int64_t group_of(const OperandQuant& how) {
  return how.group.columns == ScaleGroup::whole ? 0 : how.group.columns;
}
/// The dtype of the scales of codes.
DType scale_dtype(const OperandQuant& how) { return how.scale == ScaleFormat::e8m0 ? DType::u8 : DType::f32; }

}  // namespace

std::optional<CodeRows> code_rows(const OperandQuant& how) {
  if (!how.quantized() || bits(*how.type) != 8 || how.zero_points || !is_per_row(how) || group_of(how) % 16 != 0)
    return std::nullopt;
  return CodeRows{*storage_dtype(*how.type), scale_dtype(how), group_of(how)};
}

RowQuant::RowQuant(StreamView stream, const OperandQuant& how, const std::vector<float>& static_scales, bool codes,
                   DType numbers)
    : how_(how) {
  if (!present()) return;
  if ((how.zero_points && how.type != CodeType::i8) ||
      (*how.type != CodeType::i8 && minifloat_of(*how.type).exponent_bits == 0))
    fail(ErrorCode::unsupported, "layer: activations as {} are not supported", describe(how));
  expect(static_scales);
  codes_ = codes && code_rows(how).has_value();
  if (bits(*how.type) < 8) numbers_ = numbers;
  if (!how.static_scale) return;
  experts_ = static_cast<std::int64_t>(static_scales.size());
  static_scales_ = Buffer(*stream.context, static_scales.size() * sizeof(float));
}

void RowQuant::expect(const std::vector<float>& static_scales) const {
  for (std::size_t expert = 0; how_.static_scale && expert < static_scales.size(); ++expert)
    require(static_scales[expert] > 0, "layer: activations as {} need a scale beside the weights, expert {} has none",
            describe(how_), expert);
}

void RowQuant::load(WeightUpload& upload, std::int64_t first, std::vector<float> static_scales) {
  expect(static_scales);
  if (upload.only_checks() || !how_.static_scale) return;
  if (how_.scale == ScaleFormat::e4m3)
    for (float& scale : static_scales) scale = 1 / scale;
  const TensorView all(static_scales_.view(), DType::f32, {experts_});
  upload.write(static_scales.data(), all.rows(first, static_cast<std::int64_t>(static_scales.size())));
}

RowQuant::Layout::Layout(WorkspaceLayout& workspace, const RowQuant& quant, std::int64_t n_rows, std::int64_t width,
                         bool may_overwrite)
    : overwrite(may_overwrite && !quant.codes_ && quant.numbers_ == DType::f32) {
  if (!quant.present()) return;
  const DType stored = quant.codes_ ? *storage_dtype(*quant.how_.type) : quant.numbers_;
  if (!overwrite) rows = workspace.add(stored, {n_rows, width});
  scale = quant.codes_ ? workspace.add(scale_dtype(quant.how_), {n_rows, quant.groups(width)})
                       : workspace.add(DType::f32, {1});
}

RowQuant::Step RowQuant::step(TensorView x, const Valid& valid, const Layout& layout, BufferView workspace) const {
  if (!present()) return {{}, x};
  const std::int64_t rows = valid.index.present() ? valid.index.shape[0] : x.shape[0];
  const auto rows_at = [&](const TensorView& place) { return tensor_in(workspace, place).rows(0, rows); };
  Step step;
  quantize_groups::Args& args = step.args;
  args = quantize_groups::args_of(how_);
  args.x = x;
  args.row_ends = valid.row_ends;
  args.rows_per_expert = valid.rows_per_expert;
  args.index = valid.index;
  args.divisor = valid.index_divisor;
  ProductRows& out = step.rows;
  if (codes_) {
    args.q = rows_at(layout.rows);
    args.scale = rows_at(layout.scale);
    out.scale = args.group == 0 ? TensorView(args.scale.buffer, DType::f32, {rows}) : args.scale;
    out.group = args.group;
  } else {
    args.q = layout.overwrite ? x : rows_at(layout.rows);
    const TensorView of_experts(static_scales_.view(), DType::f32, {experts_});
    if (args.rule == ScaleRule::given) args.scale = of_experts, args.quotient = quantize_groups::Quotient::reciprocal;
    if (args.rule == ScaleRule::ratio_over_rows) args.scale = tensor_in(workspace, layout.scale);
    // nvfp4 has a global scale per expert beside the block scales. Without it, the block scales stand alone.
    if (args.rule == ScaleRule::e4m3 && how_.static_scale) args.global_scales = of_experts;
  }
  out.rows = args.q;
  return step;
}

ProductRows RowQuant::run(StreamView stream, TensorView x, const Valid& valid, const Layout& layout,
                          BufferView workspace, Planned<quantize_groups::Plan>& plan) const {
  const Step quantization = step(x, valid, layout, workspace);
  if (present()) enqueue_planned(stream, quantization.args, plan);
  return quantization.rows;
}

std::string RowQuant::description() const {
  return describe(how_) + (present() && !codes_ ? fmt::format(", as numbers in {}", name(numbers_)) : "");
}

}  // namespace moecl
