#include <cblas.h>
#include <vector>

#include "bench/peers/peer.hpp"

namespace moecl::bench {
namespace {

class OpenBlas final : public Peer {
 public:
  OpenBlas(std::int64_t n, std::int64_t k) : n_(n), k_(k) {}
  void add_expert(const void* weights) override {
    const auto* values = static_cast<const float*>(weights);
    weights_.emplace_back(values, values + n_ * k_);
  }
  void multiply(std::size_t expert, std::int64_t rows, const void* a, void* out) override {
    const int m = static_cast<int>(rows), n = static_cast<int>(n_), k = static_cast<int>(k_);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, static_cast<const float*>(a), k,
                weights_[expert].data(), k, 0, static_cast<float*>(out), n);
  }

 private:
  std::int64_t n_, k_;
  std::vector<std::vector<float>> weights_;
};

}  // namespace

std::unique_ptr<Peer> openblas_peer(std::int64_t n, std::int64_t k) { return std::make_unique<OpenBlas>(n, k); }

}  // namespace moecl::bench
