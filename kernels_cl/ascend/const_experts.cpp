#include <moecl/const_experts.hpp>

#include "kernels_cl/ascend/const_experts_args.h"
#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource const_experts;
}

namespace moecl::const_experts {
namespace {

const_experts_args kernel_args(const Args& args) {
  return {.x_first = first_element(args.x),
          .alpha_1_first = first_element(args.alpha_1),
          .alpha_2_first = first_element(args.alpha_2),
          .v_first = first_element(args.v),
          .rows_first = first_element(args.rows),
          .x_stride = args.x.stride[0],
          .tokens = int_of(args.x.shape[0]),
          .hidden = int_of(args.x.shape[1]),
          .wide = args.alpha_1.rank == 2,
          .pad = 0};
}

}  // namespace

std::string reject(const Args& args, const Device& /*device*/) {
  if (args.x.rank != 2 || !is_activation_dtype(args.x.dtype))
    return fmt::format("x: expected float [T, H], got {}", args.x.describe());
  const std::int64_t tokens = args.x.shape[0], hidden = args.x.shape[1], experts = args.v.shape[0];
  const auto is_matrix = [&](const TensorView& view, DType dtype, std::int64_t rows) {
    return view.rank == 2 && view.dtype == dtype && view.shape[0] == rows && view.shape[1] == hidden &&
           view.contiguous();
  };
  if (!is_matrix(args.v, args.x.dtype, experts))
    return fmt::format("v: expected {}[C, {}], got {}", name(args.x.dtype), hidden, args.v.describe());
  for (const TensorView* alpha : {&args.alpha_1, &args.alpha_2})
    if (alpha->rank != args.alpha_1.rank ||
        !(alpha->rank == 1 ? alpha->dtype == args.x.dtype && alpha->shape[0] == experts
                           : is_matrix(*alpha, args.x.dtype, experts)))
      return fmt::format("alpha: expected {}[{}] or [{}, {}], got {}", name(args.x.dtype), experts, experts, hidden,
                         alpha->describe());
  if (!is_matrix(args.rows, DType::f32, (1 + experts) * tokens))
    return fmt::format("rows: expected f32[{}, {}], got {}", (1 + experts) * tokens, hidden, args.rows.describe());
  return reject_width("x", hidden);
}

LaunchPlan plan(const Args& args, const Device& device) {
  const std::string reason = reject(args, device);
  require(reason.empty(), "const_experts: {}", reason);
  const std::int32_t lanes = row_lanes(0, device.caps);
  const auto local = static_cast<std::size_t>(lanes);
  return {lanes == 1 ? "row_per_item" : "row_per_group",
          fmt::format("-DLANES={}{}", lanes, dtype_option("X_DTYPE", args.x)),
          {static_cast<std::size_t>(args.rows.shape[0]) * local, row_groups(lanes, args.x.shape[1]), 1},
          {local, 1, 1},
          args.rows.describe(),
          {args.rows.size_bytes(), 2 * static_cast<std::uint64_t>(args.rows.elements())}};
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit) {
  launch_planned(stream, source::const_experts, "const_experts", plan, submit, args.x, args.alpha_1, args.alpha_2,
                 args.v, args.rows, kernel_args(args));
}

void enqueue(StreamView stream, const Args& args, Submit submit) {
  enqueue(stream, plan(args, *stream.device), args, submit);
}

}  // namespace moecl::const_experts
