#include <moecl/window_slots.hpp>

#include <limits>

#include "kernels_cl/index_view.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

namespace moecl::source {
extern const ProgramSource window_slots;
}

namespace moecl::window_slots {
namespace {

constexpr std::size_t group_size = 64;
constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max() - std::int64_t{group_size};

/// Launches one work-item for each of `count` elements; the kernels take that count first after their tensors.
void run(StreamView stream, const char* kernel, const Submit& submit, const TensorView& shaped_as,
         const OperatorCost& cost, std::int64_t count, const auto&... args) {
  const std::size_t groups = (static_cast<std::size_t>(count) + group_size - 1) / group_size;
  launch(stream, {&source::window_slots, "", kernel}, {{groups * group_size, 1, 1}, {group_size, 1, 1}}, submit,
         {"window_slots", kernel + sizeof("window_slots"), shaped_as.describe(), cost.bytes, cost.flops}, args...);
}

std::int32_t int_of(std::int64_t value) { return static_cast<std::int32_t>(value); }

std::string reject_ends(const TensorView& row_ends) {
  if (row_ends.rank == 1 && row_ends.dtype == DType::i32 && row_ends.contiguous() && row_ends.shape[0] >= 1) return {};
  return fmt::format("row_ends: expected contiguous i32[E], got {}", row_ends.describe());
}

std::string reject_ints(const char* what, const TensorView& view, int rank) {
  if (view.rank == rank && view.dtype == DType::i32 && view.contiguous() && view.elements() <= int32_max) return {};
  return fmt::format("{}: expected contiguous i32 of {} dimensions, got {}", what, rank, view.describe());
}

std::string reject_slabs(const TensorView& view, std::int64_t ranks) {
  if (ranks >= 1 && view.elements() % ranks == 0) return {};
  return fmt::format("{} does not hold {} equal slabs", view.describe(), ranks);
}

void require_no(const std::string& reason) { require(reason.empty(), "window_slots: {}", reason); }

}  // namespace

std::string reject(const Outgoing& args) {
  if (std::string reason = reject_ends(args.row_ends); !reason.empty()) return reason;
  if (std::string reason = reject_ints("sorted_slots", args.sorted_slots, 1); !reason.empty()) return reason;
  if (std::string reason = reject_ints("slots", args.slots, 1); !reason.empty()) return reason;
  return reject_slabs(args.slots, args.ranks);
}

std::string reject(const Incoming& args) {
  if (std::string reason = reject_ints("row_ends", args.row_ends, 2); !reason.empty()) return reason;
  if (args.row_ends.shape[0] < 1 || args.row_ends.shape[1] < 1 || args.rank < 0 || args.rank >= args.row_ends.shape[0])
    return fmt::format("rank: {} is not among those of row_ends {}", args.rank, args.row_ends.describe());
  if (std::string reason = reject_ints("ids", args.ids, 2); !reason.empty()) return reason;
  return reject_slabs(args.ids, args.row_ends.shape[0]);
}

std::string reject(const Home& args) {
  if (std::string reason = reject_ends(args.row_ends); !reason.empty()) return reason;
  if (std::string reason = reject_ints("slot_rows", args.slot_rows, 1); !reason.empty()) return reason;
  if (std::string reason = reject_ints("rows", args.rows, 1); !reason.empty()) return reason;
  if (args.rows.shape[0] != args.slot_rows.shape[0])
    return fmt::format("rows: expected {} elements, got {}", args.slot_rows.shape[0], args.rows.describe());
  if (args.ranks < 1 || args.capacity < 0 || args.capacity > int32_max / args.ranks)
    return fmt::format("capacity: {} rows for each of {} ranks cannot be counted in int32", args.capacity, args.ranks);
  return {};
}

// Of every index one is read and one written.
OperatorCost cost(const Outgoing& args) { return {2 * args.slots.size_bytes(), 0}; }
OperatorCost cost(const Incoming& args) { return {2 * args.ids.size_bytes(), 0}; }
OperatorCost cost(const Home& args) { return {2 * args.rows.size_bytes(), 0}; }

void enqueue(StreamView stream, const Outgoing& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.slots.shape[0];
  run(stream, "window_slots_outgoing", submit, args.slots, cost(args), count, args.row_ends, args.sorted_slots,
      args.slots, int_of(count), int_of(args.row_ends.shape[0]), args.ranks, int_of(count / args.ranks));
}

void enqueue(StreamView stream, const Incoming& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.ids.elements(), ranks = args.row_ends.shape[0];
  run(stream, "window_slots_incoming", submit, args.ids, cost(args), count, args.row_ends, args.ids, int_of(count),
      int_of(args.row_ends.shape[1]), int_of(ranks), int_of(count / ranks), args.rank);
}

void enqueue(StreamView stream, const Home& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.rows.shape[0];
  run(stream, "window_slots_home", submit, args.rows, cost(args), count, args.row_ends, args.slot_rows, args.rows,
      int_of(count), int_of(args.row_ends.shape[0]), args.ranks, int_of(args.capacity));
}

}  // namespace moecl::window_slots
