#pragma once
// An MoE layer of a peer: a library computes the experts' products, and the steps between them are as in moecl's layer.
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/model_case.hpp"
#include "bench/peers/peer.hpp"
#include "bench/routing.hpp"

namespace moecl::bench {

/// A peer's layer. The experts of the tokens and their weights are given. Threads are OpenMP's.
class PeerLayer {
 public:
  virtual ~PeerLayer() = default;
  /// Makes room for these inputs. @param x  Shape: [T, H] of the scheme's plain type
  virtual void expect(const Routing& routing, std::vector<std::byte> x) = 0;
  /// Runs the layer of that number, with equal weights for a token's experts.
  virtual void forward(std::size_t layer) = 0;
  /// Shape: [T, H], of the last forward
  virtual std::vector<float> out() const = 0;
  /// The experts' matrices as the peer multiplies with them.
  virtual const MoeWeights& weights() const = 0;
};

/// Errors: invalid_argument  an activation other than SiLU, or shared experts
void require_plain_mlp(const ModelCase& model);

/// Gathers rows, multiplies with gate and up, applies SiLU, multiplies with down and adds up a token's rows.
/// `make`: creates a peer for matrices [N, K]. `weights` must outlive the layer.
/// Errors: as require_plain_mlp
std::unique_ptr<PeerLayer> layer_of_products(
    const ModelCase& model, const MoeWeights& weights, int layers,
    const std::function<std::unique_ptr<Peer>(std::int64_t n, std::int64_t k)>& make);

/// ggml's products by expert and the operators between them, in ggml's own types: q8_0 for 8-bit weights, q4_0 and
/// mxfp4 for 4-bit weights. Errors: as require_plain_mlp
std::unique_ptr<PeerLayer> ggml_layer(const ModelCase& model, const MoeWeights& weights, int layers);
/// The schemes for which ggml has a type.
std::set<std::string> ggml_schemes();

/// One element of a token's output row in double precision. @param x  Shape: [T, H]
double layer_element(const ModelCase& model, const MoeWeights& weights, const Routing& routing,
                     const std::vector<double>& x, std::int64_t token, std::int64_t column);

}  // namespace moecl::bench
