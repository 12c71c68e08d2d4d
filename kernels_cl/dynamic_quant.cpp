#include <moecl/dynamic_quant.hpp>

#include "kernels_cl/launch_shape.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

namespace moecl::source {
extern const ProgramSource dynamic_quant;
}

namespace moecl::dynamic_quant {

std::string reject(const Args& args, const Config& config, const DeviceCaps& caps) {
  if (args.x.rank != 2 || !is_activation_dtype(args.x.dtype))
    return fmt::format("x: expected float [N, H], got {}", args.x.describe());
  const std::int64_t rows = args.x.shape[0], hidden = args.x.shape[1];
  if (args.q.rank != 2 || args.q.dtype != DType::i8 || args.q.shape[0] != rows || args.q.shape[1] != hidden)
    return fmt::format("q: expected i8[{}, {}], got {}", rows, hidden, args.q.describe());
  if (args.scale.rank != 1 || args.scale.dtype != DType::f32 || args.scale.shape[0] != rows)
    return fmt::format("scale: expected f32[{}], got {}", rows, args.scale.describe());
  if (std::string reason = reject_row_ends(args.row_ends, args.rows_per_expert, rows); !reason.empty()) return reason;
  if (std::string reason = reject_width("x", hidden); !reason.empty()) return reason;
  return reject_lanes(config.lanes, caps);
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const std::string reason = reject(args, config, stream.device->caps);
  require(reason.empty(), "dynamic_quant: {}", reason);
  const std::int32_t lanes = row_lanes(config.lanes, stream.device->caps);
  const auto local = static_cast<std::size_t>(lanes);
  const OperatorCost work = cost(args);
  launch(stream,
         {&source::dynamic_quant, fmt::format("-DLANES={}{}", lanes, dtype_option("X_DTYPE", args.x)), "dynamic_quant"},
         {{static_cast<std::size_t>(args.x.shape[0]) * local, 1, 1}, {local, 1, 1}}, submit,
         {"dynamic_quant", lanes == 1 ? "row_per_item" : "row_per_group", args.x.describe(), work.bytes, work.flops},
         args.x, args.row_ends, args.q, args.scale, args.x.stride[0], args.q.stride[0],
         static_cast<std::int32_t>(args.x.shape[1]),
         static_cast<std::int32_t>(args.row_ends.present() ? args.row_ends.shape[0] : 0), args.rows_per_expert,
         static_cast<std::int32_t>(args.rounding));
}

OperatorCost cost(const Args& args) {
  // A comparison, a division and a rounding for each element.
  return {args.x.size_bytes() + args.q.size_bytes() + args.scale.size_bytes(),
          3 * static_cast<std::uint64_t>(args.x.elements())};
}

}  // namespace moecl::dynamic_quant
