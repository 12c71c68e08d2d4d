// Puts of several ranks into windows. The ranks share a device and take turns on a stream. Each window is a buffer.
#include <moecl/fault.hpp>
#include <moecl/window_put.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
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

/// An exchange between `ranks` ranks. A token has a row of `row_bytes` and scales of `scale_bytes` (or none). ids[r]
/// has the expert ids of the tokens of rank r. Expert ids begin at `first_expert`.
struct Exchange {
  std::vector<Ints> ids;
  std::int32_t first_expert, experts, ranks, top_k;
  std::int64_t capacity, row_bytes, scale_bytes;
  bool weighted;

  std::int64_t places() const { return ranks * capacity; }
  std::uint64_t ids_at() const { return 256; }
  std::uint64_t weights_at() const { return ids_at() + bytes(4); }
  std::uint64_t codes_at() const { return (weights_at() + bytes(4) + 255) / 256 * 256; }
  std::uint64_t scale_at() const { return codes_at() + bytes(row_bytes); }
  std::uint64_t window_bytes() const { return scale_at() + bytes(scale_bytes); }
  std::int64_t tokens(std::int32_t rank) const {
    return static_cast<std::int64_t>(ids[static_cast<std::size_t>(rank)].size()) / top_k;
  }
  /// The rank that has an expert; -1: none. Each rank has a linear run. If runs are uneven, the first are one longer.
  std::int32_t owner(std::int32_t id) const {
    for (std::int32_t rank = 0, expert = first_expert; rank < ranks; ++rank) {
      expert += experts / ranks + (rank < experts % ranks ? 1 : 0);
      if (id >= first_expert && id < expert) return rank;
    }
    return -1;
  }
  /// Whether a token of `from` has an expert of `to`.
  bool needs(std::int32_t from, std::int64_t token, std::int32_t to) const {
    const auto first = ids[static_cast<std::size_t>(from)].begin() + token * top_k;
    return std::any_of(first, first + top_k, [&](std::int32_t id) { return owner(id) == to; });
  }

 private:
  /// Bytes for rows, which take `top_k` places of a token. A sum takes one place.
  std::uint64_t bytes(std::int64_t of_place) const { return static_cast<std::uint64_t>(places() * top_k * of_place); }
};

constexpr unsigned char untouched = 0xA5;
unsigned char code_of(std::int32_t rank, std::int64_t row, std::int64_t i) {
  return static_cast<unsigned char>(rank * 89 + row * 31 + i * 7);
}

/// The windows of all ranks, and what a rank is told about them.
class Windows {
 public:
  Windows(const TestDevice& on, const Exchange& of)
      : on_(on), of_(of), addresses_(on, DType::i64, {of.ranks}), fault_(on, DType::i32, {4}, Ints{0, 0, 0, 0}) {
    for (std::int32_t rank = 0; rank < of.ranks; ++rank) {
      memory_.emplace_back(*on.context, of.window_bytes() + 256);
      enqueue_fill(on.stream, memory_.back().view(), 0xA5A5A5A5U);
      enqueue_fill(on.stream, memory_.back().view().slice(64, 4 * static_cast<std::uint64_t>(of.ranks)), 0);
      window_put::enqueue(on.stream,
                          window_put::Address{memory_.back().view().slice(64, of.window_bytes()), rank, addresses_});
    }
  }
  window_put::Windows of_rank(std::int32_t rank, std::int32_t step) const {
    return {addresses_, rank, step, of_.capacity, of_.codes_at(), of_.scale_at(), 0, {}, fault_};
  }
  Bytes read(std::int32_t rank) const {
    Bytes bytes(of_.window_bytes());
    read_blocking(on_.stream, memory_[static_cast<std::size_t>(rank)].view().slice(64, bytes.size()), bytes.data(),
                  bytes.size());
    return bytes;
  }
  Ints fault() const { return fault_.read<std::int32_t>(); }

 private:
  const TestDevice& on_;
  const Exchange& of_;
  std::vector<Buffer> memory_;
  GuardedTensor addresses_, fault_;
};

GuardedTensor rows_of(const TestDevice& on, std::int32_t rank, std::int64_t rows, std::int64_t bytes) {
  Bytes values;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < bytes; ++i) values.push_back(code_of(rank, row, i));
  return {on, DType::u8, {rows, bytes}, values};
}

/// Writes the expected row of rank `from` at a place of the window.
void expect_at(Bytes& window, const Exchange& of, std::int64_t place, std::int32_t from, std::int64_t row) {
  for (const auto& [at, bytes] : {std::pair(of.codes_at(), of.row_bytes), std::pair(of.scale_at(), of.scale_bytes)})
    for (std::int64_t i = 0; i < bytes; ++i)
      window[at + static_cast<std::uint64_t>(place * bytes + i)] = code_of(from, row, i);
}

void set_int(Bytes& window, std::uint64_t at, std::int64_t index, std::int32_t value) {
  std::memcpy(&window[at + 4 * static_cast<std::uint64_t>(index)], &value, sizeof(value));
}

/// Writes what the dispatch of a rank is expected to leave in the window of `to`.
void expect_dispatched(Bytes& window, const Exchange& of, std::int32_t rank, std::int32_t to) {
  const Ints& ids = of.ids[static_cast<std::size_t>(rank)];
  set_int(window, 0, rank, window_put::step_signal);
  for (std::int64_t slot = 0; slot < of.capacity * of.top_k; ++slot) {
    const std::int64_t place = rank * of.capacity * of.top_k + slot;
    const bool given = slot < static_cast<std::int64_t>(ids.size());
    set_int(window, of.ids_at(), place, given ? ids[static_cast<std::size_t>(slot)] : -1);
    if (given && of.weighted) set_int(window, of.weights_at(), place, static_cast<std::int32_t>(rank * 1000 + slot));
  }
  for (std::int64_t token = 0; token < of.tokens(rank); ++token)
    if (of.needs(rank, token, to)) expect_at(window, of, rank * of.capacity + token, rank, token);
}

void check(const TestDevice& on, const Exchange& of, bool sums) {
  const Windows there(on, of), back(on, of);
  const Bytes empty = [&] {
    Bytes bytes(of.window_bytes(), untouched);
    for (std::int32_t rank = 0; rank < of.ranks; ++rank) set_int(bytes, 0, rank, 0);
    return bytes;
  }();
  std::vector<Bytes> sent(static_cast<std::size_t>(of.ranks), empty), returned = sent;
  const auto ints = [&](const Ints& values) {
    return GuardedTensor(on, DType::i32, {static_cast<std::int64_t>(values.size())}, values);
  };
  const TensorView none;
  for (std::int32_t rank = 0; rank < of.ranks; ++rank) {
    const Ints& given = of.ids[static_cast<std::size_t>(rank)];
    const std::int64_t tokens = of.tokens(rank);
    Ints weight_bits(given.size());
    std::iota(weight_bits.begin(), weight_bits.end(), rank * 1000);
    const GuardedTensor ids(on, DType::i32, {tokens, of.top_k}, given),
        weights(on, DType::f32, {tokens, of.top_k}, weight_bits), codes = rows_of(on, rank, tokens, of.row_bytes),
                                                                  scale = rows_of(on, rank, tokens, of.scale_bytes),
                                                                  return_rows(on, DType::i32, {tokens * of.top_k});
    window_put::Dispatch put;
    put.ids = ids;
    put.weights = of.weighted ? TensorView(weights) : none;
    put.codes = codes;
    put.scale = of.scale_bytes != 0 ? TensorView(scale) : none;
    put.first_expert = of.first_expert;
    put.experts = of.experts;
    put.sums = sums;
    put.return_rows = return_rows;
    put.ids_at = of.ids_at();
    put.weights_at = of.weights_at();
    put.to = there.of_rank(rank, 1);
    window_put::enqueue(on.stream, put);
    EXPECT_EQ(return_rows.read<std::int32_t>(),
              oracle::token_return_rows(given, of.top_k, of.first_expert, of.experts, of.ranks, of.capacity, sums));
    for (std::int32_t to = 0; to < of.ranks; ++to) expect_dispatched(sent[static_cast<std::size_t>(to)], of, rank, to);

    // On the way back, this rank returns the rows of slots whose expert it has, or one sum for each token with any.
    Ints slot_rows;
    std::int32_t rows = 0;
    for (std::int32_t source = 0; source < of.ranks; ++source) {
      const Ints& theirs = of.ids[static_cast<std::size_t>(source)];
      Bytes& window = returned[static_cast<std::size_t>(source)];
      set_int(window, 0, rank, window_put::step_signal);
      for (std::int64_t slot = 0; slot < of.capacity * of.top_k; ++slot) {
        const bool here =
            slot < static_cast<std::int64_t>(theirs.size()) && of.owner(theirs[static_cast<std::size_t>(slot)]) == rank;
        slot_rows.push_back(here ? rows++ : -1);
        const std::int64_t token = slot / of.top_k;
        if (here && sums)
          expect_at(window, of, rank * of.capacity + token, rank, source * of.capacity + token);
        else if (here)
          expect_at(window, of, rank * of.capacity * of.top_k + slot, rank, slot_rows.back());
      }
    }
    if (sums) rows = static_cast<std::int32_t>(of.ranks * of.capacity);
    const GuardedTensor found = ints(slot_rows), results = rows_of(on, rank, rows, of.row_bytes),
                        scales = rows_of(on, rank, rows, of.scale_bytes);
    window_put::enqueue(on.stream,
                        window_put::Combine{found, of.top_k, results, of.scale_bytes != 0 ? TensorView(scales) : none,
                                            back.of_rank(rank, 1), sums});
  }
  for (std::int32_t rank = 0; rank < of.ranks; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(there.read(rank), sent[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(back.read(rank), returned[static_cast<std::size_t>(rank)]);
  }
  EXPECT_EQ(there.fault(), Ints({0, 0, 0, 0}));
}

TEST_P(WindowPutTest, RowsIdsAndSignalsStandWhereTheWindowsHaveThem) {
  for (const std::int32_t ranks : {1, 2, 3, 8})
    for (const auto& [row_bytes, scale_bytes] :
         {std::pair<std::int64_t, std::int64_t>(14336, 4), {48, 0}, {20, 3}, {7, 16}}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, rows of " << row_bytes << " + " << scale_bytes << " bytes");
      Exchange of{{}, ranks == 3 ? 5 : 0, 11, ranks, 3, 17, row_bytes, scale_bytes, ranks != 2};
      std::mt19937 random(static_cast<unsigned>(ranks));
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const std::size_t tokens = rank == 1 ? 0 : rank == 2 ? 5 : 17;
        Ints& ids = of.ids.emplace_back(3 * tokens);
        for (std::int32_t& id : ids) {  // some slots have no expert, or another node's
          id = static_cast<std::int32_t>(random() % 12) - 1 + of.first_expert;
          if (id < of.first_expert) id = random() % 2 == 0 ? -1 : 0;
          if (of.first_expert == 0) id = std::max(id, -1);
        }
      }
      for (const bool sums : {false, true}) check(device(), of, sums);
    }
}

// Rank 1 of two. A slab has three tokens, and the slots of a token have two, one or none of the five rows.
TEST_P(WindowPutTest, SumsOfATokensRowsGoBackToItsRank) {
  const Ints slot_rows = {4, 0, -1, 2, -1, -1, 3, -1, 1, 1, -1, -1};
  for (const std::int64_t hidden : {40, 7})
    for (const bool weighted : {true, false}) {
      SCOPED_TRACE(testing::Message() << "rows of " << hidden << (weighted ? ", weighted" : ""));
      const Exchange of{{{}, {}}, 0, 2, 2, 2, 3, hidden * 4, 0, weighted};
      const Windows windows(device(), of);
      std::mt19937 random(7);
      std::uniform_real_distribution<float> number(-1, 1);
      std::vector<float> x(static_cast<std::size_t>(5 * hidden)), w(12);
      for (std::vector<float>* values : {&x, &w})
        for (float& value : *values) value = number(random);
      std::vector<Bytes> expected(2, Bytes(of.window_bytes(), untouched));
      for (std::int64_t place = 0; place < 6; ++place) {
        Bytes& window = expected[static_cast<std::size_t>(place / 3)];
        for (const std::int32_t rank : {0, 1}) set_int(window, 0, rank, rank == 1 ? window_put::step_signal : 0);
        for (std::int64_t h = 0; h < hidden; ++h) {
          float sum = 0;
          for (std::int64_t slot = 2 * place; slot < 2 * place + 2; ++slot) {
            const std::int32_t row = slot_rows[static_cast<std::size_t>(slot)];
            if (row < 0) continue;
            const volatile float product =
                (weighted ? w[static_cast<std::size_t>(slot)] : 1) * x[static_cast<std::size_t>(row * hidden + h)];
            sum += product;
          }
          const std::int64_t first = 2 * place;
          if (slot_rows[static_cast<std::size_t>(first)] < 0 && slot_rows[static_cast<std::size_t>(first + 1)] < 0)
            continue;
          const auto at = of.codes_at() + static_cast<std::uint64_t>(((3 + place % 3) * hidden + h) * 4);
          std::memcpy(&window[at], &sum, sizeof(sum));
        }
      }
      const DeviceTensor rows(device().stream, DType::f32, {5, hidden}, {x.begin(), x.end()});  // aligned to 16 bytes
      const GuardedTensor weights(device(), DType::f32, {6, 2}, w), slots = ints(slot_rows);
      window_put::Sum put{slots, {}, 2, rows, windows.of_rank(1, 1)};
      if (weighted) put.weights = weights;
      window_put::enqueue(device().stream, put);
      for (const std::int32_t rank : {0, 1}) EXPECT_EQ(windows.read(rank), expected[static_cast<std::size_t>(rank)]);
    }
}

TEST_P(WindowPutTest, AnExpertThatDoesNotExistIsAFault) {
  Exchange of{{{0, -2, 4}, {4, 1, 1}}, 0, 4, 2, 3, 1, 16, 0, false};
  const Windows windows(device(), of);
  const GuardedTensor ids(device(), DType::i32, {1, 3}, of.ids[0]), codes = rows_of(device(), 0, 1, 16),
                                                                    return_rows(device(), DType::i32, {3});
  window_put::Dispatch put;
  put.ids = ids;
  put.codes = codes;
  put.experts = 4;
  put.return_rows = return_rows;
  put.ids_at = of.ids_at();
  put.to = windows.of_rank(0, 1);
  window_put::enqueue(device().stream, put);
  EXPECT_EQ(windows.fault(), Ints({static_cast<std::int32_t>(FaultCode::expert_id_out_of_range), 1, -2, 0}));
  EXPECT_EQ(return_rows.read<std::int32_t>(), Ints({0, -1, -1}));
}

TEST_P(WindowPutTest, WaitsForEverySignalAndNamesWhoIsLate) {
  constexpr std::int32_t one = window_put::step_signal;
  if (device().caps().platform_name == "rusticl") GTEST_SKIP() << "rusticl 22.3 reports no signal as late";
  const GuardedTensor window = ints({5 * one, 0, 4 * one, 5 * one}), late = ints({0, 0, 0, 0}),
                      fault = ints({0, 0, 0, 0}), slot_rows(device(), DType::i32, {0}),
                      rows(device(), DType::u8, {0, 16}), addresses(device(), DType::i64, {4}), others = ints(Ints(4));
  for (std::int32_t rank = 0; rank < 4; ++rank)
    window_put::enqueue(device().stream,
                        window_put::Address{(rank == 1 ? window : others).view().buffer, rank, addresses});
  const auto step = [&](std::int32_t number, TensorView told, TensorView told_too, std::uint64_t patience = 100) {
    window_put::Combine put{slot_rows, 1, rows, {}, {addresses, 1, number, 0, 0, 0, patience, told, told_too}};
    window_put::enqueue(device().stream, put);
  };
  step(4, late, fault);
  EXPECT_EQ(late.read<std::int32_t>(), Ints({0, 0, 0, 0}));
  EXPECT_EQ(window.read<std::int32_t>(), Ints({5 * one, one, 4 * one, 5 * one}));  // this rank's own signal
  step(5, late, fault);
  step(6, late, {}, std::uint64_t{1} << 60);  // the first fault stays, and no later step waits
  for (const GuardedTensor* word : {&late, &fault}) {
    EXPECT_EQ(word->read<std::int32_t>(), Ints({static_cast<std::int32_t>(FaultCode::peer_late), 2, 5, 0}));
    EXPECT_THAT(error_of([&] { check_fault(device().stream, *word); }).what(),
                testing::HasSubstr("rank 2 did not signal step 5"));
  }
  // Signals wrap around.
  const GuardedTensor wrapped = ints({0, 5, 0, 0}), fresh = ints({0, 0, 0, 0});
  window_put::enqueue(device().stream, window_put::Address{wrapped.view().buffer, 1, addresses});
  step(std::numeric_limits<std::int32_t>::max(), fresh, {});
  EXPECT_EQ(fresh.read<std::int32_t>(), Ints({0, 0, 0, 0}));
}

TEST_P(WindowPutTest, RefusesWhatDoesNotFit) {
  const GuardedTensor slots(device(), DType::i32, {2, 2}), return_rows(device(), DType::i32, {4}),
      one = ints({0}), addresses(device(), DType::i64, {2}), rows(device(), DType::bf16, {2, 8}),
      places(device(), DType::i32, {8});
  window_put::Dispatch dispatch;
  dispatch.ids = slots;
  dispatch.codes = rows;
  dispatch.experts = 4;
  dispatch.return_rows = return_rows;
  dispatch.to = {addresses, 0, 1, 2, 256, 0, 0, {}, {}};
  EXPECT_EQ(window_put::reject(dispatch), "");
  const auto reason = [&](auto change) {
    window_put::Dispatch args = dispatch;
    change(args);
    EXPECT_THROW(window_put::enqueue(device().stream, args), Error);
    return window_put::reject(args);
  };
  using testing::HasSubstr;
  EXPECT_THAT(reason([&](auto& args) { args.ids = rows; }), HasSubstr("ids: expected contiguous i32[T, K]"));
  EXPECT_THAT(reason([&](auto& args) { args.weights = rows; }), HasSubstr("weights: expected f32[2, 2], got"));
  EXPECT_THAT(reason([](auto& args) { args.experts = 0; }), HasSubstr("experts: 0 from 0 on"));
  EXPECT_THAT(reason([](auto& args) { args.ids_at = 2; }), HasSubstr("ids_at, weights_at: 2 and 0 are no multiples"));
  EXPECT_THAT(reason([](auto& args) { args.to.rank = 2; }), HasSubstr("rank: 2 is not in [0, 2)"));
  EXPECT_THAT(reason([](auto& args) { args.to.addresses = {}; }), HasSubstr("addresses: expected i64[R]"));
  EXPECT_THAT(reason([](auto& args) { args.to.capacity = 1; }), HasSubstr("ids: 2 tokens in slabs of 1"));
  EXPECT_THAT(reason([](auto& args) { args.to.capacity = std::int64_t{1} << 31; }), HasSubstr("cannot be counted"));
  EXPECT_THAT(reason([&](auto& args) { args.to.late = one; }), HasSubstr("late: expected i32[4]"));
  EXPECT_THAT(reason([&](auto& args) { args.return_rows = one; }), HasSubstr("return_rows: expected i32[4]"));
  EXPECT_THAT(reason([&](auto& args) { args.codes = rows.view().rows(0, 1); }), HasSubstr("codes: expected 2"));
  EXPECT_THAT(reason([&](auto& args) { args.scale = one; }), HasSubstr("scale: expected 2"));
  using window_put::Combine, window_put::Sum;
  const GuardedTensor sums(device(), DType::f32, {2, 8});
  EXPECT_EQ(window_put::reject(Combine{places, 2, rows, {}, dispatch.to}), "");
  EXPECT_EQ(window_put::reject(Sum{places, {}, 2, sums, dispatch.to}), "");
  EXPECT_THAT(window_put::reject(Combine{places, 2, {}, {}, dispatch.to}), HasSubstr("codes: expected"));
  EXPECT_THAT(window_put::reject(Combine{places, 2, rows, one, dispatch.to}), HasSubstr("scale: expected 2"));
  EXPECT_THAT(window_put::reject(Combine{places, 3, rows, {}, dispatch.to}), HasSubstr("slot_rows: expected i32[12]"));
  EXPECT_THAT(window_put::reject(Combine{places, 0, rows, {}, dispatch.to}), HasSubstr("top_k: 0 is not positive"));
  EXPECT_THAT(window_put::reject(Sum{places, {}, 2, rows, dispatch.to}), HasSubstr("rows: expected contiguous f32"));
  EXPECT_THAT(window_put::reject(Sum{places, sums, 2, sums, dispatch.to}), HasSubstr("weights: expected f32[4, 2]"));
  EXPECT_THAT(window_put::reject(window_put::Address{{}, 0, addresses}), HasSubstr("memory: there is none"));
}

}  // namespace
}  // namespace moecl::test
