#include <moecl/combine.hpp>

#include <algorithm>
#include <limits>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/common/launch_shape.hpp"
#include "kernels_cl/common/planned_launch.hpp"
#include "kernels_cl/rows/combine_args.h"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource combine;
}

namespace moecl::combine {

namespace {

/// Slots per token, if all tokens have equally many.
std::int64_t slots_each(const Args& args) {
  return args.out.shape[0] == 0 ? 0 : args.slot_rows.shape[0] / args.out.shape[0];
}

bool is_float_matrix(const TensorView& view, std::int64_t rows, std::int64_t columns) {
  return view.rank == 2 && is_activation_dtype(view.dtype) && view.shape[0] == rows && view.shape[1] == columns;
}

std::string reject_slots(const Args& args, std::int64_t tokens) {
  if (args.slot_rows.rank != 1 || args.slot_rows.dtype != DType::i32 ||
      (tokens != 0 && !args.slot_ends.present() && args.slot_rows.shape[0] % tokens != 0))
    return fmt::format("slot_rows: expected i32[T * K] with T = {}, got {}", tokens, args.slot_rows.describe());
  if (std::string reason = reject_optional_indices("slot_ends", args.slot_ends, tokens); !reason.empty()) return reason;
  if (args.slot_ends.present() && (args.column_slots || args.bias.present()))
    return "slot_ends: go with neither column_slots nor bias";
  if (!args.weights.present()) return {};
  const bool a_row = args.slot_ends.present();
  const TensorView& weights = args.weights;
  const bool shaped =
      a_row ? weights.rank == 1 && weights.shape[0] == args.rows.shape[0]
            : weights.rank == 2 && weights.shape[0] == tokens && (tokens == 0 || weights.shape[1] == slots_each(args));
  if (shaped && is_activation_dtype(weights.dtype)) return {};
  return a_row ? fmt::format("weights: expected float [{}], got {}", args.rows.shape[0], weights.describe())
               : fmt::format("weights: expected float [{}, {}], got {}", tokens, slots_each(args), weights.describe());
}

std::string reject_bias(const Args& args, std::int64_t tokens, std::int64_t hidden) {
  if (args.bias.present() != args.bias_ids.present()) return "bias, bias_ids: expected both or neither";
  if (!args.bias.present()) return {};
  if (!is_float_matrix(args.bias, args.bias.shape[0], hidden))
    return fmt::format("bias: expected float [E, {}], got {}", hidden, args.bias.describe());
  if (args.bias_ids.rank != 2 || args.bias_ids.dtype != DType::i32 || args.bias_ids.shape[0] != tokens ||
      (tokens != 0 && args.bias_ids.shape[1] != slots_each(args)))
    return fmt::format("bias_ids: expected i32[{}, {}], got {}", tokens, slots_each(args), args.bias_ids.describe());
  return {};
}

std::string reject_shared(const Args& args, std::int64_t tokens, std::int64_t hidden) {
  const TensorView& shared = args.shared;
  if (!shared.present()) {
    if (args.shared_gate.present()) return "shared_gate: needs shared";
    return args.residual.present() ? "residual: needs shared" : std::string();
  }
  const bool some = args.slot_ends.present() && args.shared_token >= 0;
  const std::int64_t rows = some ? std::min(shared.shape[0], tokens - args.shared_token) : tokens;
  if (!some && args.shared_token != 0) return fmt::format("shared_token: {} needs slot_ends", args.shared_token);
  if (!is_float_matrix(shared, rows, hidden))
    return fmt::format("shared: expected float [{}, {}], got {}", rows, hidden, shared.describe());
  if (args.shared_gate.present() && (args.shared_gate.rank != 2 || args.shared_gate.dtype != DType::f32 ||
                                     args.shared_gate.shape[0] != tokens || args.shared_gate.shape[1] != 1))
    return fmt::format("shared_gate: expected f32[{}, 1], got {}", tokens, args.shared_gate.describe());
  if (args.residual.present() &&
      (!is_float_matrix(args.residual, tokens, hidden) || args.residual.dtype != shared.dtype))
    return fmt::format("residual: expected {}[{}, {}], got {}", name(shared.dtype), tokens, hidden,
                       args.residual.describe());
  return {};
}

std::string reject_rows(const Args& args, std::int64_t hidden) {
  const TensorView &rows = args.rows, &scale = args.rows_scale;
  if (!scale.present())
    return is_float_matrix(rows, rows.shape[0], hidden)
               ? std::string()
               : fmt::format("rows: expected float [R, {}], got {}", hidden, rows.describe());
  if (rows.rank != 2 || rows.dtype != DType::i8 || rows.shape[1] != hidden || hidden % 8 != 0)
    return fmt::format("rows: expected i8[R, {}] of whole groups of 8 beside rows_scale, got {}", hidden,
                       rows.describe());
  if (!is_float_matrix(scale, rows.shape[0], hidden / 8) || !scale.contiguous())
    return fmt::format("rows_scale: expected float [{}, {}], got {}", rows.shape[0], hidden / 8, scale.describe());
  return {};
}

combine_args kernel_args(const Args& args) {
  const std::int64_t tokens = args.out.shape[0], top_k = slots_each(args);
  // Row numbers are int32. Rows past that range cannot be reached.
  const std::int64_t reach = std::numeric_limits<std::int32_t>::max();
  return {.rows_first = first_element(args.rows),
          .rows_scale_first = first_element(args.rows_scale),
          .slot_rows_first = first_element(args.slot_rows),
          .slot_ends_first = first_element(args.slot_ends),
          .weights_first = first_element(args.weights),
          .bias_first = first_element(args.bias),
          .bias_ids_first = first_element(args.bias_ids),
          .shared_first = first_element(args.shared),
          .shared_gate_first = first_element(args.shared_gate),
          .residual_first = first_element(args.residual),
          .active_first = first_element(args.active),
          .out_first = first_element(args.out),
          .rows_stride = args.rows.stride[0],
          .weights_stride = args.weights.stride[0],
          .bias_stride = args.bias.stride[0],
          .bias_ids_stride = args.bias_ids.stride[0],
          .shared_stride = args.shared.stride[0],
          .shared_gate_stride = args.shared_gate.stride[0],
          .residual_stride = args.residual.stride[0],
          .out_stride = args.out.stride[0],
          .token_slots = args.column_slots ? 1 : top_k,
          .k_slots = args.column_slots ? tokens : 1,
          .row_count = int_of(std::min(args.rows.shape[0], reach)),
          .slot_count = int_of(args.slot_rows.shape[0]),
          .top_k = int_of(top_k),
          .hidden = int_of(args.out.shape[1]),
          .bias_count = int_of(args.bias.shape[0]),
          .shared_token = int_of(args.shared_token),
          .shared_count = int_of(args.shared.shape[0]),
          .skip_zero_weights = args.skip_zero_weights,
          .pad = 0,
          .shared_scale = args.shared_scale};
}

}  // namespace

std::string reject(const Args& args, const Config& config, const Device& device) {
  if (args.out.rank != 2 || !is_activation_dtype(args.out.dtype))
    return fmt::format("out: expected float [T, H], got {}", args.out.describe());
  const std::int64_t tokens = args.out.shape[0], hidden = args.out.shape[1];
  for (const std::string& reason :
       {reject_rows(args, hidden), reject_optional_indices("active", args.active, tokens), reject_slots(args, tokens),
        reject_bias(args, tokens, hidden), reject_shared(args, tokens, hidden), reject_width("out", hidden)})
    if (!reason.empty()) return reason;
  return reject_lanes(config.lanes, device.caps);
}

LaunchPlan plan(const Args& args, const Config& config, const Device& device) {
  const std::string reason = reject(args, config, device);
  require(reason.empty(), "combine: {}", reason);
  const std::int32_t lanes = tuned_lanes("combine", config.lanes, device);
  const auto local = static_cast<std::size_t>(lanes);
  const std::int64_t tokens = args.out.shape[0], hidden = args.out.shape[1];
  // The type of an absent tensor does not matter. A default type saves programs.
  const std::string options =
      fmt::format("-DLANES={}{}{} -DWEIGHTS_DTYPE={}{} -DBIAS={} -DBIAS_DTYPE={} -DROWS_SCALED={} -DSCALE_DTYPE={}",
                  lanes, dtype_option("ROWS_DTYPE", args.rows), dtype_option("OUT_DTYPE", args.out),
                  name(args.weights.present() ? args.weights.dtype : DType::f32),
                  dtype_option("SHARED_DTYPE", args.shared.present() ? args.shared : args.out),
                  args.bias.present() ? 1 : 0, name(args.bias.present() ? args.bias.dtype : DType::f32),
                  args.rows_scale.present() ? 1 : 0,
                  name(args.rows_scale.present() ? args.rows_scale.dtype : DType::f32)) +
      fours_option(lanes, {&args.rows, &args.bias, &args.shared, &args.residual, &args.out});
  return {lanes == 1 ? "row_per_item" : "row_per_group",
          options,
          {static_cast<std::size_t>(tokens) * local, row_groups(lanes, hidden), 1},
          {local, 1, 1},
          fmt::format("{} to {}", args.rows.describe(), args.out.describe()),
          cost(args)};
}

void enqueue(StreamView stream, const LaunchPlan& plan, const Args& args, Submit submit) {
  launch_planned(stream, source::combine, "combine", plan, submit, args.rows, args.rows_scale, args.slot_rows,
                 args.slot_ends, args.weights, args.bias, args.bias_ids, args.shared, args.shared_gate, args.residual,
                 args.active, args.out, kernel_args(args));
}

void enqueue(StreamView stream, const Args& args, const Config& config, Submit submit) {
  const auto made = [&] { return plan(args, config, *stream.device); };
  enqueue(stream,
          *kept_plan(stream, source::combine, made, args.rows, args.rows_scale, args.slot_rows, args.column_slots,
                     args.slot_ends, args.weights, args.bias, args.bias_ids, args.shared, args.shared_gate,
                     args.shared_token, args.residual, args.active, args.out, config.lanes),
          args, submit);
}

OperatorCost cost(const Args& args) {
  const auto tokens = static_cast<std::uint64_t>(args.out.shape[0]),
             hidden = static_cast<std::uint64_t>(args.out.shape[1]);
  const auto slots = static_cast<std::uint64_t>(args.slot_rows.shape[0]);
  OperatorCost work{slots * (4 + hidden * size_bytes(args.rows.dtype)) + tokens * hidden * size_bytes(args.out.dtype),
                    2 * slots * hidden};
  for (const TensorView* view : {&args.weights, &args.slot_ends, &args.bias, &args.bias_ids, &args.residual})
    work.bytes += view->size_bytes();
  if (args.shared.present()) {
    work.bytes += args.shared.size_bytes() + (args.shared_gate.present() ? args.shared_gate.size_bytes() : 0);
    work.flops += 2 * tokens * hidden;
  }
  return work;
}

}  // namespace moecl::combine
