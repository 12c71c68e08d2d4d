#include "host/layer/device_quantizer.hpp"

#include <moecl/code_numbers.hpp>
#include <moecl/context.hpp>
#include <moecl/pack_codes.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/row_differences.hpp>

#include <cmath>
#include <vector>

#include "host/layer/row_quant.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

using quantize_groups::ScaleRule;

bool has_whole_columns(const OperandQuant& to) { return to.group.columns == ScaleGroup::whole; }

}  // namespace

DeviceQuantizer::DeviceQuantizer(StreamView stream, const OperandQuant& to) : stream_(stream), to_(to) {
  const std::string why = reject(QuantScheme{{}, to});
  require(to.quantized() && why.empty(), "quantize: {}", to.quantized() ? why : "plain weights");
  if (to.zero_points || (has_whole_columns(to) && to.group.rows != 1) || to.group.rows == ScaleGroup::whole)
    fail(ErrorCode::unsupported, "quantize: weights as {} are not made while loading", describe(to));
}

QuantizationError DeviceQuantizer::difference(TensorView x, TensorView y, TensorView rows) const {
  row_differences::enqueue(stream_, {x, y, rows});
  std::vector<float> numbers(static_cast<std::size_t>(rows.elements()));
  read_blocking(stream_, rows.buffer, numbers.data(), rows.size_bytes());
  QuantizationError all;
  for (std::size_t row = 0; row < numbers.size(); row += 4) {
    if (!std::isfinite(numbers[row])) fail(ErrorCode::invalid_data, "quantize: row {} holds {}", row / 4, numbers[row]);
    all.add({numbers[row + 1], numbers[row], numbers[row + 3], numbers[row + 2]});
  }
  return all;
}

void DeviceQuantizer::pack(TensorView plain, const PackedWeights& packed, std::int64_t expert,
                           std::int64_t first_column, TensorView column_scale) {
  const std::int64_t rows = plain.shape[0], width = plain.shape[1];
  const CodeType type = packed_type(*to_.type);
  const DType stored = is_integer(type) ? DType::i8 : storage_dtype(type).value_or(DType::u8);
  const std::int64_t scale_rows = quotient_up(rows, to_.group.rows), scales = scale_shape(to_, 1, width)[1];
  WorkspaceLayout layout;
  const TensorView codes_at = layout.add(stored, {rows, width}), values_at = layout.add(DType::f32, {rows, width}),
                   rows_at = layout.add(DType::f32, {rows, 4}),
                   scale_at = layout.add(packed.scale.dtype, {scale_rows, scales});
  const BufferView memory = memory_.reserve(*stream_.context, layout.total_bytes());
  const TensorView values = tensor_in(memory, values_at), of_rows = tensor_in(memory, rows_at);

  quantize_groups::Args args = quantize_groups::args_of(to_);
  args.x = plain;
  args.format = type;
  args.q = tensor_in(memory, codes_at);
  args.scale =
      has_whole_columns(to_) ? TensorView(column_scale.buffer, DType::f32, {rows, 1}) : tensor_in(memory, scale_at);
  if (args.rule == ScaleRule::e4m3) {
    // One global scale for the whole matrix, so that the largest block scale is the largest e4m3 number.
    const float largest = static_cast<float>(difference(plain, plain, of_rows).largest);
    if (largest > 0) args.global_scale = 448.0F * 6 / largest;
    const std::vector<float> inverse(static_cast<std::size_t>(rows), 1 / args.global_scale);
    write_blocking(stream_, column_scale.buffer, inverse.data(), inverse.size() * sizeof(float));
  }
  quantize_groups::enqueue(stream_, args);

  pack_codes::Args pack;
  pack.source = args.q.buffer;
  pack.codes.type = type;
  pack.codes.rows = rows;
  pack.codes.columns = pack.codes.row_stride = width;
  pack.packed = packed;
  pack.expert = expert;
  pack.first_column = first_column;
  pack.group_rows = to_.group.rows;
  if (packed.grouped()) pack.scale = args.scale;
  pack_codes::enqueue(stream_, pack);

  args.q = values;
  quantize_groups::enqueue(stream_, args);
  error_.add(difference(plain, values, of_rows));
}

}  // namespace moecl
