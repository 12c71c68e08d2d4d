#include <moecl/communicator.hpp>
#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using std::chrono::milliseconds;

class CommunicatorTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count, milliseconds deadline = milliseconds(60000)) {
    return {count, GetParam().places, {deadline, GetParam().transport}};
  }
};
INSTANTIATE_TEST_SUITE_P(Places, CommunicatorTest, testing::ValuesIn(settings_with_fake),
                         [](const auto& param) { return std::string(param.param.name); });

constexpr std::int32_t rank_counts[] = {1, 2, 3, 4, 8};

/// Bytes that depend on the rank and on their position.
std::vector<unsigned char> bytes_of(std::int32_t rank, std::size_t count) {
  std::vector<unsigned char> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(rank * 37 + i * 11 + i / 251);
  return bytes;
}

struct Memory {
  Memory(StreamView stream, std::size_t bytes)
      : buffer(*stream.context, std::max<std::size_t>(bytes, 1)), on(stream), size(bytes) {}
  Memory(StreamView stream, const std::vector<unsigned char>& bytes) : Memory(stream, bytes.size()) {
    write_blocking(on, buffer.view(), bytes.data(), bytes.size());
  }
  BufferView view() const { return buffer.view().slice(0, size); }
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> bytes(size);
    read_blocking(on, buffer.view(), bytes.data(), size);
    return bytes;
  }
  Buffer buffer;
  StreamView on;
  std::size_t size;
};

TEST_P(CommunicatorTest, AllGatherOfUnequalSizes) {
  for (const std::int32_t ranks : rank_counts) {
    SCOPED_TRACE(ranks);
    Ranks on = make(ranks);
    std::vector<std::uint64_t> sizes;
    std::vector<unsigned char> expected;
    for (std::int32_t r = 0; r < ranks; ++r) {
      sizes.push_back(static_cast<std::uint64_t>(r % 3 == 1 ? 0 : 1000 + 77 * r));
      const auto part = bytes_of(r, sizes.back());
      expected.insert(expected.end(), part.begin(), part.end());
    }
    on.group.run([&](Communicator& comm) {
      const std::uint64_t mine = sizes[static_cast<std::size_t>(comm.rank())];
      const Memory send(comm.stream(), bytes_of(comm.rank(), mine)), recv(comm.stream(), expected.size());
      for (int round = 0; round < 5; ++round) {
        enqueue_fill(comm.stream(), recv.buffer.view(), 0);
        comm.all_gather_v(send.view(), recv.view(), sizes);
        EXPECT_EQ(recv.read(), expected);
      }
      EXPECT_EQ(comm.bytes_received(), 5 * (expected.size() - mine));
    });
  }
}

TEST_P(CommunicatorTest, AllToAllOfUnequalBlocks) {
  for (const std::int32_t ranks : rank_counts) {
    SCOPED_TRACE(ranks);
    Ranks on = make(ranks);
    const auto block = [&](std::int32_t from, std::int32_t to) {
      return static_cast<std::size_t>((from * 5 + to * 3) % 7 * 113);
    };
    on.group.run([&](Communicator& comm) {
      std::vector<unsigned char> all, expected;
      Communicator::Blocks sends, receives;
      for (std::int32_t peer = 0; peer < ranks; ++peer) {
        const auto out = bytes_of(comm.rank() * ranks + peer, block(comm.rank(), peer)),
                   in = bytes_of(peer * ranks + comm.rank(), block(peer, comm.rank()));
        sends.offsets.push_back(all.size()), sends.bytes.push_back(out.size());
        receives.offsets.push_back(expected.size()), receives.bytes.push_back(in.size());
        all.insert(all.end(), out.begin(), out.end());
        expected.insert(expected.end(), in.begin(), in.end());
      }
      const Memory send(comm.stream(), all), recv(comm.stream(), expected.size());
      comm.all_to_all_v(send.view(), sends, recv.view(), receives);
      EXPECT_EQ(recv.read(), expected);
    });
  }
}

TEST_P(CommunicatorTest, BroadcastReachesEveryone) {
  Ranks on = make(4);
  on.group.run([&](Communicator& comm) {
    for (std::int32_t root = 0; root < comm.size(); ++root) {
      const Memory data(comm.stream(), bytes_of(comm.rank(), 4099));
      comm.broadcast(data.view(), root);
      EXPECT_EQ(data.read(), bytes_of(root, 4099));
    }
  });
}

TEST_P(CommunicatorTest, ReductionsSumInOrderOfRankAndGiveTheSameBitsEverywhere) {
  for (const std::int32_t ranks : rank_counts) {
    SCOPED_TRACE(ranks);
    Ranks on = make(ranks);
    constexpr std::int64_t width = 33;
    std::vector<std::int64_t> rows;
    for (std::int32_t r = 0; r < ranks; ++r) rows.push_back(r % 3 == 2 ? 0 : r + 1);
    const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    std::vector<std::vector<double>> parts;
    std::vector<double> sum(static_cast<std::size_t>(total * width));
    for (std::int32_t r = 0; r < ranks; ++r)
      parts.push_back(rounded(DType::f32, normal(sum.size(), static_cast<std::uint64_t>(r + 1))));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      float running = 0;
      for (const auto& part : parts) running += static_cast<float>(part[i]);
      sum[i] = running;
    }
    on.group.run([&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      const DeviceTensor data(comm.stream(), DType::f32, {total, width}, parts[rank]),
          out(comm.stream(), DType::f32, {rows[rank], width});
      comm.reduce_scatter(data, out, rows);
      const std::int64_t first = std::accumulate(rows.begin(), rows.begin() + comm.rank(), std::int64_t{0});
      EXPECT_EQ(out.values(comm.stream()),
                std::vector<double>(sum.begin() + first * width, sum.begin() + (first + rows[rank]) * width));
      comm.all_reduce(data);
      EXPECT_EQ(data.values(comm.stream()), sum);
    });
  }
}

TEST_P(CommunicatorTest, PartsOfAGroupWorkBesideEachOther) {
  Ranks on = make(4);
  on.group.run([&](Communicator& comm) {
    const std::int32_t column = comm.rank() % 2, row = comm.rank() / 2;
    Communicator down = comm.part({column, column + 2}), across = comm.part({row * 2, row * 2 + 1});
    EXPECT_EQ(down.rank(), row);
    EXPECT_EQ(across.rank(), column);
    EXPECT_EQ(down.share("tokens", {comm.rank()}), (std::vector<std::vector<std::int64_t>>{{column}, {column + 2}}));
    const Memory mine(comm.stream(), bytes_of(comm.rank(), 100)), pair(comm.stream(), 200);
    across.all_gather(mine.view(), pair.view());
    std::vector<unsigned char> expected = bytes_of(row * 2, 100), second = bytes_of(row * 2 + 1, 100);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(pair.read(), expected);
    comm.barrier();
  });
}

TEST_P(CommunicatorTest, LargeMessagesGoInChunks) {
  Ranks on = make(2);
  const std::size_t size = (std::size_t{40} << 20) + 12;
  on.group.run([&](Communicator& comm) {
    const Memory data(comm.stream(), bytes_of(comm.rank(), size));
    comm.broadcast(data.view(), 1);
    EXPECT_TRUE(data.read() == bytes_of(1, size));
  });
}

TEST_P(CommunicatorTest, MemoryMayBeReleasedBeforeItsBytesHaveLeft) {
  Ranks on = make(3);
  constexpr std::int32_t messages = 20;
  constexpr std::size_t size = 300000;
  on.group.run([&](Communicator& comm) {
    std::vector<Memory> waiting, received;
    for (std::int32_t i = 0; i < messages; ++i)
      waiting.emplace_back(comm.stream(), bytes_of(comm.rank() == 0 ? i : 99, size));
    for (std::int32_t i = messages - 1; i >= 0; --i) {
      comm.broadcast(waiting.back().view(), 0);
      if (comm.rank() != 0) received.push_back(std::move(waiting.back()));
      waiting.pop_back();
    }
    for (std::size_t i = 0; i < received.size(); ++i)
      EXPECT_EQ(received[i].read(), bytes_of(messages - 1 - static_cast<std::int32_t>(i), size));
  });
}

TEST_P(CommunicatorTest, ARankThatThrowsEndsTheGroupWithItsCause) {
  Ranks on = make(4);
  const auto texts = failures(on, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 2) throw std::runtime_error("the disk is full");
  });
  for (const std::int32_t rank : {0, 1, 3})
    EXPECT_THAT(texts[static_cast<std::size_t>(rank)], testing::HasSubstr("rank 2: the disk is full"));
  EXPECT_THAT(on.group.failure(), testing::HasSubstr("rank 2: the disk is full"));
  // A new group of the same streams works.
  RankGroup again(on.streams());
  again.run([](Communicator& comm) { comm.barrier(); });
}

TEST_P(CommunicatorTest, WhatOneRankAloneIsRefusedEndsTheGroup) {
  using Call = std::function<void(Communicator&, const Memory&)>;
  const std::pair<const char*, Call> calls[] = {
      {"broadcast: root 9", [](Communicator& comm, const Memory& data) { comm.broadcast(data.view(), 9); }},
      {"all_gather: sizes of 1 ranks",
       [](Communicator& comm, const Memory& data) { comm.all_gather_v(data.view(), data.view(), {16}); }},
      {"all_to_all_v: 0 offsets",
       [](Communicator& comm, const Memory& data) { comm.all_to_all_v(data.view(), {}, data.view(), {}); }},
      {"reduce_scatter: rows of 0 ranks", [](Communicator& comm, const Memory&) { comm.reduce_scatter({}, {}, {}); }},
      {"all_reduce: expected contiguous", [](Communicator& comm, const Memory&) { comm.all_reduce({}); }},
      {"no memory",
       [](Communicator& comm, const Memory&) { comm.together([] { throw std::runtime_error("no memory"); }); }},
      {"an exception of a foreign type", [](Communicator& comm, const Memory&) { comm.together([] { throw 7; }); }}};
  for (const auto& [cause, call] : calls) {
    Ranks on = make(2);
    std::string of_peer;
    const Error of_group = error_of([&] {
      on.group.run([&, refused = &call](Communicator& comm) {
        const Memory data(comm.stream(), 16);
        if (comm.rank() == 0)
          of_peer = error_of([&] { comm.barrier(); }).what();
        else
          EXPECT_ANY_THROW((*refused)(comm, data));
        comm.stream().finish();
      });
    });
    EXPECT_THAT(of_group.what(), testing::HasSubstr(std::string("rank 1: ") + cause));
    EXPECT_THAT(of_peer, testing::HasSubstr(std::string("rank 1: ") + cause));
  }
}

TEST_P(CommunicatorTest, AnAbortMayGiveNoReason) {
  for (const bool of_a_rank : {false, true}) {
    Ranks on = make(2);
    of_a_rank ? on.group.communicator(1).abort("") : on.group.abort("");
    const char* const cause = of_a_rank ? "rank 1: aborted without a reason" : "aborted without a reason";
    // Another process sees the abort some milliseconds later.
    for (int looks = 0; looks < 1000 && on.group.failure().empty(); ++looks)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(on.group.failure(), cause);
    Communicator comm = on.group.communicator(0);
    EXPECT_THAT(error_of([&] { comm.barrier(); }).what(), testing::HasSubstr(cause));
    EXPECT_THAT(error_of([&] { comm.share("numbers", {1}); }).what(), testing::HasSubstr(cause));
  }
}

TEST_P(CommunicatorTest, ARankThatNeverComesIsNamedWithinTheDeadline) {
  const auto texts_of_late_rank = [&] {
    Ranks on = make(3, milliseconds(200));
    return failures(on, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        while (on.group.failure().empty()) std::this_thread::sleep_for(milliseconds(5));
        throw std::runtime_error("late");
      }
    });
  };
  const auto names_it_alone = [](const std::string& text) {
    return text == "late" || text.find("waited 200 ms for rank 1") != std::string::npos;
  };
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& text : failures_by_deadline(texts_of_late_rank, names_it_alone))
    EXPECT_PRED1(names_it_alone, text);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(20000));
}

TEST_P(CommunicatorTest, ArgumentsThatDisagreeFailOnEveryRank) {
  Ranks on = make(3);
  auto texts = failures(on, [&](Communicator& comm) {
    const std::uint64_t size = comm.rank() == 2 ? 8 : 4;
    const Memory send(comm.stream(), size), recv(comm.stream(), 3 * size);
    comm.all_gather(send.view(), recv.view());
  });
  for (const std::string& text : texts) EXPECT_THAT(text, testing::HasSubstr("all_gather: sizes: rank 2 has digest "));
  Ranks other = make(3);
  texts = failures(other, [&](Communicator& comm) {
    const Memory data(comm.stream(), 16);
    if (comm.rank() == 1) comm.broadcast(data.view(), 0);
    comm.barrier();
  });
  for (const std::string& text : texts) EXPECT_THAT(text, testing::HasSubstr("broadcast"));
}

TEST_P(CommunicatorTest, TypesThatDisagreeFailOnEveryRank) {
  const auto typed = [](Communicator& comm) { return comm.rank() == 1 ? DType::bf16 : DType::f16; };
  const std::function<void(Communicator&)> calls[] = {
      [&](Communicator& comm) {
        const DeviceTensor data(comm.stream(), typed(comm), {4, 8}), out(comm.stream(), DType::f32, {2, 8});
        comm.reduce_scatter(data, out, {2, 2});
      },
      [&](Communicator& comm) {
        const DeviceTensor data(comm.stream(), typed(comm), {4, 8});
        comm.all_reduce(data);
      }};
  for (const auto& call : calls) {
    Ranks on = make(2);
    for (const std::string& text : failures(on, call))
      EXPECT_THAT(text, testing::HasSubstr("reduce_scatter: dtype: rank 1 has bf16, rank 0 has f16"));
  }
}

TEST_P(CommunicatorTest, WhatIsSharedMayHaveToAgree) {
  Ranks on = make(3);
  on.group.run([](Communicator& comm) {
    EXPECT_EQ(comm.share("sizes", {comm.rank()}, {{"width", 5}}),
              (std::vector<std::vector<std::int64_t>>{{0}, {1}, {2}}));
  });
  const auto texts = failures(on, [](Communicator& comm) {
    comm.share("sizes", {comm.rank()}, {{"width", 5}, {"list", std::vector<std::int32_t>{4, comm.rank() / 2}}});
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, testing::ContainsRegex("sizes: list: rank 2 has digest [0-9a-f]{16}, rank 0 has digest"));
}

TEST_P(CommunicatorTest, GoesOnWithOtherStreams) {
  Ranks on = make(3);
  const Ranks others = make(3);
  const auto exchange = [](Communicator& comm) {
    const Memory data(comm.stream(), bytes_of(comm.rank(), 1000));
    comm.broadcast(data.view(), 1);
    EXPECT_EQ(data.read(), bytes_of(1, 1000));
  };
  on.group.run(exchange);
  on.group.set_streams(others.streams());
  on.group.run([&](Communicator& comm) {
    EXPECT_EQ(comm.stream().queue, others.streams()[static_cast<std::size_t>(comm.rank())].queue);
    exchange(comm);
  });
  on.group.set_streams(on.streams());
  on.group.run(exchange);
  if (GetParam().transport == TransportKind::shared_memory) return;  // there each rank has a group of its own
  EXPECT_THROW(on.group.set_streams({others.streams()[0]}), Error);
  if (GetParam().places != Ranks::all_platforms || devices().size() < 2) return;
  EXPECT_THROW(on.group.set_streams({others.streams()[1], others.streams()[0], others.streams()[2]}), Error);
}

TEST(CommunicatorArguments, AreChecked) {
  EXPECT_THROW(RankGroup({}), Error);
  Ranks on(2, Ranks::first_device);
  EXPECT_THROW(on.group.communicator(2), Error);
  EXPECT_EQ(on.group.transport(0, 1).kind, TransportKind::shared_context);
  EXPECT_THAT(on.group.transport(0, 1).reason, testing::HasSubstr("same device"));
  Communicator comm = on.group.communicator(0);
  EXPECT_THROW(comm.part({1}), Error);
  EXPECT_THROW(comm.part({0, 2}), Error);
  EXPECT_THAT(error_of([&] { comm.part({0, 1, 0}); }).what(), testing::HasSubstr("part: rank 0 is named twice"));
  EXPECT_THROW(comm.broadcast({}, 2), Error);
}

TEST(CommunicatorArguments, ContextsAreNotShared) {
  // Two contexts of one device: every machine can run this.
  const TestDevice& first = *devices()[0];
  const auto second = Context::create({first.context->devices().front()});
  const Stream stream(*second);
  const std::vector<StreamView> streams = {first.stream, stream};
  EXPECT_THROW(RankGroup(streams, {milliseconds(1000), TransportKind::shared_context}), Error);
  const RankGroup group(streams);
  EXPECT_EQ(group.transport(0, 1).kind, TransportKind::staged);
  EXPECT_THAT(group.transport(0, 1).reason, testing::HasSubstr("different contexts"));
}

}  // namespace
}  // namespace moecl::test
