#include <dnnl.hpp>
#include <map>
#include <vector>

#include "bench/peers/peer.hpp"

namespace moecl::bench {
namespace {

using dnnl::matmul;
using dnnl::memory;

// oneDNN 3 has descriptors of primitives only, none of operations.
#if DNNL_VERSION_MAJOR >= 3
template <class Primitive, class... Args>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, const Args&... args) {
  return {engine, args...};
}
dnnl::eltwise_forward::primitive_desc describe_silu(const dnnl::engine& engine, const memory::desc& data) {
  return {engine, dnnl::prop_kind::forward_inference, dnnl::algorithm::eltwise_swish, data, data, 1.0F};
}
#else
template <class Primitive, class... Args>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, const Args&... args) {
  return {typename Primitive::desc(args...), engine};
}
dnnl::eltwise_forward::primitive_desc describe_silu(const dnnl::engine& engine, const memory::desc& data) {
  return {{dnnl::prop_kind::forward_inference, dnnl::algorithm::eltwise_swish, data, 1.0F}, engine};
}
#endif

class OneDnn final : public Peer {
 public:
  OneDnn(Arithmetic arithmetic, std::int64_t n, std::int64_t k, std::int64_t rows) : n_(n), k_(k) {
    using Type = memory::data_type;
    source_ = arithmetic == Arithmetic::f32 ? Type::f32 : arithmetic == Arithmetic::bf16 ? Type::bf16 : Type::u8;
    weight_ = arithmetic == Arithmetic::int8 ? Type::s8 : source_;
    out_ = arithmetic == Arithmetic::int8 ? Type::s32 : Type::f32;
    packed_ = descriptor(rows, memory::desc({k_, n_}, weight_, memory::format_tag::any)).weights_desc();
  }
  void add_expert(const void* weights) override {
    memory plain({{k_, n_}, weight_, memory::format_tag::ba}, engine_, const_cast<void*>(weights));
    weights_.emplace_back(packed_, engine_);
    dnnl::reorder(plain, weights_.back()).execute(stream_, plain, weights_.back());
    stream_.wait();
  }
  void multiply(std::size_t expert, std::int64_t rows, const void* a, void* out) override {
    auto found = products_.find(rows);
    if (found == products_.end()) found = products_.emplace(rows, matmul(descriptor(rows, packed_))).first;
    const memory source({{rows, k_}, source_, memory::format_tag::ab}, engine_, const_cast<void*>(a));
    const memory target({{rows, n_}, out_, memory::format_tag::ab}, engine_, out);
    found->second.execute(stream_,
                          {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights_[expert]}, {DNNL_ARG_DST, target}});
  }

 private:
  matmul::primitive_desc descriptor(std::int64_t rows, const memory::desc& weights) const {
    const memory::desc source({rows, k_}, source_, memory::format_tag::ab),
        target({rows, n_}, out_, memory::format_tag::ab);
    return describe<matmul>(engine_, source, weights, target);
  }

  std::int64_t n_, k_;
  memory::data_type source_, weight_, out_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  memory::desc packed_;
  std::vector<memory> weights_;
  std::map<std::int64_t, matmul> products_;  ///< by rows
};

class OneDnnGatedSilu final : public GatedSilu {
 public:
  OneDnnGatedSilu(Arithmetic arithmetic, std::int64_t intermediate)
      : intermediate_(intermediate),
        out_(arithmetic == Arithmetic::f32 ? memory::data_type::f32 : memory::data_type::bf16) {}
  void apply(std::int64_t rows, float* gate_up, void* out) override {
    const auto type = memory::data_type::f32;
    const memory::desc half({rows, intermediate_}, type, memory::dims{2 * intermediate_, 1});
    const memory gate(half, engine_, gate_up), up(half, engine_, gate_up + intermediate_);
    const memory target({{rows, intermediate_}, out_, memory::format_tag::ab}, engine_, out);
    const auto found = [&] {
      const auto known = of_rows_.find(rows);
      if (known != of_rows_.end()) return known;
      const auto product = describe<dnnl::binary>(engine_, dnnl::algorithm::binary_mul, half, half, target.get_desc());
      return of_rows_.emplace(rows, Steps{dnnl::eltwise_forward(describe_silu(engine_, half)), dnnl::binary(product)})
          .first;
    }();
    found->second.silu.execute(stream_, {{DNNL_ARG_SRC, gate}, {DNNL_ARG_DST, gate}});
    found->second.product.execute(stream_, {{DNNL_ARG_SRC_0, gate}, {DNNL_ARG_SRC_1, up}, {DNNL_ARG_DST, target}});
  }

 private:
  struct Steps {
    dnnl::eltwise_forward silu;
    dnnl::binary product;
  };
  std::int64_t intermediate_;
  memory::data_type out_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<std::int64_t, Steps> of_rows_;
};

}  // namespace

std::unique_ptr<GatedSilu> gated_silu(Arithmetic arithmetic, std::int64_t intermediate) {
  return std::make_unique<OneDnnGatedSilu>(arithmetic, intermediate);
}

std::unique_ptr<Peer> onednn_peer(Arithmetic arithmetic, std::int64_t n, std::int64_t k, std::int64_t rows) {
  return std::make_unique<OneDnn>(arithmetic, n, k, rows);
}

}  // namespace moecl::bench
