#include "tools/routing_record.hpp"

#include <moecl/error.hpp>
#include <moecl/residency_replay.hpp>
#include <moecl/safetensors.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moecl::cli {
namespace {

class RecordFile {
 public:
  explicit RecordFile(const std::string& path) : path_(path), file_(SafetensorsFile::open(path)) {}

  /// The numbers of all layers with routing, in ascending order.
  std::vector<int> layers() const {
    std::vector<int> numbers;
    for (const std::string& name : file_.names()) {
      int number = 0, end = 0;
      if (std::sscanf(name.c_str(), "layer.%9d.topk_ids%n", &number, &end) == 1 &&
          static_cast<std::size_t>(end) == name.size())
        numbers.push_back(number);
    }
    std::sort(numbers.begin(), numbers.end());
    fail_unless(!numbers.empty(), "expected layer.N.topk_ids, as `moecl run --record` writes them");
    return numbers;
  }

  template <class T>
  std::vector<T> numbers(const std::string& name, std::size_t rank) const {
    fail_unless(file_.has(name), name + ": there is none");
    const HostTensor tensor = file_.tensor(name);
    constexpr DType dtype = sizeof(T) == 4 ? DType::i32 : DType::i64;
    fail_unless(
        tensor.dtype == dtype && tensor.shape.size() == rank,
        fmt::format("{}: expected {} of {} dimensions, got {}", name, moecl::name(dtype), rank, tensor.describe()));
    std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
    tensor.data.read(values.data(), tensor.size_bytes);
    return values;
  }
  std::int64_t columns(const std::string& name) const { return file_.tensor(name).shape.back(); }

  void fail_unless(bool right, const std::string& message) const {
    if (!right) throw Error(ErrorCode::invalid_data, path_ + ": " + message);
  }

 private:
  std::string path_;
  SafetensorsFile file_;
};

LayerRecord read_layer(const RecordFile& file, int number) {
  LayerRecord layer;
  layer.layer = number;
  const std::string prefix = fmt::format("layer.{}.", number);
  layer.topk_ids = file.numbers<std::int32_t>(prefix + "topk_ids", 2);
  layer.top_k = static_cast<std::int32_t>(file.columns(prefix + "topk_ids"));
  layer.pass_ends = file.numbers<std::int64_t>(prefix + "pass_ends", 1);
  layer.prefill_counts = file.numbers<std::int64_t>(prefix + "prefill_counts", 1);
  layer.decode_counts = file.numbers<std::int64_t>(prefix + "decode_counts", 1);
  layer.physical_to_logical = file.numbers<std::int32_t>(prefix + "physical_to_logical", 1);
  layer.place_counts = file.numbers<std::int64_t>(prefix + "place_counts", 1);
  layer.experts = static_cast<std::int32_t>(layer.prefill_counts.size());
  const auto expect = [&](bool right, const std::string& message) { file.fail_unless(right, prefix + message); };
  expect(layer.experts > 0 && layer.decode_counts.size() == layer.prefill_counts.size(),
         fmt::format("decode_counts: {} experts, prefill_counts has {}", layer.decode_counts.size(), layer.experts));
  expect(layer.place_counts.size() == layer.physical_to_logical.size(),
         fmt::format("place_counts: {} places, physical_to_logical has {}", layer.place_counts.size(),
                     layer.physical_to_logical.size()));
  for (const auto* counts : {&layer.prefill_counts, &layer.decode_counts, &layer.place_counts})
    for (const std::int64_t count : *counts) expect(count >= 0, fmt::format("counts: {} is negative", count));
  for (const std::int32_t id : layer.topk_ids)
    expect(id >= -1 && id < layer.experts, fmt::format("topk_ids: {} is not in [-1, {})", id, layer.experts));
  const std::int64_t tokens = layer.top_k > 0 ? static_cast<std::int64_t>(layer.topk_ids.size()) / layer.top_k : 0;
  expect(std::is_sorted(layer.pass_ends.begin(), layer.pass_ends.end()) &&
             (layer.pass_ends.empty() ? 0 : layer.pass_ends.back()) == tokens &&
             (layer.pass_ends.empty() || layer.pass_ends.front() >= 0),
         fmt::format("pass_ends: expected rising ends of passes, the last {}", tokens));
  return layer;
}

}  // namespace

void write_record(const std::string& path, const RoutingRecord& record) {
  const std::vector<std::int32_t> ranks = {record.ranks}, groups = {record.expert_groups};
  std::vector<HostTensor> tensors = {named_tensor("ranks", DType::i32, {1}, ranks),
                                     named_tensor("expert_groups", DType::i32, {1}, groups)};
  for (const LayerRecord& layer : record.layers) {
    const auto add = [&](const char* name, DType dtype, std::vector<std::int64_t> shape, const auto& values) {
      tensors.push_back(named_tensor(fmt::format("layer.{}.{}", layer.layer, name), dtype, std::move(shape), values));
    };
    const auto size = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
    add("topk_ids", DType::i32, {size(layer.topk_ids) / layer.top_k, layer.top_k}, layer.topk_ids);
    add("pass_ends", DType::i64, {size(layer.pass_ends)}, layer.pass_ends);
    add("prefill_counts", DType::i64, {layer.experts}, layer.prefill_counts);
    add("decode_counts", DType::i64, {layer.experts}, layer.decode_counts);
    add("physical_to_logical", DType::i32, {size(layer.physical_to_logical)}, layer.physical_to_logical);
    add("place_counts", DType::i64, {size(layer.place_counts)}, layer.place_counts);
  }
  write_safetensors(path, tensors);
}

RoutingRecord read_record(const std::string& path) {
  const RecordFile file(path);
  RoutingRecord record;
  for (const int number : file.layers()) record.layers.push_back(read_layer(file, number));
  for (const auto& [name, to] :
       {std::pair("ranks", &record.ranks), std::pair("expert_groups", &record.expert_groups)}) {
    const std::vector<std::int32_t> number = file.numbers<std::int32_t>(name, 1);
    file.fail_unless(number.size() == 1, fmt::format("{}: expected one number, got {}", name, number.size()));
    *to = number.front();
  }
  const LayerRecord& first = record.layers.front();
  for (const LayerRecord& layer : record.layers)
    file.fail_unless(
        layer.experts == first.experts && layer.physical_to_logical.size() == first.physical_to_logical.size(),
        fmt::format("layer {}: {} experts at {} places, layer {} has {} at {}", layer.layer, layer.experts,
                    layer.physical_to_logical.size(), first.layer, first.experts, first.physical_to_logical.size()));
  return record;
}

namespace {

LayerRecord recorded_layer(const std::string& path, int layer, std::int32_t experts) {
  RoutingRecord record = read_record(path);
  for (LayerRecord& of : record.layers)
    if (of.layer == layer && of.experts == experts) return std::move(of);
  const LayerRecord& first = record.layers.front();
  throw Error(ErrorCode::invalid_data, fmt::format("{}: expected layer {} with {} experts, got layer {} with {}", path,
                                                   layer, experts, first.layer, first.experts));
}

}  // namespace

std::vector<std::int64_t> recorded_loads(const std::string& path, int layer, std::int32_t experts) {
  const LayerRecord of = recorded_layer(path, layer, experts);
  std::vector<std::int64_t> loads = of.prefill_counts;
  for (std::size_t e = 0; e < loads.size(); ++e) loads[e] += of.decode_counts[e];
  return loads;
}

ResidencyPolicy replayed_policy(const std::string& path, int layer, std::int32_t experts, double percent) {
  const LayerRecord of = recorded_layer(path, layer, experts);
  UsedExperts passes;
  for (auto id = of.topk_ids.begin(); id != of.topk_ids.end(); id += of.top_k) {
    passes.emplace_back();
    std::copy_if(id, id + of.top_k, std::back_inserter(passes.back()), [](std::int32_t expert) { return expert >= 0; });
  }
  std::vector<float> loads;
  for (std::size_t e = 0; e < of.prefill_counts.size(); ++e)
    loads.push_back(static_cast<float>(of.prefill_counts[e] + of.decode_counts[e]));
  const double share = percent == 0 ? 0.5 : percent / 100;
  const auto slots = static_cast<std::int32_t>(std::ceil(static_cast<double>(experts) * share));
  return choose_residency(passes, experts, std::max(slots, of.top_k), loads);
}

BalanceProblem balance_problem(const RoutingRecord& record, std::int32_t ranks, std::int32_t places) {
  const LayerRecord& first = record.layers.front();
  const auto recorded = static_cast<std::int32_t>(first.physical_to_logical.size());
  BalanceProblem problem;
  problem.layers = static_cast<std::int32_t>(record.layers.size());
  problem.experts = first.experts;
  problem.places = places == 0 ? recorded : places;
  problem.ranks = ranks == 0 ? record.ranks : ranks;
  problem.expert_groups = record.expert_groups;
  for (const LayerRecord& layer : record.layers) {
    for (std::size_t e = 0; e < layer.prefill_counts.size(); ++e)
      problem.loads.push_back(static_cast<double>(layer.prefill_counts[e] + layer.decode_counts[e]));
    if (problem.places == recorded) {
      problem.current.insert(problem.current.end(), layer.physical_to_logical.begin(), layer.physical_to_logical.end());
      problem.place_loads.insert(problem.place_loads.end(), layer.place_counts.begin(), layer.place_counts.end());
      continue;
    }
    std::vector<std::int32_t> copies(layer.prefill_counts.size());
    for (std::int32_t p = 0; p < problem.places; ++p) {
      problem.current.push_back(p % problem.experts);
      ++copies[static_cast<std::size_t>(p % problem.experts)];
    }
    const auto loads = problem.loads.end() - problem.experts;
    for (std::int32_t p = 0; p < problem.places; ++p)
      problem.place_loads.push_back(loads[p % problem.experts] / copies[static_cast<std::size_t>(p % problem.experts)]);
  }
  return problem;
}

}  // namespace moecl::cli
