#include "tests/oracle/combine.hpp"

#include <moecl/combine.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_combine(StreamView stream) {
  oracle::CombineInput in{33, 2, normal(6 * 33, 1), {5, 0, -1, 2, 4, 3}, normal(6, 2), normal(3 * 33, 3), normal(3, 4)};
  for (std::vector<double>* values : {&in.rows, &in.weights, &in.shared, &in.shared_gate})
    *values = rounded(DType::f32, *values);
  const DeviceTensor rows(stream, DType::f32, {6, 33}, in.rows), weights(stream, DType::f32, {3, 2}, in.weights);
  const DeviceTensor slot_rows(stream, DType::i32, {6}, {in.slot_rows.begin(), in.slot_rows.end()});
  const DeviceTensor shared(stream, DType::f32, {3, 33}, in.shared), gate(stream, DType::f32, {3, 1}, in.shared_gate);
  const DeviceTensor out(stream, DType::f32, {3, 33});
  combine::Args args;
  args.rows = rows;
  args.slot_rows = slot_rows;
  args.weights = weights;
  args.shared = shared;
  args.shared_gate = gate;
  args.out = out;
  combine::enqueue(stream, args);
  return {
      {"combine", "", "f32[6, 33] top 2 -> f32[3, 33]", relative_error(out.values(stream), oracle::combine(in)), 1e-6}};
}

}  // namespace moecl::test
