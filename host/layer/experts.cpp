#include "host/layer/experts.hpp"

#include <moecl/clblast_gemm.hpp>
#include <moecl/context.hpp>
#include <moecl/grouped_gemm.hpp>

#include <algorithm>
#include <cstring>
#include <optional>

#include "host/layer/expert_bytes.hpp"
#include "runtime/check.hpp"

namespace moecl {

const char* name(ResidencyPolicy policy) noexcept {
  switch (policy) {
    case ResidencyPolicy::lru:
      return "lru";
    case ResidencyPolicy::least_stale:
      return "least-stale";
    case ResidencyPolicy::fixed:
      break;
  }
  return "static";
}

const char* name(MissedExperts missed) noexcept {
  switch (missed) {
    case MissedExperts::fetched:
      return "fetched";
    case MissedExperts::in_place:
      return "in-place";
    case MissedExperts::automatic:
      break;
  }
  return "auto";
}

namespace {

/// [E * rows_per_expert, N] as [E, rows_per_expert, N].
TensorView by_expert(const TensorView& rows, std::int64_t rows_per_expert) {
  return TensorView(rows.buffer, rows.dtype, {rows.shape[0] / rows_per_expert, rows_per_expert, rows.shape[1]});
}

std::vector<float> of_each(const std::vector<ExpertMatrices>& experts, float ExpertMatrices::*input_scale) {
  std::vector<float> scales;
  for (const ExpertMatrices& expert : experts) scales.push_back(expert.*input_scale);
  return scales;
}

ProductRows as_product_rows(const RoutedRows& rows) {
  ProductRows product = rows.x;
  product.scale = rows.x_scale;
  product.group = rows.x_group;
  return product;
}

/// The memory of one expert's rows.
BufferView bytes_of(const TensorView& all, std::int64_t number) {
  const TensorView one = all.rows(number, 1);
  return one.buffer.slice(0, one.size_bytes());
}

/// The same memory as the same number of rows with other columns.
TensorView with_columns(const TensorView& rows, std::int64_t columns, DType dtype = DType::f32) {
  return TensorView(rows.buffer, dtype, {rows.shape[0], columns});
}

}  // namespace

Experts::Experts(StreamView stream, const MoeShape& shape, const std::vector<ExpertMatrices>& experts,
                 const MoeLayerOptions& options, dense_backend::Backend batched_backend)
    : shape_(shape), dtype_(options.dtype), quantize_(options.quantize) {
  const std::optional<CodeRows> rows = code_rows(options.activations);
  const bool by_clblast = options.layout == ExpertLayout::batched && batched_backend == dense_backend::Backend::clblast;
  if (by_clblast && options.panel_layout)
    fail(ErrorCode::unsupported, "layout of weights: CLBlast reads no panels, got {}", name(*options.panel_layout));
  if (by_clblast)
    batched_ = allocate_batched_experts(stream, shape);
  else
    segments_ = allocate_experts(stream, shape, experts, dtype_, quantize_,
                                 rows ? RowKind{rows->codes, rows->group} : RowKind{dtype_}, options.budget,
                                 options.panel_layout);
  plan_waves(stream.device->caps);
  if (experts.empty()) return;
  const bool codes = !segments_.empty();
  const DeviceCaps& caps = stream.device->caps;
  if (codes) rounded_ = grouped_gemm::row_dtype(segments_.front().down.type(), dtype_, caps);
  const auto quant = [&](float ExpertMatrices::*scale) {
    return RowQuant(stream, options.activations, of_each(experts, scale), codes, rounded_);
  };
  input_quant_ = quant(&ExpertMatrices::gate_up_input_scale);
  activated_quant_ = quant(&ExpertMatrices::down_input_scale);
  if (!activated_quant_.present()) activated_dtype_ = rounded_;
  kept_bytes_ = caps.type == DeviceType::cpu ? UINT64_MAX : 4 * caps.cache_bytes;  // a CPU reads f32 fastest
}

// f16 is never used: its range may be too small for the sums.
DType Experts::result_dtype(std::int64_t rows) const noexcept {
  constexpr std::int64_t long_sums = 512;
  const auto bytes = static_cast<std::uint64_t>(rows * shape_.hidden) * size_bytes(DType::f32);
  return rounded_ == DType::bf16 && dtype_ == DType::bf16 && shape_.intermediate >= long_sums && bytes > kept_bytes_
             ? DType::bf16
             : DType::f32;
}

void Experts::expect(const std::vector<ExpertMatrices>& experts) const {
  if (experts.empty()) return;
  if (!batched_.gate_up.present()) return expect_experts(segments_, experts, dtype_, quantize_);
  for (const ExpertMatrices& expert : experts)
    for (const WeightMatrix* matrix : {&expert.gate, &expert.up, &expert.down})
      require(!matrix->quantized() && (!matrix->present() || matrix->plain.column_stride == 1),
              "experts: stored row by row for CLBlast, got {}", matrix->quantized() ? "codes" : "a transposed matrix");
}

QuantizationError Experts::load(WeightUpload& upload, const std::vector<ExpertMatrices>& experts,
                                const LoadProgress& progress) {
  if (experts.empty()) return {};
  turns_.begin(upload.stream());
  input_quant_.load(upload, of_each(experts, &ExpertMatrices::gate_up_input_scale));
  activated_quant_.load(upload, of_each(experts, &ExpertMatrices::down_input_scale));
  std::optional<DeviceQuantizer> quantizer;
  if (quantize_.quantized()) quantizer.emplace(upload.stream(), quantize_);
  if (batched_.gate_up.present())
    load_experts(upload, batched_, experts, progress);
  else
    load_experts(upload, segments_, experts, quantizer ? &*quantizer : nullptr, progress);
  return quantizer ? quantizer->error() : QuantizationError();
}

QuantizationError Experts::load(WeightUpload& upload, std::int64_t number, const ExpertMatrices& expert) {
  turns_.begin(upload.stream());
  input_quant_.load(upload, number, {expert.gate_up_input_scale});
  activated_quant_.load(upload, number, {expert.down_input_scale});
  if (batched_.gate_up.present()) {
    load_expert(upload, batched_, number, expert);
    return {};
  }
  const bool biased = segments_.front().down.biased();
  require(expert.down_bias.present() == biased, "expert down bias: there is {} to replace", biased ? "one" : "none");
  std::optional<DeviceQuantizer> quantizer;
  if (quantize_.quantized()) quantizer.emplace(upload.stream(), quantize_);
  load_expert(upload, segments_, number, expert, quantizer ? &*quantizer : nullptr);
  return quantizer ? quantizer->error() : QuantizationError();
}

const ExpertSegment& Experts::segment_of(std::int64_t number) const {
  return *std::find_if(segments_.begin(), segments_.end(),
                       [&](const ExpertSegment& segment) { return number < segment.first_expert + segment.experts; });
}

std::string Experts::packing() const {
  const bool biased = !segments_.empty() && segments_.front().gate_up.biased(),
             down_biased = !segments_.empty() && segments_.front().down.biased();
  return fmt::format("{} [{}, {}] and [{}, {}]{}{}{}: {}{}", batched_.gate_up.present() ? "rows" : "panels",
                     product_width(), shape_.hidden, shape_.hidden, shape_.intermediate,
                     shape_.activation.gated ? ", gated" : "", biased ? ", biased" : "",
                     down_biased ? ", down biased" : "", format(),
                     input_quant_.parts(0).empty() ? "" : ", static scales of inputs");
}

std::vector<BufferView> Experts::parts(std::int64_t number) const {
  std::vector<BufferView> parts;
  const auto add = [&](const std::vector<BufferView>& more) { parts.insert(parts.end(), more.begin(), more.end()); };
  add(input_quant_.parts(number));
  add(activated_quant_.parts(number));
  if (batched_.gate_up.present()) {
    for (const TensorView* all : {&batched_.gate_up, &batched_.down}) parts.push_back(bytes_of(*all, number));
    return parts;
  }
  const ExpertSegment& segment = segment_of(number);
  add(segment.gate_up.parts(number - segment.first_expert));
  add(segment.down.parts(number - segment.first_expert));
  return parts;
}

PlainExpert Experts::plain(StreamView stream, std::int64_t number) const {
  DeviceWeights::Plain gate_up, down;
  if (batched_.gate_up.present()) {
    const auto read = [&](const TensorView& all) {
      const std::vector<std::byte> bytes = read_bytes(stream, {bytes_of(all, number)});
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    };
    gate_up.matrix = read(batched_.gate_up);
    down.matrix = read(batched_.down);
  } else {
    const ExpertSegment& segment = segment_of(number);
    gate_up = segment.gate_up.plain(stream, number - segment.first_expert);
    down = segment.down.plain(stream, number - segment.first_expert);
  }
  // Rows of gate precede those of up.
  const auto gate_of = [&](std::vector<float>& both) {
    if (!shape_.activation.gated || both.empty()) return std::vector<float>();
    const auto half = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
    std::vector<float> gate(both.begin(), half);
    both.erase(both.begin(), half);
    return gate;
  };
  PlainExpert plain;
  plain.gate = gate_of(gate_up.matrix);
  plain.gate_bias = gate_of(gate_up.bias);
  plain.up = std::move(gate_up.matrix);
  plain.up_bias = std::move(gate_up.bias);
  plain.down = std::move(down.matrix);
  plain.down_bias = std::move(down.bias);
  return plain;
}

Experts::Layout::Layout(WorkspaceLayout& workspace, const Experts& experts, std::int64_t source_rows, std::int64_t rows,
                        DType result_dtype)
    : product_rows(workspace.add(DType::f32, {rows, std::max(experts.product_width(), experts.shape_.hidden)})),
      activated_rows(workspace.add(experts.activated_dtype_, {rows, experts.shape_.intermediate})),
      result(result_dtype),
      input(workspace, experts.input_quant_, experts.input_quant_.is_by_expert() ? rows : source_rows,
            experts.shape_.hidden, false),
      activated(workspace, experts.activated_quant_, rows, experts.shape_.intermediate, true) {}

void Experts::plan_waves(const DeviceCaps& caps) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const ExpertSegment& segment = segments_[i];
    whole_.push_back({i, 0, segment.experts});
    if (!segment.gate_up.in_slots()) continue;
    // While products read one half of the slots, copies fill the other. CPUs would copy with the cores that multiply.
    const std::int64_t slots = segment.gate_up.cache().slot_count();
    in_halves_ = slots > 1 && caps.type != DeviceType::cpu;
    const std::int64_t each = in_halves_ ? slots / 2 : slots;
    for (std::int64_t first = 0; first < segment.experts; first += each)
      in_turn_.push_back(
          {i, first, std::min(each, segment.experts - first), static_cast<std::size_t>(first / each % 2)});
  }
}

bool Experts::in_waves(std::int64_t most_rows) const noexcept {
  return !in_turn_.empty() && std::min(segments_.front().experts, most_rows) > resident();
}

void Experts::claim(StreamView stream, const RoutedRows& rows) const {
  for (const ExpertSegment& segment : segments_)
    if (segment.gate_up.limited()) segment.gate_up.cache().claim(stream, rows.row_ends, {0, segment.experts});
}

std::optional<WaveCopies> Experts::wave_copies(StreamView stream, bool in_turn) const {
  if (!in_turn || !in_halves_) return std::nullopt;
  // Made only when a pass needs it: with several queues, some drivers launch kernels one after the other.
  if (copies_.view().queue == nullptr) copies_ = Stream::beside(stream);
  return WaveCopies(stream, copies_);
}

void Experts::bring(StreamView stream, std::optional<WaveCopies>& copies, const Wave& wave,
                    DeviceWeights ExpertSegment::*weights, const RoutedRows& rows, std::int64_t most_rows) const {
  const ExpertCache& cache = (segments_[wave.segment].*weights).cache();
  const std::int64_t half = cache.slot_count() / 2;
  ExpertCache::Part part{wave.first, wave.count};
  if (copies) part.first_slot = static_cast<std::int64_t>(wave.half) * half, part.slots = half;
  const auto enqueue = [&](StreamView on) {
    cache.claim(on, rows.row_ends, part);
    cache.fetch(on, cache, std::min(wave.count, most_rows));
  };
  copies ? copies->bring(wave.half, enqueue) : enqueue(stream);
}

grouped_gemm::Args Experts::product_of(const Wave& wave, DeviceWeights ExpertSegment::*weights, bool in_turn,
                                       const RoutedRows& rows, const ProductRows& a, bool dispatched,
                                       TensorView out) const {
  grouped_gemm::Args args;
  args.a = a.rows;
  args.a_scale = a.scale;
  args.a_group = a.group;
  if (dispatched) {
    args.a_index = rows.index;
    args.index_divisor = rows.index_divisor;
  }
  const ExpertSegment& segment = segments_[wave.segment];
  args.first_expert = segment.first_expert;
  if ((segment.*weights).in_slots())
    (segment.*weights).multiply(args, claimed(wave, weights, in_turn), wave.first, wave.count);
  else
    (segment.*weights).multiply(args);
  args.row_ends = rows.row_ends;
  args.rows_per_expert = rows.rows_per_expert;
  args.out = out;
  return args;
}

// The products also take the garbage rows past an expert's count. Nothing reads their results.
void Experts::run_batched(StreamView stream, const RoutedRows& rows, const ProductRows& a, const AfterProduct& after,
                          const ProductRows& down_in, TensorView down, ExpertPlans& plans) const {
  const auto product = [&](const TensorView& x, const TensorView& weights, const TensorView& out) {
    clblast_gemm::enqueue(stream, {by_expert(x, rows.rows_per_expert), weights, by_expert(out, rows.rows_per_expert)});
  };
  product(a.rows, batched_.gate_up, after.activation.x);
  enqueue(stream, after, plans);
  product(down_in.rows, batched_.down, down);
}

TensorView Experts::run(StreamView stream, const RoutedRows& rows, Counts counts, const Layout& layout,
                        BufferView workspace, ExpertPlans& plans, TensorView out) const {
  const TensorView products = tensor_in(workspace, layout.product_rows),
                   down = out.present() ? out : with_columns(products, shape_.hidden, layout.result);
  AfterProduct after;
  after.activation.x = with_columns(products, product_width());
  after.activation.row_ends = rows.row_ends;
  after.activation.rows_per_expert = rows.rows_per_expert;
  after.activation.activation = shape_.activation;
  after.activation.out = tensor_in(workspace, layout.activated_rows);

  const RowQuant::Valid valid{rows.row_ends, rows.rows_per_expert};
  const bool by_expert = input_quant_.is_by_expert() && !rows.x_scale.present();
  ProductRows x = as_product_rows(rows);
  if (!rows.x_scale.present()) {  // x is not quantized yet
    // In the experts' order, rows past the valid ones may be garbage. Rows to gather from are tokens, and all valid.
    RowQuant::Valid of_x = rows.index.present() && !by_expert ? RowQuant::Valid() : valid;
    if (by_expert) of_x.index = rows.index, of_x.index_divisor = rows.index_divisor;
    x = input_quant_.run(stream, rows.x, of_x, layout.input, workspace, plans.input);
  }
  const RowQuant::Step next = activated_quant_.step(after.activation.out, valid, layout.activated, workspace);
  after.codes = next.args;
  if (batched_.gate_up.present()) {
    run_batched(stream, rows, x, after, next.rows, down, plans);
    return down;
  }
  const bool in_turn = in_waves(counts.most);
  const std::vector<Wave>& waves = in_turn ? in_turn_ : whole_;
  if (limited()) turns_.begin(stream);
  if (torn_ || in_turn) forget(stream);  // waves take slots in expert order, whichever expert has them
  torn_ = limited();
  if (!in_turn) claim(stream, rows);
  const auto before = [&](std::optional<WaveCopies>& copies, const Wave& wave, DeviceWeights ExpertSegment::*weights) {
    const DeviceWeights& of = segments_[wave.segment].*weights;
    if (in_turn) return bring(stream, copies, wave, weights, rows, counts.most);
    if (of.in_slots()) of.cache().fetch(stream, claimed(wave, weights, false), std::min(wave.count, counts.most));
  };
  const auto first = [&](std::size_t i) {
    return product_of(waves[i], &ExpertSegment::gate_up, in_turn, rows, x, !by_expert, after.activation.x);
  };
  std::optional<WaveCopies> copies = wave_copies(stream, in_turn);
  const grouped_gemm::Config config{{}, {counts.expected, rows.row_ends.shape[0]}};
  enqueue_activated(stream, waves.size(), first, after, config, plans,
                    [&](std::size_t i) { before(copies, waves[i], &ExpertSegment::gate_up); });
  const auto second = [&](const Wave& wave) {
    return product_of(wave, &ExpertSegment::down, in_turn, rows, next.rows, false, down);
  };
  const Device& device = *stream.device;
  const auto decide = [&] {
    std::vector<grouped_gemm::Plan> made;
    for (const Wave& wave : waves) made.push_back(grouped_gemm::plan(second(wave), config, device));
    return made;
  };
  with_next_variant(stream, [&] {
    const auto planned = plans.second.find(device, decide);
    for (std::size_t i = 0; i < waves.size(); ++i) {
      before(copies, waves[i], &ExpertSegment::down);
      grouped_gemm::enqueue(stream, (*planned)[i], second(waves[i]));
    }
  });
  if (in_turn) forget(stream);
  torn_ = false;
  if (limited()) turns_.end(stream);
  return down;
}

void Experts::prefetch(StreamView stream, TensorView row_ends, std::int64_t rows) const {
  if (!limited()) return;
  const ExpertSegment& all = segments_.front();
  if (std::min(all.experts, rows) > resident()) return;
  turns_.begin(stream);
  if (torn_) forget(stream);
  torn_ = true;
  const ExpertCache& claimed = all.gate_up.cache();
  claimed.claim(stream, row_ends, {.first = 0, .count = all.experts, .foreseen = true});
  for (const DeviceWeights* weights : {&all.gate_up, &all.down})
    weights->cache().fetch(stream, claimed, std::min(all.experts, rows));
  torn_ = false;
  turns_.end(stream);
}

std::optional<Experts::Products> Experts::products(const RoutedRows& rows, const Layout& layout,
                                                   BufferView workspace) const {
  const bool quantizes = input_quant_.present();
  if (segments_.size() != 1 || limited() ||
      (quantizes && !(input_quant_.gives_codes() && activated_quant_.gives_codes())))
    return std::nullopt;
  const TensorView activated = tensor_in(workspace, layout.activated_rows),
                   down = with_columns(tensor_in(workspace, layout.product_rows), shape_.hidden, layout.result);
  const RowQuant::Step of_activated = activated_quant_.step(activated, {}, layout.activated, workspace);
  Products both;
  both.activated = of_activated.args;
  const Wave& all = whole_.front();
  both.gate_up = product_of(all, &ExpertSegment::gate_up, false, rows, as_product_rows(rows), true, activated);
  both.gate_up.activation = shape_.activation;
  both.down = product_of(all, &ExpertSegment::down, false, rows, of_activated.rows, false, down);
  return both;
}

std::uint64_t Experts::weight_bytes() const noexcept {
  std::uint64_t bytes = batched_.gate_up_memory.size_bytes() + batched_.down_memory.size_bytes();
  for (const ExpertSegment& segment : segments_) bytes += segment.gate_up.size_bytes() + segment.down.size_bytes();
  return bytes;
}

std::string Experts::layout() const {
  if (segments_.empty()) return batched_.gate_up.present() ? "row_major" : "";
  return joined_formats(name(segments_.front().gate_up.layout()), name(segments_.front().down.layout()));
}

std::string Experts::layout_reason() const {
  if (segments_.empty()) return batched_.gate_up.present() ? "what CLBlast reads" : "";
  const ExpertSegment& first = segments_.front();
  return joined_formats(grouped_gemm::why(first.gate_up.layout()), grouped_gemm::why(first.down.layout()));
}

namespace {
std::uint64_t room_of(const BufferView& part) { return (part.size_bytes + 63) / 64 * 64; }
}  // namespace

std::uint64_t Experts::expert_bytes() const {
  if (segments_.empty() && !batched_.gate_up.present()) return 0;
  std::uint64_t bytes = 0;
  for (const BufferView& part : parts(0)) bytes += room_of(part);
  return bytes;
}

void Experts::copy_out(StreamView stream, std::int64_t number, BufferView to) const {
  std::uint64_t at = 0;
  for (const BufferView& part : parts(number)) {
    enqueue_copy(stream, part, to.slice(at, part.size_bytes));
    at += room_of(part);
  }
}

void Experts::copy_in(StreamView stream, std::int64_t number, BufferView from) {
  turns_.begin(stream);
  std::uint64_t at = 0;
  for (const BufferView& part : parts(number)) {
    enqueue_copy(stream, from.slice(at, part.size_bytes), part);
    at += room_of(part);
  }
  forget(stream);
  if (limited()) turns_.end(stream);
}

void Experts::forget(StreamView stream) const {
  for (const ExpertSegment& segment : segments_) {
    segment.gate_up.cache().forget(stream);
    segment.down.cache().forget(stream);
  }
}

std::int64_t Experts::resident() const noexcept {
  std::int64_t experts = 0;
  for (const ExpertSegment& segment : segments_)
    experts += segment.gate_up.limited() ? segment.gate_up.cache().slot_count() : segment.experts;
  return experts;
}

std::uint64_t Experts::resident_bytes() const noexcept {
  if (!limited()) return weight_bytes();
  const ExpertSegment& only = segments_.front();
  return static_cast<std::uint64_t>(resident()) *
         (only.gate_up.cache().expert_bytes() + only.down.cache().expert_bytes());
}

std::string Experts::missed() const {
  if (!limited()) return {};
  return name(segments_.front().gate_up.in_slots() ? MissedExperts::fetched : MissedExperts::in_place);
}

ResidencyCounts Experts::residency(StreamView stream) const {
  if (!limited()) return {};
  const ExpertSegment& only = segments_.front();
  ResidencyCounts counts = only.gate_up.cache().counts(stream);  // the second product uses the same experts
  counts.fetched_bytes +=
      static_cast<std::uint64_t>(counts.misses + counts.prefetched) * only.down.cache().expert_bytes();
  return counts;
}

std::string Experts::format() const {
  if (segments_.empty()) return batched_.gate_up.present() ? name(batched_.gate_up.dtype) : "";
  return joined_formats(segments_.front().gate_up.format(), segments_.front().down.format());
}

}  // namespace moecl
