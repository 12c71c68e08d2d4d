#include <moecl/safetensors.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "host/checkpoint/input_file.hpp"
#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/safetensors_format.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the reference reader's own limit
constexpr int header_depth = 3;                          // file -> tensor -> shape

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the end of the header
};

const json& member(const json& object, const char* key, const std::string& where) {
  const json* found = find_member(object, key);
  if (found == nullptr) fail(ErrorCode::invalid_data, "{}: no \"{}\"", where, key);
  return *found;
}

/// An array of integers in [0, 2^63).
std::vector<std::int64_t> integers(const json& value, const char* key, const std::string& where) {
  if (!value.is_array()) fail(ErrorCode::invalid_data, "{}: \"{}\" is {}, not an array", where, key, value.type_name());
  std::vector<std::int64_t> result;
  for (const json& item : value) {
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > INT64_MAX)
      fail(ErrorCode::invalid_data, "{}: \"{}\" holds {}, not an integer from 0 to 2^63 - 1", where, key, item.dump());
    result.push_back(item.get<std::int64_t>());
  }
  return result;
}

Entry parse_entry(const std::string& name, const json& value, const std::string& path) {
  const std::string where = fmt::format("{}: tensor \"{}\"", path, name);
  if (!value.is_object()) fail(ErrorCode::invalid_data, "{} is {}, not an object", where, value.type_name());
  const json& dtype = member(value, "dtype", where);
  if (!dtype.is_string()) fail(ErrorCode::invalid_data, "{}: \"dtype\" is not a string", where);
  const auto offsets = integers(member(value, "data_offsets", where), "data_offsets", where);
  if (offsets.size() != 2) fail(ErrorCode::invalid_data, "{}: {} data_offsets, not 2", where, offsets.size());
  Entry entry{name, dtype.get<std::string>(), integers(member(value, "shape", where), "shape", where),
              static_cast<std::uint64_t>(offsets[0]), static_cast<std::uint64_t>(offsets[1])};
  if (entry.begin > entry.end)
    fail(ErrorCode::invalid_data, "{} begins at byte {} and ends at byte {}", where, entry.begin, entry.end);
  if (const auto known = dtype_from_safetensors(entry.dtype)) {
    const auto bytes = tensor_bytes(*known, entry.shape);
    const auto type = [&entry] { return fmt::format("{}[{}]", entry.dtype, fmt::join(entry.shape, ", ")); };
    if (!bytes) fail(ErrorCode::invalid_data, "{}: the size of {} overflows", where, type());
    if (*bytes != entry.end - entry.begin)
      fail(ErrorCode::invalid_data, "{}: {} takes {} bytes, data_offsets give {}", where, type(), *bytes,
           entry.end - entry.begin);
  }
  return entry;
}

std::map<std::string, std::string> parse_metadata(const json& value, const std::string& path) {
  std::map<std::string, std::string> result;
  if (!value.is_object()) fail(ErrorCode::invalid_data, "{}: __metadata__ is not an object", path);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) fail(ErrorCode::invalid_data, "{}: __metadata__ \"{}\" is not a string", path, key);
    result.emplace(key, text.get<std::string>());
  }
  return result;
}

/// The format has no gaps: the tensors, in order of their bytes, tile the rest of the file.
void check_tiling(const std::vector<Entry>& entries, std::uint64_t data_bytes, const std::string& path) {
  std::uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.end > data_bytes)
      fail(ErrorCode::invalid_data, "{}: tensor \"{}\" ends at byte {} of {} bytes of data", path, entry.name,
           entry.end, data_bytes);
    if (entry.begin != expected)
      fail(ErrorCode::invalid_data, "{}: tensor \"{}\" begins at byte {}, the one before it ends at {}", path,
           entry.name, entry.begin, expected);
    expected = entry.end;
  }
  if (expected != data_bytes)
    fail(ErrorCode::invalid_data, "{}: {} bytes of data, the tensors take {}", path, data_bytes, expected);
}

}  // namespace

struct SafetensorsFile::State {
  std::shared_ptr<const InputFile> file;
  std::uint64_t data = 0;      // where the header ends
  std::vector<Entry> entries;  // sorted by offset
  std::unordered_map<std::string_view, const Entry*> by_name;
  std::map<std::string, std::string> metadata;

  explicit State(const std::string& path) : file(std::make_shared<InputFile>(path)) {
    if (file->size() < 8)
      fail(ErrorCode::invalid_data, "{}: {} bytes, a safetensors file has at least 8", path, file->size());
    std::array<std::uint8_t, 8> length;
    file->read(0, length.data(), length.size());
    std::uint64_t header_bytes = 0;
    for (std::size_t i = length.size(); i-- > 0;) header_bytes = header_bytes << 8 | length[i];
    if (header_bytes > max_header_bytes)
      fail(ErrorCode::invalid_data, "{}: header of {} bytes, more than {}", path, header_bytes, max_header_bytes);
    data = 8 + header_bytes;
    if (data > file->size())
      fail(ErrorCode::invalid_data, "{}: header of {} bytes, the file has {} after its length", path, header_bytes,
           file->size() - 8);

    const JsonDocument header = parse_json(file->text(8, header_bytes), fmt::format("{}: header", path), header_depth);
    for (const auto& [name, value] : header.root.items()) {
      if (name == "__metadata__")
        metadata = parse_metadata(value, path);
      else
        entries.push_back(parse_entry(name, value, path));
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    check_tiling(entries, file->size() - data, path);
    for (const Entry& entry : entries) by_name.emplace(entry.name, &entry);
  }
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  return SafetensorsFile(std::make_unique<State>(path));
}

const std::string& SafetensorsFile::path() const noexcept { return state_->file->path(); }

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> result;
  for (const Entry& entry : state_->entries) result.push_back(entry.name);
  return result;
}

bool SafetensorsFile::has(std::string_view name) const { return state_->by_name.count(name) != 0; }

HostTensor SafetensorsFile::tensor(std::string_view name) const {
  const auto found = state_->by_name.find(name);
  if (found == state_->by_name.end())
    fail(ErrorCode::invalid_data, "{}: no tensor \"{}\" among {}", path(), name, state_->entries.size());
  const Entry& entry = *found->second;
  const auto dtype = dtype_from_safetensors(entry.dtype);
  if (!dtype) fail(ErrorCode::unsupported, "{}: tensor \"{}\" has unknown dtype {}", path(), name, entry.dtype);
  return {entry.name, *dtype, entry.shape, {state_->file, state_->data + entry.begin}, entry.end - entry.begin};
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const noexcept { return state_->metadata; }

void write_safetensors(const std::string& path, const std::vector<HostTensor>& tensors) {
  for (const HostTensor& tensor : tensors)
    require(tensor.data.present() || tensor.size_bytes == 0, "{} has no data", tensor.describe());
  HostBytes bytes;
  write_tensors(path, tensors, [&bytes](const HostTensor& tensor) {
    bytes = tensor.in_memory().data;
    return bytes.memory();
  });
}

}  // namespace moecl
