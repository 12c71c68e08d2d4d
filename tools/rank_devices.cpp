#include "tools/rank_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/quotient.hpp"
#include "tools/commands.hpp"

namespace moecl::cli {

/// One device per rank; empty, with the reason in `places`, if a device cannot be divided.
std::vector<Device> RankDevices::divide(const std::vector<Device>& devices, int ranks) {
  const auto count = static_cast<int>(devices.size());
  std::vector<Device> of_rank(static_cast<std::size_t>(ranks));
  for (int i = 0; i < count; ++i) {
    const auto parts = static_cast<std::uint32_t>(quotient_up(ranks - i, count));
    const Device& device = devices[static_cast<std::size_t>(i)];
    if (const std::string why = SubDevices::reject(device, parts); !why.empty()) {
      places = fmt::format(", not divided: {}", why);
      return {};
    }
    divided.emplace_back(device, parts);
    for (std::uint32_t part = 0; part < parts; ++part)
      of_rank[static_cast<std::size_t>(i) + part * devices.size()] = divided.back().devices()[part];
  }
  return of_rank;
}

RankDevices::RankDevices(const DeviceOptions& options, int ranks, bool sub_devices, std::vector<int> local) {
  if (local.empty()) {
    local.resize(static_cast<std::size_t>(ranks));
    std::iota(local.begin(), local.end(), 0);
  }
  std::vector<Device> devices = options.select();
  if (devices.size() > static_cast<std::size_t>(ranks)) devices.resize(static_cast<std::size_t>(ranks));
  const std::size_t whole = devices.size();
  if (sub_devices && whole < static_cast<std::size_t>(ranks))
    if (std::vector<Device> parts = divide(devices, ranks); !parts.empty()) devices = std::move(parts);
  const std::size_t all = devices.size();
  std::vector<Device> used;
  std::vector<std::size_t> number(all, all);  // index of each device in `used`
  for (const int rank : local)
    if (std::size_t& of = number[static_cast<std::size_t>(rank) % all]; of == all) {
      of = used.size();
      used.push_back(devices[static_cast<std::size_t>(rank) % all]);
    }
  devices = std::move(used);
  const std::size_t count = devices.size();
  // For each device, its context and its index in that context.
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
  for (const int rank : local) {
    const auto [context, index] = where[number[static_cast<std::size_t>(rank) % all]];
    streams.emplace_back(*contexts[context], index, false);
  }
  if (!divided.empty() && all == static_cast<std::size_t>(ranks))
    places = fmt::format("{} ranks on sub-devices of {} device{}", ranks, whole, whole == 1 ? "" : "s");
  else
    places = (all == static_cast<std::size_t>(ranks)
                  ? "a device a rank"
                  : fmt::format("{} ranks share {} device{}, each with a queue of its own", ranks, all,
                                all == 1 ? "" : "s")) +
             places;
}

std::vector<StreamView> RankDevices::views() const { return {streams.begin(), streams.end()}; }

std::vector<Stream> RankDevices::traced() const {
  std::vector<Stream> list;
  for (const Stream& stream : streams) list.push_back(Stream::beside(stream));
  return list;
}

void add_transport(CLI::App& command, std::optional<TransportKind>& to) {
  std::vector<std::string> names;
  for (const TransportKind kind : transport_kinds()) names.emplace_back(name(kind));
  command
      .add_option_function<std::string>(
          "--transport",
          [&to](const std::string& text) {
            for (const TransportKind kind : transport_kinds())
              if (text == name(kind)) to = kind;
          },
          "how ranks exchange; unset: probed")
      ->check(one_of(names));
}

}  // namespace moecl::cli
