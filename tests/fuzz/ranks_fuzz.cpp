// Collectives and windows of two or three ranks that agree, or not, about what they call and with which arguments: the
// group ends with an error then, in time, and where no rank has one, every byte came.
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/window.hpp>

#include <cstdio>
#include <cstring>
#include <fuzzer/FuzzedDataProvider.h>
#include <numeric>

namespace moecl::fuzz {
namespace {

constexpr std::uint64_t memory_bytes = 256;
constexpr std::size_t most_ranks = 3;
using Bytes = std::vector<unsigned char>;
using Sizes = std::vector<std::uint64_t>;

/// One rank's part in one call.
struct Call {
  enum Kind {
    barrier,
    all_gather,
    broadcast,
    all_to_all,
    reduce_scatter,
    all_reduce,
    part,
    put,
    fence,
    leave,
    kMaxValue = leave
  };
  Kind kind = barrier;
  Sizes offsets, bytes, to_offsets, to_bytes;
  std::int32_t root = 0;
  DType dtype = DType::f32;
};

/// Small, and now and then what no memory holds.
std::uint64_t size_from(FuzzedDataProvider& data) {
  const auto byte = data.ConsumeIntegral<std::uint8_t>();
  return byte < 250 ? byte / 2 : ~std::uint64_t{0} - (255 - byte) * 64;
}

Sizes sizes_from(FuzzedDataProvider& data, std::size_t ranks) {
  Sizes sizes(data.ConsumeIntegral<std::uint8_t>() == 0 ? ranks - 1 : ranks);
  for (std::uint64_t& size : sizes) size = size_from(data);
  return sizes;
}

Call call_from(FuzzedDataProvider& data, std::size_t ranks) {
  Call call;
  call.kind = data.ConsumeEnum<Call::Kind>();
  call.offsets = sizes_from(data, ranks), call.bytes = sizes_from(data, ranks);
  call.to_offsets = sizes_from(data, ranks), call.to_bytes = sizes_from(data, ranks);
  call.root = data.ConsumeIntegralInRange<std::int32_t>(-1, 3);
  call.dtype = data.PickValueInArray({DType::f32, DType::bf16, DType::f16, DType::i32});
  return call;
}

/// What the ranks do, one call after the other: mostly the same, with what fits.
std::vector<std::vector<Call>> calls_from(FuzzedDataProvider& data, std::size_t ranks) {
  std::vector<std::vector<Call>> calls;
  for (auto count = data.ConsumeIntegralInRange<int>(1, 6); count > 0 && data.remaining_bytes() != 0; --count) {
    std::vector<Call> of_ranks(ranks, call_from(data, ranks));
    if (of_ranks[0].kind == Call::all_to_all && data.ConsumeBool())
      for (std::size_t from = 0; from < ranks; ++from)
        for (std::size_t to = 0; to < ranks; ++to) {
          auto& sent = of_ranks[from].bytes;
          auto& received = of_ranks[to].to_bytes;
          if (to < sent.size() && from < received.size()) received[from] = sent[to];
        }
    if (data.ConsumeIntegral<std::uint8_t>() < 40)
      of_ranks[data.ConsumeIntegralInRange<std::size_t>(0, ranks - 1)] = call_from(data, ranks);
    calls.push_back(std::move(of_ranks));
  }
  return calls;
}

/// Queues and memory of a rank, for all runs.
struct Place {
  Stream stream;
  Buffer send, recv;

  explicit Place(Context& context) : stream(context), send(context, memory_bytes), recv(context, memory_bytes) {}
};

struct Places {
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<Place> together;       ///< in one context
  std::unique_ptr<Place> elsewhere;  ///< in another

  Places() {
    ContextOptions options;
    options.compile = Compile::in_process;
    options.disk_cache = false;
    options.log = [](LogLevel, std::string_view) {};
    const Device device = select_devices("Portable").at(0);
    for (int i = 0; i < 2; ++i) contexts.push_back(Context::create({device}, options));
    for (std::size_t rank = 0; rank < most_ranks; ++rank) together.emplace_back(*contexts[0]);
    elsewhere = std::make_unique<Place>(*contexts[1]);
  }
};

/// What rank `rank` sends with call `step`: no two bytes of a run are alike by chance alone.
Bytes pattern(std::size_t rank, std::size_t step) {
  Bytes bytes(memory_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + rank * 83 + step * 29);
  return bytes;
}

std::vector<std::int64_t> rows_of(const Sizes& sizes) {
  std::vector<std::int64_t> rows;
  for (const std::uint64_t size : sizes) rows.push_back(static_cast<std::int64_t>(size % 5) - (size > memory_bytes));
  return rows;
}

/// Also of more bytes than there are.
BufferView view(const Buffer& memory, std::uint64_t bytes) { return {memory.handle(), 0, bytes}; }

void make(const Call& call, Communicator& comm, const Place& place, std::optional<Window>& window) {
  const auto of_self = static_cast<std::size_t>(comm.rank());
  const std::int64_t rows = static_cast<std::int64_t>(call.bytes.front() % 5);
  switch (call.kind) {
    case Call::barrier:
      return comm.barrier();
    case Call::all_gather: {
      const std::uint64_t mine = of_self < call.bytes.size() ? call.bytes[of_self] : 0;
      const std::uint64_t all = std::accumulate(call.bytes.begin(), call.bytes.end(), std::uint64_t{0});
      return comm.all_gather_v(view(place.send, mine), view(place.recv, all), call.bytes);
    }
    case Call::broadcast:
      return comm.broadcast(view(place.send, call.bytes.front()), call.root);
    case Call::all_to_all:
      return comm.all_to_all_v(place.send.view(), {call.offsets, call.bytes}, place.recv.view(),
                               {call.to_offsets, call.to_bytes});
    case Call::reduce_scatter: {
      const std::vector<std::int64_t> each = rows_of(call.bytes);
      const std::int64_t sum = std::accumulate(each.begin(), each.end(), std::int64_t{0});
      const std::int64_t mine = of_self < each.size() ? each[of_self] : 0;
      return comm.reduce_scatter({place.send.view(), call.dtype, {sum, 4}}, {place.recv.view(), call.dtype, {mine, 4}},
                                 each);
    }
    case Call::all_reduce:
      return comm.all_reduce({place.send.view(), call.dtype, {rows, 4}});
    case Call::part: {
      std::vector<std::int32_t> members;
      for (const std::uint64_t offset : call.offsets) members.push_back(static_cast<std::int32_t>(offset % 5) - 1);
      return comm.part(members).barrier();
    }
    case Call::put:
      if (!window) window.emplace(comm, call.bytes.front());
      return window->put(call.root, call.offsets.front(), view(place.send, call.bytes.back()));
    case Call::fence:
      if (window) window->fence();
      return;
    case Call::leave:
      throw std::runtime_error("this rank has enough");
  }
}

void expect(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "no rank had an error, but %s\n", what);
  __builtin_trap();  // and not abort, which LLVM inside PoCL takes from the fuzzer
}

/// A part of all ranks meets where they all do, and a put meets nobody.
bool exchanges(const Call& call) { return call.kind >= Call::all_gather && call.kind <= Call::all_reduce; }

bool came(std::uint64_t from, const Bytes& sent, std::uint64_t to, const Bytes& received, std::uint64_t bytes) {
  return std::memcmp(sent.data() + from, received.data() + to, bytes) == 0;
}

/// Who got no error got what was sent.
void check(const std::vector<Call>& calls, std::size_t step, const std::vector<Bytes>& received) {
  const std::size_t ranks = calls.size();
  for (std::size_t to = 0; to < ranks; ++to) {
    expect(calls[to].kind == calls[0].kind || !(exchanges(calls[0]) || exchanges(calls[to])),
           "they called different functions");
    for (std::size_t from = 0; from < ranks && calls[0].kind == Call::all_to_all; ++from) {
      const std::uint64_t bytes = calls[from].bytes.at(to), at = calls[to].to_offsets.at(from);
      expect(calls[to].to_bytes.at(from) == bytes, "they disagree about bytes");
      const auto lies_on = [&](std::size_t other) {
        const std::uint64_t first = calls[to].to_offsets.at(other), end = first + calls[to].to_bytes.at(other);
        return other != from && at < end && first < at + bytes;
      };
      bool alone = true;
      for (std::size_t other = 0; other < ranks; ++other) alone = alone && !lies_on(other);
      if (alone)
        expect(came(calls[from].offsets.at(to), pattern(from, step), at, received[to], bytes), "a block did not come");
    }
    std::uint64_t at = 0;
    for (std::size_t from = 0; from < ranks && calls[0].kind == Call::all_gather; ++from) {
      const std::uint64_t bytes = calls[0].bytes.at(from);
      expect(calls[to].bytes == calls[0].bytes, "they disagree about bytes");
      expect(came(0, pattern(from, step), at, received[to], bytes), "a block did not come");
      at += bytes;
    }
  }
}

void run(FuzzedDataProvider& data) {
  static const Places& places = *new Places;  // PoCL may not be there at the end of the process
  const std::size_t ranks = data.ConsumeIntegralInRange<std::size_t>(2, most_ranks);
  const bool one_context = data.ConsumeBool();
  GroupOptions options;
  options.deadline = std::chrono::milliseconds(30);
  options.transport = one_context && data.ConsumeBool() ? TransportKind::shared_context : TransportKind::staged;
  const std::vector<std::vector<Call>> calls = calls_from(data, ranks);

  std::vector<const Place*> used;
  std::vector<StreamView> streams;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    used.push_back(rank == 1 && !one_context ? places.elsewhere.get() : &places.together[rank]);
    streams.push_back(used.back()->stream.view());
  }
  std::vector<std::vector<Bytes>> received(calls.size(), std::vector<Bytes>(ranks, Bytes(memory_bytes)));
  RankGroup group(streams, options);
  try {
    group.run([&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      std::optional<Window> window;
      for (std::size_t step = 0; step < calls.size(); ++step) {
        const Bytes sent = pattern(rank, step);
        write_blocking(comm.stream(), used[rank]->send.view(), sent.data(), sent.size());
        make(calls[step][rank], comm, *used[rank], window);
        comm.wait(comm.stream().record());
        read_blocking(comm.stream(), used[rank]->recv.view(), received[step][rank].data(), memory_bytes);
      }
    });
  } catch (const std::exception&) {
    return;
  }
  expect(group.failure().empty(), "the group ended");
  for (std::size_t step = 0; step < calls.size(); ++step) check(calls[step], step, received[step]);
}

}  // namespace
}  // namespace moecl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider provider(data, size);
  moecl::fuzz::run(provider);
  return 0;
}
