#include "tests/cases/physical_experts.hpp"

#include <moecl/error.hpp>
#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include <random>

#include "tests/kernels_cl/operator_test.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

class PhysicalExpertsTest : public OperatorTest<PhysicalExpertsCase> {
 protected:
  GuardedTensor ints(const Ints& values, std::int64_t columns) const {
    return {device(), DType::i32, {static_cast<std::int64_t>(values.size()) / columns, columns}, values};
  }
  GuardedTensor ints(const Ints& values) const {
    return {device(), DType::i32, {static_cast<std::int64_t>(values.size())}, values};
  }
};
MOECL_ON_EVERY_DEVICE(PhysicalExpertsTest);

TEST_P(PhysicalExpertsTest, EveryTokenChoosesOneOfThePlaces) {
  std::mt19937_64 random(1);
  const auto in = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (const std::int64_t tokens : {0, 1, 7, 65, 300})
    for (const std::int64_t top_k : {1, 3, 8})
      for (const std::int64_t first_token : {std::int64_t{0}, std::int64_t{13}, (std::int64_t{1} << 32) - 2}) {
        PhysicalExpertsCase of{top_k, {}, {}, in(1, 4), first_token};
        std::int32_t next = 0;
        for (std::int64_t experts = in(1, 20); experts > 0; --experts) {
          Ints& places = of.places.emplace_back();
          for (std::int64_t i = in(0, of.most_places); i > 0; --i) places.push_back(next++);
        }
        for (std::int64_t i = 0; i < tokens * top_k; ++i)
          of.ids.push_back(static_cast<std::int32_t>(in(-1, std::ssize(of.places) - 1)));
        check(of, {0});
      }
}

TEST_P(PhysicalExpertsTest, ExpertsThatAreThereShareTheWeightOfThoseThatHaveGone) {
  // Experts 1 and 3 of 4 have lost their places. Expert 4 never has a place.
  const GuardedTensor ids(device(), DType::i32, {4, 3}, Ints{0, 1, 2, 1, 3, -1, 2, 0, 4, 3, 4, 0}),
      places = ints({0, -1, 1, -1, -1}, 1), replicas = ints({1, 0, 1, 0, 0}), physical(device(), DType::i32, {4, 3}),
      placed(device(), DType::f32, {4, 3}), fault = ints({0, 0, 0, 0});
  const std::vector<float> given = {0.5F, 0.25F, 0.25F, 0.75F, 0.25F, 9, 0.3F, 0.6F, 0.1F, 0.5F, 0.25F, 0.25F};
  const GuardedTensor weights(device(), DType::f32, {4, 3}, given);
  physical_experts::Args args{ids, places, replicas, 0, physical, fault, weights, placed, 4};
  physical_experts::enqueue(device().stream, args);
  EXPECT_EQ(physical.read<std::int32_t>(), (Ints{0, -1, 1, -1, -1, -1, 1, 0, -1, -1, -1, 0}));
  const std::vector<float> got = placed.read<float>(),
                           expected = {0.5F * 4 / 3, 0, 0.25F * 4 / 3, 0, 0, 9, 0.3F, 0.6F, 0.1F, 0, 0.5F, 0.5F};
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_FLOAT_EQ(got[i], expected[i]) << i;
  EXPECT_EQ(fault.read<std::int32_t>(), Ints(4));
  args.weights = args.placed_weights = {};
  args.refuses = true;
  physical_experts::enqueue(device().stream, args);
  const Ints word = fault.read<std::int32_t>();
  EXPECT_EQ(word[0], static_cast<std::int32_t>(FaultCode::expert_gone));
  const Ints all = ids.read<std::int32_t>();
  EXPECT_EQ(all[static_cast<std::size_t>(word[1])], word[2]);
  EXPECT_THAT(word[2], testing::AnyOf(1, 3));
  args.weights = weights;
  EXPECT_THAT(physical_experts::reject(args), testing::HasSubstr("expected both or neither"));
  args.weights = {}, args.expected = 6;
  EXPECT_THAT(physical_experts::reject(args), testing::HasSubstr("expected: 6 of 5 experts"));
}

TEST_P(PhysicalExpertsTest, TheChoiceDoesNotDependOnHowTokensAreDealt) {
  const Ints ids = {0, 1, 1, 0, 0, 1, 1, 0, 0, 1};
  const GuardedTensor places = ints({0, 2, 4, 1, 3, 5}, 3), replicas = ints({3, 3});
  const GuardedTensor whole(device(), DType::i32, {5, 2});
  physical_experts::enqueue(device().stream, {ints(ids, 2), places, replicas, 0, whole, {}});
  const GuardedTensor last(device(), DType::i32, {3, 2});
  physical_experts::enqueue(device().stream, {ints({ids.begin() + 4, ids.end()}, 2), places, replicas, 2, last, {}});
  const Ints all = whole.read<std::int32_t>();
  EXPECT_EQ(last.read<std::int32_t>(), Ints(all.begin() + 4, all.end()));
}

TEST_P(PhysicalExpertsTest, AnIdThatDoesNotExistIsAFault) {
  const GuardedTensor places = ints({0, 1}, 1), replicas = ints({1, 1}), physical(device(), DType::i32, {2, 2}),
                      fault = ints({0, 0, 0, 0});
  physical_experts::enqueue(device().stream, {ints({1, 2, -1, 0}, 2), places, replicas, 0, physical, fault});
  EXPECT_EQ(physical.read<std::int32_t>(), (Ints{1, -1, -1, 0}));
  EXPECT_EQ(fault.read<std::int32_t>(), (Ints{static_cast<std::int32_t>(FaultCode::expert_id_out_of_range), 1, 2, 0}));
  const GuardedTensor unchecked(device(), DType::i32, {1, 2});
  physical_experts::enqueue(device().stream, {ints({-7, 0}, 2), places, replicas, 0, unchecked, {}});
  EXPECT_EQ(unchecked.read<std::int32_t>(), (Ints{-1, 0}));
}

TEST_P(PhysicalExpertsTest, RefusesTensorsThatDoNotFit) {
  const physical_experts::Args good{
      ints({0, 1}, 2), ints({0, 1}, 1), ints({1, 1}), 0, GuardedTensor(device(), DType::i32, {1, 2}), {}};
  EXPECT_EQ(physical_experts::reject(good), "");
  const auto refused = [&](auto change) {
    physical_experts::Args args = good;
    change(args);
    return physical_experts::reject(args);
  };
  EXPECT_THAT(refused([&](auto& args) { args.ids = ints({0, 1}); }), testing::HasSubstr("ids: expected"));
  EXPECT_THAT(refused([&](auto& args) { args.places = ints({0, 1}); }), testing::HasSubstr("places: expected"));
  EXPECT_THAT(refused([&](auto& args) { args.replicas = ints({1}); }),
              testing::HasSubstr("replicas: expected i32[2], got i32[1]"));
  EXPECT_THAT(refused([&](auto& args) {
                args.physical = ints({0, 1}, 1);
              }),
              testing::HasSubstr("physical: expected contiguous i32[1, 2], got i32[2, 1]"));
  EXPECT_THAT(refused([&](auto& args) { args.fault = ints({0}); }), testing::HasSubstr("fault: expected i32[4]"));
  EXPECT_THAT(refused([&](auto& args) { args.first_token = -1; }), testing::HasSubstr("first_token: -1"));
  physical_experts::Args bad = good;
  bad.first_token = -1;
  EXPECT_THROW(physical_experts::enqueue(device().stream, bad), Error);
}

}  // namespace
}  // namespace moecl::test
