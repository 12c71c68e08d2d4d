#include "tests/cases/operands.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/check.hpp"

namespace moecl::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

std::string Compared::describe() const {
  return fmt::format("{}{}error {:.3g}, tolerance {:.3g}{}{}", output, output.empty() ? "" : ": ", error, tolerance,
                     worst.empty() ? "" : "; ", worst);
}

Compared worst_of(std::string output, const std::vector<Compared>& all) {
  Compared worst;
  for (const Compared& one : all)
    if (one.ok() ? worst.ok() && one.error > worst.error : worst.ok() || !(one.error <= worst.error))
      worst = one, worst.worst = one.output + " " + one.worst;
  worst.output = std::move(output);
  return worst;
}

std::int64_t source_row(std::size_t row, std::int64_t count, const std::vector<std::int32_t>& index,
                        std::int32_t divisor, const ValidRows& rows) {
  if (!rows.valid.empty() && !rows.valid[row]) return -1;
  if (index.empty()) return static_cast<std::int64_t>(row);
  return index[row] >= 0 && index[row] / divisor < count ? index[row] / divisor : -1;
}

std::size_t expert_of(std::size_t row, const ValidRows& rows) {
  if (rows.rows_per_expert != 0) return row / static_cast<std::size_t>(rows.rows_per_expert);
  return static_cast<std::size_t>(
      std::upper_bound(rows.row_ends.begin(), rows.row_ends.end(), static_cast<std::int32_t>(row)) -
      rows.row_ends.begin());
}

double storage_error(DType dtype) { return dtype == DType::bf16 ? 4e-3 : dtype == DType::f16 ? 5e-4 : 0; }

std::vector<double> CaseTensors::values(const TensorView& view) const { return tensor_of(view).values(stream_); }

std::vector<unsigned char> CaseTensors::bytes(const TensorView& view) const {
  DeviceTensor::Content content = tensor_of(view).content(stream_);
  require(content.damage.empty(), "{}", content.damage);
  return std::move(content.bytes);
}

TensorView CaseTensors::input(DType dtype, std::initializer_list<std::int64_t> shape,
                              const std::vector<double>& values) {
  return inputs_.emplace_back(stream_, dtype, shape, values, guards_);
}

TensorView CaseTensors::optional_input(DType dtype, std::initializer_list<std::int64_t> shape,
                                       const std::vector<double>& values) {
  return values.empty() ? TensorView() : input(dtype, shape, values);
}

TensorView CaseTensors::output(DType dtype, std::initializer_list<std::int64_t> shape,
                               const std::vector<double>& values) {
  const std::vector<unsigned char> before = encode(dtype, values);
  const Output& output = outputs_.emplace_back(Output{DeviceTensor(stream_, dtype, shape, guards_), before});
  if (!before.empty()) write_blocking(stream_, output.tensor.view.buffer, before.data(), before.size());
  return output.tensor;
}

BufferView CaseTensors::scratch(std::uint64_t size_bytes) {
  return scratch_.emplace_back(*stream_.context, std::max<std::uint64_t>(size_bytes, 1)).view();
}

void CaseTensors::renew() const {
  for (const Output& output : outputs_) {
    output.tensor.poison(stream_);
    if (output.before.empty()) continue;
    write_blocking(stream_, output.tensor.view.buffer, output.before.data(), output.before.size());
  }
}

CaseTensors::Held CaseTensors::held(const TensorView& output, std::optional<DType> as) const {
  const DeviceTensor& tensor = tensor_of(output);
  DeviceTensor::Content content = tensor.content(stream_);
  Held held{output.describe(), decode(as.value_or(output.dtype), content.bytes), {}, std::move(content.damage)};
  for (std::size_t i = 0; i < held.values.size(); ++i) held.is_poison.push_back(tensor.is_poison(i, content.bytes));
  return held;
}

Compared CaseTensors::within(std::string name, const Held& got, const std::vector<double>& expected,
                             const std::function<double(std::size_t)>& allowed) {
  Compared compared{std::move(name), 0, 1, got.damage};
  if (!got.damage.empty()) {
    compared.error = infinity;
  } else if (got.values.size() != expected.size()) {
    compared.error = infinity;
    compared.worst = fmt::format("{}, expected {} elements", got.what, expected.size());
  } else {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double value = got.values[i];
      const bool same = expected[i] == untouched
                            ? got.is_poison[i]
                            : value == expected[i] || (std::isnan(value) && std::isnan(expected[i]));
      if (same) continue;
      const double error = expected[i] == untouched ? infinity : std::abs(value - expected[i]) / allowed(i);
      if (error <= compared.error) continue;
      compared.error = std::isnan(error) ? infinity : error;
      compared.worst = fmt::format("{} at {}: {}, expected {}", got.what, i, value, expected[i]);
    }
  }
  return compared;
}

Compared CaseTensors::compare(std::string name, const Held& got, const std::vector<double>& expected, double tolerance,
                              std::int64_t columns) {
  const std::size_t row = columns == 0 ? std::max<std::size_t>(expected.size(), 1) : static_cast<std::size_t>(columns);
  std::vector<double> largest(expected.size() / row + 1, std::numeric_limits<double>::min());
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (expected[i] != untouched) largest[i / row] = std::fmax(largest[i / row], std::abs(expected[i]));
  Compared compared = within(std::move(name), got, expected, [&](std::size_t i) { return largest[i / row]; });
  compared.tolerance = tolerance;
  return compared;
}

Compared CaseTensors::compare(std::string name, const TensorView& output, const std::vector<double>& expected,
                              double tolerance, std::int64_t columns) const {
  return compare(std::move(name), held(output), expected, tolerance, columns);
}

Compared CaseTensors::compare(std::string name, const TensorView& output,
                              const std::vector<std::int32_t>& expected) const {
  return compare(std::move(name), output, doubles(expected));
}

const DeviceTensor& CaseTensors::tensor_of(const TensorView& view) const {
  const auto is_it = [&](const DeviceTensor& tensor) { return tensor.view.buffer.handle == view.buffer.handle; };
  for (const Output& output : outputs_)
    if (is_it(output.tensor)) return output.tensor;
  for (const DeviceTensor& tensor : inputs_)
    if (is_it(tensor)) return tensor;
  fail(ErrorCode::invalid_argument, "{}: no tensor of these operands", view.describe());
}

}  // namespace moecl::test
