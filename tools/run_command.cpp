#include <moecl/error.hpp>
#include <moecl/safetensors.hpp>
#include <moecl/trace.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>

#include "tools/commands.hpp"
#include "tools/json_text.hpp"
#include "tools/layer_session.hpp"
#include "tools/own_files.hpp"
#include "tools/progress.hpp"
#include "tools/routing_record.hpp"
#include "tools/table.hpp"
#include "tools/tensor_values.hpp"

namespace moecl::cli {
namespace {

struct RunOptions {
  LayerOptions layer;
  std::string input, tensor = "hidden_states", output, record, trace;
  std::int64_t tokens = 64;
  std::uint64_t seed = 0;
  int repeat = 1;
  bool json = false;
};

std::vector<float> read_hidden_states(const std::string& path, const std::string& name, std::int64_t hidden) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const HostTensor tensor = file.tensor(name);
  if (tensor.shape.size() != 2 || tensor.shape[1] != hidden || !is_activation_dtype(tensor.dtype))
    throw Error(ErrorCode::invalid_data, fmt::format("{}: expected hidden states [T, {}] of f32, f16 or bf16, got {}",
                                                     path, hidden, tensor.describe()));
  return to_f32(tensor);
}

void write_outputs(const std::string& path, const LayerOutputs& out, const MoeShape& shape) {
  const std::int64_t tokens = out.tokens, top_k = shape.router.top_k;
  write_safetensors(path, {named_tensor("output", DType::f32, {tokens, shape.hidden}, out.output),
                           named_tensor("routed_output", DType::f32, {tokens, shape.hidden}, out.routed_output),
                           named_tensor("router_logits", DType::f32, {tokens, shape.experts}, out.router_logits),
                           named_tensor("topk_ids", DType::i32, {tokens, top_k}, out.topk_ids),
                           named_tensor("topk_weights", DType::f32, {tokens, top_k}, out.topk_weights),
                           named_tensor("expert_counts", DType::i32, {shape.experts}, out.expert_counts)});
}

RoutingRecord record_of(const LayerSession& session, int ranks, const LayerOutputs& outputs) {
  LayerRecord layer;
  layer.layer = session.config().layer;
  layer.experts = session.config().shape.experts;
  layer.top_k = session.config().shape.router.top_k;
  layer.topk_ids = outputs.topk_ids;
  layer.pass_ends = {outputs.tokens};
  layer.physical_to_logical = session.placement().logical_of;
  layer.place_counts = outputs.place_loads;
  layer.prefill_counts.resize(static_cast<std::size_t>(layer.experts));
  layer.decode_counts = layer.prefill_counts;
  (outputs.phase == Phase::prefill ? layer.prefill_counts : layer.decode_counts) =
      loads_of_experts(session.placement(), outputs.place_loads);
  return {ranks, session.config().shape.router.groups, {layer}};
}

nlohmann::ordered_json summarise(LayerSession& session, const LayerOptions& options, const LayerOutputs& outputs,
                                 const ForwardTimes& times) {
  const MoeShape& shape = session.config().shape;
  const SessionReport report = session.report();
  nlohmann::ordered_json summary;
  summary["model"] = {{"family", session.config().family}, {"layer", session.config().layer},
                      {"hidden_size", shape.hidden},       {"intermediate_size", shape.intermediate},
                      {"experts", shape.experts},          {"top_k", shape.router.top_k}};
  summary["tokens"] = outputs.tokens;
  summary["dtype"] = name(session.dtype());
  summary["devices"] = nlohmann::ordered_json::array();
  for (const DeviceCaps& caps : report.devices)
    summary["devices"].push_back(
        {{"platform", caps.platform_name}, {"name", caps.name}, {"driver", caps.driver_version}});
  summary["rank_places"] = report.rank_places;
  summary["parallel"] = {{"ranks", options.ranks},
                         {"tp", options.tp},
                         {"dp", options.dp_size()},
                         {"ep", options.ranks > 1 && options.expert_parallel},
                         {"launch", options.launch.name()}};
  summary["topology"] = {{"nodes", options.ranks / options.ranks_per_node()},
                         {"ranks_per_node", options.ranks_per_node()}};
  summary["strategy"] = {{"name", report.strategy}, {"reason", report.strategy_reason}};
  summary["combine_form"] = report.combine_form;
  if (!report.rank_rates.empty()) summary["parallel"]["rank_rates"] = report.rank_rates;
  const std::vector<std::int32_t>& table = session.placement().logical_of;
  const std::ptrdiff_t places = std::ssize(table) - std::count(table.begin(), table.end(), -1);
  summary["placement"] = {{"name", name(session.placement().placement)},
                          {"reason", session.placement().reason},
                          {"experts", places},
                          {"redundant_experts", places - session.placement().logical()}};
  if (options.has_shares()) {
    summary["parallel"]["rank_shares"] = nlohmann::ordered_json::array();
    const std::ptrdiff_t each = std::ssize(table) / options.ranks;
    for (auto first = table.begin(); first != table.end(); first += each)
      summary["parallel"]["rank_shares"].push_back(each - std::count(first, first + each, -1));
  }
  summary["micro_batches"] = options.micro_batches;
  summary["shared_experts"] = options.shared_sharding;
  summary["replace_allreduce"] = options.replace_allreduce;
  summary["wire"] = options.wire;
  summary["transports"] = report.transports;
  summary["dense_backend"] = {{"name", report.layer.dense_backend}, {"reason", report.layer.dense_reason}};
  if (!report.layer.shared_queue.empty()) summary["shared_queue"] = report.layer.shared_queue;
  summary["activations"] = {{"quantized", report.layer.activations},
                            {"reason", options.act_quant != "auto" ? "asked for by --act-quant"
                                       : options.quantize.empty()  ? "what the checkpoint says"
                                                                   : "part of --quantize " + options.quantize}};
  summary["kernels"] = nlohmann::ordered_json::array();
  for (const WorkSummary& row : report.kernels)
    summary["kernels"].push_back(
        {{"name", row.name}, {"variant", row.variant}, {"count", row.count}, {"total_us", row.total_us}});
  summary["forward_us"] = {
      {"min", times.us.front()}, {"median", times.us[times.us.size() / 2]}, {"max", times.us.back()}};
  summary["host_syncs"] = times.host_syncs;
  summary["bytes_exchanged"] = times.bytes_exchanged;
  summary["bytes_between_nodes"] = times.bytes_between_nodes;
  summary["workspace_bytes"] = report.workspace_bytes;
  summary["weight_bytes"] = report.layer.weight_bytes;
  if (session.has_budget())
    summary["residency"] = {{"policy", session.residency_policy()},
                            {"budget_bytes", report.layer.resident_bytes},
                            {"resident", report.layer.resident_experts},
                            {"hits", report.residency.hits},
                            {"misses", report.residency.misses},
                            {"fetched_bytes", report.residency.fetched_bytes},
                            {"prefetched", report.residency.prefetched},
                            {"prefetched_hits", report.residency.prefetched_hits},
                            {"missed_experts", report.layer.missed_experts}};
  summary["weight_segments"] = report.layer.weight_segments;
  summary["chunk_tokens"] = report.layer.chunk_tokens;
  summary["expert_format"] = report.layer.expert_format;
  summary["weights"] = {{"layout", report.layer.expert_layout}, {"reason", report.layer.expert_layout_reason}};
  summary["load_ms"] = session.load_ms();
  summary["read_bytes"] = report.layer.read_bytes;
  summary["load_gb_per_s"] = static_cast<double>(report.layer.read_bytes) / 1e6 / session.load_ms();
  if (!options.quantize.empty())
    summary["quantize"] = {{"scheme", options.quantize},
                           {"max_relative_error", report.layer.quantization.max_relative()},
                           {"rms_relative_error", report.layer.quantization.rms_relative()}};
  summary["programs"] = {{"built", report.programs_built}, {"from_cache", report.programs_from_disk}};
  return summary;
}

void print(const nlohmann::ordered_json& s) {
  const auto text = [](const nlohmann::ordered_json& value) { return printable(value.get<std::string>()); };
  const auto us = [](const nlohmann::ordered_json& value) { return fmt::format("{:.1f}", value.get<double>()); };
  fmt::print("{} layer {}: {} tokens x {} hidden, {} experts of {}, top {}, {}\n", text(s["model"]["family"]),
             s["model"]["layer"].get<int>(), s["tokens"].get<std::int64_t>(),
             s["model"]["hidden_size"].get<std::int64_t>(), s["model"]["experts"].get<int>(),
             s["model"]["intermediate_size"].get<std::int64_t>(), s["model"]["top_k"].get<int>(), text(s["dtype"]));
  fmt::print("on {} / {} (driver {})\n", text(s["devices"][0]["platform"]), text(s["devices"][0]["name"]),
             text(s["devices"][0]["driver"]));
  fmt::print("activations {}: {}\n", text(s["activations"]["quantized"]), text(s["activations"]["reason"]));
  for (const auto& transport : s["transports"]) fmt::print("transport {}\n", text(transport));
  fmt::print("{}; strategy {}: {}; way home: {}\n{} experts placed {}: {}\nweights {}: {}\ndense products by {}: {}\n",
             text(s["rank_places"]), text(s["strategy"]["name"]), text(s["strategy"]["reason"]),
             text(s["combine_form"]), s["placement"]["experts"].get<int>(), text(s["placement"]["name"]),
             text(s["placement"]["reason"]), text(s["weights"]["layout"]), text(s["weights"]["reason"]),
             text(s["dense_backend"]["name"]), text(s["dense_backend"]["reason"]));
  if (s.contains("shared_queue")) fmt::print("shared experts on {}\n", text(s["shared_queue"]));
  std::vector<Row> rows = {{"kernel", "variant", "count", "total us"}};
  for (const auto& kernel : s["kernels"])
    rows.push_back({text(kernel["name"]), text(kernel["variant"]), std::to_string(kernel["count"].get<int>()),
                    us(kernel["total_us"])});
  fmt::print(
      "\n{}\nforward: median {} us (min {}, max {}), {} host syncs, {} bytes exchanged ({} between "
      "nodes, wire {}), {} bytes of workspace\n",
      table(rows), us(s["forward_us"]["median"]), us(s["forward_us"]["min"]), us(s["forward_us"]["max"]),
      s["host_syncs"].get<std::uint64_t>(), s["bytes_exchanged"].get<std::uint64_t>(),
      s["bytes_between_nodes"].get<std::uint64_t>(), text(s["wire"]), s["workspace_bytes"].get<std::uint64_t>());
  fmt::print(
      "loaded in {:.0f} ms ({:.2f} GB/s of {} bytes), {} bytes of weights, experts {}; {} programs built, "
      "{} from the cache\n",
      s["load_ms"].get<double>(), s["load_gb_per_s"].get<double>(), s["read_bytes"].get<std::uint64_t>(),
      s["weight_bytes"].get<std::uint64_t>(), text(s["expert_format"]), s["programs"]["built"].get<int>(),
      s["programs"]["from_cache"].get<int>());
  if (s.contains("residency"))
    fmt::print("{} experts resident in {} bytes, {}: {} hits ({} of {} prefetched), {} misses, {} bytes, {}\n",
               s["residency"]["resident"].get<std::int64_t>(), s["residency"]["budget_bytes"].get<std::uint64_t>(),
               text(s["residency"]["policy"]), s["residency"]["hits"].get<std::int64_t>(),
               s["residency"]["prefetched_hits"].get<std::int64_t>(), s["residency"]["prefetched"].get<std::int64_t>(),
               s["residency"]["misses"].get<std::int64_t>(), s["residency"]["fetched_bytes"].get<std::uint64_t>(),
               text(s["residency"]["missed_experts"]));
  if (s.contains("quantize"))
    fmt::print("experts quantized as {}: errors relative to the largest weight {:.2e}, root mean square {:.2e}\n",
               text(s["quantize"]["scheme"]), s["quantize"]["max_relative_error"].get<double>(),
               s["quantize"]["rms_relative_error"].get<double>());
}

/// Checks the output files before a large model is loaded in vain.
void check_files(const RunOptions& options) {
  if (options.output.empty() && options.trace.empty() && options.record.empty()) return;
  std::vector<NamedFile> read = {{"--input", options.input}, {"--router-spec", options.layer.router_spec}};
  const Checkpoint checkpoint = Checkpoint::open(options.layer.model_dir, options.layer.router_spec);
  for (const std::string& file : checkpoint.files()) read.push_back({"the model's", file});
  expect_own_files({{"--output", options.output}, {"--record", options.record}, {"--trace", options.trace}}, read);
}

void run(const RunOptions& options) {
  check_files(options);
  const std::unique_ptr<LayerSession> opened = LayerSession::open(options.layer);
  LayerSession& session = *opened;
  const std::int64_t hidden = session.config().shape.hidden;
  const std::vector<float> input = options.input.empty()
                                       ? random_normal(static_cast<std::size_t>(options.tokens * hidden), options.seed)
                                       : read_hidden_states(options.input, options.tensor, hidden);
  ForwardTimes times;
  const LayerOutputs outputs = session.run(input, options.repeat, times);
  if (!options.layer.launch.tells()) return;
  if (!options.output.empty()) write_outputs(options.output, outputs, session.config().shape);
  if (!options.record.empty()) write_record(options.record, record_of(session, options.layer.ranks, outputs));
  if (!options.trace.empty()) session.write_trace(options.trace);
  const nlohmann::ordered_json summary = summarise(session, options.layer, outputs, times);
  if (options.json)
    std::cout << json_text(summary, 2) << '\n';
  else
    print(summary);
}

}  // namespace

void add_run(CLI::App& app, Outcome outcome) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command =
      app.add_subcommand("run", "Run the MoE block of one layer of a Hugging Face checkpoint directory");
  command
      ->add_option("model_dir", options->layer.model_dir,
                   "directory with config.json and model.safetensors (or its shards)")
      ->type_name("DIR")
      ->required();
  options->layer.add_to(*command);
  auto* input = command->add_option("--input", options->input, "safetensors file with the hidden states [T, H]")
                    ->check(file_name())
                    ->type_name("FILE.safetensors");
  command->add_option("--tensor", options->tensor, "its tensor")->capture_default_str();
  command->add_option("--tokens", options->tokens, "tokens of standard normal input instead of a file")
      ->check(whole_number(0))
      ->excludes(input)
      ->capture_default_str();
  command->add_option("--seed", options->seed, "seed of that input")
      ->check(whole_number(0, INT64_MAX))
      ->excludes(input)
      ->capture_default_str();
  command->add_option("--output", options->output, "write the output tensors to this safetensors file")
      ->check(file_name())
      ->type_name("FILE.safetensors");
  command
      ->add_option("--record", options->record,
                   "write which experts the tokens chose, and the loads: bench --routing and "
                   "balance read it")
      ->check(file_name())
      ->type_name("FILE.safetensors");
  command->add_option("--repeat", options->repeat, "timed forward passes after one warm-up")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--trace", options->trace, "write a Chrome/Perfetto trace")
      ->check(file_name())
      ->type_name("FILE.json");
  command->add_flag("--json", options->json, "summary as JSON");
  add_progress(*command);
  command->callback([options, &outcome] {
    outcome = options->layer.launch.run(options->layer.ranks, [&] {
      run(*options);
      return int{done};
    });
  });
}

}  // namespace moecl::cli
