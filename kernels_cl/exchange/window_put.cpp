#include <moecl/device.hpp>
#include <moecl/window_put.hpp>

#include <algorithm>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/exchange/window_put_args.h"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::source {
extern const ProgramSource window_put;
}

namespace moecl::window_put {
namespace {

static_assert(step_signal == STEP_SIGNAL);

/// A row is divided into parts, so that few rows occupy all compute units. Limits: bytes of a part, parts of a row.
constexpr std::int64_t least_part_bytes = 4096, most_parts = 8;

std::string reject_rows(const char* what, const TensorView& view, std::int64_t rows) {
  if (view.rank >= 1 && view.contiguous() && view.shape[0] == rows) return {};
  return fmt::format("{}: expected {} contiguous rows, got {}", what, rows, view.describe());
}

std::string reject_matrix(const char* what, const char* shape, const TensorView& view, DType dtype) {
  if (view.rank == 2 && view.shape[1] >= 1 && view.dtype == dtype && view.contiguous()) return {};
  return fmt::format("{}: expected contiguous {}{}, got {}", what, name(dtype), shape, view.describe());
}

std::string reject(const Windows& to, std::int64_t top_k) {
  if (to.addresses.rank != 1 || to.addresses.dtype != DType::i64 || !to.addresses.contiguous() ||
      to.addresses.shape[0] < 1 || to.addresses.shape[0] > most_ranks)
    return fmt::format("addresses: expected i64[R] of at most {} ranks, got {}", most_ranks, to.addresses.describe());
  const std::int64_t ranks = to.addresses.shape[0];
  if (to.rank < 0 || to.rank >= ranks) return fmt::format("rank: {} is not in [0, {})", to.rank, ranks);
  if (to.capacity < 0 || to.capacity > most_indices / (ranks * top_k * most_parts))
    return fmt::format("capacity: {} tokens for each of {} ranks, top {}, cannot be counted in int32", to.capacity,
                       ranks, top_k);
  return first_of({reject_optional_indices("late", to.late, 4), reject_optional_indices("fault", to.fault, 4)});
}

std::string reject_slot_rows(const TensorView& slot_rows, std::int32_t top_k, const Windows& to) {
  if (top_k < 1) return fmt::format("top_k: {} is not positive", top_k);
  if (std::string reason = reject(to, top_k); !reason.empty()) return reason;
  return reject_indices("slot_rows", slot_rows, to.addresses.shape[0] * to.capacity * top_k);
}

std::int64_t row_bytes(const TensorView& view) {
  return view.present() ? (view.rank == 2 ? view.shape[1] : 1) * static_cast<std::int64_t>(size_bytes(view.dtype)) : 0;
}

/// The widest access, in bytes, that is aligned in all rows. @param odd  bitwise or of row size and byte offsets
std::int32_t unit_of(std::uint64_t odd) { return odd % 16 == 0 ? 16 : odd % 4 == 0 ? 4 : 1; }

/// The rows of `view` as a vector of bytes.
TensorView as_bytes(const TensorView& view) {
  if (!view.present()) return {};
  return {view.buffer, DType::u8, {static_cast<std::int64_t>(view.size_bytes())}};
}

constexpr std::size_t lanes_of_cpu = 16, lanes_of_gpu = 256;

/// The strings are made once: a warm launch formats nothing.
std::string_view options(const DeviceCaps& caps) {
  static const std::string of_cpu = fmt::format("-DLANES={}", lanes_of_cpu),
                           of_gpu = fmt::format("-DLANES={}", lanes_of_gpu), of_nvidia = of_gpu + " -DSYSTEM_SCOPE";
  return caps.type == DeviceType::cpu ? of_cpu : caps.nv_compute_capability >= 70 ? of_nvidia : of_gpu;
}

/// The number of work-groups, and of parts per row. A few groups per compute unit keep a link full. Each group costs a
/// fence at its end.
struct Grid {
  std::int64_t parts;
  NdRange range;

  Grid(const DeviceCaps& caps, std::int64_t rows, std::int64_t bytes) {
    const bool cpu = caps.type == DeviceType::cpu;
    const std::int64_t units = caps.compute_units, enough = quotient_up(2 * units, std::max<std::int64_t>(rows, 1));
    const std::int64_t most = std::clamp<std::int64_t>(bytes / least_part_bytes, 1, most_parts);
    parts = cpu ? 1 : std::clamp<std::int64_t>(enough, 1, most);
    const auto groups = static_cast<std::size_t>(
        std::clamp<std::int64_t>(rows * parts, 1, std::min<std::int64_t>(cpu ? units : 8 * units, step_signal - 1)));
    const std::size_t lanes = cpu ? lanes_of_cpu : lanes_of_gpu;
    range = {{groups * lanes, 1, 1}, {lanes, 1, 1}};
  }
};

/// The arguments that all putting kernels have in common, for rows like those of `codes` and `scale`.
window_put_args put_args(const Windows& to, const Grid& grid, std::int64_t top_k, const TensorView& codes,
                         const TensorView& scale) {
  const std::int64_t code_bytes = row_bytes(codes), scale_bytes = row_bytes(scale);
  return {.addresses_first = first_element(to.addresses),
          .late_first = first_element(to.late),
          .fault_first = first_element(to.fault),
          .patience = static_cast<std::int64_t>(to.patience),
          .codes_at = static_cast<std::int64_t>(to.codes_at),
          .scale_at = static_cast<std::int64_t>(to.scale_at),
          .ranks = int_of(to.addresses.shape[0]),
          .rank = to.rank,
          .capacity = int_of(to.capacity),
          .top_k = int_of(top_k),
          .step = to.step,
          .row_bytes = int_of(code_bytes),
          .row_unit = unit_of(static_cast<std::uint64_t>(code_bytes) | codes.buffer.offset_bytes | to.codes_at),
          .scale_bytes = int_of(scale_bytes),
          .scale_unit = unit_of(static_cast<std::uint64_t>(scale_bytes) | scale.buffer.offset_bytes | to.scale_at),
          .parts = int_of(grid.parts)};
}

window_put_dispatch_args kernel_args(const Dispatch& args, const Grid& grid) {
  return {.put = put_args(args.to, grid, args.ids.shape[1], args.codes, args.scale),
          .ids_first = first_element(args.ids),
          .weights_first = first_element(args.weights),
          .codes_first = first_element(as_bytes(args.codes)),
          .scale_first = first_element(as_bytes(args.scale)),
          .return_rows_first = first_element(args.return_rows),
          .ids_at = static_cast<std::int64_t>(args.ids_at),
          .weights_at = static_cast<std::int64_t>(args.weights_at),
          .tokens = int_of(args.ids.shape[0]),
          .first_expert = args.first_expert,
          .experts = args.experts,
          .sums = args.sums};
}

window_put_combine_args kernel_args(const Combine& args, const Grid& grid) {
  return {.put = put_args(args.to, grid, args.top_k, args.codes, args.scale),
          .slot_rows_first = first_element(args.slot_rows),
          .codes_first = first_element(as_bytes(args.codes)),
          .scale_first = first_element(as_bytes(args.scale)),
          .of_tokens = args.of_tokens,
          .pad = 0};
}

window_put_sum_args kernel_args(const Sum& args, const Grid& grid) {
  return {.put = put_args(args.to, grid, args.top_k, args.rows, {}),
          .slot_rows_first = first_element(args.slot_rows),
          .weights_first = first_element(args.weights),
          .rows_first = first_element(args.rows)};
}

void launch_put(StreamView stream, const char* kernel, const Grid& grid, const Submit& submit, std::uint64_t bytes,
                const TensorView& codes, const auto&... operands) {
  launch(stream, {&source::window_put, options(stream.device->caps), kernel}, grid.range, submit,
         {source::window_put.name, kernel + sizeof("window_put"),
          stream.trace != nullptr ? codes.describe() : std::string(), bytes, 0},
         operands...);
}

void require_no(const std::string& reason) { require(reason.empty(), "window_put: {}", reason); }

}  // namespace

std::string reject(const Dispatch& args) {
  if (std::string reason = reject_matrix("ids", "[T, K]", args.ids, DType::i32); !reason.empty()) return reason;
  const std::int64_t tokens = args.ids.shape[0], top_k = args.ids.shape[1];
  if (args.first_expert < 0 || args.experts < 1 || args.experts > most_indices - args.first_expert)
    return fmt::format("experts: {} from {} on", args.experts, args.first_expert);
  if (args.ids_at % sizeof(std::int32_t) != 0 || args.weights_at % sizeof(float) != 0)
    return fmt::format("ids_at, weights_at: {} and {} are no multiples of 4", args.ids_at, args.weights_at);
  if (std::string reason = reject(args.to, top_k); !reason.empty()) return reason;
  if (tokens > args.to.capacity) return fmt::format("ids: {} tokens in slabs of {}", tokens, args.to.capacity);
  if (args.weights.present() && args.weights.shape != args.ids.shape)
    return fmt::format("weights: expected f32[{}, {}], got {}", tokens, top_k, args.weights.describe());
  return first_of(
      {args.weights.present() ? reject_matrix("weights", "[T, K]", args.weights, DType::f32) : std::string(),
       reject_rows("codes", args.codes, tokens),
       args.scale.present() ? reject_rows("scale", args.scale, tokens) : std::string(),
       reject_indices("return_rows", args.return_rows, args.ids.elements())});
}

std::string reject(const Combine& args) {
  if (std::string reason = reject_slot_rows(args.slot_rows, args.top_k, args.to); !reason.empty()) return reason;
  if (args.codes.rank < 1 || !args.codes.contiguous())
    return fmt::format("codes: expected contiguous rows, got {}", args.codes.describe());
  if (args.of_tokens && args.codes.shape[0] != args.slot_rows.shape[0] / args.top_k)
    return fmt::format("codes: expected {} rows, one a token, got {}", args.slot_rows.shape[0] / args.top_k,
                       args.codes.describe());
  return args.scale.present() ? reject_rows("scale", args.scale, args.codes.shape[0]) : std::string();
}

std::string reject(const Sum& args) {
  if (std::string reason = reject_slot_rows(args.slot_rows, args.top_k, args.to); !reason.empty()) return reason;
  const std::int64_t tokens = args.slot_rows.shape[0] / args.top_k;
  if (args.weights.present() && (args.weights.rank != 2 || args.weights.shape[0] != tokens ||
                                 args.weights.shape[1] != args.top_k || args.weights.dtype != DType::f32))
    return fmt::format("weights: expected f32[{}, {}], got {}", tokens, args.top_k, args.weights.describe());
  return reject_matrix("rows", "[rows, H]", args.rows, DType::f32);
}

std::string reject(const Address& args) {
  if (args.addresses.rank != 1 || args.addresses.dtype != DType::i64 || args.rank < 0 ||
      args.rank >= args.addresses.shape[0])
    return fmt::format("rank: {} has no place in {}", args.rank, args.addresses.describe());
  return args.memory.handle != nullptr ? "" : "memory: there is none";
}

OperatorCost cost(const Dispatch& args) {
  const std::uint64_t rows = args.codes.size_bytes() + args.scale.size_bytes(),
                      slots = args.ids.size_bytes() + args.weights.size_bytes();
  return {(rows + slots) * static_cast<std::uint64_t>(1 + args.to.addresses.shape[0]), 0};
}
OperatorCost cost(const Combine& args) { return {2 * (args.codes.size_bytes() + args.scale.size_bytes()), 0}; }
OperatorCost cost(const Sum& args) {
  const auto places = static_cast<std::uint64_t>(args.slot_rows.shape[0] / args.top_k);
  return {args.rows.size_bytes() + places * static_cast<std::uint64_t>(row_bytes(args.rows)), 0};
}

void enqueue(StreamView stream, const Dispatch& args, Submit submit) {
  require_no(reject(args));
  const Grid grid(stream.device->caps, args.ids.shape[0], row_bytes(args.codes));
  launch_put(stream, "window_put_dispatch", grid, submit, cost(args).bytes, args.codes, args.ids, args.weights,
             args.codes, args.scale, args.return_rows, args.to.addresses, args.to.late, args.to.fault,
             kernel_args(args, grid));
}

void enqueue(StreamView stream, const Combine& args, Submit submit) {
  require_no(reject(args));
  const Grid grid(stream.device->caps, args.codes.shape[0], row_bytes(args.codes));
  launch_put(stream, "window_put_combine", grid, submit, cost(args).bytes, args.codes, args.slot_rows, args.codes,
             args.scale, args.to.addresses, args.to.late, args.to.fault, kernel_args(args, grid));
}

void enqueue(StreamView stream, const Sum& args, Submit submit) {
  require_no(reject(args));
  const Grid grid(stream.device->caps, args.slot_rows.shape[0] / args.top_k, row_bytes(args.rows));
  launch_put(stream, "window_put_sum", grid, submit, cost(args).bytes, args.rows, args.slot_rows, args.weights,
             args.rows, args.to.addresses, args.to.late, args.to.fault, kernel_args(args, grid));
}

void enqueue(StreamView stream, const Address& args, Submit submit) {
  require_no(reject(args));
  const TensorView memory(args.memory, DType::u8, {static_cast<std::int64_t>(args.memory.size_bytes)});
  const window_put_address_args given{.memory_first = first_element(memory),
                                      .addresses_first = first_element(args.addresses),
                                      .rank = args.rank,
                                      .pad = 0};
  launch(stream, {&source::window_put, options(stream.device->caps), "window_put_address"}, {}, submit,
         {source::window_put.name, "address", args.addresses.describe(), sizeof(std::int64_t), 0}, memory,
         args.addresses, given);
}

}  // namespace moecl::window_put
