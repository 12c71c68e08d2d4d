#pragma once
#include <moecl/device.hpp>

#include <string>
#include <string_view>
#include <vector>

/// What was measured of an operator on kinds of devices, as data: {"entries": [{"match": {..}, "measured_on": "..",
/// ..}]}. `match` names parts of a device's properties: device, platform, type, vendor.
namespace moecl::tuning {

/// A table and where it comes from.
struct Table {
  std::string text, origin;  ///< origin: "shipped with moecl", or the user's path
};

/// `$XDG_DATA_HOME/moecl/tuning/NAME.json`, else `$HOME/.local/share/moecl/tuning/NAME.json`; empty where neither is
/// set.
std::string user_file(std::string_view name);
/// The user's table, where there is a readable one, then the shipped one: the first that suits decides.
std::vector<Table> tables(std::string_view name, std::string_view shipped);

/// What a table says of a device.
struct Entry {
  std::string text;   ///< JSON
  const char* level;  ///< what it was written for: "device", "family", "vendor" or "default"
};

/// The entries for that device. Those that name the device go before those for its family (platform, type), these
/// before those for its vendor, and these before defaults, which name nothing.
/// Errors: invalid_data  the table is not such JSON
std::vector<Entry> matching_entries(std::string_view table, const DeviceCaps& caps);
/// The first of them that says something of `needed`, as JSON text; empty when none does.
/// @param needed  a member that must be there; an empty one says nothing
/// Errors: invalid_data  the table is not such JSON
std::string find_entry(std::string_view table, const DeviceCaps& caps, const std::string& needed);
/// The table with the entry in the place of one with the same `match`, or as the first. Host memory that runs out ends
/// the process.
/// Errors: invalid_data  either is not such JSON
std::string with_entry(std::string_view table, std::string_view entry);

}  // namespace moecl::tuning
