#include <moecl/window_slots.hpp>

#include <algorithm>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/exchange/window_slots_args.h"
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

/// Why `singles` is wrong: fewer experts than single ranks, or no rank for the other experts. Empty if it is right.
std::string reject_singles(std::int32_t singles, std::int64_t ranks, std::int64_t experts) {
  if (singles >= 0 && singles <= ranks && singles <= experts && (singles < ranks || singles == experts)) return {};
  return fmt::format("singles: {} of {} ranks cannot own one of {} experts each", singles, ranks, experts);
}

std::string reject_columns(std::int32_t columns) {
  return columns >= 1 ? std::string() : fmt::format("columns: {} is not positive", columns);
}

void require_no(const std::string& reason) { require(reason.empty(), "window_slots: {}", reason); }

window_slots_outgoing_args kernel_args(const Outgoing& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .sorted_slots_first = first_element(args.sorted_slots),
          .slots_first = first_element(args.slots),
          .count = int_of(args.slots.shape[0]),
          .experts = int_of(args.row_ends.shape[0]),
          .ranks = args.ranks,
          .singles = args.singles,
          .capacity = int_of(args.slots.shape[0] / args.ranks),
          .pad = 0};
}

window_slots_incoming_args kernel_args(const Incoming& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .ids_first = first_element(args.ids),
          .count = int_of(args.ids.elements()),
          .experts = int_of(args.row_ends.shape[1]),
          .ranks = int_of(args.row_ends.shape[0]),
          .singles = args.singles,
          .capacity = int_of(args.ids.elements() / args.row_ends.shape[0]),
          .rank = args.rank};
}

window_slots_return_rows_args kernel_args(const ReturnRows& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .slot_rows_first = first_element(args.slot_rows),
          .rows_first = first_element(args.rows),
          .count = int_of(args.rows.shape[0]),
          .experts = int_of(args.row_ends.shape[0]),
          .ranks = args.ranks,
          .singles = args.singles,
          .capacity = int_of(args.capacity),
          .pad = 0};
}

window_slots_token_return_rows_args kernel_args(const TokenReturnRows& args) {
  return {.ids_first = first_element(args.ids),
          .return_rows_first = first_element(args.return_rows),
          .fault_first = first_element(args.fault),
          .count = int_of(args.return_rows.shape[0]),
          .top_k = int_of(args.ids.shape[1]),
          .first_expert = args.first_expert,
          .experts = args.experts,
          .ranks = args.ranks,
          .capacity = int_of(args.capacity),
          .sums = args.sums,
          .pad = 0};
}

window_slots_counts_args kernel_args(const Counts& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .recv_ends_first = first_element(args.recv_ends),
          .token_nums_first = first_element(args.token_nums),
          .count = int_of(args.recv_ends.shape[0]),
          .experts = int_of(args.row_ends.shape[1]),
          .ranks = int_of(args.row_ends.shape[0]),
          .singles = args.singles,
          .rank = args.rank,
          .cumulative = args.cumulative};
}

window_slots_sources_args kernel_args(const Sources& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .sorted_slots_first = first_element(args.sorted_slots),
          .slots_first = first_element(args.slots),
          .triples_first = first_element(args.triples),
          .count = int_of(args.sorted_slots.shape[0]),
          .experts = int_of(args.row_ends.shape[0]),
          .capacity = int_of(args.slots.shape[0] / args.ranks),
          .columns = args.columns,
          .each = args.each,
          .divisor = args.divisor};
}

window_slots_reached_groups_args kernel_args(const ReachedGroups& args) {
  return {.owners_first = first_element(args.owners),
          .ids_first = first_element(args.ids),
          .count = int_of(args.ids.elements()),
          .columns = int_of(args.owners.shape[1]),
          .groups = int_of(args.ids.shape[1]),
          .first_owner = args.first_owner,
          .owners_each = args.owners_each,
          .slabs = args.slabs,
          .slab_tokens = int_of(args.ids.shape[0] / args.slabs),
          .pad = 0};
}

window_slots_source_slots_args kernel_args(const SourceSlots& args) {
  return {.rows_first = first_element(args.rows),
          .triples_first = first_element(args.triples),
          .slots_first = first_element(args.slots),
          .count = int_of(args.slots.shape[0]),
          .triple_count = int_of(args.triples.shape[0] / 3),
          .capacity = int_of(args.slots.shape[0] / args.ranks),
          .columns = args.columns};
}

window_slots_destination_tokens_args kernel_args(const DestinationTokens& args) {
  return {.rows_first = first_element(args.rows),
          .triples_first = first_element(args.triples),
          .tokens_first = first_element(args.tokens),
          .count = int_of(args.tokens.shape[0]),
          .triple_count = int_of(args.triples.shape[0] / 3),
          .capacity = int_of(args.tokens.shape[0] / args.ranks),
          .ranks_per_server = args.ranks_per_server,
          .tokens_each = int_of(args.tokens_each),
          .pad = 0};
}

window_slots_positions_in_expert_args kernel_args(const PositionsInExpert& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .slot_rows_first = first_element(args.slot_rows),
          .positions_first = first_element(args.positions),
          .count = int_of(args.positions.elements()),
          .experts = int_of(args.row_ends.shape[0]),
          .columns = args.columns,
          .top_k = int_of(args.positions.shape[1])};
}

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

std::string reject(const ReturnRows& args) {
  if (std::string reason = reject_ends(args.row_ends); !reason.empty()) return reason;
  if (std::string reason = reject_ints("slot_rows", args.slot_rows, 1); !reason.empty()) return reason;
  if (std::string reason = reject_ints("rows", args.rows, 1); !reason.empty()) return reason;
  if (args.rows.shape[0] != args.slot_rows.shape[0])
    return fmt::format("rows: expected {} elements, got {}", args.slot_rows.shape[0], args.rows.describe());
  if (args.ranks < 1 || args.capacity < 0 || args.capacity > most_indices / args.ranks)
    return fmt::format("capacity: {} rows for each of {} ranks cannot be counted in int32", args.capacity, args.ranks);
  return reject_singles(args.singles, args.ranks, args.row_ends.shape[0]);
}

std::string reject(const TokenReturnRows& args) {
  if (std::string reason = reject_ints("ids", args.ids, 2); !reason.empty()) return reason;
  if (args.first_expert < 0 || args.experts < 1 || args.experts > most_indices - args.first_expert)
    return fmt::format("experts: {} from {} on", args.experts, args.first_expert);
  if (args.ranks < 1 || args.capacity < args.ids.shape[0] ||
      args.capacity > most_indices / (args.ranks * std::max<std::int64_t>(args.ids.shape[1], 1)))
    return fmt::format("capacity: {} tokens for each of {} ranks, {} are given, top {}", args.capacity, args.ranks,
                       args.ids.shape[0], args.ids.shape[1]);
  return first_of({reject_indices("return_rows", args.return_rows, args.ids.elements()),
                   reject_optional_indices("fault", args.fault, 4)});
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
  if (args.each < 1 || args.divisor < 1)
    return fmt::format("each, divisor: {} and {} are not positive", args.each, args.divisor);
  if (args.triples.shape[0] / 3 >= args.sorted_slots.shape[0]) return {};
  return fmt::format("triples: {} rows need {} elements, got {}", args.sorted_slots.shape[0],
                     3 * args.sorted_slots.shape[0], args.triples.describe());
}

std::string reject(const ReachedGroups& args) {
  if (std::string reason = first_of({reject_ints("owners", args.owners, 2), reject_ints("ids", args.ids, 2)});
      !reason.empty())
    return reason;
  if (args.ids.shape[0] != args.owners.shape[0] || args.ids.shape[1] < 1)
    return fmt::format("ids: expected i32[{}, groups], got {}", args.owners.shape[0], args.ids.describe());
  if (args.first_owner < 0 || args.owners_each < 1)
    return fmt::format("owners: {} in a group, from {} on", args.owners_each, args.first_owner);
  return args.slabs >= 1 && args.owners.shape[0] % args.slabs == 0
             ? std::string()
             : fmt::format("slabs: {} tokens do not stand in {} of them", args.owners.shape[0], args.slabs);
}

std::string reject(const SourceSlots& args) {
  return first_of({reject_ints("rows", args.rows, 1), reject_ints("triples", args.triples, 1),
                   reject_indices("slots", args.slots, args.rows.shape[0]), reject_slabs(args.rows, args.ranks),
                   reject_columns(args.columns)});
}

std::string reject(const DestinationTokens& args) {
  if (args.ranks_per_server < 1 || args.tokens_each < 0 || args.tokens_each > most_indices / std::max(args.ranks, 1))
    return fmt::format("tokens_each: {} tokens of {} ranks, {} a server", args.tokens_each, args.ranks,
                       args.ranks_per_server);
  return first_of({reject_ints("rows", args.rows, 1), reject_ints("triples", args.triples, 1),
                   reject_indices("tokens", args.tokens, args.rows.shape[0]), reject_slabs(args.rows, args.ranks)});
}

std::string reject(const PositionsInExpert& args) {
  if (std::string reason = first_of(
          {reject_ends(args.row_ends), reject_ints("positions", args.positions, 2), reject_columns(args.columns)});
      !reason.empty())
    return reason;
  if (args.positions.shape[1] > args.columns)
    return fmt::format("positions: more than {} columns in {}", args.columns, args.positions.describe());
  return reject_indices("slot_rows", args.slot_rows, args.positions.shape[0] * args.columns);
}

// For every index of the result one is read and one written.
OperatorCost cost(const Outgoing& args) { return {2 * args.slots.size_bytes(), 0}; }
OperatorCost cost(const Incoming& args) { return {2 * args.ids.size_bytes(), 0}; }
OperatorCost cost(const ReturnRows& args) { return {2 * args.rows.size_bytes(), 0}; }
OperatorCost cost(const TokenReturnRows& args) { return {2 * args.return_rows.size_bytes(), 0}; }

void enqueue(StreamView stream, const Outgoing& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_outgoing", submit, args.slots, cost(args).bytes,
                 args.row_ends, args.sorted_slots, args.slots, kernel_args(args));
}

void enqueue(StreamView stream, const Incoming& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_incoming", submit, args.ids, cost(args).bytes,
                 args.row_ends, args.ids, kernel_args(args));
}

void enqueue(StreamView stream, const ReturnRows& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_return_rows", submit, args.rows, cost(args).bytes,
                 args.row_ends, args.slot_rows, args.rows, kernel_args(args));
}

void enqueue(StreamView stream, const TokenReturnRows& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_token_return_rows", submit, args.ids, cost(args).bytes,
                 args.ids, args.return_rows, args.fault, kernel_args(args));
}

void enqueue(StreamView stream, const Counts& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_counts", submit, args.recv_ends,
                 2 * args.recv_ends.size_bytes(), args.row_ends, args.recv_ends, args.token_nums, kernel_args(args));
}

void enqueue(StreamView stream, const Sources& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_sources", submit, args.triples,
                 2 * args.triples.size_bytes(), args.row_ends, args.sorted_slots, args.slots, args.triples,
                 kernel_args(args));
}

void enqueue(StreamView stream, const ReachedGroups& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_reached_groups", submit, args.ids,
                 args.owners.size_bytes() + args.ids.size_bytes(), args.owners, args.ids, kernel_args(args));
}

void enqueue(StreamView stream, const SourceSlots& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_source_slots", submit, args.slots,
                 2 * args.slots.size_bytes(), args.rows, args.triples, args.slots, kernel_args(args));
}

void enqueue(StreamView stream, const DestinationTokens& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_destination_tokens", submit, args.tokens,
                 2 * args.tokens.size_bytes(), args.rows, args.triples, args.tokens, kernel_args(args));
}

void enqueue(StreamView stream, const PositionsInExpert& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::window_slots, "window_slots_positions_in_expert", submit, args.positions,
                 2 * args.positions.size_bytes(), args.row_ends, args.slot_rows, args.positions, kernel_args(args));
}

}  // namespace moecl::window_slots
