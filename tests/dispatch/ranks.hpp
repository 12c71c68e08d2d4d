#pragma once
// Groups of ranks to test on: on each device, forced through the staged transport, through peers' memory that is a
// fake, and over all platforms at once.
#include <moecl/communicator.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/devices.hpp"
#include "tests/dispatch/fake_peer_memory.hpp"

namespace moecl::test {

/// Streams of R ranks. Ranks of one device share its context.
class Ranks {
 public:
  enum Places { first_device, last_device, all_platforms };

  Ranks(std::int32_t count, Places places, GroupOptions options = {}) {
    for (std::int32_t rank = 0; rank < count; ++rank) {
      const std::size_t last = devices().size() - 1;
      const std::size_t place = places == first_device  ? 0
                                : places == last_device ? last
                                                        : static_cast<std::size_t>(rank) % (last + 1);
      streams_.emplace_back(*devices()[place]->context);
      views_.push_back(streams_.back().view());
    }
    if (options.transport == TransportKind::peer_window && options.peer_memory == nullptr)
      options.peer_memory = std::make_shared<FakePeerMemory>();
    group = RankGroup(views_, options);
  }

  const std::vector<StreamView>& streams() const { return views_; }

 private:
  std::vector<Stream> streams_;
  std::vector<StreamView> views_;

 public:
  RankGroup group{std::vector<StreamView>{devices()[0]->stream.view()}};
};

/// What each rank of a failing group got: `body`, then barriers for ever.
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

/// Where a test of several ranks runs.
struct Setting {
  Ranks::Places places;
  std::optional<TransportKind> transport;
  const char* name;
};
inline constexpr Setting settings[] = {{Ranks::first_device, std::nullopt, "first_device"},
                                       {Ranks::first_device, TransportKind::staged, "first_device_staged"},
                                       {Ranks::last_device, std::nullopt, "last_device"},
                                       {Ranks::all_platforms, std::nullopt, "all_platforms"}};
/// The same, and through peers' memory that is a fake.
inline constexpr Setting settings_with_fake[] = {
    settings[0],
    settings[1],
    settings[2],
    settings[3],
    {Ranks::first_device, TransportKind::peer_window, "first_device_peer_window"}};

}  // namespace moecl::test
