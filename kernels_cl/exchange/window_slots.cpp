#include <moecl/window_slots.hpp>

#include <algorithm>

#include "kernels_cl/common/index_view.hpp"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource window_slots;
}

namespace moecl::window_slots {
namespace {

std::string reject_ends(const TensorView& row_ends) {
  if (row_ends.rank == 1 && row_ends.dtype == DType::i32 && row_ends.contiguous() && row_ends.shape[0] >= 1) return {};
  return fmt::format("row_ends: expected contiguous i32[E], got {}", row_ends.describe());
}

std::string reject_ints(const char* what, const TensorView& view, int rank) {
  if (view.rank == rank && view.dtype == DType::i32 && view.contiguous() && view.elements() <= most_indices) return {};
  return fmt::format("{}: expected contiguous i32 of {} dimensions, got {}", what, rank, view.describe());
}

std::string reject_slabs(const TensorView& view, std::int64_t ranks) {
  if (ranks >= 1 && view.elements() % ranks == 0) return {};
  return fmt::format("{} does not hold {} equal slabs", view.describe(), ranks);
}

/// Fewer experts than single ranks, or no rank for the others.
std::string reject_singles(std::int32_t singles, std::int64_t ranks, std::int64_t experts) {
  if (singles >= 0 && singles <= ranks && singles <= experts && (singles < ranks || singles == experts)) return {};
  return fmt::format("singles: {} of {} ranks cannot own one of {} experts each", singles, ranks, experts);
}

std::string reject_columns(std::int32_t columns) {
  return columns >= 1 ? std::string() : fmt::format("columns: {} is not positive", columns);
}

void require_no(const std::string& reason) { require(reason.empty(), "window_slots: {}", reason); }

}  // namespace

std::string reject(const Outgoing& args) {
  if (std::string reason = reject_ends(args.row_ends); !reason.empty()) return reason;
  if (std::string reason = reject_ints("sorted_slots", args.sorted_slots, 1); !reason.empty()) return reason;
  if (std::string reason = reject_ints("slots", args.slots, 1); !reason.empty()) return reason;
  return first_of(
      {reject_slabs(args.slots, args.ranks), reject_singles(args.singles, args.ranks, args.row_ends.shape[0])});
}

std::string reject(const Incoming& args) {
  if (std::string reason = reject_ints("row_ends", args.row_ends, 2); !reason.empty()) return reason;
  if (args.row_ends.shape[0] < 1 || args.row_ends.shape[1] < 1 || args.rank < 0 || args.rank >= args.row_ends.shape[0])
    return fmt::format("rank: {} is not among those of row_ends {}", args.rank, args.row_ends.describe());
  if (std::string reason = reject_ints("ids", args.ids, 2); !reason.empty()) return reason;
  return first_of({reject_slabs(args.ids, args.row_ends.shape[0]),
                   reject_singles(args.singles, args.row_ends.shape[0], args.row_ends.shape[1])});
}

std::string reject(const Home& args) {
  if (std::string reason = reject_ends(args.row_ends); !reason.empty()) return reason;
  if (std::string reason = reject_ints("slot_rows", args.slot_rows, 1); !reason.empty()) return reason;
  if (std::string reason = reject_ints("rows", args.rows, 1); !reason.empty()) return reason;
  if (args.rows.shape[0] != args.slot_rows.shape[0])
    return fmt::format("rows: expected {} elements, got {}", args.slot_rows.shape[0], args.rows.describe());
  if (args.ranks < 1 || args.capacity < 0 || args.capacity > most_indices / args.ranks)
    return fmt::format("capacity: {} rows for each of {} ranks cannot be counted in int32", args.capacity, args.ranks);
  return reject_singles(args.singles, args.ranks, args.row_ends.shape[0]);
}

std::string reject(const TokenHomes& args) {
  if (std::string reason = reject_ints("ids", args.ids, 2); !reason.empty()) return reason;
  if (args.first_expert < 0 || args.experts < 1 || args.experts > most_indices - args.first_expert)
    return fmt::format("experts: {} from {} on", args.experts, args.first_expert);
  if (args.ranks < 1 || args.capacity < args.ids.shape[0] ||
      args.capacity > most_indices / (args.ranks * std::max<std::int64_t>(args.ids.shape[1], 1)))
    return fmt::format("capacity: {} tokens for each of {} ranks, {} are given, top {}", args.capacity, args.ranks,
                       args.ids.shape[0], args.ids.shape[1]);
  return first_of(
      {reject_indices("homes", args.homes, args.ids.elements()), reject_optional_indices("fault", args.fault, 4)});
}

std::string reject(const Counts& args) {
  if (std::string reason = reject_ints("row_ends", args.row_ends, 2); !reason.empty()) return reason;
  const std::int64_t ranks = args.row_ends.shape[0];
  if (args.rank < 0 || args.rank >= ranks || args.row_ends.shape[1] < 1)
    return fmt::format("rank: {} is not among those of row_ends {}", args.rank, args.row_ends.describe());
  if (args.token_nums.rank != 1 || args.token_nums.dtype != DType::i64 || !args.token_nums.contiguous())
    return fmt::format("token_nums: expected i64[local experts], got {}", args.token_nums.describe());
  return first_of({reject_indices("recv_ends", args.recv_ends, args.token_nums.shape[0] * ranks),
                   reject_singles(args.singles, ranks, args.row_ends.shape[1])});
}

std::string reject(const Sources& args) {
  if (std::string reason = first_of({reject_ends(args.row_ends), reject_ints("sorted_slots", args.sorted_slots, 1),
                                     reject_ints("slots", args.slots, 1), reject_ints("triples", args.triples, 1),
                                     reject_slabs(args.slots, args.ranks), reject_columns(args.columns)});
      !reason.empty())
    return reason;
  if (args.triples.shape[0] / 3 >= args.sorted_slots.shape[0]) return {};
  return fmt::format("triples: {} rows need {} elements, got {}", args.sorted_slots.shape[0],
                     3 * args.sorted_slots.shape[0], args.triples.describe());
}

std::string reject(const Claims& args) {
  return first_of({reject_ints("rows", args.rows, 1), reject_ints("triples", args.triples, 1),
                   reject_indices("slots", args.slots, args.rows.shape[0]), reject_slabs(args.rows, args.ranks),
                   reject_columns(args.columns)});
}

std::string reject(const Homes& args) {
  if (args.ranks_per_server < 1 || args.tokens_each < 0 || args.tokens_each > most_indices / std::max(args.ranks, 1))
    return fmt::format("tokens_each: {} tokens of {} ranks, {} a server", args.tokens_each, args.ranks,
                       args.ranks_per_server);
  return first_of({reject_ints("rows", args.rows, 1), reject_ints("triples", args.triples, 1),
                   reject_indices("tokens", args.tokens, args.rows.shape[0]), reject_slabs(args.rows, args.ranks)});
}

std::string reject(const Ordinals& args) {
  if (std::string reason = first_of(
          {reject_ends(args.row_ends), reject_ints("ordinals", args.ordinals, 2), reject_columns(args.columns)});
      !reason.empty())
    return reason;
  if (args.ordinals.shape[1] > args.columns)
    return fmt::format("ordinals: more than {} columns in {}", args.columns, args.ordinals.describe());
  return reject_indices("slot_rows", args.slot_rows, args.ordinals.shape[0] * args.columns);
}

// Of every index one is read and one written.
OperatorCost cost(const Outgoing& args) { return {2 * args.slots.size_bytes(), 0}; }
OperatorCost cost(const Incoming& args) { return {2 * args.ids.size_bytes(), 0}; }
OperatorCost cost(const Home& args) { return {2 * args.rows.size_bytes(), 0}; }
OperatorCost cost(const TokenHomes& args) { return {2 * args.homes.size_bytes(), 0}; }

void enqueue(StreamView stream, const Outgoing& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.slots.shape[0];
  launch_indices(stream, source::window_slots, "window_slots_outgoing", submit, args.slots, cost(args).bytes, count,
                 args.row_ends, args.sorted_slots, args.slots, int_of(count), int_of(args.row_ends.shape[0]),
                 args.ranks, args.singles, int_of(count / args.ranks));
}

void enqueue(StreamView stream, const Incoming& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.ids.elements(), ranks = args.row_ends.shape[0];
  launch_indices(stream, source::window_slots, "window_slots_incoming", submit, args.ids, cost(args).bytes, count,
                 args.row_ends, args.ids, int_of(count), int_of(args.row_ends.shape[1]), int_of(ranks), args.singles,
                 int_of(count / ranks), args.rank);
}

void enqueue(StreamView stream, const Home& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.rows.shape[0];
  launch_indices(stream, source::window_slots, "window_slots_home", submit, args.rows, cost(args).bytes, count,
                 args.row_ends, args.slot_rows, args.rows, int_of(count), int_of(args.row_ends.shape[0]), args.ranks,
                 args.singles, int_of(args.capacity));
}

void enqueue(StreamView stream, const TokenHomes& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.homes.shape[0];
  launch_indices(stream, source::window_slots, "window_slots_token_homes", submit, args.ids, cost(args).bytes, count,
                 args.ids, args.homes, args.fault, int_of(count), int_of(args.ids.shape[1]), args.first_expert,
                 args.experts, args.ranks, int_of(args.capacity), std::int32_t{args.sums});
}

void enqueue(StreamView stream, const Counts& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.recv_ends.shape[0];
  launch_indices(stream, source::window_slots, "window_slots_counts", submit, args.recv_ends,
                 2 * args.recv_ends.size_bytes(), count, args.row_ends, args.recv_ends, args.token_nums, int_of(count),
                 int_of(args.row_ends.shape[1]), int_of(args.row_ends.shape[0]), args.singles, args.rank,
                 std::int32_t{args.cumulative});
}

void enqueue(StreamView stream, const Sources& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.sorted_slots.shape[0];
  launch_indices(stream, source::window_slots, "window_slots_sources", submit, args.triples,
                 2 * args.triples.size_bytes(), count, args.row_ends, args.sorted_slots, args.slots, args.triples,
                 int_of(count), int_of(args.row_ends.shape[0]), int_of(args.slots.shape[0] / args.ranks), args.columns);
}

void enqueue(StreamView stream, const Claims& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.slots.shape[0];
  launch_indices(stream, source::window_slots, "window_slots_claims", submit, args.slots, 2 * args.slots.size_bytes(),
                 count, args.rows, args.triples, args.slots, int_of(count), int_of(args.triples.shape[0] / 3),
                 int_of(count / args.ranks), args.columns);
}

void enqueue(StreamView stream, const Homes& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.tokens.shape[0];
  launch_indices(stream, source::window_slots, "window_slots_homes", submit, args.tokens, 2 * args.tokens.size_bytes(),
                 count, args.rows, args.triples, args.tokens, int_of(count), int_of(args.triples.shape[0] / 3),
                 int_of(count / args.ranks), args.ranks_per_server, int_of(args.tokens_each));
}

void enqueue(StreamView stream, const Ordinals& args, Submit submit) {
  require_no(reject(args));
  const std::int64_t count = args.ordinals.elements();
  launch_indices(stream, source::window_slots, "window_slots_ordinals", submit, args.ordinals,
                 2 * args.ordinals.size_bytes(), count, args.row_ends, args.slot_rows, args.ordinals, int_of(count),
                 int_of(args.row_ends.shape[0]), args.columns, int_of(args.ordinals.shape[1]));
}

}  // namespace moecl::window_slots
