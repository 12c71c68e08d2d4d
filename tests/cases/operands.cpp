#include "tests/cases/operands.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/check.hpp"

namespace moecl::test {

std::string Compared::describe() const {
  return fmt::format("{}{}error {:.3g}, tolerance {:.3g}{}{}", output, output.empty() ? "" : ": ", error, tolerance,
                     worst.empty() ? "" : "; ", worst);
}

Compared worst_of(std::string output, const std::vector<Compared>& all) {
  Compared worst;
  for (const Compared& one : all)
    if (!(one.error <= worst.error)) worst = one, worst.worst = one.output + " " + one.worst;
  worst.output = std::move(output);
  return worst;
}

double storage_error(DType dtype) { return dtype == DType::bf16 ? 4e-3 : dtype == DType::f16 ? 5e-4 : 0; }

std::vector<double> CaseOperands::values(const TensorView& view) const { return tensor_of(view).values(stream_); }

TensorView CaseOperands::input(DType dtype, std::initializer_list<std::int64_t> shape,
                               const std::vector<double>& values) {
  return inputs_.emplace_back(stream_, dtype, shape, values, guards_);
}

TensorView CaseOperands::optional_input(DType dtype, std::initializer_list<std::int64_t> shape,
                                        const std::vector<double>& values) {
  return values.empty() ? TensorView() : input(dtype, shape, values);
}

TensorView CaseOperands::output(DType dtype, std::initializer_list<std::int64_t> shape,
                                const std::vector<double>& values) {
  return outputs_.emplace_back(Output{DeviceTensor(stream_, dtype, shape, guards_), encode(dtype, values)}).tensor;
}

void CaseOperands::renew() const {
  for (const Output& output : outputs_) {
    output.tensor.poison(stream_);
    if (output.before.empty()) continue;
    write_blocking(stream_, output.tensor.view.buffer, output.before.data(), output.before.size());
  }
}

Compared CaseOperands::compare(std::string name, const TensorView& output, const std::vector<double>& expected,
                               double tolerance, std::int64_t columns) const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const DeviceTensor& tensor = tensor_of(output);
  const auto [bytes, damage] = tensor.content(stream_);
  const std::vector<double> got = decode(output.dtype, bytes);
  Compared compared{std::move(name), 0, tolerance, {}};
  if (!damage.empty() || got.size() != expected.size()) {
    compared.error = infinity;
    compared.worst =
        damage.empty() ? fmt::format("{}, expected {} elements", output.describe(), expected.size()) : damage;
    return compared;
  }
  const std::size_t row = columns == 0 ? std::max<std::size_t>(got.size(), 1) : static_cast<std::size_t>(columns);
  for (std::size_t first = 0; first < got.size(); first += row) {
    const std::size_t end = std::min(first + row, got.size());
    double largest = 1e-30;
    // fmax: what is not written is NaN, and does not count.
    for (std::size_t i = first; i < end; ++i) largest = std::fmax(largest, std::abs(expected[i]));
    for (std::size_t i = first; i < end; ++i) {
      if (got[i] == expected[i] || (std::isnan(expected[i]) && tensor.is_poison(i, bytes))) continue;
      const double error = std::abs(got[i] - expected[i]) / largest;
      if (error <= compared.error) continue;
      compared.error = std::isnan(error) ? infinity : error;
      compared.worst = fmt::format("{} at {}: {}, expected {}", output.describe(), i, got[i], expected[i]);
    }
  }
  return compared;
}

Compared CaseOperands::compare(std::string name, const TensorView& output,
                               const std::vector<std::int32_t>& expected) const {
  return compare(std::move(name), output, doubles(expected));
}

const DeviceTensor& CaseOperands::tensor_of(const TensorView& view) const {
  const auto is_it = [&](const DeviceTensor& tensor) { return tensor.view.buffer.handle == view.buffer.handle; };
  for (const Output& output : outputs_)
    if (is_it(output.tensor)) return output.tensor;
  for (const DeviceTensor& tensor : inputs_)
    if (is_it(tensor)) return tensor;
  fail(ErrorCode::invalid_argument, "{}: no tensor of these operands", view.describe());
}

}  // namespace moecl::test
