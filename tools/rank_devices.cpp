#include "tools/rank_devices.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace moecl::cli {

RankDevices::RankDevices(const DeviceOptions& options, int ranks) {
  std::vector<Device> devices = options.select();
  if (devices.size() > static_cast<std::size_t>(ranks)) devices.resize(static_cast<std::size_t>(ranks));
  const std::size_t count = devices.size();
  // Where each device went: a context and its index there.
  std::vector<std::pair<std::size_t, std::size_t>> where;
  for (std::size_t i = 0; i < count; ++i) {
    const Device& device = devices[i];
    std::vector<Device> together = {device};
    if (device.caps.type == DeviceType::cpu) {
      const auto same = [&](const Device& other) { return other.platform == device.platform; };
      const auto first = std::find_if(devices.begin(), devices.end(), same);
      if (first != devices.begin() + static_cast<std::ptrdiff_t>(i)) {
        const auto [context, index] = where[static_cast<std::size_t>(first - devices.begin())];
        where.emplace_back(context, index + static_cast<std::size_t>(std::count_if(
                                                first, devices.begin() + static_cast<std::ptrdiff_t>(i), same)));
        continue;
      }
      together.clear();
      std::copy_if(devices.begin(), devices.end(), std::back_inserter(together), same);
    }
    contexts.push_back(options.open(std::move(together)));
    where.emplace_back(contexts.size() - 1, 0);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [context, index] = where[static_cast<std::size_t>(rank) % count];
    streams.emplace_back(*contexts[context], index, false);
  }
  places = count == static_cast<std::size_t>(ranks)
               ? "a device a rank"
               : fmt::format("{} ranks share {} device{}, each with a queue of its own", ranks, count,
                             count == 1 ? "" : "s");
}

std::vector<StreamView> RankDevices::views() const { return {streams.begin(), streams.end()}; }

std::vector<Stream> RankDevices::traced() const {
  std::vector<Stream> list;
  for (const Stream& stream : streams) {
    const StreamView view = stream;
    list.emplace_back(*view.context, static_cast<std::size_t>(view.device - view.context->devices().data()), true);
  }
  return list;
}

}  // namespace moecl::cli
