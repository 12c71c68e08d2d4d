#pragma once
// Which device each rank of a session runs on.
#include <moecl/context.hpp>
#include <moecl/stream.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tools/device_options.hpp"

namespace moecl::cli {

/// Contexts and one stream a rank. Ranks take the devices in turn; those of one platform share a context when its
/// devices are CPUs, which share memory anyway; a GPU has a context of its own.
struct RankDevices {
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<Stream> streams;  ///< without profiling
  std::string places;           ///< in words

  /// Errors: no_device
  RankDevices(const DeviceOptions& options, int ranks);
  std::vector<StreamView> views() const;
  /// Streams that record, of the same devices.
  std::vector<Stream> traced() const;
};

}  // namespace moecl::cli
