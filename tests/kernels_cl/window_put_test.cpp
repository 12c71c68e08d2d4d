// Puts of several ranks that share a device, each from a stream's turn, into windows that stand in one buffer each.
#include <moecl/fault.hpp>
#include <moecl/window_put.hpp>

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <random>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/oracle/edge_cases.hpp"
#include "tests/oracle/expert_sort.hpp"
#include "tests/oracle/window_slots.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;
using Bytes = std::vector<unsigned char>;

class WindowPutTest : public OnEveryDevice {
 protected:
  GuardedTensor ints(const Ints& values) const {
    return {device(), DType::i32, {static_cast<std::int64_t>(values.size())}, values};
  }
};
MOECL_ON_EVERY_DEVICE(WindowPutTest);

/// Rows of `row_bytes` with scales of `scale_bytes` (or none), for R ranks of which each has the ids of its number.
struct Exchange {
  std::vector<Ints> ids;
  std::int32_t experts, ranks, top_k;
  std::int64_t capacity, row_bytes, scale_bytes;

  std::uint64_t ends_at() const { return 256; }
  std::uint64_t codes_at() const { return 1024; }
  std::uint64_t scale_at() const { return codes_at() + static_cast<std::uint64_t>(ranks * capacity * row_bytes); }
  std::uint64_t window_bytes() const { return scale_at() + static_cast<std::uint64_t>(ranks * capacity * scale_bytes); }
};

constexpr unsigned char untouched = 0xA5;
unsigned char code_of(std::int32_t rank, std::int64_t row, std::int64_t i) {
  return static_cast<unsigned char>(rank * 89 + row * 31 + i * 7);
}

/// The windows of all ranks, and what a rank is told about them.
class Windows {
 public:
  Windows(const TestDevice& on, const Exchange& of)
      : on_(on), of_(of), addresses_(on, DType::i64, {of.ranks}), counter_(on, DType::i32, {1}, Ints{0}) {
    for (std::int32_t rank = 0; rank < of.ranks; ++rank) {
      memory_.emplace_back(*on.context, of.window_bytes() + 256);
      enqueue_fill(on.stream, memory_.back().view(), 0xA5A5A5A5U);
      enqueue_fill(on.stream, memory_.back().view().slice(64, 4 * static_cast<std::uint64_t>(of.ranks)), 0);
      window_put::enqueue(on.stream,
                          window_put::Address{memory_.back().view().slice(64, of.window_bytes()), rank, addresses_});
    }
  }
  window_put::Windows of_rank(std::int32_t rank, std::int32_t step) const {
    return {addresses_, counter_, rank, step, of_.capacity, of_.codes_at(), of_.scale_at()};
  }
  Bytes read(std::int32_t rank) const {
    Bytes bytes(of_.window_bytes());
    read_blocking(on_.stream, memory_[static_cast<std::size_t>(rank)].view().slice(64, bytes.size()), bytes.data(),
                  bytes.size());
    return bytes;
  }

 private:
  const TestDevice& on_;
  const Exchange& of_;
  std::vector<Buffer> memory_;
  GuardedTensor addresses_, counter_;
};

GuardedTensor rows_of(const TestDevice& on, std::int32_t rank, std::int64_t rows, std::int64_t bytes) {
  Bytes values;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < bytes; ++i) values.push_back(code_of(rank, row, i));
  return {on, DType::u8, {rows, bytes}, values};
}

/// A row of rank `from` at a place, as it has to be.
void expect_at(Bytes& window, const Exchange& of, std::int64_t place, std::int32_t from, std::int64_t row) {
  for (const auto& [at, bytes] : {std::pair(of.codes_at(), of.row_bytes), std::pair(of.scale_at(), of.scale_bytes)})
    for (std::int64_t i = 0; i < bytes; ++i)
      window[at + static_cast<std::uint64_t>(place * bytes + i)] = code_of(from, row, i);
}

void set_int(Bytes& window, std::uint64_t at, std::int32_t value) { std::memcpy(&window[at], &value, sizeof(value)); }

void check(const TestDevice& on, const Exchange& of) {
  const Windows there(on, of), back(on, of);
  const Bytes empty = [&] {
    Bytes bytes(of.window_bytes(), untouched);
    for (std::int32_t rank = 0; rank < of.ranks; ++rank) set_int(bytes, 4 * static_cast<std::uint64_t>(rank), 0);
    return bytes;
  }();
  std::vector<Bytes> sent(static_cast<std::size_t>(of.ranks), empty), returned = sent;
  const auto ints = [&](const Ints& values) {
    return GuardedTensor(on, DType::i32, {static_cast<std::int64_t>(values.size())}, values);
  };
  for (std::int32_t rank = 0; rank < of.ranks; ++rank) {
    const Ints& ids = of.ids[static_cast<std::size_t>(rank)];
    const auto tokens = static_cast<std::int64_t>(ids.size()) / of.top_k;
    oracle::SortedSlots sort = oracle::expert_sort(ids, 0, of.experts, of.experts, 0);
    sort.sorted_slots.resize(ids.size(), 1 << 30);  // past the rows: never read
    const GuardedTensor ends = ints(sort.row_ends), sorted = ints(sort.sorted_slots),
                        codes = rows_of(on, rank, tokens, of.row_bytes),
                        scale = rows_of(on, rank, tokens, of.scale_bytes);
    const TensorView no_scale;
    window_put::enqueue(on.stream, window_put::Dispatch{ends, sorted, of.top_k, codes,
                                                        of.scale_bytes != 0 ? TensorView(scale) : no_scale,
                                                        of.ends_at(), there.of_rank(rank, 7)});
    const oracle::SentWindow expected = oracle::sent_window(ids, of.experts, of.ranks, of.capacity);
    for (std::int32_t to = 0; to < of.ranks; ++to) {
      Bytes& window = sent[static_cast<std::size_t>(to)];
      set_int(window, 4 * static_cast<std::uint64_t>(rank), 7);
      for (std::int32_t e = 0; e < of.experts; ++e)
        set_int(window, of.ends_at() + 4 * static_cast<std::uint64_t>(rank * of.experts + e),
                sort.row_ends[static_cast<std::size_t>(e)]);
      for (std::int64_t i = 0; i < of.capacity; ++i)
        if (const std::int32_t slot = expected.slots[static_cast<std::size_t>(to * of.capacity + i)]; slot >= 0)
          expect_at(window, of, rank * of.capacity + i, rank, slot / of.top_k);
    }

    // Back: row j of what this rank has received stood at `places[j]`.
    std::int32_t local_experts = 0;
    const auto received = oracle::received_rows(of.ids, of.experts, rank, of.capacity, 0, local_experts);
    Ints places, local_ends(static_cast<std::size_t>(std::max(local_experts, 1)));
    for (const oracle::ReceivedRow& row : received) {
      Bytes& window = returned[static_cast<std::size_t>(row.source)];
      expect_at(window, of, rank * of.capacity + row.place % of.capacity, rank,
                static_cast<std::int64_t>(places.size()));
      places.push_back(row.place);
      for (auto e = static_cast<std::size_t>(row.expert); e < local_ends.size(); ++e) ++local_ends[e];
    }
    for (Bytes& window : returned) set_int(window, 4 * static_cast<std::uint64_t>(rank), 8);
    const std::int64_t rows = of.ranks * of.capacity;
    places.resize(static_cast<std::size_t>(rows), 1 << 30);
    const GuardedTensor stood = ints(places), counted = ints(local_ends),
                        results = rows_of(on, rank, rows, of.row_bytes),
                        scales = rows_of(on, rank, rows, of.scale_bytes);
    window_put::enqueue(
        on.stream, window_put::Combine{counted, stood, results, of.scale_bytes != 0 ? TensorView(scales) : no_scale,
                                       back.of_rank(rank, 8)});
  }
  for (std::int32_t rank = 0; rank < of.ranks; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(there.read(rank), sent[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(back.read(rank), returned[static_cast<std::size_t>(rank)]);
  }
}

TEST_P(WindowPutTest, RowsEndsAndSignalsStandWhereTheWindowsHaveThem) {
  for (const std::int32_t ranks : {1, 2, 3, 8})
    for (const auto& [row_bytes, scale_bytes] :
         {std::pair<std::int64_t, std::int64_t>(7168, 4), {48, 0}, {20, 3}, {7, 16}}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, rows of " << row_bytes << " + " << scale_bytes << " bytes");
      Exchange of{{}, 11, ranks, 3, 0, row_bytes, scale_bytes};
      std::mt19937 random(static_cast<unsigned>(ranks));
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        Ints& ids = of.ids.emplace_back(static_cast<std::size_t>(rank == 1 ? 0 : 3 * 17));
        for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 12) - 1;  // some slots have no expert
      }
      for (const std::int64_t capacity : {51, 5}) {  // all that may come, and too little
        of.capacity = capacity;
        check(device(), of);
      }
    }
}

TEST_P(WindowPutTest, WaitsForEverySignalAndNamesWhoIsLate) {
  if (device().caps().platform_name == "rusticl") GTEST_SKIP() << "rusticl 22.3 reports no signal as late";
  const GuardedTensor signals = ints({5, 6, 4, 5}), late = ints({0, 0, 0, 0}), fault = ints({0, 0, 0, 0});
  window_put::enqueue(device().stream, window_put::Wait{signals, 4, 100, late, fault});
  EXPECT_EQ(late.read<std::int32_t>(), Ints({0, 0, 0, 0}));
  window_put::enqueue(device().stream, window_put::Wait{signals, 5, 100, late, fault});
  window_put::enqueue(device().stream, window_put::Wait{signals, 6, 100, late, {}});  // the first fault stays
  for (const GuardedTensor* word : {&late, &fault}) {
    EXPECT_EQ(word->read<std::int32_t>(), Ints({static_cast<std::int32_t>(FaultCode::peer_late), 2, 5, 0}));
    EXPECT_THAT(error_of([&] { check_fault(device().stream, *word); }).what(),
                testing::HasSubstr("rank 2 did not signal step 5"));
  }
  // Steps wrap around.
  const GuardedTensor wrapped = ints({std::numeric_limits<std::int32_t>::min(), 5});
  const GuardedTensor fresh = ints({0, 0, 0, 0});
  window_put::enqueue(
      device().stream,
      window_put::Wait{TensorView(wrapped).rows(0, 1), std::numeric_limits<std::int32_t>::max(), 10, fresh, {}});
  EXPECT_EQ(fresh.read<std::int32_t>(), Ints({0, 0, 0, 0}));
}

TEST_P(WindowPutTest, RefusesWhatDoesNotFit) {
  const GuardedTensor ends = ints({1, 2}), sorted = ints({0, 1}), counter = ints({0}), word = ints({0, 0, 0, 0}),
                      addresses(device(), DType::i64, {2}), rows(device(), DType::bf16, {2, 8});
  window_put::Windows to{addresses, counter, 0, 1, 1, 256, 0};
  const window_put::Dispatch dispatch{ends, sorted, 1, rows, {}, 128, to};
  EXPECT_EQ(window_put::reject(dispatch), "");
  const auto reason = [&](auto change) {
    window_put::Dispatch args = dispatch;
    change(args);
    EXPECT_THROW(window_put::enqueue(device().stream, args), Error);
    return window_put::reject(args);
  };
  using testing::HasSubstr;
  EXPECT_THAT(reason([](auto& args) { args.divisor = 2; }), HasSubstr("sorted_slots: expected i32[4], got i32[2]"));
  EXPECT_THAT(reason([](auto& args) { args.divisor = 0; }), HasSubstr("divisor: 0 is not positive"));
  EXPECT_THAT(reason([](auto& args) { args.ends_at = 2; }), HasSubstr("ends_at: 2 is no multiple of 4"));
  EXPECT_THAT(reason([](auto& args) { args.to.rank = 2; }), HasSubstr("rank: 2 is not in [0, 2)"));
  EXPECT_THAT(reason([](auto& args) { args.to.addresses = {}; }), HasSubstr("addresses: expected i64[R]"));
  EXPECT_THAT(reason([](auto& args) { args.to.capacity = std::int64_t{1} << 31; }), HasSubstr("cannot be counted"));
  EXPECT_THAT(reason([&](auto& args) { args.scale = ends.view().rows(0, 1); }), HasSubstr("scale: expected 2"));
  EXPECT_THAT(window_put::reject(window_put::Combine{ends, sorted, rows.view().rows(0, 1), {}, to}),
              HasSubstr("codes: expected 2 contiguous rows"));
  EXPECT_THAT(window_put::reject(window_put::Wait{rows, 1, 1, word, {}}), HasSubstr("signals: expected i32"));
  EXPECT_THAT(window_put::reject(window_put::Address{{}, 0, addresses}), HasSubstr("memory: there is none"));
}

}  // namespace
}  // namespace moecl::test
