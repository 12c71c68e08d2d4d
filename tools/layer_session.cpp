#include "tools/layer_session.hpp"

#include <moecl/error.hpp>
#include <moecl/layer_weights.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/checkpoint/json_file.hpp"
#include "tools/commands.hpp"
#include "tools/json_numbers.hpp"
#include "tools/routing_record.hpp"

namespace moecl::cli {
namespace {

void refuse_unless(bool condition, const std::string& message) {
  if (!condition) throw Error(ErrorCode::invalid_argument, message);
}

/// Checks the options first, so that contradictions are reported before any file is read.
Checkpoint open_checked(const LayerOptions& options) {
  options.check();
  return Checkpoint::open(options.model_dir, options.router_spec);
}

/// Reads the placement table of a file: one list, or one list for each layer with experts, in order.
PlacementPlan placement_in(const std::string& path, const ModelConfig& model, int layer, std::int32_t experts) {
  const JsonDocument document = read_json_file(path);
  const nlohmann::json* table = find_member(document.root, "physical_to_logical");
  const std::string what = path + ": physical_to_logical";
  const auto fail_unless = [&](bool right, const std::string& message) {
    if (!right) throw Error(ErrorCode::invalid_data, what + ": " + message);
  };
  fail_unless(table != nullptr && table->is_array() && !table->empty(), "expected a list of experts, or of such lists");
  if (table->front().is_array()) {
    std::size_t number = 0;
    for (int before = 0; before < layer; ++before) number += model.has_experts(before);
    fail_unless(number < table->size(), fmt::format("{} lists, layer {} is the {}th with experts (counted from 0)",
                                                    table->size(), layer, number));
    table = &(*table)[number];
  }
  std::vector<std::int32_t> logical_of;
  const std::int32_t places = static_cast<std::int32_t>(table->size());
  append_numbers(logical_of, *table, what, {{places}});
  try {
    PlacementPlan plan = place_as_given(std::move(logical_of), experts);
    plan.reason = "as " + path + " says";
    return plan;
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_data, what + ": " + error.what());
  }
}

/// Numbers between commas, none negative; empty: the text is something else.
std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> numbers;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    double number = 0;
    if (!CLI::detail::lexical_cast(part, number) || !std::isfinite(number) || number < 0) return {};
    numbers.push_back(number);
  }
  return numbers;
}

/// What --act-quant makes of the scheme. Source: vLLM, where weights in blocks have activations in groups
OperandQuant activations_of(const std::string& wanted, QuantScheme scheme) {
  if (wanted == "auto") return scheme.activations;
  if (wanted == "none") return {};
  const bool blocks = scheme.weights.quantized() && scheme.weights.group.rows > 1;
  const ScaleGroup group = blocks ? ScaleGroup::per_group(scheme.weights.group.columns) : ScaleGroup::per_token();
  scheme.activations = wanted == "mxfp8" ? QuantScheme::mx(CodeType::f8_e4m3)
                                         : OperandQuant{wanted == "int8" ? CodeType::i8 : CodeType::f8_e4m3, group};
  const std::string reason = reject(scheme);
  refuse_unless(reason.empty(), "--act-quant " + wanted + ": " + reason);
  return scheme.activations;
}

/// Appends the tensor's elements to `to`. Stops the host.
template <class T>
void append(StreamView stream, const TensorView& tensor, std::vector<T>& to) {
  const std::size_t first = to.size();
  to.resize(first + static_cast<std::size_t>(tensor.elements()));
  read_blocking(stream, tensor.buffer, to.data() + first, tensor.size_bytes());
}

/// The file of "static:FILE" or "auto:FILE"; empty: the text is neither.
std::string record_in(const std::string& residency) {
  for (const char* const before : {"static:", "auto:"})
    if (residency.starts_with(before)) return residency.substr(std::string_view(before).size());
  return {};
}

ExpertBudget budget_of(const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::string number = text.substr(0, text.size() - (percent ? 1 : 0));
  std::size_t read = 0;
  ExpertBudget budget;
  try {
    if (percent)
      budget.percent = std::stod(number, &read);
    else if (number.find_first_not_of("0123456789") == std::string::npos)
      budget.bytes = std::stoull(number, &read);
  } catch (const std::exception&) {  // not a number, or one too large
    read = 0;
  }
  refuse_unless(!number.empty() && read == number.size() &&
                    (percent ? budget.percent > 0 && budget.percent <= 100 : budget.bytes > 0),
                "--memory-budget " + text + ": expected bytes, or P% above 0 and up to 100");
  return budget;
}

}  // namespace

std::vector<std::string> known_schemes() {
  std::vector<std::string> names;
  for (const NamedScheme& named : named_schemes()) names.emplace_back(named.name);
  return names;
}

void LayerOptions::add_to(CLI::App& command) {
  command.add_option("--layer", layer, "decoder layer (default: the first one that has experts)")->type_name("N");
  command.add_option("--router-spec", router_spec, "describe the layer by this file (host/ROUTER_SPEC.md)")
      ->check(file_name())
      ->type_name("FILE.json");
  command
      .add_option_function<std::string>(
          "--dtype", [this](const std::string& text) { dtype = dtype_from_name(text); },
          "storage of activations and weights on the device (default: the checkpoint's own)")
      ->check(one_of({"f32", "f16", "bf16"}));
  command.add_option("--act-quant", act_quant, "activation quantization")
      ->check(one_of({"auto", "none", "int8", "fp8", "mxfp8"}))
      ->capture_default_str();
  command.add_option("--quantize", quantize, "quantize an unquantized checkpoint's experts while loading")
      ->check(one_of(known_schemes()))
      ->type_name("SCHEME");
  command.add_option("--layout", layout, "how weights are packed on the device; `moecl devices` lists layouts")
      ->check(one_of({"auto", "n_major", "k_major", "k_words"}))
      ->capture_default_str();
  command.add_flag("--several-launches", several_launches,
                   "few tokens too: no launch whose work-groups wait for each other");
  command
      .add_option("--shared-queue", shared_queue,
                  "whether the shared experts run beside the routed ones, on a queue of their own")
      ->check(one_of({"auto", "own", "same"}))
      ->capture_default_str();
  RankOptions::add_to(command);
  command.add_option("--tokens-per-rank", tokens_per_rank, "how the tokens are dealt to the dp ranks")
      ->delimiter(',')
      ->type_name("A,B,...");
  command.add_option("--placement", placement, "which experts stand on which rank; a file: as it says")
      ->check([](const std::string& text) {
        return text.ends_with(".json") ? std::string() : one_of({"linear", "round_robin"})(text);
      })
      ->type_name("linear|round_robin|FILE.json")
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--rank-shares",
          [this](const std::string& text) {
            measured_shares = text == "measured";
            rank_shares = measured_shares ? std::vector<double>() : numbers_in(text);
          },
          "experts of each rank in such proportions, for unlike devices; or by what each device does (measured)")
      ->check([](const std::string& text) {
        return text == "measured" || !numbers_in(text).empty() ? std::string()
                                                               : "expected measured, or a number for each rank";
      })
      ->type_name("measured|A,B,...");
  command.add_option("--redundant-experts", redundant_experts, "copies of the first experts, for equal shares")
      ->check(whole_number(0))
      ->type_name("N");
  command.add_option("--micro-batches", micro_batches, "halves of the tokens in flight at a time")
      ->check(one_of({"1", "2"}))
      ->capture_default_str();
  command.add_flag("--sub-devices", sub_devices,
                   "divide a device among its ranks instead of sharing it, where it can be");
  command.add_option("--shared-experts", shared_sharding, "what the ranks of a tp group divide of the shared experts")
      ->check(one_of({"replicated", "tokens", "intermediate"}))
      ->capture_default_str();
  command.add_flag("--replace-allreduce", replace_allreduce,
                   "each rank of a tp group has its share of the tokens alone");
  command
      .add_option_function<std::string>(
          "--memory-budget", [this](const std::string& text) { budget = budget_of(text); },
          "device memory for a rank's routed experts, the others stay in host memory (default: for all)")
      ->type_name("BYTES|P%");
  command.add_option("--residency", residency, "which experts stay in device memory, with a budget")
      ->check([](const std::string& text) {
        return record_in(text).empty() ? one_of({"auto", "lru", "least-stale"})(text) : std::string();
      })
      ->type_name("auto|auto:RECORD|lru|least-stale|static:RECORD")
      ->capture_default_str();
  command
      .add_option("--missed-experts", missed_experts,
                  "what is done about an expert that is not there: fetched into device memory, or read in-place, as "
                  "suits CPUs (auto)")
      ->check(one_of({"auto", "fetched", "in-place"}))
      ->capture_default_str();
  command.add_flag("--prefetch", prefetch, "before each pass bring its experts, on a queue beside it, with a budget");
  device.add_to(command);
}

void LayerOptions::check() const {
  RankOptions::check();
  refuse_unless(redundant_experts == 0 || (ranks > 1 && expert_parallel),
                "--redundant-experts " + std::to_string(redundant_experts) + ": needs --ranks above 1 and --ep");
  refuse_unless(!has_own_placement() || (ranks > 1 && expert_parallel && redundant_experts == 0),
                "--placement " + placement + ": needs --ranks above 1 and --ep, and goes without --redundant-experts");
  refuse_unless(!has_shares() || (ranks > 1 && expert_parallel && redundant_experts == 0 && placement == "linear"),
                "--rank-shares: needs --ranks above 1 and --ep, and goes with neither --placement nor "
                "--redundant-experts");
  refuse_unless(rank_shares.empty() || rank_shares.size() == static_cast<std::size_t>(ranks),
                fmt::format("--rank-shares: {} numbers for {} ranks", rank_shares.size(), ranks));
  refuse_unless(micro_batches == 1 || !alone(),
                fmt::format("--micro-batches {}: needs --ranks above 1, or a --strategy", micro_batches));
  refuse_unless((shared_sharding == "replicated" && !replace_allreduce) || tp > 1,
                "--shared-experts and --replace-allreduce: need --tp above 1");
  refuse_unless(tokens_per_rank.empty() || tokens_per_rank.size() == static_cast<std::size_t>(dp_size()),
                fmt::format("--tokens-per-rank: {} numbers for {} dp ranks", tokens_per_rank.size(), dp_size()));
  refuse_unless(budget.has_value() || residency == "auto", "--residency " + residency + ": needs a --memory-budget");
  refuse_unless(budget.has_value() || missed_experts == "auto",
                "--missed-experts " + missed_experts + ": needs a --memory-budget");
  refuse_unless(!prefetch || budget.has_value(), "--prefetch: needs a --memory-budget");
  for (const std::int64_t tokens : tokens_per_rank)
    refuse_unless(tokens >= 0, fmt::format("--tokens-per-rank: {} is negative", tokens));
}

LayerSession::LayerSession(const LayerOptions& options) : checkpoint_(open_checked(options)) {
  const ModelConfig& model = checkpoint_.config();
  config_ = model.layer(options.layer.value_or(model.first_moe_layer()));
  const MoeWeights weights = find_layer_weights(checkpoint_, config_);
  layer_options_ = stored_options(config_, weights);
  layer_options_.dtype = options.dtype.value_or(layer_options_.dtype);
  const QuantScheme scheme = scheme_named(options.quantize).value_or(config_.expert_scheme());
  if (!options.quantize.empty()) layer_options_.quantize = scheme.weights;
  layer_options_.activations = activations_of(options.act_quant, scheme);
  layer_options_.one_launch = !options.several_launches;
  if (options.shared_queue != "auto") layer_options_.shared_beside = options.shared_queue == "own";
  if (options.layout != "auto") layer_options_.panel_layout = panel_layout_named(options.layout);
  if (options.budget) {
    layer_options_.budget = *options.budget;
    if (options.missed_experts != "auto")
      layer_options_.budget.missed =
          options.missed_experts == "fetched" ? MissedExperts::fetched : MissedExperts::in_place;
    if (options.residency == "lru") layer_options_.budget.policy = ResidencyPolicy::lru;
    if (const std::string path = record_in(options.residency); !path.empty()) {
      layer_options_.budget.policy =
          options.residency.starts_with("static:")
              ? ResidencyPolicy::fixed
              : replayed_policy(path, config_.layer, config_.shape.experts, layer_options_.budget.percent);
      recorded_loads_ = recorded_loads(path, config_.layer, config_.shape.experts);
    }
  }
  // Shared experts that are plain beside quantized experts have plain activations too.
  if (weights.shared.up.quantized())
    layer_options_.shared_activations = activations_of(options.act_quant, config_.shared_scheme());
  const std::int64_t most_redundant = std::int64_t{config_.shape.experts} * (options.ranks - 1);
  refuse_unless(options.redundant_experts <= most_redundant,
                fmt::format("--redundant-experts {}: expected at most {}, a copy of each of {} experts for every other "
                            "one of {} ranks",
                            options.redundant_experts, most_redundant, config_.shape.experts, options.ranks));
  if (options.has_own_placement()) {
    placement_ =
        placement_in(options.placement, model, options.layer.value_or(model.first_moe_layer()), config_.shape.experts);
    return;
  }
  if (!options.rank_shares.empty()) {
    placement_ = place_in_shares(shares_by_rates(config_.shape.experts, options.rank_shares));
    return;
  }
  PlaceExperts problem;
  problem.experts = config_.shape.experts;
  problem.ranks = options.expert_parallel ? options.ranks : 1;
  problem.expert_groups = config_.shape.router.groups;
  problem.redundant = options.redundant_experts;
  problem.wanted = placement_from_name(options.placement);
  placement_ = place_experts(problem);
}

std::unique_ptr<LayerSession> LayerSession::open(const LayerOptions& options) {
  return options.alone() ? open_single_session(options) : open_parallel_session(options);
}

MoeLayerOptions LayerSession::options_of_places(std::int64_t first, std::int64_t count) const {
  MoeLayerOptions options = layer_options_;
  if (options.budget.policy != ResidencyPolicy::fixed) return options;
  for (std::int64_t place = first; place < first + count; ++place) {
    const std::int32_t expert = placement_.logical_of[static_cast<std::size_t>(place)];
    options.budget.loads.push_back(static_cast<float>(recorded_loads_[static_cast<std::size_t>(expert)]));
  }
  return options;
}

ObservedTensors::ObservedTensors(Context& context, const MoeShape& shape, std::int64_t tokens)
    : out(context, DType::f32, {tokens, shape.hidden}),
      routed(context, DType::f32, {tokens, shape.hidden}),
      logits(context, DType::f32, {tokens, shape.experts}),
      ids(context, DType::i32, {tokens, shape.router.top_k}),
      weights(context, DType::f32, {tokens, shape.router.top_k}) {}

void ObservedTensors::read(StreamView stream, LayerOutputs& to) const {
  append(stream, out, to.output);
  append(stream, routed, to.routed_output);
  append(stream, logits, to.router_logits);
  append(stream, weights, to.topk_weights);
  append(stream, ids, to.topk_ids);
}

std::vector<std::int64_t> read_loads(StreamView stream, LoadRecord& record, Phase phase) {
  record.ask(stream);
  stream.finish();
  return record.told().value().of(0, phase);
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void count_experts(const MoeShape& shape, LayerOutputs& outputs) {
  outputs.expert_counts.assign(static_cast<std::size_t>(shape.experts), 0);
  for (const std::int32_t id : outputs.topk_ids) ++outputs.expert_counts.at(static_cast<std::size_t>(id));
}

}  // namespace moecl::cli
