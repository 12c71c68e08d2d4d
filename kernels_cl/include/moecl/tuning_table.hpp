#pragma once
#include <moecl/device.hpp>

#include <string>
#include <string_view>
#include <vector>

/// Measurements of an operator on kinds of devices, as JSON tables: {"entries": [{"match": {..}, "measured_on": "..",
/// ..}]}. `match` has substrings of a device's properties: device, platform, type, vendor.
namespace moecl::tuning {

/// A table and where it comes from.
struct Table {
  std::string text, origin;  ///< origin: "shipped with moecl", or the user's path
};

/// `$XDG_DATA_HOME/moecl/tuning/NAME.json`, else `$HOME/.local/share/moecl/tuning/NAME.json`; empty where neither is
/// set.
std::string user_file(std::string_view name);
/// The user's table, if it can be read, then the shipped one. The first table that suits decides.
std::vector<Table> tables(std::string_view name, std::string_view shipped);

/// An entry of a table that matches a device.
struct Entry {
  std::string text;   ///< JSON
  const char* level;  ///< what it was written for: "device", "family", "vendor" or "default"
};

/// The entries that match the device, in this order: those that name the device, those for its family (platform, type),
/// those for its vendor, and defaults, which name nothing.
/// Errors: invalid_data  the table is not JSON of this form
std::vector<Entry> matching_entries(std::string_view table, const DeviceCaps& caps);
/// The first matching entry whose member `needed` is not empty, as JSON text; empty when there is none.
/// @param needed  a member that the entries must have
/// Errors: invalid_data  the table is not JSON of this form, or an entry lacks `needed`
std::string find_entry(std::string_view table, const DeviceCaps& caps, const std::string& needed);
/// The table with `entry` as its first one, which replaces an entry with the same `match`. The process ends if host
/// memory runs out.
/// Errors: invalid_data  either is not JSON of this form
std::string with_entry(std::string_view table, std::string_view entry);

}  // namespace moecl::tuning
