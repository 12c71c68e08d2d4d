#pragma once
// The file of `moecl run --record`: the experts that tokens chose, pass by pass, and the resulting loads.
#include <moecl/balance.hpp>
#include <moecl/host_tensor.hpp>
#include <moecl/layer_options.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace moecl::cli {

/// The record of one layer. Ids are logical experts.
struct LayerRecord {
  int layer = 0;
  std::int32_t experts = 0, top_k = 0;
  std::vector<std::int32_t> topk_ids;                       ///< Shape: [T, K] of all passes; -1: none
  std::vector<std::int64_t> pass_ends;                      ///< tokens of the passes, cumulative
  std::vector<std::int64_t> prefill_counts, decode_counts;  ///< Shape: [E]
  std::vector<std::int32_t> physical_to_logical;            ///< the table in force. Shape: [P]
  std::vector<std::int64_t> place_counts;                   ///< rows that each place received. Shape: [P]
};
struct RoutingRecord {
  std::int32_t ranks = 1, expert_groups = 1;
  std::vector<LayerRecord> layers;
};

/// A tensor over values of the caller, which must outlive it.
template <class T>
HostTensor named_tensor(std::string name, DType dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  return {std::move(name), dtype, std::move(shape), reinterpret_cast<const std::byte*>(values.data()),
          values.size() * sizeof(T)};
}

/// Errors: io_error
void write_record(const std::string& path, const RoutingRecord& record);
/// Errors: io_error; invalid_data  the file is no record, or contradicts itself: names what, and what was expected
RoutingRecord read_record(const std::string& path);
/// Rows of each expert of a layer, in both phases. Errors: as read_record; invalid_data  the record is of another layer
std::vector<std::int64_t> recorded_loads(const std::string& path, int layer, std::int32_t experts);
/// The policy with most hits if a record's tokens come one by one, as in decoding. @param percent  share of the experts
/// that have a slot; 0: half of them. Errors: as recorded_loads
ResidencyPolicy replayed_policy(const std::string& path, int layer, std::int32_t experts, double percent);
/// The input of a placement policy: the loads of both phases. @param ranks  0: as recorded
/// @param places  0: as recorded; another number starts from expert p % E at place p
BalanceProblem balance_problem(const RoutingRecord& record, std::int32_t ranks, std::int32_t places);

}  // namespace moecl::cli
