#pragma once
// An MoE layer of a peer: the experts' products by a library, between them what moecl's layer does too.
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "bench/model_case.hpp"
#include "bench/peers/peer.hpp"
#include "bench/routing.hpp"

namespace moecl::bench {

/// Gathers rows, multiplies with gate and up, applies SiLU, multiplies with down and adds up a token's rows; experts
/// and weights are given. Threads are OpenMP's, as in both libraries.
class PeerLayer {
 public:
  /// `make`: a peer for matrices [N, K]. Errors: invalid_argument  another activation than SiLU, shared experts, codes
  PeerLayer(const ModelCase& model, const MoeWeights& weights, int layers,
            const std::function<std::unique_ptr<Peer>(std::int64_t n, std::int64_t k)>& make);

  /// Room for such inputs. @param x  Shape: [T, H] of the scheme's plain type
  void expect(const Routing& routing, std::vector<std::byte> x);
  /// out [T, H] of the layer-th layer, with equal weights for a token's experts.
  void forward(std::size_t layer);
  const std::vector<float>& out() const { return out_; }

 private:
  std::int64_t hidden_, intermediate_;
  std::size_t experts_, element_bytes_;
  std::unique_ptr<Peer> gate_up_, down_;
  std::unique_ptr<GatedSilu> activation_;
  Routing routing_;
  std::vector<std::byte> x_, rows_, activated_;
  std::vector<float> product_, out_;
};

/// The element of a token's row in double precision. @param x  Shape: [T, H]
double layer_element(const ModelCase& model, const MoeWeights& weights, const Routing& routing,
                     const std::vector<double>& x, std::int64_t token, std::int64_t column);

}  // namespace moecl::bench
