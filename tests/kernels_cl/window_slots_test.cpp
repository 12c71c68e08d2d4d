#include "tests/oracle/window_slots.hpp"

#include <moecl/error.hpp>
#include <moecl/window_slots.hpp>

#include <gmock/gmock.h>

#include <algorithm>
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

/// The common list of routings, and each of them again with slots that have no expert.
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

/// Capacities: nothing, too little, and the most that can be needed.
std::vector<std::int64_t> capacities(const Routing& routing) {
  return {0, 3, static_cast<std::int64_t>(routing.ids.size())};
}

TEST_P(WindowSlotsTest, OutgoingAndReturnRowsAreTheSendersWindow) {
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
        window_slots::enqueue(device().stream, window_slots::ReturnRows{ends, rows, ranks, capacity, home});
        EXPECT_EQ(slots.read<std::int32_t>(), expected.slots);
        EXPECT_EQ(home.read<std::int32_t>(), expected.rows);
      }
    }
}

TEST_P(WindowSlotsTest, IncomingNamesTheLocalExpertOfEveryRow) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int32_t ranks : rank_counts) {
      std::vector<Ints> senders;  // each has fewer tokens than the one before, the last has none
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

/// The expert ids of each of `ranks` senders. Each has fewer slots than the one before, the last none.
std::vector<Ints> senders_of(const Routing& routing, std::int32_t ranks) {
  std::vector<Ints> senders;
  const std::size_t part = routing.ids.size() / static_cast<std::size_t>(ranks);
  for (std::int32_t rank = ranks; rank-- > 0;)
    senders.emplace_back(routing.ids.begin(),
                         routing.ids.begin() + static_cast<std::ptrdiff_t>(part * static_cast<std::size_t>(rank)));
  return senders;
}

/// Row ends of every sender's slots, sorted by expert.
Ints ends_of(const std::vector<Ints>& senders, std::int32_t experts) {
  Ints all;
  for (const Ints& ids : senders) {
    const Ints ends = oracle::expert_sort(ids, 0, experts, experts, 0).row_ends;
    all.insert(all.end(), ends.begin(), ends.end());
  }
  return all;
}

/// Numbers of first ranks that have one expert each, where the other ranks can have the rest.
std::vector<std::int32_t> singles_of(std::int32_t ranks, std::int32_t experts) {
  std::vector<std::int32_t> all;
  for (const std::int32_t singles : {0, 1, 2})
    if (singles <= experts && (singles < ranks || (singles == ranks && singles == experts))) all.push_back(singles);
  return all;
}

TEST_P(WindowSlotsTest, SinglesOwnOneExpertEach) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int32_t ranks : {2, 3, 8})
      for (const std::int32_t singles : singles_of(ranks, routing.experts)) {
        SCOPED_TRACE(testing::Message() << routing.name << ", " << ranks << " ranks, " << singles << " singles");
        const auto capacity = static_cast<std::int64_t>(routing.ids.size());
        oracle::SortedSlots sort = oracle::expert_sort(routing.ids, 0, routing.experts, routing.experts, 0);
        sort.sorted_slots.resize(routing.ids.size(), 123456);
        const GuardedTensor ends = ints(sort.row_ends), sorted = ints(sort.sorted_slots), rows = ints(sort.slot_rows);
        const auto expected = oracle::sent_window(routing.ids, routing.experts, ranks, capacity, singles);
        const GuardedTensor slots = out(ranks * capacity), home = out(rows.view().shape[0]);
        window_slots::enqueue(device().stream, window_slots::Outgoing{ends, sorted, ranks, slots, singles});
        window_slots::enqueue(device().stream, window_slots::ReturnRows{ends, rows, ranks, capacity, home, singles});
        EXPECT_EQ(slots.read<std::int32_t>(), expected.slots);
        EXPECT_EQ(home.read<std::int32_t>(), expected.rows);
        const std::vector<Ints> senders = senders_of(routing, ranks);
        const GuardedTensor all_ends(device(), DType::i32, {ranks, routing.experts}, ends_of(senders, routing.experts)),
            ids(device(), DType::i32, {ranks * capacity, 1});
        for (const std::int32_t rank : {0, ranks - 1}) {
          window_slots::enqueue(device().stream, window_slots::Incoming{all_ends, rank, ids, singles});
          EXPECT_EQ(ids.read<std::int32_t>(),
                    oracle::received_experts(senders, routing.experts, rank, capacity, singles));
        }
      }
}

TEST_P(WindowSlotsTest, TokensReturnAsRowsOrOnceFromEveryRank) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int32_t ranks : rank_counts)
      for (const std::int32_t first_expert : {0, 3})
        for (const bool sums : {false, true}) {
          SCOPED_TRACE(testing::Message() << routing.name << ", " << ranks << " ranks, experts from " << first_expert);
          const std::int64_t capacity = routing.tokens + 2;
          Ints ids = routing.ids;
          for (std::int32_t& id : ids) id += id < 0 ? 0 : first_expert;
          const GuardedTensor given(device(), DType::i32, {routing.tokens, routing.top_k}, ids),
              return_rows = out(routing.tokens * routing.top_k), fault = ints({0, 0, 0, 0});
          window_slots::enqueue(device().stream,
                                window_slots::TokenReturnRows{given, first_expert, routing.experts, ranks, capacity,
                                                              sums, return_rows, fault});
          EXPECT_EQ(
              return_rows.read<std::int32_t>(),
              oracle::token_return_rows(ids, routing.top_k, first_expert, routing.experts, ranks, capacity, sums));
          EXPECT_EQ(fault.read<std::int32_t>(), Ints({0, 0, 0, 0}));
        }
  const GuardedTensor wrong(device(), DType::i32, {2, 2}, Ints{0, 1, 1, 4}), return_rows = out(4),
                                                                             fault = ints({0, 0, 0, 0});
  window_slots::TokenReturnRows args{wrong, 0, 4, 2, 2, true, return_rows, fault};
  window_slots::enqueue(device().stream, args);
  EXPECT_EQ(return_rows.read<std::int32_t>(), Ints({0, -1, 1, -1}));
  EXPECT_EQ(fault.read<std::int32_t>(), Ints({1, 3, 4, 0}));
  args.capacity = 1;
  EXPECT_EQ(window_slots::reject(args), "capacity: 1 tokens for each of 2 ranks, 2 are given, top 2");
  args.experts = 0;
  EXPECT_EQ(window_slots::reject(args), "experts: 0 from 0 on");
}

TEST_P(WindowSlotsTest, CountsSumOverExpertAndSource) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int32_t ranks : rank_counts)
      for (const std::int32_t singles : singles_of(ranks, routing.experts))
        for (const std::int32_t rank : {0, ranks - 1}) {
          SCOPED_TRACE(testing::Message()
                       << routing.name << ", rank " << rank << " of " << ranks << ", " << singles << " singles");
          const std::vector<Ints> senders = senders_of(routing, ranks);
          std::int32_t experts = 0;
          const auto received = oracle::received_rows(senders, routing.experts, rank,
                                                      static_cast<std::int64_t>(routing.ids.size()), singles, experts);
          Ints recv_ends(static_cast<std::size_t>(experts * ranks));
          std::vector<std::int64_t> counts(static_cast<std::size_t>(experts)), cumulative = counts;
          for (const oracle::ReceivedRow& row : received) {
            for (std::int32_t i = row.expert * ranks + row.source; i < experts * ranks; ++i)
              ++recv_ends[static_cast<std::size_t>(i)];
            ++counts[static_cast<std::size_t>(row.expert)];
            for (std::int32_t e = row.expert; e < experts; ++e) ++cumulative[static_cast<std::size_t>(e)];
          }
          const GuardedTensor ends(device(), DType::i32, {ranks, routing.experts}, ends_of(senders, routing.experts)),
              got = out(experts * ranks), nums(device(), DType::i64, {experts});
          for (const bool sums : {false, true}) {
            window_slots::enqueue(device().stream, window_slots::Counts{ends, rank, got, nums, sums, singles});
            EXPECT_EQ(got.read<std::int32_t>(), recv_ends);
            EXPECT_EQ(nums.read<std::int64_t>(), sums ? cumulative : counts);
          }
        }
}

/// The rows that a rank received, and what the rank knows about them.
struct Received {
  std::vector<oracle::ReceivedRow> rows;
  Ints row_ends, places, slots, triples;  ///< places and slots are those of the whole window
  Ints back;                              ///< the row that goes back, for each place of the window home

  Received(const Routing& routing, std::int32_t ranks, std::int32_t rank, std::int32_t columns) {
    const auto capacity = static_cast<std::int64_t>(routing.ids.size());
    const std::vector<Ints> senders = senders_of(routing, ranks);
    std::int32_t experts = 0;
    rows = oracle::received_rows(senders, routing.experts, rank, capacity, 0, experts);
    row_ends.resize(static_cast<std::size_t>(std::max(experts, 1)));
    back.assign(static_cast<std::size_t>(ranks * capacity), -1);
    for (const Ints& ids : senders) {
      const Ints all = oracle::sent_window(ids, routing.experts, ranks, capacity).slots;
      slots.insert(slots.end(), all.begin() + rank * capacity, all.begin() + (rank + 1) * capacity);
    }
    Ints filled(static_cast<std::size_t>(ranks));
    for (std::size_t j = 0; j < rows.size(); ++j) {
      const oracle::ReceivedRow& row = rows[j];
      for (auto e = static_cast<std::size_t>(row.expert); e < row_ends.size(); ++e) ++row_ends[e];
      places.push_back(row.place);
      triples.insert(triples.end(), {row.source, row.slot / columns, row.slot % columns});
      const std::int64_t place = row.source * capacity + filled[static_cast<std::size_t>(row.source)]++;
      back[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(j);
    }
    places.resize(slots.size(), 123456);  // past the rows: never read
  }
};

TEST_P(WindowSlotsTest, RowsKnowWhoseTheyAreAndComeBack) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int32_t ranks : rank_counts)
      for (const std::int32_t rank : {0, ranks - 1}) {
        SCOPED_TRACE(testing::Message() << routing.name << ", rank " << rank << " of " << ranks);
        const auto columns = static_cast<std::int32_t>(routing.top_k);
        const Received of(routing, ranks, rank, columns);
        const GuardedTensor ends = ints(of.row_ends), places = ints(of.places), slots = ints(of.slots),
                            back = ints(of.back), known = out(static_cast<std::int64_t>(3 * of.places.size() + 2));
        window_slots::enqueue(device().stream, window_slots::Sources{ends, places, slots, ranks, columns, known});
        Ints triples = known.read<std::int32_t>();
        for (std::size_t i = of.triples.size(); i < triples.size(); ++i)
          ASSERT_EQ(triples[i], 0x7fc17fc1) << "element " << i << " was written";
        triples.resize(of.triples.size());
        EXPECT_EQ(triples, of.triples);

        // The way home. The first triple names a rank that does not exist, and the last triple is missing.
        if (triples.size() >= 3) {
          triples[0] = ranks;
          triples.pop_back();
        }
        Ints source_slots, tokens;
        constexpr std::int32_t servers_of = 2, tokens_each = 40;
        const std::int64_t capacity = of.back.empty() ? 0 : static_cast<std::int64_t>(of.back.size()) / ranks;
        for (std::size_t i = 0; i < of.back.size(); ++i) {
          const auto row = static_cast<std::size_t>(of.back[i]);
          const bool told = of.back[i] > 0 && row + 1 < of.rows.size();
          const auto home = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / capacity);
          const std::int32_t token = told ? of.rows[row].slot / columns : -1;
          source_slots.push_back(of.back[i] < 0 ? -1 : told ? of.rows[row].slot : -2);
          tokens.push_back(told && token < tokens_each ? home / servers_of * tokens_each + token : -1);
        }
        const GuardedTensor told = ints(triples), got = out(static_cast<std::int64_t>(of.back.size()));
        window_slots::enqueue(device().stream, window_slots::SourceSlots{back, told, ranks, columns, got});
        EXPECT_EQ(got.read<std::int32_t>(), source_slots);
        window_slots::enqueue(device().stream,
                              window_slots::DestinationTokens{back, told, ranks, servers_of, tokens_each, got});
        EXPECT_EQ(got.read<std::int32_t>(), tokens);
      }
}

TEST_P(WindowSlotsTest, TokensReachGroupsOfOwners) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int32_t each : {1, 3})
      for (const std::int32_t first : {0, 2})
        for (const std::int64_t slabs : {std::int64_t{1}, std::max<std::int64_t>(routing.tokens, 1)}) {
          SCOPED_TRACE(testing::Message()
                       << routing.name << ", " << each << " owners from " << first << " on, " << slabs << " slabs");
          const std::int64_t groups = 4;
          Ints expected(static_cast<std::size_t>(routing.tokens * groups), -1);
          for (std::int64_t t = 0; t < routing.tokens; ++t)
            for (std::int64_t k = 0; k < routing.top_k; ++k)
              for (std::int64_t g = 0; g < groups; ++g) {
                const std::int64_t owner = routing.ids[static_cast<std::size_t>(t * routing.top_k + k)],
                                   begin = first + g * each;
                if (owner >= begin && owner < begin + each)
                  expected[static_cast<std::size_t>(t * groups + g)] =
                      static_cast<std::int32_t>(g * slabs + (slabs == 1 ? 0 : t));
              }
          const GuardedTensor owners(device(), DType::i32, {routing.tokens, routing.top_k}, routing.ids),
              ids(device(), DType::i32, {routing.tokens, groups});
          window_slots::enqueue(
              device().stream, window_slots::ReachedGroups{owners, first, each, static_cast<std::int32_t>(slabs), ids});
          EXPECT_EQ(ids.read<std::int32_t>(), expected);
        }
}

/// A window of two ranks with two places each, of whole tokens or of single slots.
TEST_P(WindowSlotsTest, PlacesMayBeWholeTokens) {
  const GuardedTensor ends = ints({1, 3}), slots = ints({6, 15, 3, 9}), triples = out(9);
  const auto sources = [&](const Ints& sorted, std::int32_t each, std::int32_t divisor) {
    window_slots::enqueue(device().stream,
                          window_slots::Sources{ends, ints(sorted), slots, 2, 4, triples, each, divisor});
    return triples.read<std::int32_t>();
  };
  // A place is a whole token of 4 slots. Place 1 of rank 0 has token 15 / 3 = 5.
  EXPECT_EQ(sources({6, 8, 15}, 4, 3), (Ints{0, 5, 2, 1, 1, 0, 1, 3, 3}));
  // A place is one slot. Place 3 belongs to rank 1 and has slot 9 / 3 = 3 of that rank.
  EXPECT_EQ(sources({3, 0, 1}, 1, 3), (Ints{1, 0, 3, 0, 0, 2, 0, 1, 1}));
}

TEST_P(WindowSlotsTest, PositionsCountEarlierSlotsOfTheSameExpert) {
  for (const Routing& routing : routings_with_holes())
    for (const std::int64_t counted : {std::int64_t{1}, routing.top_k}) {
      SCOPED_TRACE(testing::Message() << routing.name << ", " << counted << " columns count");
      const oracle::SortedSlots sort = oracle::expert_sort(routing.ids, 0, routing.experts, routing.experts, 0);
      Ints expected;
      for (std::int64_t t = 0; t < routing.tokens; ++t)
        for (std::int64_t k = 0; k < counted; ++k) {
          const auto first = routing.ids.begin(), slot = first + (t * routing.top_k + k);
          expected.push_back(*slot < 0 ? 0 : static_cast<std::int32_t>(std::count(first, slot, *slot)));
        }
      const GuardedTensor ends = ints(sort.row_ends), rows = ints(sort.slot_rows),
                          positions(device(), DType::i32, {routing.tokens, counted});
      window_slots::enqueue(device().stream, window_slots::PositionsInExpert{
                                                 ends, rows, static_cast<std::int32_t>(routing.top_k), positions});
      EXPECT_EQ(positions.read<std::int32_t>(), expected);
    }
}

TEST_P(WindowSlotsTest, RefusesWrongArguments) {
  using window_slots::ReturnRows, window_slots::Incoming, window_slots::Outgoing;
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
  EXPECT_EQ(reason(ReturnRows{ends, slots, 2, 3, slots}), "");
  EXPECT_THAT(reason(ReturnRows{floats, slots, 2, 3, slots}), testing::HasSubstr("row_ends: expected"));
  EXPECT_THAT(reason(ReturnRows{ends, ids, 2, 3, slots}), testing::HasSubstr("slot_rows: expected"));
  EXPECT_THAT(reason(ReturnRows{ends, slots, 2, 3, ends}), testing::HasSubstr("rows: expected 6 elements, got i32[4]"));
  EXPECT_THAT(reason(ReturnRows{ends, slots, 0, 3, slots}), testing::HasSubstr("for each of 0 ranks"));
  EXPECT_THAT(reason(ReturnRows{ends, slots, 2, std::numeric_limits<std::int32_t>::max() / 2, slots}),
              testing::HasSubstr("cannot be counted in int32"));
  using window_slots::ReachedGroups;
  EXPECT_EQ(reason(ReachedGroups{ids, 0, 1, 3, ids}), "");
  EXPECT_THAT(reason(ReachedGroups{slots, 0, 1, 1, ids}), testing::HasSubstr("owners: expected contiguous i32 of 2"));
  EXPECT_THAT(reason(ReachedGroups{ids, 0, 1, 1, all_ends}), testing::HasSubstr("ids: expected i32[6, groups]"));
  EXPECT_THAT(reason(ReachedGroups{ids, -1, 1, 1, ids}), testing::HasSubstr("1 in a group, from -1 on"));
  EXPECT_THAT(reason(ReachedGroups{ids, 0, 1, 4, ids}), testing::HasSubstr("6 tokens do not stand in 4 of them"));
  EXPECT_THAT(reason(window_slots::Sources{ends, slots, slots, 1, 1, out(18), 0, 1}),
              testing::HasSubstr("each, divisor: 0 and 1 are not positive"));
  EXPECT_THROW(window_slots::enqueue(device().stream, Outgoing{ends, slots, 4, slots}), Error);
}

}  // namespace
}  // namespace moecl::test
