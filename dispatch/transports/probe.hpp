#pragma once
// Probes of the speed and the correctness of copies between two ranks.
#include <moecl/buffer.hpp>
#include <moecl/peer_memory.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

namespace moecl {

/// Copies a pattern a few times. @param copy  Copies a source to a target; the copy is complete when it returns
/// @return  As Transport::probe
template <class Copy>
double probe_copies(StreamView from, StreamView to, const Copy& copy) {
  constexpr std::uint64_t bytes = 1 << 20;
  constexpr int rounds = 3;
  std::vector<std::uint32_t> pattern(bytes / 4), arrived(bytes / 4);
  std::iota(pattern.begin(), pattern.end(), 0x6d6f6563U);
  const Buffer source(*from.context, bytes), target(*to.context, bytes);
  write_blocking(from, source.view(), pattern.data(), bytes);
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    enqueue_fill(to, target.view(), 0);
    to.finish();
    const auto begin = std::chrono::steady_clock::now();
    copy(source.view(), target.view());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    read_blocking(to, target.view(), arrived.data(), bytes);
    if (arrived != pattern) return 0;
    best = std::max(best, static_cast<double>(bytes) / 1e9 / std::max(seconds.count(), 1e-9));
  }
  return best;
}

/// The same with a StagedCopier. @param peer_memory  Memory for its chunks; null: pinned host memory
double probe_staged(StreamView from, StreamView to, PeerMemory* peer_memory);

}  // namespace moecl
