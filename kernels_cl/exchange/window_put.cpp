#include <moecl/device.hpp>
#include <moecl/window_put.hpp>

#include <algorithm>

#include "kernels_cl/common/index_view.hpp"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource window_put;
}

namespace moecl::window_put {
namespace {

/// A row is divided so that few of them occupy all compute units, into no less than this.
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

/// The widest copy that all places of such rows are aligned to.
std::int32_t unit_of(std::uint64_t odd) { return odd % 16 == 0 ? 16 : odd % 4 == 0 ? 4 : 1; }

/// Its rows as bytes.
TensorView as_bytes(const TensorView& view) {
  if (!view.present()) return {};
  return {view.buffer, DType::u8, {static_cast<std::int64_t>(view.size_bytes())}};
}

std::string options(const DeviceCaps& caps) {
  return fmt::format("-DLANES={} -DSTEP_SIGNAL={}{}", caps.type == DeviceType::cpu ? 16 : 256, step_signal,
                     caps.nv_compute_capability >= 70 ? " -DSYSTEM_SCOPE" : "");
}

/// Work-groups, and in how many parts they take a row. A few groups for each compute unit keep a link full; each costs
/// a fence at its end.
struct Grid {
  std::int64_t parts;
  NdRange range;

  Grid(const DeviceCaps& caps, std::int64_t rows, std::int64_t bytes) {
    const bool cpu = caps.type == DeviceType::cpu;
    const std::int64_t units = caps.compute_units, enough = (2 * units + rows - 1) / std::max<std::int64_t>(rows, 1);
    const std::int64_t most = std::clamp<std::int64_t>(bytes / least_part_bytes, 1, most_parts);
    parts = cpu ? 1 : std::clamp<std::int64_t>(enough, 1, most);
    const auto groups = static_cast<std::size_t>(
        std::clamp<std::int64_t>(rows * parts, 1, std::min<std::int64_t>(cpu ? units : 8 * units, step_signal - 1)));
    const std::size_t lanes = cpu ? 16 : 256;
    range = {{groups * lanes, 1, 1}, {lanes, 1, 1}};
  }
};

/// Launches with what all kernels that put end with.
/// @param rows  that go somewhere, at most
void launch_put(StreamView stream, const char* kernel, const char* variant, const Submit& submit, std::uint64_t bytes,
                std::int64_t rows, const TensorView& codes, const TensorView& scale, const Windows& to,
                const auto&... args) {
  const std::int64_t code_bytes = row_bytes(codes), scale_bytes = row_bytes(scale);
  const Grid grid(stream.device->caps, rows, code_bytes);
  const std::string defines = options(stream.device->caps);
  launch(stream, {&source::window_put, defines, kernel}, grid.range, submit,
         {source::window_put.name, variant, codes.describe(), bytes, 0}, args..., to.addresses, to.late, to.fault,
         int_of(to.addresses.shape[0]), to.rank, int_of(to.capacity), to.step, to.patience, to.codes_at, to.scale_at,
         int_of(code_bytes), unit_of(static_cast<std::uint64_t>(code_bytes) | codes.buffer.offset_bytes | to.codes_at),
         int_of(scale_bytes),
         unit_of(static_cast<std::uint64_t>(scale_bytes) | scale.buffer.offset_bytes | to.scale_at),
         int_of(grid.parts));
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
       reject_indices("homes", args.homes, args.ids.elements())});
}

std::string reject(const Combine& args) {
  if (std::string reason = reject_slot_rows(args.slot_rows, args.top_k, args.to); !reason.empty()) return reason;
  if (args.codes.rank < 1 || !args.codes.contiguous())
    return fmt::format("codes: expected contiguous rows, got {}", args.codes.describe());
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
  launch_put(stream, "window_put_dispatch", "dispatch", submit, cost(args).bytes, args.ids.shape[0], args.codes,
             args.scale, args.to, args.ids, args.weights, as_bytes(args.codes), as_bytes(args.scale), args.homes,
             int_of(args.ids.shape[0]), int_of(args.ids.shape[1]), args.first_expert, args.experts,
             std::int32_t{args.sums}, args.ids_at, args.weights_at);
}

void enqueue(StreamView stream, const Combine& args, Submit submit) {
  require_no(reject(args));
  launch_put(stream, "window_put_combine", "combine", submit, cost(args).bytes, args.codes.shape[0], args.codes,
             args.scale, args.to, args.slot_rows, as_bytes(args.codes), as_bytes(args.scale), args.top_k);
}

void enqueue(StreamView stream, const Sum& args, Submit submit) {
  require_no(reject(args));
  launch_put(stream, "window_put_sum", "sum", submit, cost(args).bytes, args.slot_rows.shape[0] / args.top_k, args.rows,
             {}, args.to, args.slot_rows, args.weights, args.rows, args.top_k);
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
