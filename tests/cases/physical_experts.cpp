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

PhysicalExpertsOperands::PhysicalExpertsOperands(StreamView stream, PhysicalExpertsCase of, Guards guards)
    : CaseOperands(stream, guards), case_(std::move(of)) {
  constexpr double not_read = -77;
  auto columns = static_cast<std::size_t>(case_.most_places);
  for (const std::vector<std::int32_t>& some : case_.places) columns = std::max(columns, some.size());
  std::vector<double> table, replicas;
  for (const std::vector<std::int32_t>& some : case_.places) {
    replicas.push_back(static_cast<double>(some.size()));
    table.insert(table.end(), some.begin(), some.end());
    table.resize(replicas.size() * columns, not_read);
  }
  const auto experts = std::ssize(case_.places);
  args.ids = input(DType::i32, {case_.tokens(), case_.top_k}, doubles(case_.ids));
  args.places = input(DType::i32, {experts, static_cast<std::int64_t>(columns)}, table);
  args.replicas = input(DType::i32, {experts}, replicas);
  args.first_token = case_.first_token;
  args.physical = output(DType::i32, {case_.tokens(), case_.top_k});
  args.fault = output(DType::i32, {4}, std::vector<double>(4));
}

std::vector<Compared> PhysicalExpertsOperands::run(std::int32_t /*lanes*/) {
  if (!expected_) expected_ = oracle::physical_experts(case_.ids, case_.top_k, case_.places, case_.first_token);
  renew();
  physical_experts::enqueue(stream(), args);
  return {worst_of("", {compare("physical", args.physical, *expected_),
                        compare("fault", args.fault, std::vector<std::int32_t>(4))})};
}

/// Three experts at one, two and three places.
std::vector<SelfTestResult> self_test_physical_experts(StreamView stream) {
  PhysicalExpertsCase of{2, {}, {{0}, {1, 3}, {2, 4, 5}}, 0, 1000};
  for (std::int32_t i = 0; i < 18; ++i) of.ids.push_back(i * i % 7 % 3 - (i % 5 == 0 ? 1 : 0));
  return self_test<PhysicalExpertsOperands>(stream, "physical_experts", "t0", of);
}

}  // namespace moecl::test
