#pragma once
// Groups of ranks for tests: on one device, with the staged transport forced, through fake peer memory, over all
// platforms at once, and joined as processes join. Each such process may have several ranks.
#include <moecl/communicator.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/devices.hpp"
#include "tests/dispatch/fake_peer_memory.hpp"

namespace moecl::test {

/// One group object of all ranks, or several: threads can join as processes do.
class GroupOfRanks {
 public:
  void make(const std::vector<StreamView>& streams, const GroupOptions& options) {
    groups_.clear();
    groups_.emplace_back(streams, options);
  }
  /// @param ranks_each  ranks of each process; the last process has the remaining ranks
  void join(const std::vector<StreamView>& streams, const GroupOptions& options, std::size_t ranks_each) {
    static std::atomic<int> names{0};
    const std::string name = "tests-" + std::to_string(getpid()) + "-" + std::to_string(names++);
    std::vector<std::vector<RankGroup::Joining>> processes;
    for (std::size_t rank = 0; rank < streams.size(); ++rank) {
      if (rank % ranks_each == 0) processes.emplace_back();
      processes.back().push_back({static_cast<std::int32_t>(rank), streams[rank]});
    }
    std::vector<std::optional<RankGroup>> joined(processes.size());
    each(processes.size(), [&](std::size_t process) {
      joined[process].emplace(
          RankGroup::join(name, processes[process], static_cast<std::int32_t>(streams.size()), options));
    });
    RankGroup::remove(name);
    groups_.clear();
    for (std::optional<RankGroup>& group : joined) groups_.push_back(std::move(*group));
  }
  void run(const std::function<void(Communicator&)>& body) {
    each(groups_.size(), [&](std::size_t rank) { groups_[rank].run(body); });
  }
  std::int32_t size() const { return groups_.front().size(); }
  Communicator communicator(std::int32_t rank) { return of(rank).communicator(rank); }
  const TransportChoice& transport(std::int32_t from, std::int32_t to) { return of(to).transport(from, to); }
  void abort(std::string_view cause) noexcept { groups_.front().abort(cause); }
  std::string failure() const { return groups_.front().failure(); }
  void set_streams(const std::vector<StreamView>& streams) {
    for (RankGroup& group : groups_) {
      std::vector<StreamView> of_group;
      for (const std::int32_t rank : group.local_ranks()) of_group.push_back(streams[static_cast<std::size_t>(rank)]);
      group.set_streams(of_group);
    }
  }

 private:
  RankGroup& of(std::int32_t rank) {
    const auto has = [rank](const RankGroup& group) {
      const std::vector<std::int32_t> ranks = group.local_ranks();
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    const auto found = std::find_if(groups_.begin(), groups_.end(), has);
    return found != groups_.end() ? *found : groups_.front();  // which refuses a rank that does not exist
  }
  /// Runs `body` for each index, each in its own thread; a single one runs in this thread. Errors: the first one that
  /// names a cause; else the first report that the group ended
  static void each(std::size_t count, const std::function<void(std::size_t)>& body) {
    if (count == 1) return body(0);
    std::mutex mutex;
    std::exception_ptr cause, first;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        const auto keep = [&](std::exception_ptr& kept) {
          const std::lock_guard lock(mutex);
          if (kept == nullptr) kept = std::current_exception();
        };
        try {
          body(i);
        } catch (const std::exception& error) {
          keep(std::string_view(error.what()).starts_with("the group of ranks ended") ? first : cause);
        } catch (...) {
          keep(cause);
        }
      });
    for (std::thread& thread : threads) thread.join();
    if (cause != nullptr) std::rethrow_exception(cause);
    if (first != nullptr) std::rethrow_exception(first);
  }

  std::vector<RankGroup> groups_;
};

/// Streams of R ranks. Ranks of one device share its context.
class Ranks {
 public:
  /// two_processes: half of the ranks each, all on the first device.
  enum Places { first_device, last_device, all_platforms, two_processes };

  Ranks(std::int32_t count, Places places, GroupOptions options = {}) {
    for (std::int32_t rank = 0; rank < count; ++rank) {
      const std::size_t last = devices().size() - 1;
      const std::size_t place = places == all_platforms ? static_cast<std::size_t>(rank) % (last + 1)
                                : places == last_device ? last
                                                        : 0;
      streams_.emplace_back(*devices()[place]->context);
      views_.push_back(streams_.back().view());
    }
    if (options.transport == TransportKind::peer_window && options.peer_memory == nullptr)
      options.peer_memory = std::make_shared<FakePeerMemory>();
    if (options.transport == TransportKind::shared_memory)
      group.join(views_, options, places == two_processes ? (views_.size() + 1) / 2 : 1);
    else
      group.make(views_, options);
  }

  const std::vector<StreamView>& streams() const { return views_; }

 private:
  std::vector<Stream> streams_;
  std::vector<StreamView> views_;

 public:
  GroupOfRanks group;
};

/// The error text of each rank of a failing group. Each rank runs `body`, then barriers forever.
inline std::vector<std::string> failures(Ranks& on, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(on.group.size()));
  EXPECT_THROW(on.group.run([&](Communicator& comm) {
    try {
      body(comm);
      for (;;) comm.barrier();
    } catch (const std::exception& error) {
      texts[static_cast<std::size_t>(comm.rank())] = error.what();
      comm.stream().finish();  // nothing may be left hanging on the queue
      throw;
    }
  }),
               std::exception);
  return texts;
}

/// The error texts of a group in which one rank lets the deadline pass. A busy machine may stop another rank's thread
/// for as long. That rank is then rightly named, too. So unexpected texts count only if they come ten times in a row.
template <typename Texts, typename Expected>
std::vector<std::string> failures_by_deadline(const Texts& texts_of_group, const Expected& is_expected) {
  std::vector<std::string> texts = texts_of_group();
  for (int attempt = 1; attempt < 10 && !std::all_of(texts.begin(), texts.end(), is_expected); ++attempt)
    texts = texts_of_group();
  return texts;
}

/// Where a test of several ranks runs.
struct Setting {
  Ranks::Places places;
  std::optional<TransportKind> transport;
  const char* name;
};
inline constexpr Setting settings[] = {{Ranks::first_device, std::nullopt, "first_device"},
                                       {Ranks::first_device, TransportKind::staged, "first_device_staged"},
                                       {Ranks::last_device, std::nullopt, "last_device"},
                                       {Ranks::all_platforms, std::nullopt, "all_platforms"},
                                       {Ranks::all_platforms, TransportKind::shared_memory, "joined"},
                                       {Ranks::two_processes, TransportKind::shared_memory, "threads_of_processes"}};
/// The same settings, and one with fake peer memory.
inline constexpr Setting settings_with_fake[] = {
    settings[0],
    settings[1],
    settings[2],
    settings[3],
    settings[4],
    settings[5],
    {Ranks::first_device, TransportKind::peer_window, "first_device_peer_window"}};
/// Whether a case of a large set runs in the setting. Groups on the last device alone run one case in four: groups over
/// all platforms include that device, too.
inline bool takes(const Setting& setting, std::size_t number) {
  return setting.places != Ranks::last_device || is_sampled(number, 4);
}
/// The settings for layers, where each pass is such a set. The last device alone is left out unless every case runs.
inline std::vector<Setting> settings_of_layers() {
  std::vector<Setting> out;
  for (const Setting& setting : settings_with_fake)
    if (setting.places != Ranks::last_device || all_cases()) out.push_back(setting);
  return out;
}

}  // namespace moecl::test
