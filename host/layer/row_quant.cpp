#include "host/layer/row_quant.hpp"

#include <moecl/code_numbers.hpp>
#include <moecl/context.hpp>

#include "runtime/check.hpp"

namespace moecl {
namespace {

using quantize_groups::ScaleRule;

ScaleRule rule_of(const OperandQuant& how) {
  if (how.scale == ScaleFormat::e8m0) return ScaleRule::mx_floor;
  if (how.scale == ScaleFormat::e4m3) return ScaleRule::e4m3;
  if (how.static_scale) return ScaleRule::given;
  if (how.zero_points) return ScaleRule::range;
  return how.group.rows == ScaleGroup::whole ? ScaleRule::ratio_over_rows : ScaleRule::ratio;
}
bool is_per_row(const OperandQuant& how) { return how.group.rows != ScaleGroup::whole; }
std::int64_t group_of(const OperandQuant& how) {
  return how.group.columns == ScaleGroup::whole ? 0 : how.group.columns;
}
/// Of the scales of codes.
DType scale_dtype(const OperandQuant& how) { return how.scale == ScaleFormat::e8m0 ? DType::u8 : DType::f32; }

}  // namespace

RowQuant::RowQuant(StreamView stream, const OperandQuant& how, float static_scale, bool codes) : how_(how) {
  if (!present()) return;
  if ((how.zero_points && how.type != CodeType::i8) ||
      (*how.type != CodeType::i8 && minifloat_of(*how.type).exponent_bits == 0))
    fail(ErrorCode::unsupported, "layer: activations as {} are not supported", describe(how));
  expect(static_scale);
  codes_ = codes && bits(*how.type) == 8 && !how.zero_points && is_per_row(how) && group_of(how) % 16 == 0;
  if (rule_of(how) == ScaleRule::given) scale_memory_ = Buffer(*stream.context, sizeof(float));
}

void RowQuant::expect(float static_scale) const {
  require(!how_.static_scale || static_scale > 0, "layer: activations as {} need a scale beside the weights",
          describe(how_));
}

void RowQuant::load(WeightUpload& upload, float static_scale) {
  expect(static_scale);
  if (upload.only_checks()) return;
  static_scale_ = static_scale;
  if (present() && rule_of(how_) == ScaleRule::given)
    upload.write(&static_scale, TensorView(scale_memory_.view(), DType::f32, {1}));
}

RowQuant::Layout::Layout(WorkspaceLayout& workspace, const RowQuant& quant, std::int64_t n_rows, std::int64_t width,
                         bool may_overwrite)
    : overwrite(may_overwrite && !quant.codes_) {
  if (!quant.present()) return;
  if (!overwrite) rows = workspace.add(quant.codes_ ? *storage_dtype(*quant.how_.type) : DType::f32, {n_rows, width});
  scale = quant.codes_ ? workspace.add(scale_dtype(quant.how_), {n_rows, quant.groups(width)})
                       : workspace.add(DType::f32, {1});
}

RowQuant::Step RowQuant::step(TensorView x, const Valid& valid, const Layout& layout, BufferView workspace) const {
  if (!present()) return {{}, x};
  const std::int64_t rows = x.shape[0];
  const auto rows_at = [&](const TensorView& place) { return tensor_in(workspace, place).rows(0, rows); };
  Step step;
  quantize_groups::Args& args = step.args;
  args.x = x;
  args.format = *how_.type;
  args.group = group_of(how_);
  args.rule = rule_of(how_);
  args.row_ends = valid.row_ends;
  args.rows_per_expert = valid.rows_per_expert;
  ProductRows& out = step.rows;
  if (codes_) {
    args.q = rows_at(layout.rows);
    args.scale = rows_at(layout.scale);
    out.scale = args.group == 0 ? TensorView(args.scale.buffer, DType::f32, {rows}) : args.scale;
    out.group = args.group;
  } else {
    args.q = layout.overwrite ? x : rows_at(layout.rows);
    if (!is_per_row(how_)) {
      const bool given = args.rule == ScaleRule::given;
      args.scale = given ? TensorView(scale_memory_.view(), DType::f32, {1}) : tensor_in(workspace, layout.scale);
      if (given) args.quotient = quantize_groups::Quotient::reciprocal;
    }
    // nvfp4 has one number for all rows beside the scales of its blocks; without one they count by themselves.
    if (args.rule == ScaleRule::e4m3 && how_.static_scale) args.global_scale = 1 / static_scale_;
  }
  out.rows = args.q;
  return step;
}

ProductRows RowQuant::run(StreamView stream, TensorView x, const Valid& valid, const Layout& layout,
                          BufferView workspace) const {
  const Step quantization = step(x, valid, layout, workspace);
  if (present()) quantize_groups::enqueue(stream, quantization.args);
  return quantization.rows;
}

std::string RowQuant::description() const {
  return describe(how_) + (present() && !codes_ ? ", as numbers in f32" : "");
}

}  // namespace moecl
