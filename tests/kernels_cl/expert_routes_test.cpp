#include "tests/oracle/expert_routes.hpp"

#include <moecl/error.hpp>
#include <moecl/expert_routes.hpp>
#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include <random>

#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

class ExpertRoutesTest : public OnEveryDevice {
 protected:
  /// Runs with every output and compares each element.
  void check(const oracle::RoutedTokens& of, int mask_rank) {
    const std::int64_t columns = of.top_k + of.shared;
    const std::vector<unsigned char> bytes(of.mask.begin(), of.mask.end());
    const GuardedTensor ids(device(), DType::i32, {of.tokens, of.top_k}, of.ids),
        weights(device(), DType::f32, {of.tokens, of.top_k}, of.weights),
        owners(device(), DType::i32, {of.tokens, columns}), smooth(device(), DType::i32, {of.tokens * columns}),
        row_weights(device(), DType::f32, {of.tokens, columns}), special(device(), DType::i32, {of.tokens, columns}),
        active(device(), DType::i32, {of.tokens}), fault(device(), DType::i32, {4}, Ints(4));
    expert_routes::Args args;
    args.expert_ids = ids;
    args.weights = weights;
    args.experts = of.experts;
    args.zero_experts = of.zero, args.copy_experts = of.copy, args.const_experts = of.consts;
    args.shared_experts = of.shared, args.shared_ranks = of.shared_ranks, args.rank = of.rank;
    args.owners = owners, args.smooth_rows = smooth, args.row_weights = row_weights;
    args.special_rows = special, args.active = active, args.fault = fault;
    const GuardedTensor by_token(device(), DType::boolean, {mask_rank == 1 ? of.tokens : 0},
                                 mask_rank == 1 ? bytes : std::vector<unsigned char>()),
        by_pair(device(), DType::boolean, {mask_rank == 2 ? of.tokens : 0, of.top_k},
                mask_rank == 2 ? bytes : std::vector<unsigned char>());
    if (mask_rank == 1) args.mask = by_token;
    if (mask_rank == 2) args.mask = by_pair;
    expert_routes::enqueue(device().stream, args);
    const oracle::Routes expected = oracle::expert_routes(of);
    const Ints got_owners = owners.read<std::int32_t>(), got_smooth = smooth.read<std::int32_t>(),
               got_special = special.read<std::int32_t>();
    const std::vector<float> got_weights = row_weights.read<float>();
    ASSERT_EQ(got_owners.size(), expected.slots.size());
    for (std::size_t i = 0; i < expected.slots.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "slot " << i);
      EXPECT_EQ(got_owners[i], expected.slots[i].owner);
      EXPECT_EQ(got_smooth[i], expected.slots[i].smooth_row);
      EXPECT_EQ(got_special[i], expected.slots[i].special_row);
      EXPECT_EQ(got_weights[i], expected.slots[i].weight);
    }
    EXPECT_EQ(active.read<std::int32_t>(), expected.active);
    EXPECT_EQ(fault.read<std::int32_t>()[0] != 0, expected.faulty);
  }
};
MOECL_ON_EVERY_DEVICE(ExpertRoutesTest);

oracle::RoutedTokens tokens_of(const Routing& routing, std::uint64_t seed) {
  oracle::RoutedTokens of;
  of.tokens = routing.tokens, of.top_k = routing.top_k, of.ids = routing.ids, of.experts = routing.experts;
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < of.ids.size(); ++i) of.weights.push_back(static_cast<float>(random() % 1000) / 8);
  return of;
}

TEST_P(ExpertRoutesTest, AgreesWithTheDefinition) {
  std::uint64_t seed = 0;
  for (const Routing& routing : routings())
    for (const std::int32_t shared : {0, 1, 2})
      for (const int mask_rank : {0, 1, 2})
        for (const bool special : {false, true}) {
          if (mask_rank == 2 && routing.top_k == 1) continue;  // the same as by token
          SCOPED_TRACE(testing::Message() << routing.name << ", " << shared << " shared, mask of " << mask_rank
                                          << " dimensions, special experts " << special);
          oracle::RoutedTokens of = tokens_of(routing, ++seed);
          std::mt19937_64 random(seed);
          of.shared = shared, of.shared_ranks = 3 * shared, of.rank = static_cast<std::int32_t>(random() % 8);
          if (special) {  // the same ids; the last experts compute nothing
            of.zero = of.experts > 1, of.copy = of.experts > 2, of.consts = of.experts > 3 ? 2 : 0;
            of.experts -= of.zero + of.copy + of.consts;
          }
          const auto first_inactive = static_cast<std::int64_t>(random() % (static_cast<std::uint64_t>(of.tokens) + 1));
          for (std::int64_t t = 0; mask_rank == 1 && t < of.tokens; ++t) of.mask.push_back(t < first_inactive);
          for (std::size_t i = 0; mask_rank == 2 && i < of.ids.size(); ++i) of.mask.push_back(random() % 3 != 0);
          EXPECT_FALSE(oracle::expert_routes(of).faulty);
          check(of, mask_rank);
        }
}

TEST_P(ExpertRoutesTest, BadDataGoesNowhereAndSetsTheFaultWord) {
  oracle::RoutedTokens good;
  good.tokens = 3, good.top_k = 2, good.experts = 4, good.consts = 1;
  good.ids = {0, 3, 1, 2, 4, 0};
  good.weights = {1, 2, 3, 4, 5, 6};
  check(good, 0);
  for (const auto& [slot, id] : {std::pair(1, 5), std::pair(2, -1), std::pair(3, 1)}) {  // none, none, repeated
    SCOPED_TRACE(id);
    oracle::RoutedTokens bad = good;
    bad.ids[static_cast<std::size_t>(slot)] = id;
    EXPECT_TRUE(oracle::expert_routes(bad).faulty);
    check(bad, 0);
    bad.mask = {true, true, true, true, true, true};
    bad.mask[static_cast<std::size_t>(slot)] = false;  // the mask hides the bad slot
    EXPECT_FALSE(oracle::expert_routes(bad).faulty);
    check(bad, 2);
  }
  oracle::RoutedTokens holed = good;
  holed.mask = {true, false, true};
  EXPECT_TRUE(oracle::expert_routes(holed).faulty);
  check(holed, 1);
}

TEST_P(ExpertRoutesTest, RefusesWrongArguments) {
  const GuardedTensor ids(device(), DType::i32, {3, 2}), owners(device(), DType::i32, {3, 2}),
      mask(device(), DType::boolean, {4}), floats(device(), DType::f32, {3, 2});
  const auto reason = [&](auto spoil) {
    expert_routes::Args args;
    args.expert_ids = ids, args.owners = owners, args.experts = 4;
    spoil(args);
    return expert_routes::reject(args);
  };
  using expert_routes::Args;
  EXPECT_EQ(reason([](Args&) {}), "");
  EXPECT_THAT(reason([&](Args& a) { a.expert_ids = floats; }), testing::HasSubstr("expert_ids: expected contiguous"));
  EXPECT_THAT(reason([&](Args& a) { a.mask = mask; }), testing::HasSubstr("mask: expected bool[3] or bool[3, 2]"));
  EXPECT_THAT(reason([&](Args& a) { a.row_weights = floats; }), testing::HasSubstr("weights: expected"));
  EXPECT_THAT(reason([](Args& a) { a.experts = 0; }), testing::HasSubstr("experts: 0 of them"));
  EXPECT_THAT(reason([](Args& a) { a.shared_experts = 2, a.shared_ranks = 3; }), testing::HasSubstr("2 on 3 ranks"));
  EXPECT_THAT(reason([](Args& a) { a.shared_experts = a.shared_ranks = 1; }),
              testing::HasSubstr("owners: expected contiguous i32[3, 3]"));
  EXPECT_THAT(reason([&](Args& a) { a.smooth_rows = owners; }), testing::HasSubstr("smooth_rows: expected i32[6]"));
  EXPECT_THROW(expert_routes::enqueue(device().stream, Args()), Error);
}

}  // namespace
}  // namespace moecl::test
