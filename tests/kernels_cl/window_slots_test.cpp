#include "tests/oracle/window_slots.hpp"

#include <moecl/error.hpp>
#include <moecl/window_slots.hpp>

#include <gmock/gmock.h>

#include <limits>

#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"
#include "tests/oracle/expert_sort.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;
constexpr std::int32_t rank_counts[] = {1, 2, 3, 8};  // 8: often more than experts

class WindowSlotsTest : public OnEveryDevice {
 protected:
  GuardedTensor ints(const Ints& values) const {
    return {device(), DType::i32, {static_cast<std::int64_t>(values.size())}, values};
  }
  GuardedTensor out(std::int64_t count) const { return {device(), DType::i32, {count}}; }
};
MOECL_ON_EVERY_DEVICE(WindowSlotsTest);

/// The one list of routings, each also with slots that have no expert.
std::vector<Routing> routings_with_holes() {
  std::vector<Routing> all = routings();
  const std::size_t whole = all.size();
  for (std::size_t i = 0; i < whole; ++i) {
    Routing holed = all[i];
    holed.name += ", every third slot without an expert";
    for (std::size_t slot = 0; slot < holed.ids.size(); slot += 3) holed.ids[slot] = -1;
    all.push_back(std::move(holed));
  }
  return all;
}

/// Nothing, too little, what is needed at most.
std::vector<std::int64_t> capacities(const Routing& routing) {
  return {0, 3, static_cast<std::int64_t>(routing.ids.size())};
}

TEST_P(WindowSlotsTest, OutgoingAndHomeAreTheSendersWindow) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int32_t ranks : rank_counts) {
      oracle::SortedSlots sort = oracle::expert_sort(routing.ids, 0, routing.experts, routing.experts, 0);
      sort.sorted_slots.resize(routing.ids.size(), 123456);  // past the rows: never read
      const GuardedTensor ends = ints(sort.row_ends), sorted = ints(sort.sorted_slots), rows = ints(sort.slot_rows);
      for (const std::int64_t capacity : capacities(routing)) {
        SCOPED_TRACE(testing::Message() << routing.name << ", " << ranks << " ranks, capacity " << capacity);
        const oracle::SentWindow expected = oracle::sent_window(routing.ids, routing.experts, ranks, capacity);
        const GuardedTensor slots = out(ranks * capacity), home = out(rows.view().shape[0]);
        window_slots::enqueue(device().stream, window_slots::Outgoing{ends, sorted, ranks, slots});
        window_slots::enqueue(device().stream, window_slots::Home{ends, rows, ranks, capacity, home});
        EXPECT_EQ(slots.read<std::int32_t>(), expected.slots);
        EXPECT_EQ(home.read<std::int32_t>(), expected.rows);
      }
    }
}

TEST_P(WindowSlotsTest, IncomingNamesTheLocalExpertOfEveryRow) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int32_t ranks : rank_counts) {
      std::vector<Ints> senders;  // each has other tokens than the one before, the last has none
      Ints all_ends;
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const auto kept =
            routing.ids.size() / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1 - rank);
        senders.emplace_back(routing.ids.begin(), routing.ids.begin() + static_cast<std::ptrdiff_t>(kept));
        const Ints ends = oracle::expert_sort(senders.back(), 0, routing.experts, routing.experts, 0).row_ends;
        all_ends.insert(all_ends.end(), ends.begin(), ends.end());
      }
      const GuardedTensor ends(device(), DType::i32, {ranks, routing.experts}, all_ends);
      for (const std::int64_t capacity : capacities(routing))
        for (const std::int32_t rank : {0, ranks - 1}) {
          SCOPED_TRACE(testing::Message()
                       << routing.name << ", rank " << rank << " of " << ranks << ", capacity " << capacity);
          const GuardedTensor ids(device(), DType::i32, {ranks * capacity, 1});
          window_slots::enqueue(device().stream, window_slots::Incoming{ends, rank, ids});
          EXPECT_EQ(ids.read<std::int32_t>(), oracle::received_experts(senders, routing.experts, rank, capacity));
        }
    }
}

TEST_P(WindowSlotsTest, RefusesWrongArguments) {
  using window_slots::Home, window_slots::Incoming, window_slots::Outgoing;
  const auto reason = [](const auto& args) { return window_slots::reject(args); };
  const GuardedTensor ends(device(), DType::i32, {4}), slots(device(), DType::i32, {6}),
      none = out(0), all_ends(device(), DType::i32, {2, 4}), ids(device(), DType::i32, {6, 1}),
      floats(device(), DType::f32, {6});
  EXPECT_EQ(reason(Outgoing{ends, slots, 3, slots}), "");
  EXPECT_THAT(reason(Outgoing{none, slots, 3, slots}), testing::HasSubstr("row_ends: expected contiguous i32[E]"));
  EXPECT_THAT(reason(Outgoing{ends, floats, 3, slots}), testing::HasSubstr("sorted_slots: expected contiguous i32"));
  EXPECT_THAT(reason(Outgoing{ends, slots, 3, ids}), testing::HasSubstr("slots: expected contiguous i32 of 1 dim"));
  EXPECT_THAT(reason(Outgoing{ends, slots, 4, slots}), testing::HasSubstr("i32[6] does not hold 4 equal slabs"));
  EXPECT_THAT(reason(Outgoing{ends, slots, 0, slots}), testing::HasSubstr("0 equal slabs"));
  EXPECT_EQ(reason(Incoming{all_ends, 1, ids}), "");
  EXPECT_THAT(reason(Incoming{ends, 0, ids}), testing::HasSubstr("row_ends: expected contiguous i32 of 2 dim"));
  EXPECT_THAT(reason(Incoming{all_ends, 2, ids}), testing::HasSubstr("2 is not among those of row_ends i32[2, 4]"));
  EXPECT_THAT(reason(Incoming{all_ends, -1, ids}), testing::HasSubstr("-1 is not among"));
  EXPECT_THAT(reason(Incoming{all_ends, 1, slots}), testing::HasSubstr("ids: expected contiguous i32 of 2 dim"));
  EXPECT_EQ(reason(Home{ends, slots, 2, 3, slots}), "");
  EXPECT_THAT(reason(Home{floats, slots, 2, 3, slots}), testing::HasSubstr("row_ends: expected"));
  EXPECT_THAT(reason(Home{ends, ids, 2, 3, slots}), testing::HasSubstr("slot_rows: expected"));
  EXPECT_THAT(reason(Home{ends, slots, 2, 3, ends}), testing::HasSubstr("rows: expected 6 elements, got i32[4]"));
  EXPECT_THAT(reason(Home{ends, slots, 0, 3, slots}), testing::HasSubstr("for each of 0 ranks"));
  EXPECT_THAT(reason(Home{ends, slots, 2, std::numeric_limits<std::int32_t>::max() / 2, slots}),
              testing::HasSubstr("cannot be counted in int32"));
  EXPECT_THROW(window_slots::enqueue(device().stream, Outgoing{ends, slots, 4, slots}), Error);
}

}  // namespace
}  // namespace moecl::test
