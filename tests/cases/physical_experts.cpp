#include "tests/cases/physical_experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/physical_experts.hpp"

namespace moecl::test {

std::string PhysicalExpertsCase::describe() const {
  return fmt::format("i32[{}, {}] E={}", tokens(), top_k, places.size());
}

PhysicalExpertsCase::Args PhysicalExpertsCase::bring(CaseTensors& tensors) const {
  Args args;
  constexpr double not_read = -77;
  auto columns = static_cast<std::size_t>(most_places);
  for (const std::vector<std::int32_t>& some : places) columns = std::max(columns, some.size());
  std::vector<double> table, replicas;
  for (const std::vector<std::int32_t>& some : places) {
    replicas.push_back(static_cast<double>(some.size()));
    table.insert(table.end(), some.begin(), some.end());
    table.resize(replicas.size() * columns, not_read);
  }
  const auto experts = std::ssize(places);
  args.ids = tensors.input(DType::i32, {tokens(), top_k}, doubles(ids));
  args.places = tensors.input(DType::i32, {experts, static_cast<std::int64_t>(columns)}, table);
  args.replicas = tensors.input(DType::i32, {experts}, replicas);
  args.first_token = first_token;
  args.physical = tensors.output(DType::i32, {tokens(), top_k});
  args.fault = tensors.output(DType::i32, {4}, std::vector<double>(4));
  return args;
}

std::vector<std::int32_t> PhysicalExpertsCase::expected() const {
  return oracle::physical_experts(ids, top_k, places, first_token);
}

void PhysicalExpertsCase::enqueue(StreamView stream, const Args& args, std::int32_t /*lanes*/) const {
  physical_experts::enqueue(stream, args);
}

std::vector<Compared> PhysicalExpertsCase::compare(const CaseTensors& tensors, const Args& args,
                                                   const Expected& expected) const {
  return {worst_of("", {tensors.compare("physical", args.physical, expected),
                        tensors.compare("fault", args.fault, std::vector<std::int32_t>(4))})};
}

/// Three experts at one, two and three places.
std::vector<SelfTestResult> self_test_physical_experts(StreamView stream) {
  PhysicalExpertsCase of{2, {}, {{0}, {1, 3}, {2, 4, 5}}, 0, 1000};
  for (std::int32_t i = 0; i < 18; ++i) of.ids.push_back(i * i % 7 % 3 - (i % 5 == 0 ? 1 : 0));
  return self_test(stream, "physical_experts", "t0", of);
}

}  // namespace moecl::test
