#include <moecl/physical_experts.hpp>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/routing/physical_experts_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource physical_experts;
}

namespace moecl::physical_experts {
namespace {

std::string reject_matrix(const char* what, const TensorView& view, std::int64_t rows, std::int64_t columns) {
  if (view.rank == 2 && view.dtype == DType::i32 && view.shape[0] == rows && view.shape[1] == columns &&
      view.contiguous())
    return {};
  return fmt::format("{}: expected contiguous i32[{}, {}], got {}", what, rows, columns, view.describe());
}

physical_experts_args kernel_args(const Args& args) {
  return {.ids_first = first_element(args.ids),
          .places_first = first_element(args.places),
          .replicas_first = first_element(args.replicas),
          .weights_first = first_element(args.weights),
          .physical_first = first_element(args.physical),
          .placed_weights_first = first_element(args.placed_weights),
          .fault_first = first_element(args.fault),
          .count = int_of(args.ids.elements()),
          .top_k = int_of(args.ids.shape[1]),
          .experts = int_of(args.places.shape[0]),
          .most_replicas = int_of(args.places.shape[1]),
          .first_token = static_cast<std::int32_t>(args.first_token),
          .expected = args.expected,
          .refuses = args.refuses,
          .pad = 0};
}

}  // namespace

std::string reject(const Args& args) {
  if (args.first_token < 0) return fmt::format("first_token: {} is negative", args.first_token);
  const std::int64_t experts = args.places.shape[0];
  if (args.places.rank != 2 || experts < 1 || args.places.shape[1] < 1)
    return fmt::format("places: expected i32[E, most replicas], got {}", args.places.describe());
  if (args.ids.elements() > most_indices || args.places.elements() > most_indices)
    return fmt::format("ids, places: the elements of {} or {} pass int32", args.ids.describe(), args.places.describe());
  if (args.weights.present() != args.placed_weights.present())
    return fmt::format("weights and placed_weights: expected both or neither, got {} and {}", args.weights.describe(),
                       args.placed_weights.describe());
  if (args.expected < 0 || args.expected > experts)
    return fmt::format("expected: {} of {} experts", args.expected, experts);
  for (const auto& [what, view] : {std::pair("weights", &args.weights), {"placed_weights", &args.placed_weights}})
    if (view->present() &&
        (view->dtype != DType::f32 || view->rank != 2 || view->shape != args.ids.shape || !view->contiguous()))
      return fmt::format("{}: expected contiguous f32[{}, {}], got {}", what, args.ids.shape[0], args.ids.shape[1],
                         view->describe());
  return first_of({reject_matrix("ids", args.ids, args.ids.shape[0], args.ids.shape[1]),
                   reject_matrix("places", args.places, experts, args.places.shape[1]),
                   reject_indices("replicas", args.replicas, experts),
                   reject_matrix("physical", args.physical, args.ids.shape[0], args.ids.shape[1]),
                   reject_optional_indices("fault", args.fault, 4)});
}

void enqueue(StreamView stream, const Args& args, Submit submit) {
  const std::string reason = reject(args);
  require(reason.empty(), "physical_experts: {}", reason);
  launch_indices(stream, source::physical_experts, "physical_experts_t0", submit, args.ids, cost(args).bytes, args.ids,
                 args.places, args.replicas, args.weights, args.physical, args.placed_weights, args.fault,
                 kernel_args(args));
}

OperatorCost cost(const Args& args) { return {3 * args.ids.size_bytes() + args.replicas.size_bytes(), 0}; }

}  // namespace moecl::physical_experts
