#include "tests/cases/pack_weights.hpp"

#include <fmt/format.h>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/pack_weights.hpp"

namespace moecl::test {

std::string PackWeightsCase::describe() const { return fmt::format("{}[{}, {}] -> {}", name(from), n, k, name(to)); }

PackWeightsCase::Args PackWeightsCase::bring(CaseTensors& tensors) const {
  const TensorView packed = tensors.output(to, {PackedWeights::panels(n), k, PackedWeights::panel_columns});
  return {tensors.input(from, {n, k}, matrix), {packed.buffer, code_type(to), 1, n, k}};
}

std::vector<double> PackWeightsCase::expected() const {
  return oracle::pack_weights(rounded(to, rounded(from, matrix)), static_cast<std::size_t>(k));
}

void PackWeightsCase::enqueue(StreamView stream, const Args& args, std::int32_t /*lanes*/) const {
  pack_weights::enqueue(stream, args);
}

std::vector<Compared> PackWeightsCase::compare(const CaseTensors& tensors, const Args& args,
                                               const Expected& expected) const {
  return {tensors.compare("", args.packed.view(), expected)};
}

std::vector<SelfTestResult> self_test_pack_weights(StreamView stream) {
  return self_test(stream, "pack_weights", "", PackWeightsCase{65, 33, DType::bf16, DType::f32, normal(65 * 33, 1)});
}

}  // namespace moecl::test
