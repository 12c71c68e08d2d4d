#pragma once
// Layers of random weights, their inputs in each form, and the expected outputs in double precision.
#include <moecl/moe_forward.hpp>
#include <moecl/moecl.h>
#include <moecl/parallel_layer.hpp>

#include <string>
#include <vector>

namespace moecl::test {

/// One array of all experts for each kind of weight, as engines and programs in C have them.
struct RandomLayer {
  MoeShape shape;
  DType dtype = DType::f32, router_dtype = DType::f32;
  std::vector<unsigned char> router, gate, up, down, shared_gate, shared_up, shared_down, alpha_1, alpha_2, v;
  std::vector<std::int64_t> table;

  /// The shape says which weights there are. @param has_router  false: passes bring the routing
  explicit RandomLayer(const MoeShape& of, bool has_router = true, DType stored = DType::f32);
  /// Views of experts [first, first + count).
  MoeWeights weights(std::int64_t first, std::int64_t count) const;
  MoeWeights weights() const { return weights(0, shape.experts); }
  moecl_layer_desc desc() const;
};

/// The inputs of T tokens, and the expected outputs. Empty: not given, or absent.
struct LayerForm {
  std::string name;
  RandomLayer layer;
  MoeLayerOptions options = {};
  std::string scheme = {};         ///< for the C interface's `quantize`
  DType code_dtype = DType::f32;   ///< of `input`; if not the layer's, `input` holds codes
  DType scale_dtype = DType::f32;  ///< of `scales`
  std::int64_t group = 0;          ///< columns that share a scale; 0: all
  std::vector<double> x = {}, input = {}, scales = {};
  std::vector<double> logits = {}, token_ids = {}, ids = {}, weights = {};
  std::vector<double> out = {}, routed = {}, shared = {}, rows = {}, chosen = {};
  double tolerance = 1e-5;
  std::vector<bool> compared = {};  ///< tokens that are compared; empty: all

  std::int64_t tokens() const { return static_cast<std::int64_t>(chosen.size()) / layer.shape.router.top_k; }
  std::int64_t scale_columns() const { return group == 0 ? 1 : (layer.shape.expert_width() + group - 1) / group; }
};

/// A router in f32 beside experts in bf16; experts by token id; codes in each form; latent experts; experts without
/// products. @param caps  of the devices: the tolerance depends on them
std::vector<LayerForm> layer_forms(const DeviceCaps& caps);

/// Expects the right output for all compared tokens.
void expect_form(const LayerForm& form, const std::vector<double>& got, const std::vector<double>& expected,
                 const char* what);

}  // namespace moecl::test
