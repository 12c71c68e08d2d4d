#include <moecl/buffer.hpp>
#include <moecl/index_vectors.hpp>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/rows/index_vectors_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource index_vectors;
}

namespace moecl::index_vectors {
namespace {

std::int64_t length(const TensorView& view) { return view.rank == 1 ? view.shape[0] : -1; }

/// Why `view` does not hold `count` indices in any shape; empty when it does.
std::string reject_shaped(const char* what, const TensorView& view, std::int64_t count) {
  if (view.present() && view.dtype == DType::i32 && view.elements() == count && view.contiguous()) return {};
  return fmt::format("{}: expected {} elements of i32, got {}", what, count, view.describe());
}

/// Why `view` does not hold i32 or i64 indices in any shape; empty when it does.
std::string reject_numbers(const char* what, const TensorView& view) {
  const bool ints = view.dtype == DType::i32 || view.dtype == DType::i64;
  if (view.present() && ints && view.contiguous()) return {};
  return fmt::format("{}: expected contiguous i32 or i64, got {}", what, view.describe());
}

std::string reject_count(const char* what, std::int64_t count) {
  return count <= most_indices ? std::string()
                               : fmt::format("{}: {} elements, at most {} are possible", what, count, most_indices);
}

void require_no(const std::string& reason) { require(reason.empty(), "index_vectors: {}", reason); }

index_vectors_narrow_args kernel_args(const Narrow& args) {
  return {.from_first = first_element(args.from),
          .row_ends_first = first_element(args.row_ends),
          .to_first = first_element(args.to),
          .fault_first = first_element(args.fault),
          .count = int_of(args.to.shape[0]),
          .wide = args.from.dtype == DType::i64,
          .experts = int_of(args.row_ends.shape[0]),
          .low = args.low,
          .high = args.high,
          .otherwise = args.otherwise};
}

index_vectors_column_order_args kernel_args(const ColumnOrder& args) {
  return {.out_first = first_element(args.out),
          .count = int_of(args.out.elements()),
          .tokens = int_of(args.out.shape[0]),
          .top_k = int_of(args.out.shape[1]),
          .pad = 0};
}

index_vectors_sorted_routing_args kernel_args(const SortedRouting& args) {
  return {.sorted_slots_first = first_element(args.sorted_slots),
          .ids_first = first_element(args.ids),
          .row_idx_first = first_element(args.row_idx),
          .source_row_first = first_element(args.source_row),
          .expanded_row_idx_first = first_element(args.expanded_row_idx),
          .expanded_expert_idx_first = first_element(args.expanded_expert_idx),
          .fault_first = first_element(args.fault),
          .count = int_of(args.sorted_slots.shape[0]),
          .tokens = int_of(args.tokens)};
}

index_vectors_histogram_args kernel_args(const Histogram& args) {
  return {.keys_first = first_element(args.keys),
          .counts_first = first_element(args.counts),
          .count = int_of(args.keys.elements()),
          .wide = args.keys.dtype == DType::i64,
          .bins = int_of(args.counts.shape[0]),
          .pad = 0};
}

index_vectors_key_counts_args kernel_args(const KeyCounts& args) {
  return {.keys_first = first_element(args.keys),
          .counts_first = first_element(args.counts),
          .count = int_of(args.counts.shape[0]),
          .key_count = int_of(args.keys.elements())};
}

index_vectors_group_of_row_args kernel_args(const GroupOfRow& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .groups_first = first_element(args.groups),
          .count = int_of(args.groups.shape[0]),
          .group_count = int_of(args.row_ends.shape[0]),
          .modulus = args.modulus,
          .pad = 0};
}

index_vectors_key_ends_args kernel_args(const KeyEnds& args) {
  return {.keys_first = first_element(args.keys),
          .order_first = first_element(args.order),
          .ends_first = first_element(args.ends),
          .count = int_of(args.ends.shape[0]),
          .key_count = int_of(args.keys.shape[0])};
}

index_vectors_widen_args kernel_args(const Widen& args) {
  return {.from_first = first_element(args.from),
          .to_first = first_element(args.to),
          .count = int_of(args.from.shape[0]),
          .pad = 0};
}

index_vectors_row_counts_args kernel_args(const RowCounts& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .counts_first = first_element(args.counts),
          .count = int_of(args.row_ends.shape[0]),
          .wide = args.counts.dtype == DType::i64,
          .add = args.add,
          .pad = 0};
}

index_vectors_valid_rows_args kernel_args(const ValidRows& args) {
  return {.row_ends_first = first_element(args.row_ends),
          .slots_first = first_element(args.slots),
          .count = int_of(args.slots.shape[0]),
          .experts = int_of(args.row_ends.shape[0]),
          .rows_per_expert = int_of(args.rows_per_expert),
          .pad = 0};
}

index_vectors_expect_args kernel_args(const Expect& args) {
  return {.got_first = first_element(args.got),
          .expected_first = first_element(args.expected),
          .fault_first = first_element(args.fault),
          .count = int_of(args.got.shape[0]),
          .pad = 0};
}

}  // namespace

std::string reject(const Narrow& args) {
  if (std::string reason = reject_numbers("from", args.from); !reason.empty()) return reason;
  if (args.row_ends.present() && length(args.row_ends) < 1)
    return fmt::format("row_ends: expected i32[E], got {}", args.row_ends.describe());
  return first_of({reject_count("from", args.from.elements()), reject_indices("to", args.to, args.from.elements()),
                   reject_optional_indices("row_ends", args.row_ends, length(args.row_ends)),
                   reject_optional_indices("fault", args.fault, 4)});
}

std::string reject(const ColumnOrder& args) {
  if (args.out.rank != 2 || args.out.dtype != DType::i32 || !args.out.contiguous())
    return fmt::format("out: expected contiguous i32[N, K], got {}", args.out.describe());
  return reject_count("out", args.out.elements());
}

std::string reject(const SortedRouting& args) {
  const std::int64_t slots = length(args.sorted_slots);
  if (slots < 0) return fmt::format("sorted_slots: expected i32[S], got {}", args.sorted_slots.describe());
  if (args.tokens < 0 || (slots > 0 && (args.tokens == 0 || slots % args.tokens != 0)))
    return fmt::format("tokens: {} slots are not so many for each of {}", slots, args.tokens);
  return first_of({reject_count("sorted_slots", slots), reject_indices("sorted_slots", args.sorted_slots, slots),
                   reject_shaped("ids", args.ids, slots), reject_shaped("row_idx", args.row_idx, slots),
                   reject_indices("source_row", args.source_row, slots),
                   reject_indices("expanded_row_idx", args.expanded_row_idx, slots),
                   reject_indices("expanded_expert_idx", args.expanded_expert_idx, slots),
                   reject_optional_indices("fault", args.fault, 4)});
}

std::string reject(const Histogram& args) {
  if (length(args.counts) < 1) return fmt::format("counts: expected i32[E], got {}", args.counts.describe());
  return first_of({reject_numbers("keys", args.keys), reject_count("keys", args.keys.elements()),
                   reject_indices("counts", args.counts, length(args.counts))});
}

std::string reject(const KeyCounts& args) {
  if (length(args.counts) < 1 || args.counts.dtype != DType::i64 || !args.counts.contiguous())
    return fmt::format("counts: expected contiguous i64[E], got {}", args.counts.describe());
  return first_of({reject_count("keys", args.keys.elements()), reject_count("counts", args.counts.elements()),
                   reject_shaped("keys", args.keys, args.keys.elements())});
}

std::string reject(const GroupOfRow& args) {
  if (args.modulus < 1) return fmt::format("modulus: {} is not positive", args.modulus);
  if (length(args.row_ends) < 1) return fmt::format("row_ends: expected i32[G], got {}", args.row_ends.describe());
  if (length(args.groups) < 0) return fmt::format("groups: expected i32[rows], got {}", args.groups.describe());
  return first_of({reject_count("groups", length(args.groups)), reject_count("row_ends", length(args.row_ends)),
                   reject_indices("row_ends", args.row_ends, length(args.row_ends)),
                   reject_indices("groups", args.groups, length(args.groups))});
}

std::string reject(const KeyEnds& args) {
  if (length(args.keys) < 0) return fmt::format("keys: expected i32[S], got {}", args.keys.describe());
  if (length(args.ends) < 0) return fmt::format("ends: expected i32[T], got {}", args.ends.describe());
  return first_of({reject_count("keys", length(args.keys)), reject_count("ends", length(args.ends)),
                   reject_indices("keys", args.keys, length(args.keys)),
                   reject_optional_indices("order", args.order, length(args.keys)),
                   reject_indices("ends", args.ends, length(args.ends))});
}

std::string reject(const Widen& args) {
  const std::int64_t count = length(args.from);
  if (std::string reason = reject_indices("from", args.from, count); !reason.empty()) return reason;
  if (length(args.to) != count || args.to.dtype != DType::i64 || !args.to.contiguous())
    return fmt::format("to: expected i64[{}], got {}", count, args.to.describe());
  return reject_count("from", count);
}

std::string reject(const RowCounts& args) {
  const std::int64_t count = length(args.row_ends);
  if (std::string reason = reject_indices("row_ends", args.row_ends, count); !reason.empty()) return reason;
  const bool ints = args.counts.dtype == DType::i32 || args.counts.dtype == DType::i64;
  if (length(args.counts) != count || !ints || !args.counts.contiguous())
    return fmt::format("counts: expected i32 or i64[{}], got {}", count, args.counts.describe());
  return reject_count("row_ends", count);
}

std::string reject(const ValidRows& args) {
  const std::int64_t experts = length(args.row_ends), rows = length(args.slots);
  if (experts < 1) return fmt::format("row_ends: expected i32[E], got {}", args.row_ends.describe());
  if (rows < 0) return fmt::format("slots: expected i32[R], got {}", args.slots.describe());
  if (args.rows_per_expert < 0 || (args.rows_per_expert > 0 && rows != experts * args.rows_per_expert))
    return fmt::format("slots: {} rows of {} experts with room for {} each", rows, experts, args.rows_per_expert);
  return first_of({reject_count("slots", rows), reject_indices("row_ends", args.row_ends, experts),
                   reject_indices("slots", args.slots, rows)});
}

std::string reject(const Expect& args) {
  const std::int64_t count = length(args.got);
  return first_of({reject_count("got", count), reject_indices("got", args.got, count),
                   reject_indices("expected", args.expected, count), reject_indices("fault", args.fault, 4)});
}

void enqueue(StreamView stream, const Narrow& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_narrow", submit, args.from,
                 args.from.size_bytes() + args.to.size_bytes(), args.from, args.row_ends, args.to, args.fault,
                 kernel_args(args));
}

void enqueue(StreamView stream, const ColumnOrder& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_column_order", submit, args.out, args.out.size_bytes(),
                 args.out, kernel_args(args));
}

void enqueue(StreamView stream, const SortedRouting& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_sorted_routing", submit, args.ids,
                 6 * args.sorted_slots.size_bytes(), args.sorted_slots, args.ids, args.row_idx, args.source_row,
                 args.expanded_row_idx, args.expanded_expert_idx, args.fault, kernel_args(args));
}

void enqueue(StreamView stream, const Histogram& args, Submit submit) {
  require_no(reject(args));
  enqueue_fill(stream, args.counts.buffer.slice(0, args.counts.size_bytes()), 0, {submit.wait, nullptr});
  launch_indices(stream, source::index_vectors, "index_vectors_histogram", {{}, submit.done}, args.keys,
                 args.keys.size_bytes() + args.counts.size_bytes(), args.keys, args.counts, kernel_args(args));
}

void enqueue(StreamView stream, const KeyCounts& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_key_counts", submit, args.keys,
                 args.keys.size_bytes() + 2 * args.counts.size_bytes(), args.keys, args.counts, kernel_args(args));
}

void enqueue(StreamView stream, const GroupOfRow& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_group_of_row", submit, args.groups,
                 args.row_ends.size_bytes() + args.groups.size_bytes(), args.row_ends, args.groups, kernel_args(args));
}

void enqueue(StreamView stream, const KeyEnds& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_key_ends", submit, args.ends,
                 args.keys.size_bytes() + args.ends.size_bytes(), args.keys, args.order, args.ends, kernel_args(args));
}

void enqueue(StreamView stream, const Widen& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_widen", submit, args.from,
                 args.from.size_bytes() + args.to.size_bytes(), args.from, args.to, kernel_args(args));
}

void enqueue(StreamView stream, const RowCounts& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_row_counts", submit, args.row_ends,
                 args.row_ends.size_bytes() + args.counts.size_bytes(), args.row_ends, args.counts, kernel_args(args));
}

void enqueue(StreamView stream, const ValidRows& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_valid_rows", submit, args.slots,
                 args.row_ends.size_bytes() + args.slots.size_bytes(), args.row_ends, args.slots, kernel_args(args));
}

void enqueue(StreamView stream, const Expect& args, Submit submit) {
  require_no(reject(args));
  launch_indices(stream, source::index_vectors, "index_vectors_expect", submit, args.got, 2 * args.got.size_bytes(),
                 args.got, args.expected, args.fault, kernel_args(args));
}

}  // namespace moecl::index_vectors
