// How fast ranks exchange that are threads, processes of a node or processes of MPI, beside memcpy. mpi_rates.c has the
// raw loop of MPI.
//
//   moecl_process_rates threads 2
//   for r in 0 1; do moecl_process_rates join NAME $r 2 & done; wait
//   mpirun -n 2 moecl_process_rates mpi
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

namespace {

using namespace moecl;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// The median time of a call, of as many as take half a second.
template <class Call>
double median_of(int times, Call call) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    call();
    all.push_back(seconds_since(begin));
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void measure(Communicator& ranks) {
  const StreamView stream = ranks.stream();
  const auto size = static_cast<std::size_t>(ranks.size());
  if (ranks.rank() == 0)
    fmt::print("{:>9}  {:>12}  {:>16}  {:>13}\n", "bytes", "us all_to_all", "GB/s of a rank", "GB/s of memcpy");
  for (const std::uint64_t bytes :
       {1ULL << 10, 16ULL << 10, 64ULL << 10, 256ULL << 10, 1ULL << 20, 8ULL << 20, 32ULL << 20}) {
    std::vector<char> from(bytes, 1), to(bytes);
    const double copy = median_of(21, [&] {
      std::memcpy(to.data(), from.data(), bytes);
      asm volatile("" : : "r"(to.data()) : "memory");
    });
    const Buffer send(*stream.context, bytes * size), recv(*stream.context, bytes * size);
    enqueue_fill(stream, send.view(), 0);
    Communicator::Blocks blocks;
    for (std::size_t r = 0; r < size; ++r) {
      blocks.offsets.push_back(r * bytes);
      blocks.bytes.push_back(r == static_cast<std::size_t>(ranks.rank()) ? 0 : bytes);
    }
    const int times = bytes >= 1 << 20 ? 21 : 301;
    ranks.barrier();
    const double exchange = median_of(times, [&] {
      ranks.all_to_all_v(send.view(), blocks, recv.view(), blocks);
      ranks.wait(stream.record());
    });
    if (ranks.rank() == 0)
      fmt::print("{:>9}  {:>12.1f}  {:>16.2f}  {:>13.2f}\n", bytes, exchange * 1e6,
                 static_cast<double>(bytes * (size - 1)) / exchange / 1e9, static_cast<double>(bytes) / copy / 1e9);
  }
  const double meeting = median_of(2001, [&] { ranks.share("meeting", {1}); });
  ranks.share("idle", {});
  const std::clock_t used = std::clock();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const double idle = static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC / 2;
  if (ranks.rank() == 0)
    fmt::print("a meeting of host threads: {:.1f} us; a rank that has nothing to do takes {:.2f} % of a core\n",
               meeting * 1e6, idle * 100);
  ranks.share("end", {});
}

int run(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const auto context = Context::create({select_devices("", "").front()});
  if (how == "threads" && argc == 3) {
    std::vector<Stream> streams;
    for (int rank = 0; rank < std::atoi(argv[2]); ++rank) streams.emplace_back(*context);
    RankGroup({streams.begin(), streams.end()}).run(measure);
    return 0;
  }
  const Stream stream(*context);
  if (how == "join" && argc == 5)
    RankGroup::join(argv[2], std::atoi(argv[3]), std::atoi(argv[4]), stream).run(measure);
  else if (how == "mpi" && argc == 2)
    RankGroup::from_mpi(nullptr, stream).run(measure);
  else
    return fmt::print(stderr, "usage: moecl_process_rates threads RANKS | join NAME RANK RANKS | mpi\n"), 2;
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
