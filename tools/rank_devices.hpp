#pragma once
// Which device each rank of a session runs on, and how ranks exchange.
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/stream.hpp>
#include <moecl/sub_devices.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/device_options.hpp"

namespace moecl::cli {

/// Of one process. Every pair of them exchanges, so that much larger groups are busy for minutes with a few tokens.
constexpr int most_ranks = 256;

/// Contexts and one stream a rank. Ranks take the devices in turn; those of one platform share a context when its
/// devices are CPUs, which share memory anyway; a GPU has a context of its own. With `sub_devices` a device of several
/// ranks is divided among them where it can be.
struct RankDevices {
  std::vector<SubDevices> divided;
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<Stream> streams;  ///< of each rank here, without profiling
  std::string places;           ///< in words

  /// @param local  ranks of this process; empty: all
  /// Errors: no_device
  RankDevices(const DeviceOptions& options, int ranks, bool sub_devices = false, std::vector<int> local = {});
  std::vector<StreamView> views() const;
  /// Streams that record, of the same devices.
  std::vector<Stream> traced() const;

 private:
  std::vector<Device> divide(const std::vector<Device>& devices, int ranks);
};

/// --transport: of every pair of ranks; unset: probed.
void add_transport(CLI::App& command, std::optional<TransportKind>& to);

}  // namespace moecl::cli
