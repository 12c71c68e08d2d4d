#pragma once
#include <moecl/mx_quantize.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

/// The routing operators in plain C++: rows are moved by a comparison sort, sums are f32 as the operators promise.
namespace moecl::test::oracle {

/// One output: its values, and which of them the operator writes (empty: all).
struct Tensor {
  std::vector<double> values;
  std::vector<bool> defined;
};
using Ints = std::vector<std::int32_t>;

/// Source rows of `width` values each.
struct Matrix {
  std::vector<double> values;
  std::size_t width = 1;

  std::size_t rows() const { return values.size() / width; }
};

/// {expanded_x, expanded_row_idx, expanded_expert_idx}
std::vector<Tensor> moe_init_routing(const Matrix& x, const Ints& row_idx, const Ints& expert_idx,
                                     std::int64_t active_num);
/// For each expert, the number of rows up to and including it.
Tensor moe_compute_expert_tokens(const Ints& experts, std::int64_t num_expert);

struct CodedRow {
  std::vector<double> values, scale;
};

struct InitRoutingV2 {
  Matrix x;
  Ints expert_idx;
  std::size_t top_k = 1;
  std::vector<double> scale, offset;
  std::int64_t active_num = -1, expert_capacity = 0, expert_num = 1, first = 0, end = 1;
  bool drop_pad = false, slots_of_rows = false, ties_away = false;
  std::int64_t tokens_num_type = 0, quant_mode = -1;
  std::optional<mx_quantize::Args> mx = {};  ///< rules of the quant_modes that give MX rows
  /// For other quant_modes from 4 on: codes and scales of a row for an expert of the range.
  std::function<CodedRow(const std::vector<double>& row, std::size_t expert)> coder = {};
};
/// {expanded_x, expanded_row_idx, expert_tokens, expanded_scale}, the last empty where there is none.
std::vector<Tensor> moe_init_routing_v2(const InitRoutingV2& in);

/// {permuted_tokens, sorted_indices}
std::vector<Tensor> moe_token_permute(const Matrix& tokens, const Ints& indices, std::int64_t rows);
/// Sums in f32; each product and each sum is rounded. Empty probs mean weights of 1 with K = 1.
std::vector<double> moe_token_unpermute(const Matrix& rows, const Ints& sorted_indices,
                                        const std::vector<double>& probs, std::size_t top_k);
/// Row j is added to token sorted_indices[j].
std::vector<double> moe_token_unpermute_padded(const Matrix& rows, const Ints& sorted_indices,
                                               const std::vector<double>& probs, std::size_t tokens);
/// {permute_tokens, permute_per_token_scales, permute_token_idx, expert_token_num}
std::vector<Tensor> moe_re_routing(const Matrix& tokens, const std::vector<double>& scales, const Ints& counts,
                                   std::size_t experts);

struct FinalizeRouting {
  Matrix rows;
  std::vector<double> skip1, skip2, bias, scales;  ///< empty where absent
  Ints row_of_slot, experts;
  std::size_t tokens = 0, top_k = 1;
  bool columns = true;
};
/// In double.
std::vector<double> moe_finalize_routing(const FinalizeRouting& in);

}  // namespace moecl::test::oracle
