// Quantized weights from memory: int4, two codes in a byte, a scale for each 32 columns. A second layer, for
// comparison, has the dequantized weights.
#include <moecl/moe_layer.hpp>

#include <deque>

#include "example.hpp"

namespace {

constexpr std::int64_t T = 4, H = 64, I = 128, E = 4, K = 2, group = 32;

/// A matrix that is quantized already: number = (code - 8) * scale.
struct Int4Matrix {
  Int4Matrix(std::int64_t n_rows, std::int64_t n_columns, std::uint32_t seed)
      : rows(n_rows),
        columns(n_columns),
        scales(random_values(static_cast<std::size_t>(rows * columns / group), seed)) {
    std::mt19937 generator(seed);
    for (std::int64_t i = 0; i < rows * columns; i += 2) {
      const auto both = static_cast<std::uint8_t>(generator());
      codes.push_back(both);
      for (const int code : {both & 15, both >> 4})  // the first code is in the low half
        numbers.push_back(static_cast<float>(code - 8) * scales[numbers.size() / static_cast<std::size_t>(group)]);
    }
  }
  moecl::WeightMatrix quantized() const {
    moecl::WeightMatrix matrix;
    matrix.codes.type = moecl::CodeType::u4;  // relative to 8 without a zero point
    matrix.codes.rows = rows;
    matrix.codes.columns = columns;
    matrix.codes.unit_bytes = 1;
    matrix.codes.unit_codes = 2;
    matrix.codes.row_stride = columns / 2;
    matrix.codes.data = codes.data();
    matrix.scale = {scales.data(), moecl::DType::f32, rows, columns / group};
    matrix.group = moecl::ScaleGroup::per_group(group);
    return matrix;
  }
  moecl::WeightMatrix plain() const { return moecl::HostMatrix(numbers.data(), moecl::DType::f32, rows, columns); }

  std::int64_t rows, columns;
  std::vector<float> scales;  // [rows, columns / group]
  std::vector<std::uint8_t> codes;
  std::vector<float> numbers;
};

moecl::MoeShape layer_shape() {
  moecl::MoeShape shape;
  shape.hidden = H;
  shape.intermediate = I;
  shape.experts = E;
  shape.router.top_k = K;
  return shape;
}

std::vector<float> output_of(moecl::Context& context, const moecl::MoeWeights& weights) {
  const moecl::Stream stream(context);
  const moecl::MoeLayer layer(stream, layer_shape(), weights);
  const moecl::DeviceTensor x(context, moecl::DType::f32, {T, H}), out(context, moecl::DType::f32, {T, H});
  const moecl::Buffer workspace(context, layer.workspace_bytes(T));
  write(stream, x, random_values(T * H, 1));
  moecl::MoeLayer::Forward forward;
  forward.x = x;
  forward.out = out;
  forward.workspace = workspace.view();
  layer.forward(stream, forward);
  std::printf("%s: %llu bytes of weights\n", layer.report().expert_format.c_str(),
              static_cast<unsigned long long>(layer.report().weight_bytes));
  return read<float>(stream, out);
}

double run() {
  const std::vector<float> router = random_values(E * H, 2);
  std::deque<Int4Matrix> stored;
  moecl::MoeWeights quantized, plain;
  quantized.router = plain.router = {router.data(), moecl::DType::f32, E, H};
  for (std::uint32_t e = 0; e < E; ++e) {
    const Int4Matrix& gate = stored.emplace_back(I, H, 10 + e);
    const Int4Matrix& up = stored.emplace_back(I, H, 20 + e);
    const Int4Matrix& down = stored.emplace_back(H, I, 30 + e);
    moecl::ExpertMatrices codes, numbers;
    codes.gate = gate.quantized(), codes.up = up.quantized(), codes.down = down.quantized();
    numbers.gate = gate.plain(), numbers.up = up.plain(), numbers.down = down.plain();
    quantized.experts.push_back(codes);
    plain.experts.push_back(numbers);
  }
  const auto context = moecl::Context::create({moecl::select_devices().front()});
  return relative_error(output_of(*context, quantized), output_of(*context, plain));
}

}  // namespace

int main() { return run_example(1e-5, run); }
