#include <moecl/device.hpp>
#include <moecl/window_put.hpp>

#include <algorithm>

#include "kernels_cl/index_view.hpp"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource window_put;
}

namespace moecl::window_put {
namespace {

std::string reject_rows(const char* what, const TensorView& view, std::int64_t rows) {
  if (view.rank >= 1 && view.contiguous() && (rows < 0 || view.shape[0] == rows)) return {};
  return fmt::format("{}: expected {} contiguous rows, got {}", what, rows, view.describe());
}

std::string reject_ints(const char* what, const TensorView& view) {
  return view.rank == 1 && view.shape[0] >= 1 ? reject_indices(what, view, view.shape[0])
                                              : fmt::format("{}: expected i32[n], got {}", what, view.describe());
}

std::string reject(const Windows& to) {
  if (to.addresses.rank != 1 || to.addresses.dtype != DType::i64 || !to.addresses.contiguous() ||
      to.addresses.shape[0] < 1 || to.addresses.shape[0] > most_ranks)
    return fmt::format("addresses: expected i64[R] of at most {} ranks, got {}", most_ranks, to.addresses.describe());
  const std::int64_t ranks = to.addresses.shape[0];
  if (to.rank < 0 || to.rank >= ranks) return fmt::format("rank: {} is not in [0, {})", to.rank, ranks);
  if (to.capacity < 0 || to.capacity > most_indices / ranks)
    return fmt::format("capacity: {} rows for each of {} ranks cannot be counted in int32", to.capacity, ranks);
  return reject_indices("counter", to.counter, 1);
}

std::int64_t row_bytes(const TensorView& view) {
  return view.present() ? (view.rank == 2 ? view.shape[1] : 1) * static_cast<std::int64_t>(size_bytes(view.dtype)) : 0;
}

/// The widest copy that all places of such rows are aligned to.
std::int32_t unit_of(std::uint64_t odd) { return odd % 16 == 0 ? 16 : odd % 4 == 0 ? 4 : 1; }

/// Its rows as bytes.
TensorView as_bytes(const TensorView& view) {
  if (!view.present()) return {};
  return {view.buffer, DType::u8, {static_cast<std::int64_t>(view.size_bytes())}};
}

std::string options(const DeviceCaps& caps) {
  return fmt::format("-DLANES={} -DMOST_RANKS={}{}", caps.type == DeviceType::cpu ? 16 : 256, most_ranks,
                     caps.nv_compute_capability >= 70 ? " -DSYSTEM_SCOPE" : "");
}

/// A few groups for each compute unit keep a link full; each costs a fence at its end.
NdRange groups_for(const DeviceCaps& caps, std::int64_t rows) {
  const std::size_t lanes = caps.type == DeviceType::cpu ? 16 : 256;
  const std::int64_t most = std::int64_t{caps.compute_units} * (caps.type == DeviceType::cpu ? 1 : 8);
  return {{static_cast<std::size_t>(std::clamp<std::int64_t>(rows, 1, most)) * lanes, 1, 1}, {lanes, 1, 1}};
}

/// Launches with what both kernels end with.
void launch_put(StreamView stream, const char* kernel, const char* variant, const Submit& submit, std::int64_t rows,
                std::uint64_t bytes, const TensorView& codes, const TensorView& scale, const Windows& to,
                std::uint64_t ends_at, const auto&... args) {
  const std::int64_t code_bytes = row_bytes(codes), scale_bytes = row_bytes(scale);
  const std::string defines = options(stream.device->caps);
  launch(stream, {&source::window_put, defines, kernel}, groups_for(stream.device->caps, rows), submit,
         {source::window_put.name, variant, codes.describe(), bytes, 0}, args..., to.addresses, to.counter,
         int_of(to.addresses.shape[0]), to.rank, int_of(to.capacity), to.step, ends_at, to.codes_at, to.scale_at,
         int_of(code_bytes), unit_of(static_cast<std::uint64_t>(code_bytes) | codes.buffer.offset_bytes | to.codes_at),
         int_of(scale_bytes),
         unit_of(static_cast<std::uint64_t>(scale_bytes) | scale.buffer.offset_bytes | to.scale_at));
}

void require_no(const std::string& reason) { require(reason.empty(), "window_put: {}", reason); }

}  // namespace

std::string reject(const Dispatch& args) {
  if (args.divisor < 1) return fmt::format("divisor: {} is not positive", args.divisor);
  if (args.ends_at % sizeof(std::int32_t) != 0) return fmt::format("ends_at: {} is no multiple of 4", args.ends_at);
  return first_of({reject(args.to), reject_ints("row_ends", args.row_ends), reject_rows("codes", args.codes, -1),
                   args.sorted_slots.rank == 1
                       ? reject_indices("sorted_slots", args.sorted_slots, args.codes.shape[0] * args.divisor)
                       : fmt::format("sorted_slots: expected i32[S], got {}", args.sorted_slots.describe()),
                   args.scale.present() ? reject_rows("scale", args.scale, args.codes.shape[0]) : std::string()});
}

std::string reject(const Combine& args) {
  if (std::string reason = first_of({reject(args.to), reject_ints("row_ends", args.row_ends)}); !reason.empty())
    return reason;
  const std::int64_t rows = args.to.addresses.shape[0] * args.to.capacity;
  return first_of({reject_indices("sorted_slots", args.sorted_slots, rows), reject_rows("codes", args.codes, rows),
                   args.scale.present() ? reject_rows("scale", args.scale, rows) : std::string()});
}

std::string reject(const Wait& args) {
  if (args.signals.rank == 1 && args.signals.shape[0] > most_ranks)
    return fmt::format("signals: {} of more than {} ranks", args.signals.describe(), most_ranks);
  return first_of({reject_ints("signals", args.signals), reject_indices("late", args.late, 4),
                   reject_optional_indices("fault", args.fault, 4)});
}

std::string reject(const Address& args) {
  if (args.addresses.rank != 1 || args.addresses.dtype != DType::i64 || args.rank < 0 ||
      args.rank >= args.addresses.shape[0])
    return fmt::format("rank: {} has no place in {}", args.rank, args.addresses.describe());
  return args.memory.handle != nullptr ? "" : "memory: there is none";
}

OperatorCost cost(const Dispatch& args) {
  const std::int64_t row = row_bytes(args.codes) + row_bytes(args.scale);
  return {2 * static_cast<std::uint64_t>(args.sorted_slots.shape[0] * row) + 2 * args.row_ends.size_bytes(), 0};
}
OperatorCost cost(const Combine& args) { return {2 * (args.codes.size_bytes() + args.scale.size_bytes()), 0}; }

void enqueue(StreamView stream, const Dispatch& args, Submit submit) {
  require_no(reject(args));
  launch_put(stream, "window_put_dispatch", "dispatch", submit, args.sorted_slots.shape[0], cost(args).bytes,
             args.codes, args.scale, args.to, args.ends_at, args.row_ends, args.sorted_slots, as_bytes(args.codes),
             as_bytes(args.scale), int_of(args.row_ends.shape[0]), args.divisor);
}

void enqueue(StreamView stream, const Combine& args, Submit submit) {
  require_no(reject(args));
  launch_put(stream, "window_put_combine", "combine", submit, args.codes.shape[0], cost(args).bytes, args.codes,
             args.scale, args.to, 0, args.row_ends, args.sorted_slots, as_bytes(args.codes), as_bytes(args.scale),
             int_of(args.row_ends.shape[0]));
}

void enqueue(StreamView stream, const Wait& args, Submit submit) {
  require_no(reject(args));
  const std::string defines = options(stream.device->caps);
  launch(stream, {&source::window_put, defines, "window_put_wait"}, {{most_ranks, 1, 1}, {most_ranks, 1, 1}}, submit,
         {source::window_put.name, "wait", args.signals.describe(), args.signals.size_bytes(), 0}, args.signals,
         args.late, args.fault, int_of(args.signals.shape[0]), args.step, args.patience);
}

void enqueue(StreamView stream, const Address& args, Submit submit) {
  require_no(reject(args));
  const TensorView memory(args.memory, DType::u8, {static_cast<std::int64_t>(args.memory.size_bytes)});
  const std::string defines = options(stream.device->caps);
  launch(stream, {&source::window_put, defines, "window_put_address"}, {}, submit,
         {source::window_put.name, "address", args.addresses.describe(), sizeof(std::int64_t), 0}, memory,
         args.addresses, args.rank);
}

}  // namespace moecl::window_put
