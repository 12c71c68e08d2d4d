#include <moecl/trace.hpp>
#include <moecl/window.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <random>
#include <thread>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using std::chrono::milliseconds;

class WindowTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count, milliseconds deadline = milliseconds(60000)) {
    return {count, GetParam().places, {deadline, GetParam().transport}};
  }
};
INSTANTIATE_TEST_SUITE_P(Places, WindowTest, testing::ValuesIn(settings_with_fake),
                         [](const auto& param) { return std::string(param.param.name); });

/// The word that a rank puts at a place of a peer's window in an epoch; no other word is equal.
std::uint32_t word(std::int32_t from, std::int32_t to, std::int32_t epoch, std::uint64_t place) {
  return static_cast<std::uint32_t>(((from * 16 + to) * 64 + epoch) * 4096) + static_cast<std::uint32_t>(place);
}

using Words = std::vector<std::uint32_t>;

Words read(StreamView stream, BufferView from) {
  Words words(from.size_bytes / 4);
  read_blocking(stream, from, words.data(), from.size_bytes);
  return words;
}

/// How many words rank `from` puts into rank `to`: every rank computes the same number.
std::uint64_t put_words(std::int32_t from, std::int32_t to, std::int32_t epoch) {
  std::mt19937 random(static_cast<unsigned>((from * 16 + to) * 64 + epoch));
  return random() % 4 == 0 ? 0 : random() % 3000 + 1;
}

// The window's halves take turns. Each source is overwritten after the fence; a queue with earlier work reads it late.
TEST_P(WindowTest, EveryPutOfAnEpochIsThereAfterItsFence) {
  for (const std::int32_t ranks : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(ranks);
    Ranks on = make(ranks);
    constexpr std::uint64_t block = 3000;
    const std::uint64_t half = static_cast<std::uint64_t>(ranks) * block * 4;
    constexpr std::int32_t epochs = 6;
    on.group.run([&](Communicator& comm) {
      const StreamView stream = comm.stream();
      const std::int32_t me = comm.rank();
      Window window(comm, 2 * half);
      EXPECT_EQ(window.memory().size_bytes, 2 * half);
      const Buffer source(*stream.context, half);
      std::uint64_t expected_bytes = 0;
      for (std::int32_t epoch = 0; epoch < epochs; ++epoch) {
        const std::uint64_t mine = epoch % 2 == 0 ? 0 : half;
        for (std::int32_t peer = 0; peer < ranks; ++peer) {
          Words words(put_words(me, peer, epoch));
          for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = word(me, peer, epoch, i);
          const BufferView from = source.view().slice(static_cast<std::uint64_t>(peer) * block * 4, words.size() * 4);
          write_blocking(stream, from, words.data(), words.size() * 4);
          window.put(peer, mine + static_cast<std::uint64_t>(me) * block * 4, from);
        }
        window.fence();
        enqueue_fill(stream, source.view(), 0xdeadbeef);
        for (std::int32_t peer = 0; peer < ranks; ++peer) {
          const std::uint64_t count = put_words(peer, me, epoch);
          if (peer != me) expected_bytes += count * 4;
          Words expected(count);
          for (std::uint64_t i = 0; i < count; ++i) expected[i] = word(peer, me, epoch, i);
          const std::uint64_t at = mine + static_cast<std::uint64_t>(peer) * block * 4;
          ASSERT_EQ(read(stream, window.memory().slice(at, count * 4)), expected)
              << "from rank " << peer << " in epoch " << epoch;
        }
      }
      EXPECT_EQ(comm.bytes_received(), expected_bytes);
    });
  }
}

// No host waits between the steps: only the fences keep a step's reading before the next step's puts.
TEST_P(WindowTest, PutsWaitForWhatTheirTargetHadToDo) {
  Ranks on = make(3);
  constexpr std::uint64_t bytes = 1 << 20;
  constexpr std::int32_t steps = 8;
  on.group.run([&](Communicator& comm) {
    const StreamView stream = comm.stream();
    Window window(comm, bytes);
    const Buffer source(*stream.context, bytes), seen(*stream.context, steps * bytes);
    const std::int32_t next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + 2) % comm.size();
    for (std::int32_t step = 0; step < steps; ++step) {
      enqueue_fill(stream, source.view(), word(comm.rank(), next, step, 0));
      window.put(next, 0, source.view());
      window.fence();
      enqueue_copy(stream, window.memory(), seen.view().slice(static_cast<std::uint64_t>(step) * bytes, bytes));
      window.fence();
    }
    for (std::int32_t step = 0; step < steps; ++step)
      ASSERT_EQ(read(stream, seen.view().slice(static_cast<std::uint64_t>(step) * bytes, bytes)),
                Words(bytes / 4, word(before, comm.rank(), step, 0)))
          << "step " << step;
  });
}

TEST_P(WindowTest, SourcesAndWindowsMayGoBeforeTheirBytesHaveArrived) {
  Ranks on = make(3);
  constexpr std::uint64_t bytes = 300000;
  on.group.run([&](Communicator& comm) {
    const StreamView stream = comm.stream();
    const Buffer kept(*stream.context, bytes);
    {
      Window window(comm, 2 * bytes);
      {
        const Buffer source(*stream.context, bytes / 3);
        enqueue_fill(stream, source.view(), static_cast<std::uint32_t>(comm.rank()) * 0x01010101);
        for (std::int32_t peer = 0; peer < 3; ++peer)
          window.put(peer, static_cast<std::uint64_t>(comm.rank()) * bytes / 3, source.view());
      }
      window.fence();
      enqueue_copy(stream, window.memory().slice(0, bytes), kept.view());
      window.put((comm.rank() + 1) % 3, bytes, kept.view());
    }
    const Words words = read(stream, kept.view());
    for (std::size_t i = 0; i < words.size(); ++i)
      ASSERT_EQ(words[i], static_cast<std::uint32_t>(i / (words.size() / 3)) * 0x01010101) << i;
    comm.barrier();
  });
}

TEST_P(WindowTest, FailsWithTheFirstCause) {
  Ranks on = make(3, milliseconds(10000));
  const auto texts = failures(on, [&](Communicator& comm) {
    Window window(comm, 64);
    const Buffer source(*comm.stream().context, 64);
    window.put((comm.rank() + 1) % 3, 0, source.view());
    if (comm.rank() == 1) throw std::runtime_error("the disk is full");
    window.fence();
  });
  for (const std::int32_t rank : {0, 2})
    EXPECT_THAT(texts[static_cast<std::size_t>(rank)], testing::HasSubstr("rank 1: the disk is full"));

  const auto texts_of_late_rank = [&] {
    Ranks late = make(2, milliseconds(1000));  // on a busy machine, making a window takes part of them
    return failures(late, [&](Communicator& comm) {
      Window window(comm, 64);
      if (comm.rank() == 0) window.fence();
      while (late.group.failure().empty()) std::this_thread::sleep_for(milliseconds(5));
      const Buffer source(*comm.stream().context, 64);
      window.put(0, 0, source.view());
    });
  };
  const auto names_it = [](const std::string& text) {
    return text.find("fence: rank 0 waited 1000 ms for rank 1") != std::string::npos;
  };
  for (const std::string& text : failures_by_deadline(texts_of_late_rank, names_it)) EXPECT_PRED1(names_it, text);
}

TEST_P(WindowTest, RefusesWhatLeavesTheWindow) {
  Ranks on = make(2);
  on.group.run([&](Communicator& comm) {
    Window window(comm, 64);
    const Buffer source(*comm.stream().context, 64);
    EXPECT_THROW(window.put(2, 0, source.view()), Error);
    EXPECT_THROW(window.put(1, 1, source.view()), Error);
    EXPECT_THROW(window.put(1, ~std::uint64_t{0}, source.view()), Error);
    EXPECT_NO_THROW(window.put(1, 64, source.view().slice(0, 0)));
    window.fence();
  });
  EXPECT_EQ(on.group.failure(), "");
  for (const std::string& text : failures(
           on, [](Communicator& comm) { const Window window(comm, 64 + static_cast<std::uint64_t>(comm.rank())); }))
    EXPECT_THAT(text, testing::HasSubstr("window: bytes: rank 1 has 65, rank 0 has 64"));
}

TEST(StagedCopy, StandsInTheTraceOfItsReceiver) {
  const TempDir folder;
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<Stream> streams;
  for (int rank = 0; rank < 2; ++rank) {
    ContextOptions options;
    options.trace = true;
    contexts.push_back(Context::create({devices()[0]->context->devices().front()}, options));
    streams.emplace_back(*contexts.back());
  }
  RankGroup group({streams.begin(), streams.end()});
  group.run([](Communicator& comm) {
    const Buffer data(*comm.stream().context, 5000);
    comm.broadcast(data.view(), 1);
    Window window(comm, 64);
    window.put(1 - comm.rank(), 0, data.view().slice(0, 60 + static_cast<std::uint64_t>(comm.rank())));
    window.fence();
    comm.stream().finish();
  });
  const std::vector<std::string> expected[] = {
      {"staged copy from rank 1 to rank 0, 5000 bytes", "staged copy from rank 1 to rank 0, 61 bytes"},
      {"staged copy from rank 0 to rank 1, 60 bytes"}};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string path = folder.file("trace.json");
    contexts[rank]->trace()->write_chrome_json(path);
    const nlohmann::json trace = nlohmann::json::parse(read_text(path));
    std::vector<std::string> blocks;
    for (const auto& event : trace["traceEvents"])
      if (event["ph"] == "X" && event["cat"] == "span") blocks.push_back(event["name"]);
    EXPECT_EQ(blocks, expected[rank]);
  }
}

}  // namespace
}  // namespace moecl::test
