#include <moecl/index_vectors.hpp>
#include <moecl/scatter_add.hpp>
#include <moecl/stable_sort.hpp>

#include <limits>

#include "runtime/check.hpp"

namespace moecl::scatter_add {
namespace {

/// Bits of a sort key. Rows that are left out get the key T, past all tokens.
std::int32_t key_bits(std::int64_t tokens) {
  std::int32_t bits = 1;
  while (bits < 31 && (tokens >> bits) != 0) ++bits;
  return bits;
}

struct Steps {
  index_vectors::Narrow keys;
  stable_sort::Args sort;
  index_vectors::KeyEnds ends;
  combine::Args combine;
};

/// Scratch: keys [R], sorted_slots [R], ends [T], then the scratch of the sort.
Steps steps(const Args& args) {
  const std::int64_t rows = args.rows.shape[0], tokens = args.out.shape[0];
  std::uint64_t used = 0;
  const auto ints = [&](std::int64_t count) {
    const auto size = static_cast<std::uint64_t>(count) * sizeof(std::int32_t);
    const TensorView view(args.scratch.slice(used, size), DType::i32, {count});
    used += size;
    return view;
  };
  Steps all;
  all.keys = {
      args.destinations, 0,         static_cast<std::int32_t>(tokens), static_cast<std::int32_t>(tokens), args.row_ends,
      ints(rows),        args.fault};
  all.sort.keys = all.keys.to;
  all.sort.key_bits = key_bits(tokens);
  all.sort.sorted_slots = ints(rows);
  all.ends = {all.sort.keys, all.sort.sorted_slots, ints(tokens)};
  all.sort.scratch = args.scratch.slice(used, args.scratch.size_bytes - used);
  all.combine.rows = args.rows;
  all.combine.slot_rows = all.sort.sorted_slots;
  all.combine.slot_ends = all.ends.ends;
  all.combine.weights = args.weights;
  all.combine.shared = args.shared;
  all.combine.shared_scale = args.shared_scale;
  all.combine.shared_token = args.shared_token;
  all.combine.out = args.out;
  return all;
}

}  // namespace

std::uint64_t scratch_bytes(std::int64_t rows, std::int64_t tokens, const DeviceCaps& caps) {
  return static_cast<std::uint64_t>(2 * rows + tokens) * sizeof(std::int32_t) +
         stable_sort::scratch_bytes(rows, key_bits(tokens), caps);
}

std::string reject(const Args& args, const combine::Config& config, const Device& device) {
  if (args.rows.rank != 2) return fmt::format("rows: expected float [R, H], got {}", args.rows.describe());
  if (args.out.rank != 2) return fmt::format("out: expected float [T, H], got {}", args.out.describe());
  const std::int64_t rows = args.rows.shape[0], tokens = args.out.shape[0];
  if (args.destinations.rank != 1 || args.destinations.shape[0] != rows)
    return fmt::format("destinations: expected i32 or i64[{}], got {}", rows, args.destinations.describe());
  if (tokens >= std::numeric_limits<std::int32_t>::max()) return fmt::format("out: {} tokens are too many", tokens);
  if (const std::uint64_t needed = scratch_bytes(rows, tokens, device.caps); args.scratch.size_bytes < needed)
    return fmt::format("scratch: {} bytes are needed, got {}", needed, args.scratch.size_bytes);
  const Steps all = steps(args);
  for (const std::string& reason :
       {index_vectors::reject(all.keys), stable_sort::reject(all.sort, {}, device), index_vectors::reject(all.ends)})
    if (!reason.empty()) return reason;
  return combine::reject(all.combine, config, device);
}

void enqueue(StreamView stream, const Args& args, const combine::Config& config, Submit submit) {
  const std::string reason = reject(args, config, *stream.device);
  require(reason.empty(), "scatter_add: {}", reason);
  const Steps all = steps(args);
  index_vectors::enqueue(stream, all.keys, {submit.wait, nullptr});
  stable_sort::enqueue(stream, all.sort);
  index_vectors::enqueue(stream, all.ends);
  combine::enqueue(stream, all.combine, config, {{}, submit.done});
}

OperatorCost cost(const Args& args) {
  const auto elements = static_cast<std::uint64_t>(args.rows.elements());
  return {args.rows.size_bytes() + args.destinations.size_bytes() + args.weights.size_bytes() +
              args.shared.size_bytes() + args.out.size_bytes(),
          2 * elements};
}

}  // namespace moecl::scatter_add
