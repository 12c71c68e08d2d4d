#include <moecl/fp4.hpp>

#include "host/npu/describe_quant.hpp"
#include "tests/cases/npu_call.hpp"
#include "tests/cases/self_test.hpp"
#include "tests/oracle/mx_quantize.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t rows = 4, width = 33;

template <class Args>
void test_operator(StreamView stream, quantize_rows::Scheme scheme, std::vector<SelfTestResult>& results) {
  const std::vector<double> x = rounded(DType::bf16, normal(rows * width, 1));
  const DeviceTensor device_x(stream, DType::bf16, {rows, width}, x);
  Args args;
  args.x = device_x;
  const std::vector<std::vector<double>> outputs = call_operator(stream, args);
  std::vector<double> codes, scales;
  for (auto row = x.begin(); row != x.end(); row += width) {
    const oracle::QuantizedRow q = oracle::quantize_row({row, row + width}, quantize_rows::Rounding::divide, scheme);
    codes.insert(codes.end(), q.q.begin(), q.q.end());
    scales.push_back(q.scale);
  }
  // If division is not correctly rounded, a value next to a tie may round to the other side: one unit of 127.
  const bool exact = stream.device->caps.correctly_rounded_divide;
  const char* const name = npu::Describe<Args>::name;
  results.push_back({name, "y", "bf16[4, 33]", relative_error(outputs[0], codes), exact ? 0 : 1.0 / 127});
  results.push_back({name, "scale", "bf16[4, 33]", relative_error(outputs[1], scales), exact ? 0 : 3e-7});
}

void test_mx_quant(StreamView stream, std::vector<SelfTestResult>& results) {
  constexpr std::int64_t columns = 6;
  const std::vector<double> x = rounded(DType::bf16, normal(width * columns, 1));
  const DeviceTensor device_x(stream, DType::bf16, {width, columns}, x);
  npu::DynamicMxQuantArgs args;
  args.x = device_x;
  args.axis = 0;
  const std::vector<std::vector<double>> outputs = call_operator(stream, args);
  mx_quantize::Args rules;
  rules.format = fp4_e2m1;
  const oracle::MxTensor expected = oracle::mx_quantize(x, width, columns, rules);
  const char* const name = npu::Describe<npu::DynamicMxQuantArgs>::name;
  results.push_back({name, "y", "bf16[33, 6]", relative_error(outputs[0], {expected.y.begin(), expected.y.end()})});
  results.push_back(
      {name, "mxscale", "bf16[33, 6]", relative_error(outputs[1], {expected.scale.begin(), expected.scale.end()})});
}

}  // namespace

std::vector<SelfTestResult> self_test_npu_quant(StreamView stream) {
  std::vector<SelfTestResult> results;
  test_operator<npu::DynamicQuantArgs>(stream, quantize_rows::Scheme::symmetric, results);
  test_operator<npu::DynamicQuantAsymmetricArgs>(stream, quantize_rows::Scheme::asymmetric, results);
  test_mx_quant(stream, results);
  return results;
}

}  // namespace moecl::test
