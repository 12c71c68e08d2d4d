#include "dispatch/strategies/wire.hpp"

#include <moecl/gather_rows.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/quantize_rows.hpp>

#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

/// Views a vector as a matrix of one column.
TensorView as_matrix(const TensorView& view) {
  return view.rank == 2 ? view : TensorView(view.buffer, view.dtype, {view.shape[0], 1});
}

/// The same for a copy, which ignores what a byte means.
TensorView as_copied(const TensorView& view) {
  TensorView matrix = as_matrix(view);
  if (size_bytes(matrix.dtype) == 1) matrix.dtype = DType::i8;
  return matrix;
}

/// Sets the arguments that every quantizer has: the source rows, and where their codes go.
template <class Args>
void set_rows(Args& args, const WireRows& from, TensorView index, std::int32_t divisor, TensorView row_ends,
              const WireRows& to) {
  args.x = from.codes;
  args.index = index;
  args.divisor = divisor;
  args.row_ends = row_ends;
  args.q = to.codes;
}

}  // namespace

const char* name(WireFormat format) noexcept {
  switch (format) {
    case WireFormat::int8:
      return "int8";
    case WireFormat::fp8:
      return "fp8";
    case WireFormat::mxfp8:
      return "mxfp8";
    case WireFormat::none:
      break;
  }
  return "none";
}

WireFormat wire_format_from_name(std::string_view text) {
  for (const WireFormat format : {WireFormat::none, WireFormat::int8, WireFormat::fp8, WireFormat::mxfp8})
    if (text == name(format)) return format;
  fail(ErrorCode::invalid_argument, "wire: '{}' is none of none, int8, fp8, mxfp8", text);
}

OperandQuant codes_of(WireFormat format) {
  switch (format) {
    case WireFormat::int8:
      return QuantScheme::int8_w8a8().activations;
    case WireFormat::fp8:
      return QuantScheme::fp8_w8a8().activations;
    case WireFormat::mxfp8:
      return QuantScheme::mx(CodeType::f8_e4m3);
    case WireFormat::none:
      break;
  }
  return {};
}

bool goes_as(WireFormat format, const OperandQuant& how) {
  const OperandQuant codes = codes_of(format);
  return how.type == codes.type && how.group == codes.group && how.scale == codes.scale &&
         how.zero_points == codes.zero_points && how.static_scale == codes.static_scale;
}

WireRow WireRow::to_experts(const ExpertProblem& problem, const TokensIn& tokens) {
  if (tokens.x_scale.present()) return {tokens.x.dtype, tokens.x_scale.dtype, tokens.x_group};
  if (problem.wire == WireFormat::none) return {problem.dtype, std::nullopt};
  const OperandQuant how = problem.codes.quantized() ? problem.codes : codes_of(problem.wire);
  return {*storage_dtype(*how.type), how.scale == ScaleFormat::e8m0 ? DType::u8 : DType::f32,
          quantize_groups::args_of(how).group, how};
}

WireRow WireRow::to_home(const ExpertProblem& problem, DType values) {
  if (problem.wire == WireFormat::int8) return {DType::i8, problem.dtype, 8};
  return {values, std::nullopt};
}

WireRows::Layout::Layout(WorkspaceLayout& workspace, const WireRow& of, std::int64_t row_count,
                         std::int64_t hidden_size)
    : row(of), codes(workspace.add(row.codes, {row_count, hidden_size})) {
  if (!row.scale) return;
  scale = row.group == 0 ? workspace.add(*row.scale, {row_count})
                         : workspace.add(*row.scale, {row_count, quotient_up(hidden_size, row.group)});
}

WireRows WireRows::Layout::in(BufferView memory) const {
  return {tensor_in(memory, codes), row.scale ? tensor_in(memory, scale) : TensorView(), row.group, row.how};
}

void gather(StreamView stream, const WireRows& from, TensorView index, std::int32_t divisor, TensorView row_ends,
            std::int64_t rows_per_expert, const WireRows& to) {
  WireRows::each(from, to, [&](const TensorView& x, const TensorView& out) {
    gather_rows::enqueue(stream, {as_copied(x), index, divisor, row_ends, rows_per_expert, as_copied(out)});
  });
}

void pack_rows(StreamView stream, const WireRows& from, TensorView index, std::int32_t divisor, TensorView row_ends,
               const WireRows& to) {
  if (!index.present() && !to.scale.present())
    return enqueue_copy(stream, from.codes.buffer.slice(0, from.codes.size_bytes()),
                        to.codes.buffer.slice(0, to.codes.size_bytes()));
  if (from.scale.present() || !to.scale.present()) return gather(stream, from, index, divisor, row_ends, 0, to);
  if (to.how.quantized()) {
    auto args = quantize_groups::args_of(to.how);
    set_rows(args, from, index, divisor, row_ends, to);
    args.scale = as_matrix(to.scale);
    return quantize_groups::enqueue(stream, args);
  }
  quantize_rows::Args args;
  set_rows(args, from, index, divisor, row_ends, to);
  args.scale = to.scale;
  args.rounding = quantize_rows::Rounding::divide_scaled_f16;
  args.group = static_cast<std::int32_t>(to.group);
  quantize_rows::enqueue(stream, args);
}

WireRows packed(StreamView stream, const WireRows& rows, const WireRows::Layout& place, BufferView memory,
                TensorView row_ends) {
  if (rows.scale.present() || !place.row.scale) return rows;
  const WireRows codes = place.in(memory);
  pack_rows(stream, rows, {}, 1, row_ends, codes);
  return codes;
}

}  // namespace moecl
