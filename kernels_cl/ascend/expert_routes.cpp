#include <moecl/expert_routes.hpp>

#include <limits>

#include "kernels_cl/ascend/expert_routes_args.h"
#include "kernels_cl/common/index_view.hpp"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource expert_routes;
}

namespace moecl::expert_routes {
namespace {

std::string reject_matrix(const char* what, const TensorView& view, DType dtype, std::int64_t rows,
                          std::int64_t columns) {
  if (view.rank == 2 && view.dtype == dtype && view.shape[0] == rows && view.shape[1] == columns && view.contiguous())
    return {};
  return fmt::format("{}: expected contiguous {}[{}, {}], got {}", what, name(dtype), rows, columns, view.describe());
}

std::string reject_experts(const Args& args) {
  for (const std::int32_t count : {args.zero_experts, args.copy_experts, args.const_experts, args.shared_experts,
                                   args.shared_ranks, args.rank, args.experts - 1})
    if (count < 0) return fmt::format("experts: {} of them, a count or the rank is negative", args.experts);
  const std::int64_t all =
      std::int64_t{args.experts} + args.zero_experts + args.copy_experts + args.const_experts + args.shared_ranks;
  if (all > std::numeric_limits<std::int32_t>::max()) return fmt::format("experts: {} pass int32", all);
  if ((args.shared_experts == 0) != (args.shared_ranks == 0) ||
      (args.shared_experts != 0 && args.shared_ranks % args.shared_experts != 0))
    return fmt::format("shared_experts: {} on {} ranks do not have as many each", args.shared_experts,
                       args.shared_ranks);
  return {};
}

std::string reject_outputs(const Args& args, std::int64_t tokens, std::int64_t columns) {
  std::string reason = reject_matrix("owners", args.owners, DType::i32, tokens, columns);
  if (reason.empty()) reason = reject_optional_indices("smooth_rows", args.smooth_rows, tokens * columns);
  if (reason.empty()) reason = reject_optional_indices("active", args.active, tokens);
  if (reason.empty()) reason = reject_optional_indices("fault", args.fault, 4);
  if (reason.empty() && args.special_rows.present())
    reason = reject_matrix("special_rows", args.special_rows, DType::i32, tokens, columns);
  if (reason.empty() && args.row_weights.present())
    reason = reject_matrix("row_weights", args.row_weights, DType::f32, tokens, columns);
  return reason;
}

expert_routes_args kernel_args(const Args& args) {
  return {.expert_ids_first = first_element(args.expert_ids),
          .mask_first = first_element(args.mask),
          .weights_first = first_element(args.weights),
          .owners_first = first_element(args.owners),
          .smooth_rows_first = first_element(args.smooth_rows),
          .row_weights_first = first_element(args.row_weights),
          .special_rows_first = first_element(args.special_rows),
          .active_first = first_element(args.active),
          .fault_first = first_element(args.fault),
          .count = int_of(args.expert_ids.shape[0]),
          .top_k = int_of(args.expert_ids.shape[1]),
          .pair_mask = args.mask.rank == 2,
          .experts = args.experts,
          .zero_experts = args.zero_experts,
          .copy_experts = args.copy_experts,
          .const_experts = args.const_experts,
          .shared_experts = args.shared_experts,
          .shared_ranks = args.shared_ranks,
          .rank = args.rank};
}

}  // namespace

std::string reject(const Args& args) {
  if (args.expert_ids.rank != 2 || args.expert_ids.dtype != DType::i32 || !args.expert_ids.contiguous())
    return fmt::format("expert_ids: expected contiguous i32[T, K], got {}", args.expert_ids.describe());
  const std::int64_t tokens = args.expert_ids.shape[0], top_k = args.expert_ids.shape[1];
  const TensorView& mask = args.mask;
  if (mask.present() && (mask.dtype != DType::boolean || !mask.contiguous() || mask.rank > 2 ||
                         mask.shape[0] != tokens || (mask.rank == 2 && mask.shape[1] != top_k)))
    return fmt::format("mask: expected bool[{}] or bool[{}, {}], got {}", tokens, tokens, top_k, mask.describe());
  if (args.row_weights.present())
    if (std::string reason = reject_matrix("weights", args.weights, DType::f32, tokens, top_k); !reason.empty())
      return reason;
  if (std::string reason = reject_experts(args); !reason.empty()) return reason;
  if (tokens * (top_k + args.shared_experts) > most_indices ||
      tokens * (std::int64_t{1} + args.const_experts) > most_indices)
    return fmt::format("expert_ids: the slots of {} pass int32", args.expert_ids.describe());
  return reject_outputs(args, tokens, top_k + args.shared_experts);
}

void enqueue(StreamView stream, const Args& args, Submit submit) {
  const std::string reason = reject(args);
  require(reason.empty(), "expert_routes: {}", reason);
  launch_indices(stream, source::expert_routes, "expert_routes_t0", submit, args.expert_ids,
                 args.expert_ids.size_bytes() + args.owners.size_bytes(), args.expert_ids, args.mask, args.weights,
                 args.owners, args.smooth_rows, args.row_weights, args.special_rows, args.active, args.fault,
                 kernel_args(args));
}

}  // namespace moecl::expert_routes
