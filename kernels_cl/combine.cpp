#include <moecl/combine.hpp>

#include <algorithm>
#include <limits>

#include "kernels_cl/launch_shape.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

namespace moecl::source {
extern const ProgramSource combine;
}

namespace moecl::combine {

std::string reject(const Args& args, const Config& config, const DeviceCaps& caps) {
  if (args.out.rank != 2 || !is_activation_dtype(args.out.dtype))
    return fmt::format("out: expected float [T, H], got {}", args.out.describe());
  const std::int64_t tokens = args.out.shape[0], hidden = args.out.shape[1];
  if (args.rows.rank != 2 || args.rows.shape[1] != hidden || !is_activation_dtype(args.rows.dtype))
    return fmt::format("rows: expected float [R, {}], got {}", hidden, args.rows.describe());
  if (args.slot_rows.rank != 1 || args.slot_rows.dtype != DType::i32 ||
      (tokens != 0 && args.slot_rows.shape[0] % tokens != 0))
    return fmt::format("slot_rows: expected i32[T * K] with T = {}, got {}", tokens, args.slot_rows.describe());
  const std::int64_t top_k = tokens == 0 ? 0 : args.slot_rows.shape[0] / tokens;
  if (args.weights.present() && (args.weights.rank != 2 || args.weights.dtype != DType::f32 ||
                                 args.weights.shape[0] != tokens || (tokens != 0 && args.weights.shape[1] != top_k)))
    return fmt::format("weights: expected f32[{}, {}], got {}", tokens, top_k, args.weights.describe());
  if (args.shared.present() && (args.shared.rank != 2 || !is_activation_dtype(args.shared.dtype) ||
                                args.shared.shape[0] != tokens || args.shared.shape[1] != hidden))
    return fmt::format("shared: expected float [{}, {}], got {}", tokens, hidden, args.shared.describe());
  if (args.shared_gate.present() && !args.shared.present()) return "shared_gate: needs shared";
  if (args.shared_gate.present() && (args.shared_gate.rank != 2 || args.shared_gate.dtype != DType::f32 ||
                                     args.shared_gate.shape[0] != tokens || args.shared_gate.shape[1] != 1))
    return fmt::format("shared_gate: expected f32[{}, 1], got {}", tokens, args.shared_gate.describe());
  if (std::string reason = reject_width("out", hidden); !reason.empty()) return reason;
  return reject_lanes(config.lanes, caps);
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const std::string reason = reject(args, config, stream.device->caps);
  require(reason.empty(), "combine: {}", reason);
  const std::int32_t lanes = row_lanes(config.lanes, stream.device->caps);
  const auto local = static_cast<std::size_t>(lanes);
  const std::int64_t tokens = args.out.shape[0], hidden = args.out.shape[1];
  const OperatorCost work = cost(args);
  // Rows are named by int32: those past its range are out of reach.
  const auto rows =
      static_cast<std::uint32_t>(std::min<std::int64_t>(args.rows.shape[0], std::numeric_limits<std::int32_t>::max()));
  // Without a shared part its type does not matter: one program less.
  const std::string options =
      fmt::format("-DLANES={}{}{}{}", lanes, dtype_option("ROWS_DTYPE", args.rows), dtype_option("OUT_DTYPE", args.out),
                  dtype_option("SHARED_DTYPE", args.shared.present() ? args.shared : args.out));
  launch(stream, {&source::combine, options, "combine"},
         {{static_cast<std::size_t>(tokens) * local, row_groups(lanes, hidden), 1}, {local, 1, 1}}, submit,
         {"combine", lanes == 1 ? "row_per_item" : "row_per_group", args.out.describe(), work.bytes, work.flops},
         args.rows, args.slot_rows, args.weights, args.shared, args.shared_gate, args.out, args.rows.stride[0],
         args.weights.stride[0], args.shared.stride[0], args.shared_gate.stride[0], args.out.stride[0], rows,
         static_cast<std::int32_t>(tokens == 0 ? 0 : args.slot_rows.shape[0] / tokens),
         static_cast<std::int32_t>(hidden), std::int32_t{args.skip_zero_weights});
}

OperatorCost cost(const Args& args) {
  const auto tokens = static_cast<std::uint64_t>(args.out.shape[0]),
             hidden = static_cast<std::uint64_t>(args.out.shape[1]);
  const auto slots = static_cast<std::uint64_t>(args.slot_rows.shape[0]);
  OperatorCost work{slots * (4 + hidden * size_bytes(args.rows.dtype)) + tokens * hidden * size_bytes(args.out.dtype),
                    2 * slots * hidden};
  work.bytes += args.weights.present() ? args.weights.size_bytes() : 0;
  if (args.shared.present()) {
    work.bytes += args.shared.size_bytes() + (args.shared_gate.present() ? args.shared_gate.size_bytes() : 0);
    work.flops += 2 * tokens * hidden;
  }
  return work;
}

}  // namespace moecl::combine
