#include "host/layer/device_weights.hpp"

#include <moecl/bf16.hpp>
#include <moecl/e8m0.hpp>
#include <moecl/f16.hpp>
#include <moecl/fp8.hpp>

#include <cstring>

#include "host/layer/expert_bytes.hpp"
#include "host/layer/unpack_weights.hpp"
#include "runtime/check.hpp"
#include "runtime/pinned_memory.hpp"

namespace moecl {
namespace {

/// An element of a matrix that is in memory.
float value_of(const HostMatrix& matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t element = row * matrix.row_stride + column * matrix.column_stride;
  const std::byte* at = matrix.data.memory() + static_cast<std::size_t>(element) * size_bytes(matrix.dtype);
  std::uint16_t half = 0;
  float value = 0;
  switch (matrix.dtype) {
    case DType::f32:
      std::memcpy(&value, at, sizeof(value));
      return value;
    case DType::f16:
      std::memcpy(&half, at, sizeof(half));
      return f16_to_f32(half);
    case DType::bf16:
      std::memcpy(&half, at, sizeof(half));
      return bf16_to_f32(half);
    case DType::f8_e4m3:
      return fp8_e4m3fn.decode(std::to_integer<std::uint8_t>(*at));
    default:
      return e8m0_to_f32(std::to_integer<std::uint8_t>(*at));
  }
}

/// The scale that multiplies the sums of each row of a stack.
std::vector<float> column_scales(const MatrixStack& stack, bool groups) {
  std::vector<float> scales;
  for (const WeightMatrix& matrix : stack) {
    const HostMatrix scale = groups ? HostMatrix() : matrix.scale.in_memory();
    const std::int64_t group_rows = matrix.group.rows == ScaleGroup::whole ? matrix.rows() : matrix.group.rows;
    for (std::int64_t row = 0; row < matrix.rows(); ++row)
      scales.push_back(matrix.global_scale * (scale.present() ? value_of(scale, row / group_rows, 0) : 1.0F));
  }
  return scales;
}

/// Errors: invalid_data  a row has a number with all bits of its exponent set: NaN or infinity
template <class Bits>
void expect_finite(const HostMatrix& given, Bits exponent) {
  const HostMatrix matrix = given.in_memory();
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::byte* at = matrix.data.memory() + static_cast<std::size_t>(row * matrix.row_stride) * sizeof(Bits);
    bool finite = true;
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      Bits bits = 0;
      std::memcpy(&bits, at + static_cast<std::size_t>(column * matrix.column_stride) * sizeof(Bits), sizeof(Bits));
      finite = finite && (bits & exponent) != exponent;
    }
    if (!finite) fail(ErrorCode::invalid_data, "quantize: row {} holds a number that is not finite", row);
  }
}

/// Refuses what DeviceQuantizer would refuse, but before anything is written.
void expect_finite(const HostMatrix& matrix) {
  if (matrix.dtype == DType::f32) return expect_finite<std::uint32_t>(matrix, 0x7F800000);
  expect_finite<std::uint16_t>(matrix, matrix.dtype == DType::f16 ? 0x7C00 : 0x7F80);
}

}  // namespace

std::vector<float> numbers_of(const std::vector<HostMatrix>& vectors) {
  std::vector<float> values;
  for (const HostMatrix& vector : vectors) {
    const HostMatrix here = vector.in_memory();
    for (std::int64_t column = 0; column < here.columns; ++column) values.push_back(value_of(here, 0, column));
  }
  return values;
}

template <class Allocate>
DeviceWeights::Memory DeviceWeights::allocate(const WeightFormat& format, std::int64_t experts, std::int64_t n,
                                              std::int64_t k, const Allocate& of_bytes) {
  Memory memory;
  memory.codes = of_bytes(PackedWeights::size_bytes(format.type, experts, n, k));
  memory.weights = {memory.codes.view(), format.type, experts, n, k};
  memory.weights.layout = format.layout;
  const auto tensor = [&](Buffer& to, DType dtype, std::initializer_list<std::int64_t> shape) {
    std::uint64_t size = moecl::size_bytes(dtype);
    for (const std::int64_t extent : shape) size *= static_cast<std::uint64_t>(extent);
    to = of_bytes(size);
    return TensorView(to.view(), dtype, shape);
  };
  if (format.groups > 0) {
    const auto shape = {experts, PackedWeights::panels(n), format.groups, PackedWeights::panel_columns};
    memory.weights.group = format.group;
    memory.weights.panel_scales = format.panel_scales;
    memory.weights.scale = tensor(memory.scale, format.scale, shape);
    if (format.zero) memory.weights.zero = tensor(memory.zero, DType::i16, shape);
    if (format.group == 0) memory.weights.group_index = tensor(memory.group_index, DType::i32, {experts, k});
  }
  return memory;
}

DeviceWeights::DeviceWeights(StreamView stream, const WeightFormat& format, std::int64_t experts, std::int64_t n,
                             std::int64_t k, bool biased, const CacheOptions& residency)
    : format_(format) {
  const bool limited = residency.slots > 0 && residency.slots < experts;
  Context& context = *stream.context;
  const auto on_device = [&](std::uint64_t bytes) { return Buffer(context, bytes); };
  if (!limited || !residency.in_place) device_ = allocate(format, limited ? residency.slots : experts, n, k, on_device);
  if (limited) {
    host_ = allocate(format, experts, n, k, [&](std::uint64_t bytes) { return host_buffer(context, bytes); });
    cache_ = ExpertCache(stream, experts, residency);
    for (Buffer Memory::*part : {&Memory::codes, &Memory::scale, &Memory::zero, &Memory::group_index})
      cache_.add(host_.*part, device_.*part);
  }
  const auto vectors = [&](Buffer& memory) {
    memory = Buffer(context, static_cast<std::uint64_t>(experts * n) * sizeof(float));
    return TensorView(memory.view(), DType::f32, {experts, n});
  };
  if (format.column_scale) column_scales_ = vectors(column_scale_);
  if (biased) bias_ = vectors(bias_memory_);
}

void DeviceWeights::expect(const std::vector<MatrixStack>& stacks, DType plain, const char* what) const {
  const WeightFormat format = WeightFormat::of(stacks, plain);
  require(format_.holds(format), "{}: stored as {}, got {}", what, format_.describe(), format.describe());
}

void DeviceWeights::pack(WeightUpload& upload, std::int64_t expert, const MatrixStack& stack) {
  std::vector<std::vector<std::int32_t>> source_groups(stack.size());
  cache_.forget(upload.stream());
  const PackedWeights& packed = home().weights;
  if (packed.group_index.present()) {
    CommonGroups common(stack);
    source_groups = std::move(common.sources);
    for (std::vector<std::int32_t>& groups : source_groups)
      groups.resize(static_cast<std::size_t>(format_.groups));  // an expert may have fewer; nothing reads the padding
    upload.write(common.index.data(), packed.group_index.rows(expert, 1));
  }
  upload.stage_together(stack);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    upload.pack(stack[i], packed, expert, first, source_groups[i]);
    first += stack[i].rows();
  }
  if (column_scales_.present())
    upload.write(column_scales(stack, packed.grouped()).data(), column_scales_.rows(expert, 1));
}

void DeviceWeights::pack(WeightUpload& upload, DeviceQuantizer& quantizer, std::int64_t expert,
                         const MatrixStack& stack) {
  if (upload.only_checks()) {
    for (const WeightMatrix& matrix : stack) expect_finite(matrix.plain);
    return;
  }
  cache_.forget(upload.stream());
  upload.stage_together(stack);
  std::int64_t first = 0;
  for (const WeightMatrix& matrix : stack) {
    TensorView scales;
    if (column_scales_.present()) {
      const TensorView all = column_scales_.rows(expert, 1);
      const auto bytes = static_cast<std::uint64_t>(matrix.rows()) * sizeof(float);
      scales = TensorView(all.buffer.slice(static_cast<std::uint64_t>(first) * sizeof(float), bytes), DType::f32,
                          {matrix.rows()});
    }
    quantizer.pack(upload.rows_of(matrix.plain), home().weights, expert, first, scales);
    first += matrix.rows();
  }
}

void DeviceWeights::pack_bias(WeightUpload& upload, std::int64_t expert, const std::vector<HostMatrix>& biases) {
  upload.write(numbers_of(biases).data(), bias_.rows(expert, 1));
}

BufferView DeviceWeights::of_expert(const Buffer& all, std::int64_t expert) const {
  const std::uint64_t each = all.size_bytes() / static_cast<std::uint64_t>(home().weights.experts);
  return all.view().slice(static_cast<std::uint64_t>(expert) * each, each);
}

std::vector<BufferView> DeviceWeights::parts(std::int64_t expert) const {
  const Memory& memory = home();
  std::vector<BufferView> parts;
  for (const Buffer* all :
       {&memory.codes, &memory.scale, &memory.zero, &memory.group_index, &column_scale_, &bias_memory_})
    if (all->size_bytes() > 0) parts.push_back(of_expert(*all, expert));
  return parts;
}

DeviceWeights::Plain DeviceWeights::plain(StreamView stream, std::int64_t expert) const {
  const auto read = [&](const Buffer& memory) {
    if (memory.size_bytes() == 0) return std::vector<std::byte>();
    return read_bytes(stream, {of_expert(memory, expert)});
  };
  Plain plain;
  const Memory& packed = home();
  plain.matrix = unpack_weights(packed.weights,
                                {read(packed.codes), read(packed.scale), read(packed.zero), read(packed.group_index)});
  const auto floats = [&](const Buffer& memory) {
    const std::vector<std::byte> bytes = read(memory);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  if (column_scales_.present()) {
    const std::vector<float> scales = floats(column_scale_);
    for (std::size_t i = 0; i < plain.matrix.size(); ++i)
      plain.matrix[i] *= scales[i / static_cast<std::size_t>(packed.weights.k)];
  }
  plain.bias = floats(bias_memory_);
  return plain;
}

void DeviceWeights::multiply(grouped_gemm::Args& args) const {
  args.weights = read().weights;
  args.bias = bias_;
  args.weight_scale = column_scales_;
}

void DeviceWeights::multiply(grouped_gemm::Args& args, const ExpertCache& claimed, std::int64_t first,
                             std::int64_t count) const {
  multiply(args);
  args.slots = claimed.slots(first, count);
  args.first_expert += static_cast<std::int32_t>(first);
  for (TensorView* vectors : {&args.bias, &args.weight_scale})
    if (vectors->present()) *vectors = vectors->rows(first, count);
}

std::uint64_t DeviceWeights::size_bytes() const noexcept {
  return device_.size_bytes() + column_scale_.size_bytes() + bias_memory_.size_bytes();
}

}  // namespace moecl
