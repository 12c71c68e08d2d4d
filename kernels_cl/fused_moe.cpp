#include <moecl/fused_moe.hpp>

#include <algorithm>
#include <atomic>
#include <random>

#include "kernels_cl/gating_args.hpp"
#include "kernels_cl/grouped_gemm_variants.hpp"
#include "kernels_cl/sort_args.hpp"
#include "runtime/check.hpp"

namespace moecl::source {
extern const ProgramSource fused_moe;
}

namespace moecl::fused_moe {
namespace {

/// Slots that their number leaves bits for: SLOT_BITS.
constexpr std::int64_t most_slots = 1 << 11;
constexpr std::int64_t most_tokens = 64, panel = PackedWeights::panel_columns, tile_panels = 2;
/// Of K, whose sums are parts of the logits: the same everywhere, so that results are.
constexpr std::int64_t slice_k = 64;
constexpr const char *nv_sm80 = "nv_sm80", *t0 = "t0";

const char* select(const Config& config) { return config.variant == t0 ? t0 : nv_sm80; }

/// How a launch is cut.
struct Shape {
  bool tensor_cores;
  expert_sort::Lanes lanes;
  std::int64_t tile_rows, stages, tile_slots, slices, groups;
  std::uint64_t routing_bytes, local_bytes;

  Shape(std::int64_t tokens, std::int64_t hidden, std::int64_t experts, const RouterSpec& spec, const Config& config,
        const DeviceCaps& caps)
      : tensor_cores(select(config) == nv_sm80),
        lanes(tensor_cores ? expert_sort::Lanes{128, 4} : expert_sort::Lanes{1}),
        tile_rows(tokens <= 16   ? 16
                  : tokens <= 32 ? 32
                                 : 64),
        stages(tile_rows == 64 ? 3 : 4),
        tile_slots((tile_rows * std::max(spec.top_k, 1) + 3) / 4 * 4),
        slices((hidden + slice_k - 1) / slice_k),
        routing_bytes(gating_top_k::local_bytes(gating_top_k::team_words(experts, spec), lanes.count, lanes.teams)) {
    const std::uint64_t stage_bytes =
        tensor_cores ? grouped_gemm::stage_bytes(static_cast<std::uint64_t>(tile_rows), tile_panels) : 0;
    constexpr std::uint64_t logits_bytes = 8 * 8 * panel * sizeof(float), small_bytes = 64;
    local_bytes = std::max({static_cast<std::uint64_t>(stages) * stage_bytes, logits_bytes, routing_bytes,
                            static_cast<std::uint64_t>(2 * tile_slots) * sizeof(std::int32_t)}) +
                  static_cast<std::uint64_t>(tile_rows * (tile_panels * panel + 4)) * sizeof(float) +
                  static_cast<std::uint64_t>(2 * tile_slots + 2 * experts) * sizeof(std::int16_t) + small_bytes;
    groups = config.groups > 0 ? config.groups : tensor_cores ? resident_groups(caps) : 1;
  }

 private:
  /// One a compute unit reads as fast with few rows and meets sooner.
  std::int64_t resident_groups(const DeviceCaps& caps) const {
    constexpr std::uint64_t of_driver = 1024;  // local memory of each work-group
    const bool two = tile_rows > 16 && 2 * (local_bytes + of_driver) <= caps.static_local_mem_bytes + of_driver;
    return std::int64_t{caps.compute_units} * (two ? 2 : 1);
  }
};

/// Parts of the logits, and the stamps of the work-groups.
struct Scratch {
  std::uint64_t parts_bytes, words_bytes;

  Scratch(std::int64_t tokens, std::int64_t experts, const Shape& shape)
      : parts_bytes(aligned(shape.slices * tokens * experts * 4)), words_bytes(aligned(shape.groups * 8)) {}
  std::uint64_t total() const { return parts_bytes + words_bytes; }

 private:
  static std::uint64_t aligned(std::int64_t bytes) { return (static_cast<std::uint64_t>(bytes) + 255) / 256 * 256; }
};

bool same(const TensorView& x, const TensorView& y) {
  return x.buffer.handle == y.buffer.handle && x.offset_elements() == y.offset_elements() && x.dtype == y.dtype;
}

/// Why these are not the steps of one layer.
std::string unconnected(const Args& args) {
  if (!same(args.router.a, args.gate_up.a)) return "router and experts have other tokens";
  if (!same(args.router.out, args.gating.logits)) return "logits: not the router's";
  if (!same(args.gate_up.out, args.down.a)) return "the second product is of other rows";
  if (!same(args.down.out, args.combine.rows) || !same(args.gating.weights, args.combine.weights))
    return "the sum is of other rows or weights";
  return {};
}

std::string unsupported(const Args& args) {
  const DType dtype = args.gate_up.a.dtype;
  if (dtype != DType::f16 && dtype != DType::bf16) return fmt::format("rows are {}", name(dtype));
  const CodeType type = dtype == DType::f16 ? CodeType::f16 : CodeType::bf16;
  for (const grouped_gemm::Args* product : {&args.router, &args.gate_up, &args.down}) {
    if (product->weights.type != type || product->a.dtype != dtype)
      return fmt::format("{} rows meet {} weights", name(product->a.dtype), name(product->weights.type));
    if (product->a_scale.present() || product->weight_scale.present() || product->weights.grouped())
      return "there are scales";
    if (product->rows_per_expert != 0 || product->first_expert != 0) return "experts are batched or in segments";
  }
  if (args.router.row_ends.present() || args.router.a_index.present() || args.router.activation)
    return "the router is no dense product";
  if (!args.gate_up.activation || args.gate_up.out.dtype != dtype) return "the first product is not activated";
  if (args.down.activation || args.down.out.dtype != DType::f32) return "the second product is not plain f32";
  if (args.gate_up.weights.experts != args.gating.logits.shape[1]) return "not all experts are here";
  const combine::Args& combine = args.combine;
  if (combine.column_slots || combine.slot_ends.present() || combine.bias.present() || combine.residual.present() ||
      combine.skip_zero_weights || combine.active.present() || combine.shared_scale != 1 ||
      combine.rows_scale.present())
    return "the sum has more than weights and a shared part";
  return {};
}

bool aligned_to_16_bytes(const TensorView& rows) {
  return grouped_gemm::is_aligned(rows, 16 / static_cast<std::int64_t>(size_bytes(rows.dtype)));
}

/// The first of MEETINGS stamps that no word in memory has, of this process or of others.
std::uint64_t next_stamps() {
  constexpr std::uint32_t meetings = 16;
  static std::atomic<std::uint64_t> next = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | (random() & ~(meetings - 1));
  }();
  return next.fetch_add(meetings);
}

std::int64_t column_stride(const TensorView& vector) { return vector.shape[1] == 1 ? 0 : vector.stride[1]; }

/// MATRICES_ARGS
auto matrices(const grouped_gemm::Args& product) {
  return std::tuple(product.weights.view(), product.bias, product.bias.stride[0], column_stride(product.bias),
                    any_dtype(product.bias.dtype), static_cast<std::int32_t>(product.weights.n),
                    static_cast<std::int32_t>(product.weights.k));
}

}  // namespace

const std::vector<grouped_gemm::Variant>& variants() {
  static const auto* list = new std::vector<grouped_gemm::Variant>{
      {nv_sm80, "NVIDIA tensor cores: 16, 32 or 64 x 128 sums, a work-group a compute unit"}, {t0, "one work-item"}};
  return *list;
}

std::uint64_t scratch_bytes(std::int64_t tokens, std::int64_t hidden, std::int64_t experts, const Config& config,
                            const DeviceCaps& caps) {
  if (tokens > most_tokens) return 0;
  return Scratch(tokens, experts, Shape(tokens, hidden, experts, {}, config, caps)).total();
}

std::string why_apart(const Args& args, const RouterSpec& spec, const Config& config, const DeviceCaps& caps) {
  if (!config.variant.empty() && config.variant != nv_sm80 && config.variant != t0)
    return fmt::format("there is no variant '{}'", config.variant);
  if (select(config) == nv_sm80 && caps.nv_compute_capability < 80)
    return "the device is no NVIDIA GPU of compute capability 8.0";
  // llvmpipe (Mesa 22.3), which takes vectors apart, gives wrong results: its loops end after a step. Why is not known.
  if (select(config) == t0 && caps.preferred_float_width < 4)
    return fmt::format("t0 needs float vectors of at least 4 lanes, the device prefers {}", caps.preferred_float_width);
  const std::int64_t tokens = args.router.a.shape[0], hidden = args.router.a.shape[1];
  if (tokens > most_tokens) return fmt::format("{} tokens are more than {}", tokens, most_tokens);
  if (std::string reason = unsupported(args); !reason.empty()) return reason;
  if (args.gating.ids.elements() > most_slots)
    return fmt::format("{} slots are more than {}", args.gating.ids.elements(), most_slots);
  for (const auto& [step, reason] : {std::pair{"router", grouped_gemm::reject_operands(args.router)},
                                     {"gating", gating_top_k::reject(args.gating, spec, {}, caps)},
                                     {"gate_up", grouped_gemm::reject_operands(args.gate_up)},
                                     {"down", grouped_gemm::reject_operands(args.down)},
                                     {"combine", combine::reject(args.combine, {}, caps)}})
    if (!reason.empty()) return fmt::format("{}: {}", step, reason);
  const Shape shape(tokens, hidden, args.gate_up.weights.experts, spec, config, caps);
  if (static_cast<std::size_t>(shape.lanes.count) > caps.max_work_group_size)
    return fmt::format("{} lanes are more than a work-group of the device has", shape.lanes.count);
  if (shape.local_bytes > caps.static_local_mem_bytes)
    return fmt::format("{} bytes of local memory are needed, the device has {}", shape.local_bytes,
                       caps.static_local_mem_bytes);
  return {};
}

void enqueue(StreamView stream, const Args& args, const RouterSpec& spec, const Config& config, Submit submit) {
  const DeviceCaps& caps = stream.device->caps;
  for (const std::string& reason : {why_apart(args, spec, config, caps), unconnected(args)})
    require(reason.empty(), "fused_moe: {}", reason);
  const TensorView &x = args.router.a, &out = args.combine.out, &shared = args.combine.shared;
  const std::int64_t tokens = x.shape[0], experts = args.gate_up.weights.experts;
  const Shape shape(tokens, x.shape[1], experts, spec, config, caps);
  const Scratch scratch(tokens, experts, shape);
  require(args.scratch.size_bytes >= scratch.total(), "fused_moe: scratch: {} bytes are needed, got {}",
          scratch.total(), args.scratch.size_bytes);
  const TensorView parts(args.scratch.slice(0, scratch.parts_bytes), DType::f32, {shape.slices * tokens * experts}),
      words(args.scratch.slice(scratch.parts_bytes, scratch.words_bytes), DType::i64, {shape.groups});
  const Activation& activation = *args.gate_up.activation;
  std::string options =
      shape.lanes.options() + shuffle_option(shape.lanes.count, caps) + gating_top_k::options(args.gating);
  options += fmt::format(
      " -DTENSOR_CORES={:d} -DGPU_SCOPE={:d} -DTILE_ROWS={} -DSTAGES={} -DROUTING_BYTES={} -DMOST_SLOTS={} "
      "-DEXPERTS={} -DA_DTYPE={} -DW_DTYPE={}{}"
      " -DSUM_DTYPE={} -DFUNCTION={} -DGATED={:d} -DGATE_IS_RIGHT={:d} -DA_ALIGNED={:d}",
      shape.tensor_cores, caps.nv_compute_capability >= 70, shape.tile_rows, shape.stages, shape.routing_bytes,
      shape.tile_slots, experts, name(x.dtype), name(args.gate_up.weights.type),
      dtype_option("SHARED_DTYPE", shared.present() ? shared : out), name(out.dtype), name(activation.function),
      activation.gated, activation.gate_is_right, aligned_to_16_bytes(x) && aligned_to_16_bytes(args.gate_up.out));
  const OperatorCost work = cost(args);
  const auto local = static_cast<std::size_t>(shape.lanes.count);
  std::apply(
      [&](const auto&... given) {
        launch(stream, {&source::fused_moe, options, "fused_moe"},
               {{static_cast<std::size_t>(tokens == 0 ? 0 : shape.groups) * local, 1, 1}, {local, 1, 1}}, submit,
               {"fused_moe", select(config),
                fmt::format("{} top {} of {}[{}, {}, {}]", x.describe(), spec.top_k, name(args.gate_up.weights.type),
                            experts, args.gate_up.weights.n, args.gate_up.weights.k),
                work.bytes, work.flops},
               given...);
      },
      std::tuple_cat(std::tuple(x, x.stride[0], static_cast<std::int32_t>(tokens)), matrices(args.router),
                     std::tuple(static_cast<std::int32_t>(slice_k), parts),
                     gating_top_k::kernel_args(args.gating, spec), matrices(args.gate_up),
                     std::tuple(activation.alpha, activation.effective_limit(), activation.bias, args.gate_up.out,
                                args.gate_up.out.stride[0]),
                     matrices(args.down),
                     std::tuple(args.down.out, args.down.out.stride[0], shared, shared.stride[0],
                                args.combine.shared_gate, args.combine.shared_gate.stride[0], out, out.stride[0], words,
                                next_stamps(), config.patience, args.fault)));
}

OperatorCost cost(const Args& args) {
  OperatorCost all;
  for (const OperatorCost& step :
       {grouped_gemm::cost(args.router), gating_top_k::cost(args.gating), grouped_gemm::cost(args.gate_up),
        grouped_gemm::cost(args.down), combine::cost(args.combine)}) {
    all.bytes += step.bytes;
    all.flops += step.flops;
  }
  return all;
}

}  // namespace moecl::fused_moe
